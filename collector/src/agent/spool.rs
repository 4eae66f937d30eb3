//! Folders in which windows wait, each in a file of its own: a line of JSON with what is said of
//! it, and then the message. When it was is in the file's name.

use super::queue::Message;
use nix::fcntl::OFlag;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How messages on disk end.
const END: &str = "message";

/// A folder that is ours as long as this lives.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    _held: File,
}

/// A message on disk. They are in order by their times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kept {
    from_ns: u64,
    to_ns: u64,
    pub(super) path: PathBuf,
    /// Bytes of the file.
    pub(super) length: u64,
}

impl Spool {
    /// Makes a folder, or the first beside it that nobody else has, ours.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let name = numbered(folder, number);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&name)?;
            let held = File::open(&name)?;
            // Where nothing can be held it is one agent's by its settings.
            if !matches!(held.try_lock(), Err(TryLockError::WouldBlock)) {
                return Ok(Self {
                    folder: name,
                    _held: held,
                });
            }
            number += 1;
        }
    }

    /// Those of a folder and its likes that nobody has, with messages: several agents were at work
    /// at once.
    pub(super) fn abandoned(folder: &Path) -> Vec<Self> {
        let all = (0..).map(|number| numbered(folder, number));
        let there = all.take_while(|name| name.is_dir());
        let taken = there.filter_map(|folder| {
            let held = File::open(&folder).ok()?;
            // Where nothing can be held it may be another's, or ours already.
            held.try_lock().ok()?;
            Some(Self {
                folder,
                _held: held,
            })
        });
        let has_some = |spool: &Self| spool.left().is_ok_and(|left| !left.is_empty());
        taken.filter(has_some).collect()
    }

    /// What an earlier agent has left.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn left(&self) -> io::Result<Vec<Kept>> {
        let entries = fs::read_dir(&self.folder)?.flatten();
        let mut left: Vec<_> = entries.filter_map(|entry| kept(entry.path())).collect();
        left.sort_unstable();
        Ok(left)
    }

    /// Writes a message, whole or not at all.
    ///
    /// # Errors
    /// As write; a full disk is one.
    pub(super) fn keep(&self, message: &Message) -> io::Result<Kept> {
        let (from_ns, to_ns) = (message.from_ns, message.to_ns);
        let path = self.folder.join(format!("{from_ns:020}-{to_ns:020}.{END}"));
        let part = path.with_extension("part");
        // One that was left half written.
        let _ = fs::remove_file(&part);
        let bytes = encode(message);
        let written = write(&part, &bytes).and_then(|()| fs::rename(&part, &path));
        if written.is_err() {
            let _ = fs::remove_file(part);
        }
        written.map(|()| Kept {
            from_ns,
            to_ns,
            path,
            length: bytes.len() as u64,
        })
    }
}

impl Kept {
    /// Reads it back; `None` if it is not as it was written.
    pub(super) fn read(&self) -> Option<Message> {
        let bytes = read(&self.path).ok()?;
        let is_whole = bytes.len() as u64 == self.length;
        decode(&bytes, self.from_ns, self.to_ns).filter(|_| is_whole)
    }
}

/// The folder, or one beside it.
fn numbered(folder: &Path, number: u32) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    if number > 0 {
        name.push(format!("-{number}"));
    }
    name.into()
}

/// How long the file of a message is.
pub(super) fn length(message: &Message) -> u64 {
    encode(message).len() as u64
}

fn encode(message: &Message) -> Vec<u8> {
    let attributes = serde_json::json!(*message.attributes).to_string();
    [attributes.as_bytes(), b"\n", &message.bytes].concat()
}

fn decode(bytes: &[u8], from_ns: u64, to_ns: u64) -> Option<Message> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (attributes, rest) = bytes.split_at_checked(end)?;
    let attributes: serde_json::Value = serde_json::from_slice(attributes).ok()?;
    let pairs = attributes.as_object()?.iter();
    let pair = |(key, value): (&String, &serde_json::Value)| {
        Some((key.clone(), value.as_str()?.to_owned()))
    };
    Some(Message {
        bytes: rest.get(1..)?.into(),
        attributes: pairs
            .map(pair)
            .collect::<Option<std::collections::BTreeMap<_, _>>>()?
            .into(),
        from_ns,
        to_ns,
    })
}

/// When a message on disk was, by its name.
fn kept(path: PathBuf) -> Option<Kept> {
    let name = path.file_name()?.to_str()?.strip_suffix(END)?;
    let (from, to) = name.strip_suffix('.')?.split_once('-')?;
    Some(Kept {
        from_ns: from.parse().ok()?,
        to_ns: to.parse().ok()?,
        length: fs::symlink_metadata(&path).ok()?.len(),
        path,
    })
}

/// Reads a message of ours. What a link leads to is none, nor is a pipe, whose other end may never
/// come.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut file = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a new file, for us alone.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_message_is_kept_with_it() {
        let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let message = Message {
            bytes: vec![b'\n', 0, 0xff].into(),
            attributes: std::sync::Arc::new([pair(("a\n", "\"b"))].into()),
            from_ns: 1,
            to_ns: 2,
        };
        let bytes = encode(&message);
        assert_eq!(bytes.len() as u64, length(&message));
        assert_eq!(decode(&bytes, 1, 2), Some(message));
        for damaged in [
            &b""[..],
            b"\n",
            b"x",
            b"{\"a\":1}\n",
            b"\x1f\x8b\n",
            b"[]\nabc",
        ] {
            assert_eq!(decode(damaged, 1, 2), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_pipe_is_no_message_and_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1-2.message");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let kept = kept(path).unwrap();
        let (said, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || said.send(kept.read()));
        let read = heard.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(read, Ok(None));
    }
}
