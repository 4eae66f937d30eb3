//! Reads a `perf.data` file: its events, who and what is in it, and its samples, each with its
//! place in the file.
//!
//! Start at [`PerfFile::parse`]. Nothing is believed: every length is checked, and what is wrong is
//! named by its offset. What stands before damage in the file is not used either, because samples
//! are in no order.
//!
//! Not here: what belongs together.

use crate::attributes::{Clock, Event, Fields};
use crate::bytes::{Bytes, Malformed};
use crate::format::{HEADER_SIZE, MAGIC, feature, misc, record};

/// A file, read.
#[derive(Debug, Default)]
pub struct PerfFile {
    /// Its events.
    pub events: Vec<Event>,
    /// `uname -n` of the machine, if it says so.
    pub host: Option<String>,
    /// `uname -r` of the machine.
    pub kernel: Option<String>,
    /// What it tells, in the order of the file, which is roughly that of time.
    pub records: Vec<Record>,
    /// Records that perf lost.
    pub lost: u64,
    /// Samples left out because nobody can tell which event they are of.
    pub nameless: u64,
}

/// Something that a file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it is in the file, bytes.
    pub offset: u64,
    /// By the clock of its event, ns; 0 for what perf wrote itself at the start.
    pub time: u64,
    /// What.
    pub what: What,
}

/// What a record says. Processes and threads are named as in perf's own PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are those of perf_event_open(2)")]
pub enum What {
    /// A sample of [`PerfFile::events`]; `in_kernel`: where it was.
    Sample {
        event: usize,
        in_kernel: bool,
        fields: Fields,
    },
    /// The user's stack for samples that end in this cookie.
    Deferred {
        tid: u32,
        cookie: u64,
        stack: Vec<u64>,
    },
    /// Code was mapped.
    Map {
        pid: u32,
        start: u64,
        length: u64,
        offset: u64,
        build_id: Vec<u8>,
        path: String,
    },
    /// A thread's name; `exec`: with it the process began another program.
    Name {
        pid: u32,
        tid: u32,
        name: String,
        exec: bool,
    },
    /// A thread, or a process with its first one, began.
    Fork { pid: u32, tid: u32, parent_pid: u32 },
    /// A thread ended.
    Exit { pid: u32, tid: u32 },
}

/// PROT_EXEC.
const EXECUTABLE: u32 = 4;
/// MISC bit of mappings that are data.
const MAP_DATA: u16 = 1 << 13;
/// Longest build-id in a record.
const BUILD_ID: usize = 20;

impl PerfFile {
    /// Reads a whole file.
    ///
    /// # Errors
    /// [`Malformed`] with the offset of what cannot be read.
    pub fn parse(file: &[u8]) -> Result<Self, Malformed> {
        let mut header = Bytes::new(file, 0, "the file header");
        let start = header;
        let magic = header.take(MAGIC.len())?;
        if magic != MAGIC {
            return Err(start.error(guess(magic)));
        }
        let size = header.long()?;
        if size == 16 {
            return Err(start.error(
                "it was written to a pipe; `perf inject -i FILE -o OTHER` makes a file of it",
            ));
        }
        if size != HEADER_SIZE {
            return Err(start.error(format!("a file header of {size} bytes is not known")));
        }
        let entry = header.long()?;
        let mut section = || Ok::<_, Malformed>((header.long()?, header.long()?));
        let (attributes, data, _) = (section()?, section()?, section()?);
        let bits = [header.long()?, header.long()?];
        let mut made = Self::default();
        made.read_events(file, attributes, entry)?;
        made.read_features(file, data, bits)?;
        let (offset, length) = data;
        if length == 0 {
            return Err(start.error(
                "it holds no records: perf was killed before it was done; `perf record` again",
            ));
        }
        let data = Bytes::section(file, offset, length, "the records")?;
        made.read_records(data)?;
        Ok(made)
    }

    fn read_events(
        &mut self,
        file: &[u8],
        section: (u64, u64),
        entry: u64,
    ) -> Result<(), Malformed> {
        let mut all = Bytes::section(file, section.0, section.1, "the events")?;
        if !(80..4096).contains(&entry) {
            return Err(all.error(format!("an event's entry of {entry} bytes is not known")));
        }
        while !all.is_empty() {
            let offset = all.offset();
            let bytes = all.take(usize::try_from(entry).unwrap_or(usize::MAX))?;
            let (attributes, place) = bytes.split_at(bytes.len() - 16);
            let attributes = Bytes::new(attributes, offset, "the attributes of an event");
            let mut place = Bytes::new(place, offset + entry - 16, "an event's numbers");
            let (at, length) = (place.long()?, place.long()?);
            let mut numbers = Bytes::section(file, at, length, "an event's numbers")?;
            let mut ids = Vec::new();
            while !numbers.is_empty() {
                ids.push(numbers.long()?);
            }
            self.events.push(Event::parse(attributes, ids)?);
        }
        if self.events.is_empty() {
            return Err(all.error("there is no event in it"));
        }
        Ok(())
    }

    /// Host, kernel and the events' names: their sections are named behind the records, in the
    /// order of the bits.
    fn read_features(
        &mut self,
        file: &[u8],
        data: (u64, u64),
        bits: [u64; 2],
    ) -> Result<(), Malformed> {
        let mut at = data.0.saturating_add(data.1);
        for number in 0..128u32 {
            if bits[(number / 64) as usize] >> (number % 64) & 1 == 0 {
                continue;
            }
            let mut entry = Bytes::section(file, at, 16, "the list of features")?;
            let (offset, length) = (entry.long()?, entry.long()?);
            at = at.saturating_add(16);
            let text = || {
                let mut section = Bytes::section(file, offset, length, "a feature")?;
                section.word()?;
                Ok(section.text())
            };
            match number {
                feature::HOSTNAME => self.host = Some(text()?),
                feature::OSRELEASE => self.kernel = Some(text()?),
                feature::EVENT_DESC => {
                    let section = Bytes::section(file, offset, length, "the names of events")?;
                    self.read_names(section)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The events' names, in the order of the events.
    fn read_names(&mut self, mut from: Bytes<'_>) -> Result<(), Malformed> {
        let (count, size) = (from.word()?, from.word()?);
        for event in self.events.iter_mut().take(count as usize) {
            from.skip(u64::from(size))?;
            let numbers = from.word()?;
            let length = from.word()? as usize;
            let offset = from.offset();
            event.name = Bytes::new(from.take(length)?, offset, "an event's name").text();
            from.skip(u64::from(numbers).saturating_mul(8))?;
        }
        Ok(())
    }

    fn read_records(&mut self, mut data: Bytes<'_>) -> Result<(), Malformed> {
        while !data.is_empty() {
            let start = data;
            let (kind, bits, size) = (data.word()?, data.short()?, data.short()?);
            let Some(length) = usize::from(size).checked_sub(8) else {
                return Err(start.error(format!("a record of {size} bytes")));
            };
            let offset = data.offset();
            let body = Bytes::new(data.take(length)?, offset, "a record");
            self.read_record(kind, bits, body, start)?;
        }
        Ok(())
    }

    fn read_record(
        &mut self,
        kind: u32,
        bits: u16,
        body: Bytes<'_>,
        start: Bytes<'_>,
    ) -> Result<(), Malformed> {
        // Events that are recorded together agree on what ends such a record.
        let who = self.events.iter().find_map(|event| event.who(body.rest()));
        let (_, tid, time) = who.unwrap_or_default();
        let mut from = body;
        let what = match kind {
            record::SAMPLE => self.sample(bits, body)?,
            record::CALLCHAIN_DEFERRED => Some(What::Deferred {
                tid,
                cookie: from.long()?,
                stack: from.longs()?,
            }),
            record::MMAP | record::MMAP2 => map(kind, bits, body)?,
            record::COMM => Some(What::Name {
                pid: from.word()?,
                tid: from.word()?,
                name: from.text(),
                exec: bits & misc::COMM_EXEC != 0,
            }),
            record::FORK => {
                let (pid, parent_pid) = (from.word()?, from.word()?);
                let tid = from.word()?;
                Some(What::Fork {
                    pid,
                    tid,
                    parent_pid,
                })
            }
            record::EXIT => {
                let (pid, _) = (from.word()?, from.word()?);
                let tid = from.word()?;
                Some(What::Exit { pid, tid })
            }
            record::LOST => {
                from.long()?;
                self.lost = self.lost.saturating_add(from.long()?);
                None
            }
            record::COMPRESSED | record::COMPRESSED2 => {
                let remedy =
                    "it is compressed; `perf inject -i FILE -o OTHER` makes a plain file of it";
                return Err(start.error(remedy));
            }
            _ => None,
        };
        if let Some(what) = what {
            let time = match &what {
                What::Sample { fields, .. } => fields.time,
                _ => time,
            };
            self.records.push(Record {
                offset: start.offset(),
                time,
                what,
            });
        }
        Ok(())
    }

    fn sample(&mut self, bits: u16, body: Bytes<'_>) -> Result<Option<What>, Malformed> {
        let id = match &*self.events {
            [_] => None,
            several => several[0].id(body)?,
        };
        let Some(event) = id.map_or(Some(0), |id| self.owner(id)) else {
            self.nameless = self.nameless.saturating_add(1);
            return Ok(None);
        };
        let fields = self.events[event].sample(body)?;
        Ok(Some(What::Sample {
            event,
            in_kernel: bits & 7 == misc::KERNEL,
            fields,
        }))
    }

    /// The event with that number. Where it is a stranger's, it is the only one that can be: of
    /// what it counts by itself the kernel makes one sample for all events that count it, whoever
    /// asked, and leaves the number of the first in it (Linux 6.18 does).
    fn owner(&self, id: u64) -> Option<usize> {
        let mut events = self.events.iter();
        let named = events.position(|event| event.ids.contains(&id));
        let only = || {
            let mut all =
                (0..self.events.len()).filter(|at| self.events[*at].is_counted_by_the_kernel());
            all.next().filter(|_| all.next().is_none())
        };
        named.or_else(only)
    }

    /// The clock of all events; `None` if they differ.
    #[must_use]
    pub fn clock(&self) -> Option<Clock> {
        let mut clocks = self.events.iter().map(Event::clock);
        let first = clocks.next()?;
        clocks.all(|clock| clock == first).then_some(first)
    }
}

/// A mapping of code, of a process: that of the kernel is passed over.
fn map(kind: u32, bits: u16, mut from: Bytes<'_>) -> Result<Option<What>, Malformed> {
    let start = from;
    let (pid, _) = (from.word()?, from.word()?);
    let (address, length, offset) = (from.long()?, from.long()?, from.long()?);
    let (mut build_id, mut code) = (Vec::new(), bits & MAP_DATA == 0);
    if kind == record::MMAP2 {
        let file = from.take(24)?;
        if bits & misc::MMAP_BUILD_ID != 0 {
            let length = file.first().map_or(0, |length| usize::from(*length));
            let id = file.get(4..).and_then(|rest| rest.get(..length));
            let id = id.filter(|id| id.len() <= BUILD_ID);
            build_id = id
                .ok_or_else(|| start.error(format!("a build-id of {length} bytes")))?
                .to_vec();
        }
        code = from.word()? & EXECUTABLE != 0;
        from.word()?;
    }
    if address.checked_add(length).is_none() && pid != u32::MAX {
        return Err(start.error("a mapping reaches beyond the end of all addresses"));
    }
    Ok((code && pid != u32::MAX).then(|| What::Map {
        pid,
        start: address,
        length,
        offset,
        build_id,
        path: from.text(),
    }))
}

fn guess(magic: &[u8]) -> &'static str {
    match magic {
        b"2ELIFREP" => "it is of a big-endian machine, whose files are not read",
        _ => "it is not a perf.data file (it does not begin with PERFILE2)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_perf_event_reader::constants::{
        PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS, PERF_SAMPLE_IDENTIFIER,
        PERF_SAMPLE_PERIOD, PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE,
    };

    /// A software event whose samples have what `fields` says, with that number.
    fn event(config: u64, fields: u64, id: u64) -> Event {
        let mut attributes = vec![
            u64::from(PERF_TYPE_SOFTWARE) | 128 << 32,
            config,
            37,
            fields,
        ];
        attributes.resize(16, 0);
        let bytes: Vec<u8> = attributes
            .iter()
            .flat_map(|long| long.to_le_bytes())
            .collect();
        Event::parse(Bytes::new(&bytes, 0, "an event"), vec![id]).expect("it is whole")
    }

    #[test]
    fn a_sample_with_a_strangers_number_is_of_the_only_event_that_it_can_be_of() {
        let dated = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TIME;
        let clock = event(PERF_COUNT_SW_CPU_CLOCK, dated | PERF_SAMPLE_PERIOD, 5);
        let faults = |id| event(PERF_COUNT_SW_PAGE_FAULTS, dated, id);
        let of_a_stranger: Vec<u8> = [99u64, 7]
            .iter()
            .flat_map(|long| long.to_le_bytes())
            .collect();
        let body = Bytes::new(&of_a_stranger, 0, "a sample");
        let mut file = PerfFile {
            events: vec![clock.clone(), faults(6)],
            ..PerfFile::default()
        };
        let read = file.sample(0, body).expect("it is whole");
        assert!(matches!(read, Some(What::Sample { event: 1, fields, .. }) if fields.time == 7));
        for events in [vec![clock.clone(), clock], vec![faults(6), faults(8)]] {
            file.events = events;
            assert_eq!(file.sample(0, body), Ok(None), "nobody can tell");
        }
        assert_eq!(file.nameless, 2);
    }
}
