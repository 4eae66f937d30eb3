//! Windows that wait to be sent to one receiver: as many as fit in memory, and then on disk, if
//! there is a folder for them. Where nothing fits any more the oldest go, and are counted.

use super::spool::{self, Kept, Spool};
use crate::clickhouse::message::GZIP;
use crate::gzip::gzip;
use flate2::Compression;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::sync::Arc;

/// A window in the form that its receiver takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Arc<[u8]>,
    /// What is said of where it is from.
    pub(super) attributes: Arc<BTreeMap<String, String>>,
    /// From when to when the window is, ns since 1970.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

impl Message {
    /// Compressed, if it is not.
    fn packed(&self) -> Self {
        if self.bytes.starts_with(&GZIP) {
            return self.clone();
        }
        let packed = gzip([&*self.bytes], Compression::fast());
        Self {
            bytes: packed.map_or_else(|_| self.bytes.clone(), Into::into),
            ..self.clone()
        }
    }
}

/// How much may wait, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory: u64,
    pub(super) disk: u64,
}

#[derive(Debug)]
enum Place {
    Memory(Message),
    Disk(Kept),
}

/// Messages that are not compressed are as long at most, bytes.
const AT_ONCE: usize = 4 << 20;

/// After so many failures between which others were taken it is the message that fails.
const STRIKES: u32 = 5;

#[derive(Debug)]
struct Waiting {
    /// Counts the messages of this queue.
    number: u64,
    place: Place,
    /// How often it failed before another was taken.
    strikes: u32,
    /// Why it failed since, if it has.
    failed: Option<String>,
}

impl Waiting {
    /// How often it was in doubt.
    fn doubts(&self) -> u32 {
        self.strikes + u32::from(self.failed.is_some())
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    spool: Option<Spool>,
    /// Folders that were to be used before; what is in them is sent first.
    before: Vec<Spool>,
    waiting: VecDeque<Waiting>,
    next: u64,
    memory: u64,
    disk: u64,
    /// Whether the last message for the folder could not be written there.
    fails: bool,
    /// Why, until that is told.
    complaint: Option<String>,
    /// Messages that found no room, or could not be read back.
    pub(super) dropped: u64,
}

impl Queue {
    /// With what an earlier one has left in the folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn new(limits: Limits, spool: Option<Spool>) -> io::Result<Self> {
        let mut queue = Self {
            limits,
            spool: None,
            before: Vec::new(),
            waiting: VecDeque::new(),
            next: 0,
            memory: 0,
            disk: 0,
            fails: false,
            complaint: None,
            dropped: 0,
        };
        queue.change(limits, Some(spool))?;
        Ok(queue)
    }

    /// From now on with those limits and that folder, if it is another one. What waits stays.
    ///
    /// # Errors
    /// If the folder cannot be read; nothing is changed then.
    pub(super) fn change(
        &mut self,
        limits: Limits,
        spool: Option<Option<Spool>>,
    ) -> io::Result<()> {
        if let Some(spool) = spool {
            let left = spool.as_ref().map_or(Ok(Vec::new()), Spool::left)?;
            for kept in left {
                self.disk += kept.length;
                self.put(Place::Disk(kept));
            }
            self.before
                .extend(std::mem::replace(&mut self.spool, spool));
        }
        self.limits = limits;
        while (self.disk > limits.disk || self.memory > limits.memory) && self.drop_oldest() {}
        Ok(())
    }

    /// Takes in what is in folders that were others'.
    pub(super) fn adopt(&mut self, folders: Vec<Spool>) {
        for folder in folders {
            for kept in folder.left().unwrap_or_default() {
                self.disk += kept.length;
                self.put(Place::Disk(kept));
            }
            self.before.push(folder);
        }
        while self.disk > self.limits.disk && self.drop_oldest() {}
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a message behind the others.
    pub(super) fn push(&mut self, message: &Message) {
        // One that is sent at once need not be small.
        let is_next = self.waiting.is_empty() && message.bytes.len() <= AT_ONCE;
        let message = match is_next {
            true => message,
            false => &message.packed(),
        };
        let length = message.bytes.len() as u64;
        if self.memory + length > self.limits.memory
            && let Some(kept) = self.spill(message)
        {
            self.disk += kept.length;
            self.put(Place::Disk(kept));
            return;
        }
        if length > self.limits.memory {
            // However much went, there would be no room for it.
            self.dropped += 1;
            return;
        }
        self.memory += length;
        self.put(Place::Memory(message.clone()));
        while self.memory > self.limits.memory && self.drop_oldest() {}
    }

    /// The message that is to be sent next, and its number: of those that were in doubt least often
    /// the oldest, so that one that always fails holds up nothing.
    pub(super) fn first(&mut self) -> Option<(u64, Message)> {
        loop {
            let waiting = self.waiting.iter().enumerate();
            let (at, first) = waiting.min_by_key(|(_, one)| one.doubts())?;
            let message = match &first.place {
                Place::Memory(message) => Some(message.clone()),
                Place::Disk(kept) => kept.read(),
            };
            match message {
                Some(message) => return Some((first.number, message)),
                None => self.dropped += u64::from(self.take(at)),
            }
        }
    }

    /// A message is done with.
    pub(super) fn done(&mut self, number: u64) {
        match self.place_of(number) {
            Some(at) => _ = self.take(at),
            // It was dropped meanwhile, and that did no harm.
            None => self.dropped = self.dropped.saturating_sub(1),
        }
    }

    /// A message failed, which may be its own fault.
    pub(super) fn doubt(&mut self, number: u64, why: String) {
        let at = self.place_of(number);
        if let Some(one) = at.and_then(|at| self.waiting.get_mut(at)) {
            one.failed = Some(why);
        }
    }

    /// One was taken where others failed: a receiver that takes nothing for a while is no fault of
    /// theirs. Gives up those that failed often enough, and gives why they did.
    pub(super) fn settle_doubts(&mut self) -> Vec<String> {
        let mut given_up = Vec::new();
        let mut at = 0;
        while let Some(one) = self.waiting.get_mut(at) {
            if let Some(why) = one.failed.take() {
                one.strikes += 1;
                if one.strikes >= STRIKES {
                    given_up.push(why);
                    self.take(at);
                    continue;
                }
            }
            at += 1;
        }
        given_up
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        self.waiting.iter().position(|one| one.number == number)
    }

    /// Puts on disk what waits in memory, for the next time; what finds no room there is dropped.
    pub(super) fn close(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        // Those on disk are there already, and stay as long as nothing newer needs their room.
        for one in &waiting {
            let Place::Memory(message) = &one.place else {
                continue;
            };
            let fits = self.disk + spool::length(message) <= self.limits.disk;
            match fits.then(|| self.keep(message)).flatten() {
                Some(kept) => self.disk += kept.length,
                None => self.dropped += 1,
            }
        }
        self.before.clear();
        self.spool = None;
    }

    fn put(&mut self, place: Place) {
        self.waiting.push_back(Waiting {
            number: self.next,
            place,
            strikes: 0,
            failed: None,
        });
        self.next += 1;
    }

    /// Makes room on disk for a message and writes it there.
    fn spill(&mut self, message: &Message) -> Option<Kept> {
        self.spool.as_ref()?;
        let length = spool::length(message);
        if length > self.limits.disk {
            return None;
        }
        while self.disk + length > self.limits.disk {
            if !self.has_on_disk() || !self.drop_oldest() {
                return None;
            }
        }
        self.keep(message)
    }

    /// Writes a message to the folder, if there is one and it can be.
    fn keep(&mut self, message: &Message) -> Option<Kept> {
        let kept = self.spool.as_ref()?.keep(message);
        let failed = kept.as_ref().err().map(io::Error::to_string);
        if !std::mem::replace(&mut self.fails, failed.is_some()) {
            self.complaint = failed;
        }
        kept.ok()
    }

    /// Why nothing can be written to the folder, if that has begun since this was asked.
    pub(super) fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    fn has_on_disk(&self) -> bool {
        let mut places = self.waiting.iter().map(|one| &one.place);
        places.any(|place| matches!(place, Place::Disk(..)))
    }

    fn drop_oldest(&mut self) -> bool {
        let is_one = self.take(0);
        self.dropped += u64::from(is_one);
        is_one
    }

    fn take(&mut self, at: usize) -> bool {
        let Some(one) = self.waiting.remove(at) else {
            return false;
        };
        match one.place {
            Place::Memory(message) => self.memory -= message.bytes.len() as u64,
            Place::Disk(kept) => {
                self.disk -= kept.length;
                let _ = fs::remove_file(kept.path);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    /// A message that is compressed, by its first bytes.
    fn message(at: u64, length: usize) -> Message {
        let bytes = GZIP.into_iter().chain(std::iter::repeat(at as u8));
        Message {
            bytes: bytes.take(length).collect(),
            attributes: Arc::default(),
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
        disk: 53, // with what stands before a message
    };

    #[test]
    fn what_is_sent_at_once_is_as_it_came_and_what_waits_is_small() {
        let limits = Limits {
            memory: 1 << 20,
            disk: 0,
        };
        let mut queue = Queue::new(limits, None).unwrap();
        let rows = |at| Message {
            bytes: vec![7; 1000].into(),
            ..message(at, 0)
        };
        (0..3).for_each(|at| queue.push(&rows(at)));
        queue.push(&message(3, 40));
        let mut waiting = || {
            let (number, message) = queue.first()?;
            queue.done(number);
            Some(message)
        };
        assert_eq!(waiting(), Some(rows(0)));
        for at in 1..3 {
            let packed = waiting().unwrap();
            assert!(packed.bytes.len() < 100 && packed.from_ns == at);
            let mut bytes = Vec::new();
            let mut unpacking = flate2::read::GzDecoder::new(&*packed.bytes);
            std::io::Read::read_to_end(&mut unpacking, &mut bytes).unwrap();
            assert_eq!(*bytes, *rows(at).bytes);
        }
        assert_eq!(waiting(), Some(message(3, 40)));
    }

    #[test]
    fn without_a_folder_the_oldest_go_when_memory_is_full() {
        let mut queue = Queue::new(LIMITS, None).unwrap();
        (0..5).for_each(|at| queue.push(&message(at, 40)));
        assert_eq!((queue.dropped, queue.memory), (3, 80));
        let (number, _) = queue.first().unwrap();
        queue.push(&message(5, 40)); // drops the one that is being sent
        queue.done(number);
        assert_eq!(queue.dropped, 3, "that one was sent");
        assert_eq!(drain(&mut queue), [4, 5]);
        queue.push(&message(6, 101)); // more than there may ever be
        assert_eq!((queue.len(), queue.dropped, queue.memory), (0, 4, 0));
    }

    #[test]
    fn one_that_fits_nowhere_takes_nothing_else_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Spool::open(&directory.path().join("a")).unwrap();
        let mut queue = Queue::new(LIMITS, Some(folder)).unwrap();
        (0..3).for_each(|at| queue.push(&message(at, 40)));
        queue.push(&message(3, 101));
        assert_eq!(queue.dropped, 1);
        assert_eq!(drain(&mut queue), [0, 1, 2]);
    }

    #[test]
    fn one_that_always_fails_holds_up_nothing_and_is_given_up() {
        let mut queue = Queue::new(LIMITS, None).unwrap();
        let next = |queue: &mut Queue| queue.first().map(|(number, one)| (number, one.from_ns));
        let fails = |queue: &mut Queue, number| queue.doubt(number, "500".into());
        queue.push(&message(0, 1));
        for at in 1..STRIKES as u64 {
            let (poisoned, from_ns) = next(&mut queue).unwrap();
            assert_eq!(from_ns, 0);
            fails(&mut queue, poisoned);
            fails(&mut queue, poisoned); // nothing was taken in between
            queue.push(&message(at, 1));
            let (good, from_ns) = next(&mut queue).unwrap();
            assert_eq!(from_ns, at, "it is before what has failed");
            queue.done(good);
            assert!(queue.settle_doubts().is_empty());
        }
        // While nothing is taken, nothing is given up, however often each fails.
        (10..13).for_each(|at| queue.push(&message(at, 1)));
        for _ in 0..10 {
            let (number, _) = next(&mut queue).unwrap();
            fails(&mut queue, number);
        }
        for at in 10..13 {
            let (number, from_ns) = next(&mut queue).unwrap();
            assert_eq!(from_ns, at);
            queue.done(number);
            assert!(queue.settle_doubts().is_empty());
        }
        let (poisoned, from_ns) = next(&mut queue).unwrap();
        assert_eq!(from_ns, 0);
        fails(&mut queue, poisoned);
        queue.push(&message(20, 1));
        let (number, from_ns) = next(&mut queue).unwrap();
        assert_eq!(from_ns, 20);
        queue.done(number);
        assert_eq!(queue.settle_doubts(), ["500"]);
        assert_eq!((queue.len(), queue.dropped), (0, 0));
        assert_eq!((queue.memory, queue.disk), (0, 0));
    }

    #[test]
    fn what_does_not_fit_in_memory_goes_to_disk_in_order_and_outlives_the_queue() {
        let directory = tempfile::tempdir().unwrap();
        let folder = || Some(Spool::open(&directory.path().join("a")).unwrap());
        let mut queue = Queue::new(LIMITS, folder()).unwrap();
        (0..4).for_each(|at| queue.push(&message(at, 40)));
        // 0 and 1 in memory, 2 on disk; 3 needs the room of 2, and what is older goes first.
        assert_eq!((queue.dropped, queue.memory, queue.disk), (3, 0, 43));
        queue.push(&message(4, 40));
        let other = Queue::new(LIMITS, folder()).unwrap();
        assert_eq!(other.len(), 0, "what is another's is not taken");
        assert!(directory.path().join("a-1").is_dir());
        drop(other);
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
    fn what_waits_is_not_lost_by_other_settings() {
        let directory = tempfile::tempdir().unwrap();
        let folder = |name| Some(Spool::open(&directory.path().join(name)).unwrap());
        let mut old = Queue::new(LIMITS, folder("b")).unwrap();
        old.push(&message(9, 10));
        old.close();
        let mut queue = Queue::new(LIMITS, folder("a")).unwrap();
        (1..4).for_each(|at| queue.push(&message(at, 40)));
        assert_eq!((queue.memory, queue.disk), (80, 43));
        queue
            .change(
                Limits {
                    disk: 100,
                    ..LIMITS
                },
                Some(folder("b")),
            )
            .unwrap();
        queue.push(&message(4, 30));
        assert_eq!((queue.dropped, queue.disk), (0, 43 + 13 + 33));
        assert_eq!(drain(&mut queue), [1, 2, 3, 9, 4]);
        queue.push(&message(5, 60));
        queue
            .change(
                Limits {
                    memory: 50,
                    ..LIMITS
                },
                None,
            )
            .unwrap();
        assert_eq!((queue.len(), queue.dropped), (0, 1));
    }

    #[test]
    fn what_agents_left_that_were_at_work_at_once_is_sent_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("a");
        let queue = || Queue::new(LIMITS, Some(Spool::open(&folder).unwrap())).unwrap();
        let mut both = [queue(), queue()];
        for (queue, at) in both.iter_mut().zip(1..) {
            queue.push(&message(at, 10));
            queue.close();
        }
        drop(both);
        let mut next = queue();
        next.adopt(Spool::abandoned(&folder));
        let other = Spool::abandoned(&folder);
        assert!(other.is_empty(), "they are taken: {other:?}");
        assert_eq!(drain(&mut next), [1, 2]);
        assert_eq!((next.disk, next.dropped), (0, 0));
    }

    #[test]
    fn a_full_disk_costs_the_oldest_of_what_is_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("a");
        let mut queue = Queue::new(LIMITS, Some(Spool::open(&folder).unwrap())).unwrap();
        fs::remove_dir(&folder).unwrap(); // nothing can be written there
        (0..3).for_each(|at| queue.push(&message(at, 40)));
        assert!(queue.complaint().is_some());
        queue.push(&message(3, 40));
        assert_eq!(queue.complaint(), None, "that is told once");
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
