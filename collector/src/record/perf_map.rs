//! `/tmp/perf-PID.map`: the symbols of code that a process made at run time, taken along because the file, or its pid, may mean
//! something else later.
//!
//! Not here: what the lines say.

use nix::libc;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Longest piece: a record holds it with room to spare.
const PIECE: usize = 60 << 10;
/// How much older than its process a file may be by its time stamp, which a coarser clock gives.
const COARSE: Duration = Duration::from_secs(1);

/// Gives the process's map to `sink` in pieces of whole lines. `started_ns`: when the process started, ns since the epoch; an older
/// file belongs to an earlier process of that pid.
///
/// # Errors
/// What `sink` says. No map, or one that cannot be read, is none.
pub fn take(
    pid: u32,
    started_ns: Option<u64>,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    match open(&path, started_ns) {
        Some(file) => pieces(file, PIECE, sink),
        None => Ok(()),
    }
}

fn open(path: &Path, started_ns: Option<u64>) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(started_ns?);
    (metadata.modified().ok()? + COARSE >= started).then_some(file)
}

/// A line that does not fit a piece is left out, as is a last one without its end.
fn pieces(
    file: impl Read,
    size: usize,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = BufReader::new(file);
    let (mut piece, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        // A file that cannot be read any further ends here.
        let length = file
            .by_ref()
            .take(size as u64)
            .read_until(b'\n', &mut line)
            .unwrap_or(0);
        if length == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            let _ = file.skip_until(b'\n');
            continue;
        }
        if piece.len() + length > size {
            sink(&piece)?;
            piece.clear();
        }
        piece.extend_from_slice(&line);
    }
    if piece.is_empty() {
        Ok(())
    } else {
        sink(&piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        pieces(text, size, &mut |piece| {
            found.push(piece.to_vec());
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn pieces_are_whole_lines_in_order() {
        let text: Vec<u8> = (0..1000)
            .flat_map(|line| format!("{line:x} 10 function_{line}\n").into_bytes())
            .collect();
        let found = cut(&text, 256);
        assert!(found.len() > 50);
        assert!(
            found
                .iter()
                .all(|piece| piece.len() <= 256 && piece.ends_with(b"\n"))
        );
        assert_eq!(found.concat(), text);
    }

    #[test]
    fn a_line_that_fits_no_piece_and_one_without_its_end_are_left_out() {
        let long = [b"1 2 ".to_vec(), vec![b'x'; 100], b"\n".to_vec()].concat();
        let text = [b"1 2 a\n".to_vec(), long, b"3 4 b\n5 6 c".to_vec()].concat();
        assert_eq!(cut(&text, 32), [b"1 2 a\n3 4 b\n".to_vec()]);
    }

    #[test]
    fn a_map_older_than_its_process_is_another_ones() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let at = |time: Duration| u64::try_from(time.as_nanos()).ok();
        assert!(open(file.path(), at(now - Duration::from_secs(60))).is_some());
        assert!(open(file.path(), at(now + Duration::from_secs(60))).is_none());
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("map");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        assert!(
            open(&link, at(now - Duration::from_secs(60))).is_none(),
            "a link may lead anywhere"
        );
    }
}
