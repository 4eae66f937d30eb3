//! Samples of ClickHouse's as a profile: the sums of stacks by process, or by thread where that is
//! asked for, of all hosts together, one service after another.

use super::address::{self, Wanted};
use super::answer::{self, Frame, Row, Service, Sums, Thread};
use super::asking;
use super::build::Builder;
use crate::http::{Client, Failure};
use crate::profile::Profile;
use crate::progress;
use crate::visible::visible;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::env;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// The period of a sample, ns.
const PERIOD: &str = "intDiv(cpu_ns, greatest(weight, 1))";
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of an answer no more is read, bytes.
const LONGEST: u64 = 1 << 30;
/// By so many hashes at once is asked: ClickHouse reads no longer statement than 256 KiB.
const PORTION: usize = 20_000;
/// Services are asked for one after another, since what is alike lies together: sums of a few
/// million samples fit into caches. Small ones are asked for at once, until they have so many.
const SAMPLES: u64 = 1_000_000;
/// For so many of them at once, each with its part of ClickHouse's threads: where several threads
/// make sums of one, theirs must be put together, which takes a fifth of the time.
const AT_ONCE: u64 = 2;
/// What who may not set something is told: by who may only read, by a constraint, and by those that
/// do not know it.
const NOT_TO_BE_SET: [&str; 3] = ["Code: 164.", "Code: 452.", "Code: 115."];
/// Holds for what is of some services.
const OF_SERVICES: &str = "service BETWEEN {first:String} AND {last:String}";

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is none.
    #[error("{0}: {1}: give clickhouse://HOST:PORT/DATABASE?service=NAME&from=-1h&to=-0s")]
    Address(String, String),
    /// ClickHouse cannot be reached, or refuses.
    #[error("{0}: {1}")]
    Refused(String, String),
    /// Of several addresses no one profile is made.
    #[error(
        "an address of ClickHouse's is read alone: leave service or host out of it to read several at once"
    )]
    Several,
    /// Nothing was found.
    #[error("{0} has no sample of that time{1}")]
    Empty(String, String),
}

/// Reads what addresses ask for, if there are any among those: files are read otherwise. Sums of
/// stacks by process are made in two thirds of the time that those by thread take.
///
/// # Errors
/// Any [`Error`].
pub(crate) fn open(files: &[PathBuf], by_thread: bool) -> Result<Option<Profile>, Error> {
    let texts = files.iter().filter_map(|file| file.to_str());
    let mut addresses = texts.filter(|text| address::is_address(text));
    match (addresses.next(), files.len()) {
        (Some(one), 1) => read(one, by_thread).map(Some),
        (Some(_), _) => Err(Error::Several),
        (None, _) => Ok(None),
    }
}

fn read(text: &str, by_thread: bool) -> Result<Profile, Error> {
    let wanted = address::parse(text, address::now_ns())?;
    let client = Client::new(env::var_os("SSL_CERT_FILE").map(PathBuf::from).as_deref());
    let client = client.map_err(|why| Error::Refused(wanted.base.clone(), why))?;
    let engine = Engine {
        client,
        wanted: &wanted,
        thread: if by_thread { "thread" } else { "''" },
    };
    progress::begin("asking ClickHouse", 0);
    let services = engine.services()?;
    let all: Vec<_> = ranges(&services).collect();
    let at_once = AT_ONCE.min(all.len() as u64);
    let threads = services.iter().map(|one| one.threads / at_once).max();
    let setting = format!("max_threads = {}", threads.unwrap_or(0).max(1));
    let waiting = Mutex::new(all.into_iter());
    let mut builder = Builder::new();
    // ClickHouse makes sums while it reads the stacks of those before, and rows are taken.
    thread::scope(|scope| {
        let ((made, sums), (parts, found)) = (sync_channel(0), sync_channel(1));
        for _ in 0..at_once {
            let made = made.clone();
            scope.spawn(|| {
                let made = made;
                let next = || waiting.lock().ok()?.next();
                for range in std::iter::from_fn(next) {
                    let sums = engine.sums(range, &setting);
                    let is_last = sums.is_err();
                    // Who has met something wrong takes no more.
                    if made.send(sums).is_err() || is_last {
                        break;
                    }
                }
            });
        }
        drop(made);
        scope.spawn(|| {
            let (sums, parts) = (sums, parts);
            let mut all = sums.into_iter();
            if let Err(why) = all.try_for_each(|sums| engine.find(sums?, &parts)) {
                _ = parts.send(Err(why));
            }
        });
        for part in found {
            match part? {
                Part::Stacks(body) => builder.stacks(&engine.rows_of(&body)?),
                Part::Samples(of) => {
                    engine.name(&mut builder, of.range)?;
                    if !builder.samples(of.threads, of.sums) {
                        // A replica that is behind may have answered, or samples were deleted
                        // meanwhile.
                        return Err(engine.refused(
                            "its answers do not belong together: some samples are of no thread that it knows: ask again",
                        ));
                    }
                }
            }
        }
        Ok(())
    })?;
    let said = wanted.parameters.iter();
    let said = said.map(|(key, value)| format!("{key}={}", visible(value)));
    let command = std::iter::once(wanted.base.clone()).chain(said).collect();
    let first = services.iter().map(|one| one.first_ms).min();
    let last = services.iter().map(|one| one.last_ms).max();
    Ok(builder.finish(command, first.unwrap_or(0), last.unwrap_or(0)))
}

/// From which service to which.
type Range<'a> = [&'a str; 2];

/// Divides services into ranges: each has about so many samples.
fn ranges(services: &[Service]) -> impl Iterator<Item = Range<'_>> {
    let mut rest = services;
    std::iter::from_fn(move || {
        let mut samples = 0_u64;
        let is_within = |one: &&Service| {
            let goes_on = samples < SAMPLES;
            samples = samples.saturating_add(one.samples);
            goes_on
        };
        let some = rest.iter().take_while(is_within).count();
        let (some, others) = rest.split_at(some);
        rest = others;
        Some([&*some.first()?.service, &*some.last()?.service])
    })
}

/// The samples of some services.
struct Samples<'a> {
    range: Range<'a>,
    threads: Vec<Thread>,
    sums: Vec<Sums>,
}

/// What is found of some services: first stacks, then the samples that have them.
enum Part<'a> {
    /// An answer that has them.
    Stacks(Vec<u8>),
    Samples(Samples<'a>),
}

struct Engine<'a> {
    client: Client,
    wanted: &'a Wanted,
    /// What a thread is called, in SQL.
    thread: &'static str,
}

impl Engine<'_> {
    /// Which there are that have any of the samples.
    fn services(&self) -> Result<Vec<Service>, Error> {
        let sql = format!(
            "SELECT service, count(), toUInt64(toUnixTimestamp64Milli(min(time))), \
             toUInt64(toUnixTimestamp64Milli(max(time))), toUInt64(getSetting('max_threads')) \
             FROM rsunwind_samples WHERE {} GROUP BY service ORDER BY service",
            self.wanted.condition
        );
        // That takes half the time.
        let found: Vec<_> = self.rows_by(&sql, "optimize_aggregation_in_order = 1", &[])?;
        match found.is_empty() {
            true => Err(self.empty()),
            false => Ok(found),
        }
    }

    /// Names the frames of stacks that have none yet.
    fn name(&self, builder: &mut Builder, range: Range<'_>) -> Result<(), Error> {
        let columns = "hash, function, short, file, line, binary, build_id, language, inlined";
        let columns = format!("{columns} FROM rsunwind_frames WHERE {OF_SERVICES}");
        let unnamed = builder.unnamed();
        self.by_hash(&columns, "hash", unnamed, range, |body| {
            let rows: Vec<Frame> = self.rows_of(&body)?;
            rows.iter().for_each(|row| builder.frame(row));
            Ok(())
        })
    }

    /// The samples of some services.
    fn sums<'a>(&self, range: Range<'a>, setting: &str) -> Result<Samples<'a>, Error> {
        let condition = &self.wanted.condition;
        let from = format!("FROM rsunwind_samples WHERE {OF_SERVICES} AND {condition}");
        // Of numbers sums are made in half the time of that of names.
        let thread = self.thread;
        let key = format!("cityHash64(process) + 3 * cityHash64({thread}) + 5 * {PERIOD}");
        let sums: Vec<Sums> = self.rows_by(
            &format!(
                "SELECT key, reinterpret(groupArray(stack), 'String'), \
                 reinterpret(groupArray(weights), 'String') FROM \
                 (SELECT {key} AS key, stack, sum(weight) AS weights {from} GROUP BY key, stack) \
                 GROUP BY key"
            ),
            setting,
            &range,
        )?;
        let mut threads: Vec<Thread> = Vec::new();
        let keys = sums.iter().map(|row| row.key);
        let columns = format!("{key} AS key, process, {thread}, {PERIOD} {from}");
        self.by_hash(&columns, "key", keys, range, |body| {
            threads.extend(self.rows_of::<Thread>(&body)?);
            Ok(())
        })?;
        Ok(Samples {
            range,
            threads,
            sums,
        })
    }

    /// Finds the stacks of samples.
    fn find<'a>(
        &self,
        of: Samples<'a>,
        parts: &SyncSender<Result<Part<'a>, Error>>,
    ) -> Result<(), Error> {
        let stacks = of.sums.iter().flat_map(|row| &row.stacks).copied();
        let columns =
            format!("hash, reinterpret(frames, 'String') FROM rsunwind_stacks WHERE {OF_SERVICES}");
        // If nobody takes them any more, what was wrong has been said.
        let gone = |_| self.refused("");
        self.by_hash(&columns, "hash", stacks, of.range, |body| {
            parts.send(Ok(Part::Stacks(body))).map_err(gone)
        })?;
        parts.send(Ok(Part::Samples(of))).map_err(gone)
    }

    /// Takes the answers with the rows that have those hashes.
    fn by_hash(
        &self,
        select: &str,
        hash: &str,
        hashes: impl Iterator<Item = u64>,
        range: Range<'_>,
        mut take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut hashes: Vec<u64> = hashes.collect();
        // The tables are sorted by them, so that each portion is in one place.
        hashes.sort_unstable();
        hashes.dedup();
        for portion in hashes.chunks(PORTION) {
            let bytes: Vec<u8> = portion.iter().flat_map(|hash| hash.to_le_bytes()).collect();
            let hashes = BASE64_STANDARD.encode(bytes);
            // One of each, and when all are found, no more is read.
            let number = portion.len();
            let asked = format!(
                "SELECT {select} AND {hash} IN reinterpret(base64Decode('{hashes}'), \
                 'Array(UInt64)') LIMIT 1 BY {hash} LIMIT {number}"
            );
            take(self.answer(&asked, &range)?)?;
        }
        Ok(())
    }

    /// The rows that a query gives by a setting, which not everybody may set.
    fn rows_by<R: for<'a> Row<'a>>(
        &self,
        sql: &str,
        setting: &str,
        services: &[&str],
    ) -> Result<Vec<R>, Error> {
        match self.rows(&format!("{sql} SETTINGS {setting}"), services) {
            Err(Error::Refused(_, why)) if NOT_TO_BE_SET.iter().any(|code| why.contains(code)) => {
                self.rows(sql, services)
            }
            found => found,
        }
    }

    /// The rows that a query gives.
    fn rows<R: for<'a> Row<'a>>(&self, sql: &str, services: &[&str]) -> Result<Vec<R>, Error> {
        self.rows_of(&self.answer(sql, services)?)
    }

    /// Those of an answer.
    fn rows_of<'a, R: Row<'a>>(&self, body: &'a [u8]) -> Result<Vec<R>, Error> {
        answer::rows(body).map_err(|why| {
            self.refused(&format!(
                "its answer is not that of rsunwind's tables: {why}"
            ))
        })
    }

    fn answer(&self, sql: &str, services: &[&str]) -> Result<Vec<u8>, Error> {
        let wanted = self.wanted;
        let parameters = wanted.parameters.iter();
        let parameters = parameters.map(|(key, value)| (&**key, &**value));
        let parameters =
            parameters.chain(["first", "last"].into_iter().zip(services.iter().copied()));
        let named = |(key, value): (&str, &str)| (format!("param_{key}"), escaped(value));
        let parameters: Vec<_> = parameters.map(named).collect();
        let mut asked = vec![
            ("database", &*wanted.database),
            ("default_format", answer::FORMAT),
            // What goes wrong late is not hidden behind rows that came before.
            ("wait_end_of_query", "1"),
        ];
        asked.extend(parameters.iter().map(|(key, value)| (&**key, &**value)));
        let of_environment = |name: &str| env::var(name).ok();
        let (user, key) = match wanted.user.clone() {
            Some((user, key)) => (Some(user), Some(key)),
            None => (
                of_environment("CLICKHOUSE_USER"),
                of_environment("CLICKHOUSE_PASSWORD"),
            ),
        };
        let mut headers = Vec::new();
        headers.extend(user.as_deref().map(|user| ("X-ClickHouse-User", user)));
        headers.extend(key.as_deref().map(|key| ("X-ClickHouse-Key", key)));
        let address = asking(&wanted.base, asked);
        let answer = self
            .client
            .post(&address, &headers, sql.as_bytes(), PATIENCE, LONGEST);
        let answer = answer.map_err(|failure| match failure {
            Failure::Never(why) | Failure::Unreached(why) | Failure::Later(why) => {
                self.refused(&why)
            }
        })?;
        if !answer.is_well() {
            return Err(self.refused(&answer.says()));
        }
        if let Some(why) = answer.cut {
            return Err(self.refused(&format!(
                "its answer is not whole: {why}: ask for less time"
            )));
        }
        Ok(answer.body)
    }

    fn refused(&self, why: &str) -> Error {
        Error::Refused(self.wanted.base.clone(), why.to_owned())
    }

    fn empty(&self) -> Error {
        let sql = "SELECT DISTINCT service FROM rsunwind_windows ORDER BY service LIMIT 20";
        let services: Vec<String> = self.rows(sql, &[]).unwrap_or_default();
        let hint = match services.is_empty() {
            true => String::new(),
            false => format!(
                "; of any time there are the services {}",
                visible(&services.join(", "))
            ),
        };
        Error::Empty(self.wanted.base.clone(), hint)
    }
}

/// A parameter's value, as ClickHouse reads it.
fn escaped(value: &str) -> String {
    let letter = |c: char| match c {
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        '\0' => "\\0".to_owned(),
        c => c.to_string(),
    };
    value.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clickhouse::answer::Stack;
    use crate::clickhouse::answer::tests::{head, numbers, text};
    use crate::clickhouse::build::NO_STACK;
    use crate::profile::Sample;
    use crate::test_server::serve;

    fn answer<'a, R: Row<'a>>(rows: &[&[u8]]) -> Vec<u8> {
        let body = [&head::<R>(), &rows.concat()[..]].concat();
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ";
        [format!("{head}{length}\r\n\r\n").as_bytes(), &body].concat()
    }

    fn service(name: &str, samples: u64) -> Vec<u8> {
        let numbers = [samples, 5, 9, 2].map(u64::to_le_bytes);
        [text(name), numbers.concat()].concat()
    }

    fn open_at(address: &str, query: &str) -> Result<Profile, Error> {
        let address = address.replace("http", "clickhouse");
        let profile = open(&[PathBuf::from(format!("{address}/db?{query}"))], true)?;
        Ok(profile.expect("it is an address"))
    }

    #[test]
    fn rows_become_a_profile_and_names_stay_parameters() {
        let number = |number: u64| number.to_le_bytes().to_vec();
        let frame = |hash: u64, name: &str, language: &str| {
            let texts = [name, "", "a.py"].map(text).concat();
            let others = ["/bin/prog", "0aff", language].map(text).concat();
            [&number(hash)[..], &texts, &[7, 0, 0, 0], &others, &[0; 4]].concat()
        };
        let sums = [number(1), numbers(&[u64::MAX, 2]), numbers(&[3, 4])].concat();
        let names = ["prog", "worker"].map(text).concat();
        let thread = [number(1), names, number(1000)].concat();
        let stack = [number(u64::MAX), numbers(&[10, 11])].concat();
        let frames = [
            frame(10, "le\u{1b}[1maf", "python"),
            frame(11, "main", "native"),
        ];
        let answers = [
            answer::<Service>(&[&service("b", 1), &service("a'", SAMPLES)]),
            answer::<Sums>(&[&sums]),
            answer::<Thread>(&[&thread]),
            answer::<Stack>(&[&stack]),
            answer::<Frame>(&[&frames[0], &frames[1], &frames[1]]),
        ];
        let (address, heads) = serve(&answers.each_ref().map(|one| &**one));
        let profile = open_at(&address, "service=x%27%0Ay&from=2026-01-01").unwrap();
        let names = |sample: &Sample| {
            let frames = profile.walk(sample.stack);
            frames
                .map(|one| profile.function(one).name.to_string())
                .collect::<Vec<_>>()
        };
        let [known, unknown] = &profile.samples[..] else {
            panic!("{:?}", profile.samples);
        };
        assert_eq!(names(known), ["le\\u{1b}[1maf", "main"]);
        assert_eq!(profile.time_ns(known), 3000);
        assert_eq!(
            (names(unknown), profile.time_ns(unknown)),
            (vec![NO_STACK.into()], 4000)
        );
        assert_eq!(profile.recording.languages, ["python"]);
        assert_eq!(profile.symbols.images[0].build_id_text(), "0aff");
        let session = profile.recording.session.unwrap();
        assert_eq!((session.start_ns, session.end_ns), (5_000_000, 9_000_000));
        for asked in 0..5 {
            let head = heads.recv().unwrap();
            assert!(head[0].contains("param_service=x%27%5Cny&"), "{head:?}");
            let range = head[0].contains("param_first=b&param_last=a%27 ");
            assert_eq!(range, asked > 0, "{head:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let none = answer::<Service>(&[]);
        let refuses = b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\nCode: 516. Who are you?\n";
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\nConnection: close\r\n\r\n";
        let endless = [
            &b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..],
            &head::<Service>(),
        ]
        .concat();
        let services = answer::<String>(&[&text("shop"), &text("a\u{1b}")]);
        let page = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 7\r\n\r\n<html>\n";
        let answers: [&[u8]; 9] = [
            refuses,
            &none,
            &services,
            page,
            &services,
            long,
            &endless,
            b"",
            b"SSH-2.0-x\r\n",
        ];
        let (address, _) = serve(&answers);
        let says = |query: &str| open_at(&address, query).unwrap_err().to_string();
        assert!(says("").ends_with("403 Code: 516. Who are you?"));
        let names = says("service=shpo");
        assert!(
            names.ends_with("there are the services shop, a\\u{1b}"),
            "{names}"
        );
        for _ in 0..2 {
            let why = says("");
            assert!(why.contains("not that of rsunwind's tables: it"), "{why}");
        }
        for _ in 0..2 {
            let why = says("");
            assert!(why.contains("its answer is not whole: "), "{why}");
        }
        for _ in 0..2 {
            let why = says("");
            assert!(
                why.starts_with("http://127.0.0.1:") && why.contains(": "),
                "{why}"
            );
        }
    }

    #[test]
    fn samples_of_a_thread_that_is_not_told_of_are_not_left_out() {
        let number = |number: u64| number.to_le_bytes().to_vec();
        let sums = |key| [number(key), numbers(&[7]), numbers(&[3])].concat();
        let names = ["prog", "worker"].map(text).concat();
        let thread = |key| [number(key), names.clone(), number(1000)].concat();
        let (one, other) = (sums(1), sums(2));
        let threads = [thread(1), thread(2), thread(3)];
        let all: [&[u8]; 4] = [&threads[0], &threads[1], &threads[2], &threads[1]];
        let read_all = |sums: &[&[u8]], threads: &[&[u8]]| {
            let answers = [
                answer::<Service>(&[&service("a", 1)]),
                answer::<Sums>(sums),
                answer::<Thread>(threads),
                answer::<Stack>(&[]),
            ];
            let (address, _) = serve(&answers.each_ref().map(|one| &**one));
            open_at(&address, "")
        };
        let read = |sums: &_, threads: &_| read_all(sums, threads).map(|all| all.whole());
        assert_eq!(
            read(&[&one, &other], &all).unwrap(),
            6000,
            "each is there once"
        );
        let nothing = [number(2), names.clone(), number(0)].concat();
        let profile = read_all(&[&one, &other], &[&threads[0], &nothing]).unwrap();
        assert_eq!((profile.whole(), profile.unit()), (3000, 1000));
        for (sums, threads) in [
            (&[&*one, &other][..], &all[..1]),
            (&[&one], &[]),
            (&[&one, &one], &all),
        ] {
            let why = read(sums, threads).unwrap_err().to_string();
            assert!(why.contains("do not belong together"), "{why}");
        }
    }

    #[test]
    fn who_may_set_nothing_reads_too() {
        let refuses = b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\nCode: 164. Cannot modify it\n";
        let answers = [answer::<Service>(&[&service("a", 1)]), answer::<Sums>(&[])];
        let [services, sums] = &answers;
        let (address, heads) = serve(&[&refuses[..], services, refuses, sums]);
        assert_eq!(open_at(&address, "").unwrap().whole(), 0);
        assert_eq!(heads.try_iter().count(), 4);
    }

    #[test]
    fn small_services_are_read_together() {
        let service = |samples: u64| Service {
            service: samples.to_string(),
            samples,
            first_ms: 0,
            last_ms: 0,
            threads: 2,
        };
        let services = [1, 2, SAMPLES, 3, SAMPLES - 3, 4, u64::MAX, 5].map(service);
        let number = |text: &str| text.parse::<u64>().unwrap();
        let ranges: Vec<_> = ranges(&services).map(|range| range.map(number)).collect();
        let expected = [[1, SAMPLES], [3, SAMPLES - 3], [4, u64::MAX], [5, 5]];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn an_address_is_read_alone() {
        let files = ["a.rsu", "clickhouse://h"].map(PathBuf::from);
        assert!(matches!(open(&files, true), Err(Error::Several)));
        assert!(matches!(open(&files[..1], true), Ok(None)));
    }
}
