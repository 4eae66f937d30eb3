//! Windows that wait to be sent to one receiver: as many as fit in memory, and then on disk, if
//! there is a folder for them. Where nothing fits any more the oldest go, and are counted.

use nix::fcntl::OFlag;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A window in the form that its receiver takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Arc<[u8]>,
    /// From when to when the window is, ns since 1970.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// How much may wait, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory: u64,
    pub(super) disk: u64,
}

#[derive(Debug)]
enum Place {
    Memory(Arc<[u8]>),
    Disk(PathBuf, u64),
}

#[derive(Debug)]
struct Waiting {
    /// Counts the messages of this queue.
    number: u64,
    place: Place,
    from_ns: u64,
    to_ns: u64,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    /// A folder of its own, and what holds it.
    folder: Option<PathBuf>,
    held: Option<File>,
    waiting: VecDeque<Waiting>,
    next: u64,
    memory: u64,
    disk: u64,
    /// Messages that found no room, or could not be read back.
    pub(super) dropped: u64,
}

impl Queue {
    /// With what an earlier one has left in the folder; if another one has that now, in one beside it.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub(super) fn new(limits: Limits, folder: Option<PathBuf>) -> io::Result<Self> {
        let mut queue = Self {
            limits,
            folder: None,
            held: None,
            waiting: VecDeque::new(),
            next: 0,
            memory: 0,
            disk: 0,
            dropped: 0,
        };
        let Some(folder) = folder else {
            return Ok(queue);
        };
        let (folder, held) = hold(&folder)?;
        (queue.folder, queue.held) = (Some(folder.clone()), Some(held));
        let entries = fs::read_dir(&folder)?.flatten();
        let mut left: Vec<_> = entries
            .filter_map(|entry| times_of(&entry.path()))
            .collect();
        left.sort_unstable();
        for (from_ns, to_ns, path) in left {
            let length = fs::metadata(&path)?.len();
            queue.disk += length;
            queue.put(Place::Disk(path, length), from_ns, to_ns);
        }
        while queue.disk > limits.disk && queue.drop_oldest() {}
        Ok(queue)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a message behind the others.
    pub(super) fn push(&mut self, message: &Message) {
        let length = message.bytes.len() as u64;
        if self.memory + length > self.limits.memory
            && let Some(path) = self.spill(message)
        {
            self.disk += length;
            self.put(Place::Disk(path, length), message.from_ns, message.to_ns);
            return;
        }
        self.memory += length;
        let place = Place::Memory(Arc::clone(&message.bytes));
        self.put(place, message.from_ns, message.to_ns);
        while self.memory > self.limits.memory && self.drop_oldest() {}
    }

    /// The oldest message, and its number.
    pub(super) fn first(&mut self) -> Option<(u64, Message)> {
        loop {
            let first = self.waiting.front()?;
            let bytes = match &first.place {
                Place::Memory(bytes) => Arc::clone(bytes),
                Place::Disk(path, length) => match read(path) {
                    Ok(bytes) if bytes.len() as u64 == *length => bytes.into(),
                    _ => {
                        self.drop_oldest();
                        continue;
                    }
                },
            };
            let message = Message {
                bytes,
                from_ns: first.from_ns,
                to_ns: first.to_ns,
            };
            return Some((first.number, message));
        }
    }

    /// A message is done with.
    pub(super) fn done(&mut self, number: u64) {
        // It may have been dropped meanwhile.
        if self
            .waiting
            .front()
            .is_some_and(|first| first.number == number)
        {
            self.take_first();
        }
    }

    /// Puts on disk what waits in memory, for the next time; what finds no room there is dropped.
    pub(super) fn close(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        // Those on disk are there already, and stay as long as nothing newer needs their room.
        for one in &mut waiting {
            let Place::Memory(bytes) = &one.place else {
                continue;
            };
            let message = Message {
                bytes: Arc::clone(bytes),
                from_ns: one.from_ns,
                to_ns: one.to_ns,
            };
            let length = bytes.len() as u64;
            let fits = self.disk + length <= self.limits.disk;
            match fits.then(|| self.written(&message)).flatten() {
                Some(_) => self.disk += length,
                None => self.dropped += 1,
            }
        }
        self.held = None;
    }

    fn put(&mut self, place: Place, from_ns: u64, to_ns: u64) {
        self.waiting.push_back(Waiting {
            number: self.next,
            place,
            from_ns,
            to_ns,
        });
        self.next += 1;
    }

    /// Makes room on disk for a message and writes it there.
    fn spill(&mut self, message: &Message) -> Option<PathBuf> {
        let length = message.bytes.len() as u64;
        self.folder.as_ref()?;
        while self.disk + length > self.limits.disk {
            if !self.has_on_disk() || !self.drop_oldest() {
                return None;
            }
        }
        self.written(message)
    }

    fn has_on_disk(&self) -> bool {
        let mut places = self.waiting.iter().map(|one| &one.place);
        places.any(|place| matches!(place, Place::Disk(..)))
    }

    /// Writes a message, whole or not at all.
    fn written(&self, message: &Message) -> Option<PathBuf> {
        let name = format!("{:020}-{:020}.{END}", message.from_ns, message.to_ns);
        let path = self.folder.as_ref()?.join(name);
        let part = path.with_extension("part");
        // One that was left half written.
        let _ = fs::remove_file(&part);
        let written = write(&part, &message.bytes).and_then(|()| fs::rename(&part, &path));
        if written.is_err() {
            let _ = fs::remove_file(part);
        }
        written.is_ok().then_some(path)
    }

    fn drop_oldest(&mut self) -> bool {
        let is_one = self.take_first();
        self.dropped += u64::from(is_one);
        is_one
    }

    fn take_first(&mut self) -> bool {
        let Some(first) = self.waiting.pop_front() else {
            return false;
        };
        match first.place {
            Place::Memory(bytes) => self.memory -= bytes.len() as u64,
            Place::Disk(path, length) => {
                self.disk -= length;
                let _ = fs::remove_file(path);
            }
        }
        true
    }
}

/// Makes a folder, or the first beside it that nobody else has, ours for as long as what is given
/// here lives.
fn hold(folder: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = folder.as_os_str().to_owned();
        if number > 0 {
            name.push(format!("-{number}"));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&name)?;
        let held = File::open(&name)?;
        // Where nothing can be held it is one agent's by its settings.
        if !matches!(held.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok((name.into(), held));
        }
        number += 1;
    }
}

/// Reads a message of ours; what a link leads to is none.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let no_links = OFlag::O_NOFOLLOW.bits();
    let mut file = File::options()
        .read(true)
        .custom_flags(no_links)
        .open(path)?;
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

/// How messages on disk end.
const END: &str = "message";

/// From when to when a message on disk is, by its name.
fn times_of(path: &Path) -> Option<(u64, u64, PathBuf)> {
    let name = path.file_name()?.to_str()?.strip_suffix(END)?;
    let (from, to) = name.strip_suffix('.')?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn message(at: u64, length: usize) -> Message {
        Message {
            bytes: vec![at as u8; length].into(),
            from_ns: at,
            to_ns: at + 1,
        }
    }

    fn drain(queue: &mut Queue) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some((number, message)) = queue.first() {
            found.push(message.from_ns);
            queue.done(number);
        }
        found
    }

    const LIMITS: Limits = Limits {
        memory: 100,
        disk: 50,
    };

    #[test]
    fn without_a_folder_the_oldest_go_when_memory_is_full() {
        let mut queue = Queue::new(LIMITS, None).unwrap();
        (0..5).for_each(|at| queue.push(&message(at, 40)));
        assert_eq!((queue.dropped, queue.memory), (3, 80));
        let (number, _) = queue.first().unwrap();
        queue.push(&message(5, 40)); // drops the one that is being sent
        queue.done(number);
        assert_eq!(drain(&mut queue), [4, 5]);
        queue.push(&message(6, 101)); // more than there may ever be
        assert_eq!((queue.len(), queue.dropped, queue.memory), (0, 5, 0));
    }

    #[test]
    fn what_does_not_fit_in_memory_goes_to_disk_in_order_and_outlives_the_queue() {
        let directory = tempfile::tempdir().unwrap();
        let folder = || Some(directory.path().join("a"));
        let mut queue = Queue::new(LIMITS, folder()).unwrap();
        (0..4).for_each(|at| queue.push(&message(at, 40)));
        // 0 and 1 in memory, 2 on disk; 3 needs the room of 2, and what is older goes first.
        assert_eq!((queue.dropped, queue.memory, queue.disk), (3, 0, 40));
        queue.push(&message(4, 40));
        let other = Queue::new(LIMITS, folder()).unwrap();
        assert_eq!(other.len(), 0, "what is another's is not taken");
        assert_eq!(other.folder, Some(directory.path().join("a-1")));
        queue.close();
        assert_eq!(queue.dropped, 4, "the disk has room for one");
        let strange = directory.path().join("a/strange");
        fs::write(&strange, "x").unwrap();
        let link = directory.path().join("a/1-2.message");
        std::os::unix::fs::symlink(&strange, link).unwrap();
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(directory.path().join("a")), 0o700);
        let name = format!("a/{:020}-{:020}.message", 3, 4);
        assert_eq!(mode(directory.path().join(name)), 0o600);
        let mut queue = Queue::new(LIMITS, folder()).unwrap();
        assert_eq!(drain(&mut queue), [3], "what a link leads to is not sent");
        assert_eq!(fs::read_dir(directory.path().join("a")).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_costs_the_oldest_of_what_is_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("a");
        let mut queue = Queue::new(LIMITS, Some(folder.clone())).unwrap();
        fs::remove_dir(&folder).unwrap(); // nothing can be written there
        (0..4).for_each(|at| queue.push(&message(at, 40)));
        assert_eq!((queue.dropped, queue.disk), (2, 0));
        assert_eq!(drain(&mut queue), [2, 3]);
        fs::create_dir(&folder).unwrap();
        (0..3).for_each(|at| queue.push(&message(at, 40)));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(drain(&mut queue), [0, 1]);
        assert_eq!(
            (queue.dropped, queue.disk),
            (3, 0),
            "what cannot be read back is counted"
        );
    }
}
