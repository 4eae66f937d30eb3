//! Files under names that nobody else has, until they take their own.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

/// A new file in `directory` with what the umask leaves of 0666. An error is the kernel's alone:
/// tempfile's own way of making files puts the temporary name into it, of which nobody has heard.
pub(crate) fn make(
    directory: &Path,
    prefix: &OsStr,
    suffix: &str,
) -> io::Result<NamedTempFile<File>> {
    let open = |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.mode(0o666).open(path)
    };
    let mut builder = Builder::new();
    builder.prefix(prefix).suffix(suffix);
    builder.make_in(directory, open)
}

#[cfg(test)]
mod tests {
    use super::make;
    use std::io;
    use std::path::Path;

    #[test]
    fn a_temporary_name_is_not_told() {
        let error = make(Path::new("/nowhere"), ".x-".as_ref(), "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!error.to_string().contains("/nowhere"), "{error}");
    }
}
