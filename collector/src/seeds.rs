//! What fuzz targets begin with: `fuzz/corpus/TARGET/NAME`, made by tests.
//! `RSUNWIND_WRITE_SEEDS=1 cargo test -p rsunwind-collector seed` writes all of them anew.

use std::fs;
use std::path::{Path, PathBuf};

/// The place of a seed; `bytes` are written there if that is asked for.
pub(crate) fn place(target: &str, name: &str, bytes: &[u8]) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let path = corpus.join(target).join(name);
    if std::env::var_os("RSUNWIND_WRITE_SEEDS").is_some() {
        fs::create_dir_all(corpus.join(target)).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    path
}

/// Panics if a seed is not made of those bytes.
#[track_caller]
pub(crate) fn check(target: &str, name: &str, bytes: &[u8]) {
    let path = place(target, name, bytes);
    let there = fs::read(&path).unwrap_or_default();
    assert!(there == bytes, "{} is out of date", path.display());
}
