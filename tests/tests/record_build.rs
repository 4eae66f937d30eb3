//! That one build of the collector is enough: what its build script needs is what the workspace has
//! fetched already.

use rsunwind_tests::repository;
use std::collections::BTreeSet;
use std::fs;

/// Name and version of every package in a lock file.
fn packages(lock: &str) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(repository().join(lock)).expect("a lock file");
    let value = |line: &str, key: &str| {
        let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        rest.strip_suffix('"').map(str::to_owned)
    };
    let blocks = text.split("[[package]]").skip(1);
    let field = |block: &str, key: &str| {
        block
            .lines()
            .find_map(|line| value(line, key))
            .expect("a package's fields")
    };
    blocks
        .map(|block| (field(block, "name"), field(block, "version")))
        .collect()
}

#[test]
fn the_preload_library_needs_no_package_that_the_workspace_has_not() {
    let (library, workspace) = (packages("preload/Cargo.lock"), packages("Cargo.lock"));
    let missing: Vec<_> = library
        .difference(&workspace)
        .filter(|(name, _)| name != "rsunwind-preload")
        .collect();
    assert!(
        missing.is_empty(),
        "building offline after `cargo fetch` fails for {missing:?}: run `cargo update -p NAME --precise VERSION` in preload"
    );
    assert!(library.len() > 3, "{library:?}");
}
