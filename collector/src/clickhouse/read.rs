//! Samples of ClickHouse's as a profile: the sums of stacks by thread, of all hosts together.

use super::address::{self, Wanted};
use super::answer::{self, Frame, Row, Stack, Sums, Thread};
use super::asking;
use super::build::Builder;
use crate::http::{Client, Failure};
use crate::intern::HashMap;
use crate::profile::Profile;
use crate::progress;
use crate::visible::visible;
use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// The period of a sample, ns.
const PERIOD: &str = "intDiv(cpu_ns, greatest(weight, 1))";
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of an answer no more is read, bytes.
const LONGEST: u64 = 1 << 30;
/// By so many hashes at once is asked: ClickHouse reads no longer statement than 256 KiB.
const PORTION: usize = 15_000;

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

/// Reads what addresses ask for, if there are any among those: files are read otherwise.
///
/// # Errors
/// Any [`Error`].
pub(crate) fn open(files: &[PathBuf]) -> Result<Option<Profile>, Error> {
    let texts = files.iter().filter_map(|file| file.to_str());
    let mut addresses = texts.filter(|text| address::is_address(text));
    match (addresses.next(), files.len()) {
        (Some(one), 1) => read(one).map(Some),
        (Some(_), _) => Err(Error::Several),
        (None, _) => Ok(None),
    }
}

fn read(text: &str) -> Result<Profile, Error> {
    let wanted = address::parse(text, address::now_ns())?;
    let client = Client::new(env::var_os("SSL_CERT_FILE").map(PathBuf::from).as_deref());
    let client = client.map_err(|why| Error::Refused(wanted.base.clone(), why))?;
    let engine = Engine {
        client,
        wanted: &wanted,
    };
    progress::begin("asking ClickHouse", 0);
    let from = format!("FROM rsunwind_samples WHERE {}", wanted.condition);
    // Of numbers sums are made in half the time of that of names.
    let key = format!("cityHash64(process, thread, {PERIOD}) AS key");
    let sums: Vec<Sums> = engine.rows(&format!(
        "SELECT key, groupArray(stack), groupArray(weights) FROM \
         (SELECT {key}, stack, sum(weight) AS weights {from} GROUP BY key, stack) GROUP BY key"
    ))?;
    if sums.is_empty() {
        return Err(engine.empty());
    }
    let mut threads: Vec<Thread> = engine.rows(&format!(
        "SELECT {key}, any(process), any(thread), toUInt64(any({PERIOD})), \
         toUInt64(toUnixTimestamp64Milli(min(time))), toUInt64(toUnixTimestamp64Milli(max(time))) \
         {from} GROUP BY key"
    ))?;
    let mut builder = Builder::new();
    let stacks = sums.iter().flat_map(|row| &row.stacks).copied();
    engine.by_hash("hash, frames FROM rsunwind_stacks", stacks, |row: Stack| {
        builder.stack(&row);
    })?;
    let frames: Vec<u64> = builder.hashes_of_frames().collect();
    let columns = "hash, function, short, file, line, binary, build_id, language, inlined";
    let columns = format!("{columns} FROM rsunwind_frames");
    engine.by_hash(&columns, frames.into_iter(), |row: Frame| {
        builder.frame(&row)
    })?;
    // What is asked for twice is the same twice.
    threads.sort_unstable_by(|one, other| one.name().cmp(&other.name()));
    let rows = sums.len();
    let mut sums: HashMap<u64, Sums> = sums.into_iter().map(|row| (row.key, row)).collect();
    let mut is_whole = sums.len() == rows;
    for thread in &threads {
        // One that has none has only samples that came after the sums.
        if let Some(sums) = sums.remove(&thread.key) {
            builder.samples(thread, &sums);
        }
    }
    is_whole &= sums.is_empty();
    if !is_whole {
        // A replica that is behind may have answered, or samples were deleted meanwhile.
        return Err(engine.refused(
            "its answers do not belong together: some samples are of no thread that it knows: ask again",
        ));
    }
    let said = wanted.parameters.iter();
    let said = said.map(|(key, value)| format!("{key}={}", visible(value)));
    Ok(builder.finish(std::iter::once(wanted.base.clone()).chain(said).collect()))
}

struct Engine<'a> {
    client: Client,
    wanted: &'a Wanted,
}

impl Engine<'_> {
    /// Takes the rows of a table, of which columns are chosen, that have those hashes: each may
    /// come more than once.
    fn by_hash<R: Row + Send>(
        &self,
        columns: &str,
        hashes: impl Iterator<Item = u64>,
        mut take: impl FnMut(R),
    ) -> Result<(), Error> {
        let mut hashes: Vec<u64> = hashes.collect();
        // The tables are sorted by them, so that each portion is in one place.
        hashes.sort_unstable();
        hashes.dedup();
        let ask = |portion: &[u64]| {
            let names = self.wanted.names;
            let mut asked =
                format!("SELECT {columns} WHERE {names} AND hash IN reinterpret(unhex('");
            for hash in portion {
                let _ = write!(asked, "{:016x}", hash.swap_bytes());
            }
            asked.push_str("'), 'Array(UInt64)')");
            self.rows(&asked)
        };
        // What is taken while the next is asked for costs no time.
        thread::scope(|scope| {
            let (answers, answered) = sync_channel(1);
            scope.spawn(move || {
                let mut portions = hashes.chunks(PORTION);
                portions.all(|portion| answers.send(ask(portion)).is_ok())
            });
            for rows in answered {
                rows?.into_iter().for_each(&mut take);
            }
            Ok(())
        })
    }

    /// The rows that a query gives.
    fn rows<R: Row>(&self, sql: &str) -> Result<Vec<R>, Error> {
        let wanted = self.wanted;
        let named = |(key, value): &(String, String)| (format!("param_{key}"), escaped(value));
        let parameters: Vec<_> = wanted.parameters.iter().map(named).collect();
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
        answer::rows(&answer.body).map_err(|why| {
            self.refused(&format!(
                "its answer is not that of rsunwind's tables: {why}"
            ))
        })
    }

    fn refused(&self, why: &str) -> Error {
        Error::Refused(self.wanted.base.clone(), why.to_owned())
    }

    fn empty(&self) -> Error {
        let sql = "SELECT DISTINCT service FROM rsunwind_windows ORDER BY service LIMIT 20";
        let services: Vec<String> = self.rows(sql).unwrap_or_default();
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
    use crate::clickhouse::answer::tests::{head, numbers, text};
    use crate::clickhouse::build::NO_STACK;
    use crate::profile::Sample;
    use crate::test_server::serve;

    fn answer<R: Row>(rows: &[&[u8]]) -> Vec<u8> {
        let body = [&head::<R>(), &rows.concat()[..]].concat();
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ";
        [format!("{head}{length}\r\n\r\n").as_bytes(), &body].concat()
    }

    fn open_at(address: &str, query: &str) -> Result<Profile, Error> {
        let address = address.replace("http", "clickhouse");
        let profile = open(&[PathBuf::from(format!("{address}/db?{query}"))])?;
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
        let thread = [number(1), names, number(1000), number(5), number(9)].concat();
        let stack = [number(u64::MAX), numbers(&[10, 11])].concat();
        let frames = [
            frame(10, "le\u{1b}[1maf", "python"),
            frame(11, "main", "native"),
        ];
        let answers = [
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
        let [unknown, known] = &profile.samples[..] else {
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
        let head = heads.recv().unwrap();
        assert!(head[0].contains("param_service=x%27%5Cny&"), "{head:?}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let none = answer::<Sums>(&[]);
        let refuses = b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\nCode: 516. Who are you?\n";
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\nConnection: close\r\n\r\n";
        let endless = [
            &b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..],
            &head::<Sums>(),
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
        let thread = |key| {
            [
                number(key),
                names.clone(),
                number(1000),
                number(5),
                number(9),
            ]
            .concat()
        };
        let (one, other) = (sums(1), sums(2));
        let threads = [thread(1), thread(2), thread(3)];
        let all: [&[u8]; 4] = [&threads[0], &threads[1], &threads[2], &threads[1]];
        let read = |sums: &[&[u8]], threads: &[&[u8]]| {
            let answers = [
                answer::<Sums>(sums),
                answer::<Thread>(threads),
                answer::<Stack>(&[]),
            ];
            let (address, _) = serve(&answers.each_ref().map(|one| &**one));
            open_at(&address, "").map(|profile| profile.whole())
        };
        assert_eq!(
            read(&[&one, &other], &all).unwrap(),
            6000,
            "each is there once"
        );
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
    fn an_address_is_read_alone() {
        let files = ["a.rsu", "clickhouse://h"].map(PathBuf::from);
        assert!(matches!(open(&files), Err(Error::Several)));
        assert!(matches!(open(&files[..1]), Ok(None)));
    }
}
