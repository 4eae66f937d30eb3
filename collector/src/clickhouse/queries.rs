//! What is asked for, in SQL.

use super::address;
use super::answer::{self, Frame, Lying, Service, Span, Stack, Sums, Thread};
use super::ask::Server;
use super::read::Error;
use crate::visible::visible;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::sync::Arc;

/// The period of a sample, ns. Most weigh 1, and a division takes longer than all else of it.
const PERIOD: &str = "if(weight = 1, cpu_ns, intDiv(cpu_ns, greatest(weight, 1)))";
/// By so many hashes at once is asked: ClickHouse reads no longer statement than 256 KiB.
const PORTION: usize = 20_000;
/// Holds for what is of some services.
const OF_SERVICES: &str = "service BETWEEN {first:String} AND {last:String}";
/// The first and the last sample are looked for in so many minutes at the ends of the time that is
/// asked for, then in so many times more.
const FARTHER: u64 = 16;

/// From which service to which.
pub(super) type Range = Arc<[String; 2]>;

/// The samples of some services.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) range: Range,
    pub(super) threads: Vec<Thread>,
    pub(super) sums: Vec<Sums>,
}

/// An answer with stacks, and the hashes of those that are wanted, in their order.
#[derive(Debug)]
pub(super) struct Stacks {
    body: Vec<u8>,
    hashes: Vec<u64>,
}

impl Stacks {
    pub(super) fn rows(&self, server: &Server) -> Result<Vec<Stack<'_>>, Error> {
        let mut rows = answer::stacks(&self.body).map_err(|why| server.is_another(&why))?;
        // Others may lie between them.
        rows.retain(|row| self.hashes.binary_search(&row.hash).is_ok());
        Ok(rows)
    }
}

/// Numbers in their order, each once. The tables are sorted by hashes, so that those that follow
/// each other are in one place.
fn in_order(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// SQL for one row with each of those numbers. When all are found, no more is read.
fn among(column: &str, numbers: &[u64]) -> String {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    let list = BASE64_STANDARD.encode(bytes.collect::<Vec<u8>>());
    let number = numbers.len();
    format!(
        "{column} IN reinterpret(base64Decode('{list}'), 'Array(UInt64)') \
         LIMIT 1 BY {column} LIMIT {number}"
    )
}

/// Those that are asked.
#[derive(Debug)]
pub(super) struct Queries {
    pub(super) server: Server,
    /// What a thread is called, in SQL.
    thread: &'static str,
}

impl Queries {
    /// Where threads are told apart, or are those of a process all one.
    pub(super) const fn of(server: Server, by_thread: bool) -> Self {
        Self {
            server,
            thread: if by_thread { "thread" } else { "''" },
        }
    }

    /// When the first and the last sample were.
    pub(super) fn span(&self) -> Result<Span, Error> {
        let [from, to] = ["from", "to"].map(address::in_sql);
        let condition = &self.server.wanted.condition;
        let mut minutes = [1_u64; 2];
        loop {
            let first = format!("{from} + INTERVAL {} MINUTE", minutes[0]);
            let last = format!("{to} - INTERVAL {} MINUTE", minutes[1]);
            let places = [address::until(&first), address::since(&last)].join(" OR ");
            let [min, max] =
                ["min", "max"].map(|end| format!("toUInt64(toUnixTimestamp64Milli({end}(time)))"));
            let sql = format!(
                "SELECT countIf(time < {first}), countIf(time >= {last}), {min}, {max}, \
                 toUInt64(greatest(dateDiff('minute', {from}, {to}), 0)), \
                 toUInt64(getSetting('max_threads')) \
                 FROM rsunwind_samples WHERE {condition} AND ({places})"
            );
            let spans: Vec<Span> = self.server.rows(&sql, &[])?;
            let span = spans.into_iter().next().ok_or_else(|| self.empty())?;
            let unseen = minutes.iter_mut().zip(span.seen);
            let mut unseen = unseen.filter(|(_, seen)| *seen == 0).peekable();
            if unseen.peek().is_none() {
                return Ok(span);
            }
            for (minutes, _) in unseen {
                *minutes = match minutes.checked_mul(FARTHER) {
                    Some(more) if *minutes <= span.minutes => more,
                    _ => return Err(self.empty()),
                };
            }
        }
    }

    /// Which services may have any of the samples.
    pub(super) fn services(&self) -> Result<Vec<Service>, Error> {
        let wanted = &self.server.wanted;
        let mut named = wanted.parameters.iter();
        if let Some((_, service)) = named.find(|(name, _)| name == "service") {
            let (service, samples) = (service.clone(), 0);
            return Ok(vec![Service { service, samples }]);
        }
        let place = &wanted.place;
        let sql = format!(
            "SELECT service, count() FROM rsunwind_samples WHERE {place} \
             GROUP BY service ORDER BY service"
        );
        // That takes a tenth of the time.
        let setting = "optimize_aggregation_in_order = 1";
        let body = self.server.answer_by(&sql, setting, &[])?;
        self.server.rows_of(&body)
    }

    /// The sums of some services' stacks.
    pub(super) fn sums(&self, range: Range, setting: &str) -> Result<Samples, Error> {
        let condition = &self.server.wanted.condition;
        let from = format!("FROM rsunwind_samples WHERE {OF_SERVICES} AND {condition}");
        // Of numbers sums are made in half the time of that of names, and of one in less than of
        // two: what is added to a stack is taken away again.
        let thread = self.thread;
        let key = format!("cityHash64(process) + 3 * cityHash64({thread}) + 5 * {PERIOD}");
        let sums = format!(
            "SELECT key, reinterpret(groupArray(both - key), 'String'), \
             reinterpret(groupArray(weights), 'String') FROM \
             (SELECT stack + ({key}) AS both, any({key}) AS key, sum(weight) AS weights {from} \
             GROUP BY both) GROUP BY key"
        );
        let sums = self.server.answer_by(&sums, setting, &range[..])?;
        let sums: Vec<Sums> = self.server.rows_of(&sums)?;
        let mut threads: Vec<Thread> = Vec::new();
        let columns = format!("{key} AS key, process, {thread}, {PERIOD} {from}");
        for keys in in_order(sums.iter().map(|row| row.key)).chunks(PORTION) {
            let asked = format!("SELECT {columns} AND {}", among("key", keys));
            let found = self.server.rows::<Thread>(&asked, &range[..])?;
            threads.extend(found);
        }
        Ok(Samples {
            range,
            threads,
            sums,
        })
    }

    /// The stacks of samples, about so many bytes at once.
    pub(super) fn stacks(
        &self,
        of: &Samples,
        setting: &str,
        at_once: u64,
        mut take: impl FnMut(Stacks) -> bool,
    ) -> Result<(), Error> {
        let from = format!("FROM rsunwind_stacks WHERE {OF_SERVICES}");
        let hashes = in_order(of.sums.iter().flat_map(|row| &row.stacks).copied());
        let number = hashes.len();
        if number == 0 {
            return Ok(());
        }
        let lying = format!("SELECT count(), sum(frames.size0) {from}");
        let lying = self.server.rows::<Lying>(&lying, &of.range[..])?;
        // Where most are wanted all are read as they lie: to look for each takes twice as long.
        let are_most = |lying: &&Lying| lying.stacks / 2 <= number as u64;
        let portions = lying.first().filter(are_most).map(|lying| {
            let bytes = lying.stacks.saturating_add(lying.frames).saturating_mul(8);
            usize::try_from(bytes / at_once).unwrap_or(usize::MAX)
        });
        let portion = portions.map_or(PORTION, |portions| number / portions.saturating_add(1));
        for hashes in hashes.chunks(portion.max(1)) {
            let which = match (portions, hashes) {
                (Some(_), [first, .., last]) => format!("hash BETWEEN {first} AND {last}"),
                _ => among("hash", hashes),
            };
            let form = answer::NATIVE;
            let asked = format!("SELECT hash, frames {from} AND {which} FORMAT {form}");
            let body = self.server.answer_by(&asked, setting, &of.range[..])?;
            let hashes = hashes.to_vec();
            if !take(Stacks { body, hashes }) {
                break;
            }
        }
        Ok(())
    }

    /// What frames are called.
    pub(super) fn frames(
        &self,
        hashes: impl Iterator<Item = u64>,
        range: &Range,
        mut take: impl FnMut(&Frame),
    ) -> Result<(), Error> {
        let columns = "hash, function, short, file, line, binary, build_id, language, inlined";
        let columns = format!("{columns} FROM rsunwind_frames WHERE {OF_SERVICES}");
        for hashes in in_order(hashes).chunks(PORTION) {
            let asked = format!("SELECT {columns} AND {}", among("hash", hashes));
            let mut rows: Vec<Frame> = self.server.rows(&asked, &range[..])?;
            // They come in any order.
            rows.sort_unstable_by_key(|row| row.hash);
            rows.iter().for_each(&mut take);
        }
        Ok(())
    }

    fn empty(&self) -> Error {
        let sql = "SELECT DISTINCT service FROM rsunwind_windows ORDER BY service LIMIT 20";
        let services: Vec<String> = self.server.rows(sql, &[]).unwrap_or_default();
        let hint = match services.is_empty() {
            true => String::new(),
            false => format!(
                "; of any time there are the services {}",
                visible(&services.join(", "))
            ),
        };
        Error::Empty(self.server.wanted.base.clone(), hint)
    }
}
