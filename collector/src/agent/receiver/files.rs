//! Windows as files in a folder, the oldest of which go when it is full.

use super::{Outcome, service};
use crate::agent::queue::Message;
use crate::output::atomic;
use std::fs;
use std::io;
use std::path::Path;

/// How their names end.
const END: &str = ".pb.gz";
/// So much of a service's name is in theirs, letters: programs may say what they are called, and
/// where names are of 255 bytes at most there must be room for the time.
const LONGEST: usize = 128;

/// Writes one, and then removes the oldest of those of this service that are beyond the room.
pub(super) fn write(folder: &Path, message: &Message, room: u64) -> Outcome {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let letters = service(message).chars().take(LONGEST);
    let service: String = letters.map(plain).collect();
    let name = format!("{service}-{:020}{END}", message.from_ns);
    let written = atomic::write(&folder.join(&name), |out| out.write_all(&message.bytes));
    match written {
        Ok(()) => {
            let _ = remove_oldest(folder, &service, &name, room);
            Outcome::Taken(None)
        }
        Err(error) => {
            // Room for the next try.
            let _ = remove_oldest(folder, &service, &name, room / 2);
            Outcome::Later(error.to_string(), None)
        }
    }
}

fn remove_oldest(folder: &Path, service: &str, newest: &str, room: u64) -> io::Result<()> {
    let begins = format!("{service}-");
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&begins) && name.ends_with(END) {
            files.push((name, entry.metadata()?.len()));
        }
    }
    // What is of a later time is from before the clock was put back.
    files.sort_unstable_by(|(a, _), (b, _)| (&**a <= newest, a).cmp(&(&**b <= newest, b)));
    let mut sum: u64 = files.iter().map(|(_, length)| length).sum();
    for (name, length) in files {
        if sum <= room {
            break;
        }
        fs::remove_file(folder.join(name))?;
        sum -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_oldest_go_and_other_files_stay() {
        let ours = |at: u64| format!("a_b-{at:020}.pb.gz");
        let other = "other.pb.gz".to_owned();
        assert_eq!(left_of(&[9, 10, 11]), [ours(10), ours(11), other.clone()]);
        let put_back = left_of(&[9, 10, 4, 5]);
        assert_eq!(put_back, [ours(4), ours(5), other]);
    }

    /// What is in a folder with room for two.
    fn left_of(times: &[u64]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("other.pb.gz"), "x").unwrap();
        for at in times.iter().copied() {
            let message = Message {
                bytes: vec![0; 40].into(),
                attributes: Arc::new([("service.name".into(), "a/b".into())].into()),
                from_ns: at,
                to_ns: 0,
            };
            let outcome = write(folder.path(), &message, 100);
            assert_eq!(outcome, Outcome::Taken(None));
        }
        let names = fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_service_may_be_called_anything() {
        let folder = tempfile::tempdir().unwrap();
        for (at, name) in [(1, "\u{1f}/../\u{e4}"), (2, &"x/".repeat(2048))] {
            let message = Message {
                bytes: vec![0; 40].into(),
                attributes: Arc::new([("service.name".into(), name.into())].into()),
                from_ns: at,
                to_ns: 0,
            };
            assert_eq!(write(folder.path(), &message, 100), Outcome::Taken(None));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
