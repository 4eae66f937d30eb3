//! Samples of ClickHouse's as a profile: the sums of stacks by process, or by thread where that is
//! asked for, of all hosts together, one service after another.

use super::address;
use super::answer::Service;
use super::ask::Server;
use super::build::Builder;
use super::parts::{self, Part};
use super::queries::{Queries, Range};
use crate::profile::Profile;
use crate::progress;
use crate::visible::visible;
use std::path::PathBuf;
use std::sync::Arc;

/// Services are asked for one after another, since what is alike lies together: sums of a few
/// million samples fit into caches. Small ones are asked for at once, until they have so many.
const SAMPLES: u64 = 1_000_000;
/// For so many of them at once, each with its part of ClickHouse's threads: where several threads
/// make sums of one, theirs must be put together, which takes a fifth of the time.
const AT_ONCE: usize = 2;

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
    let said = wanted.parameters.iter();
    let said = said.map(|(key, value)| format!("{key}={}", visible(value)));
    let command = std::iter::once(wanted.base.clone()).chain(said).collect();
    let queries = Arc::new(Queries::of(Server::new(wanted)?, by_thread));
    progress::begin("asking ClickHouse", 0);
    let span = queries.span()?;
    let services = queries.services()?;
    let all: Vec<_> = ranges(&services).collect();
    let at_once = AT_ONCE.min(all.len().max(1));
    let setting = format!("max_threads = {}", (span.threads / at_once as u64).max(1));
    let mut builder = Builder::new();
    for part in parts::find(&queries, all, at_once, &setting) {
        match part? {
            Part::Stacks(stacks) => builder.stacks(&stacks.rows(&queries.server)?),
            Part::Samples(of) => {
                let unnamed = builder.unnamed();
                queries.frames(unnamed, &of.range, |row| builder.frame(row))?;
                if !builder.samples(of.threads, of.sums) {
                    // A replica that is behind may have answered, or samples were deleted
                    // meanwhile.
                    return Err(queries.server.refused(
                        "its answers do not belong together: some samples are of no thread that it knows: ask again",
                    ));
                }
            }
        }
    }
    Ok(builder.finish(command, span.ends_ms))
}

/// Divides services into ranges: each has about so many samples.
fn ranges(services: &[Service]) -> impl Iterator<Item = Range> {
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
        let ends = [some.first()?, some.last()?];
        Some(Arc::new(ends.map(|one| one.service.clone())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clickhouse::answer::tests::{block, head, numbers, text};
    use crate::clickhouse::answer::{Frame, Lying, Row, Span, Sums, Thread};
    use crate::clickhouse::build::NO_STACK;
    use crate::profile::Sample;
    use crate::test_server::serve;

    fn answer<'a, R: Row<'a>>(rows: &[&[u8]]) -> Vec<u8> {
        well(&[&head::<R>(), &rows.concat()[..]].concat())
    }

    fn well(body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ";
        [format!("{head}{length}\r\n\r\n").as_bytes(), body].concat()
    }

    fn span(seen: [u64; 2], minutes: u64) -> Vec<u8> {
        let numbers = [seen[0], seen[1], 5, 9, minutes, 2];
        answer::<Span>(&[&numbers.map(u64::to_le_bytes).concat()])
    }

    fn service(name: &str, samples: u64) -> Vec<u8> {
        [text(name), samples.to_le_bytes().to_vec()].concat()
    }

    fn lying(stacks: u64, frames: u64) -> Vec<u8> {
        answer::<Lying>(&[&[stacks, frames].map(u64::to_le_bytes).concat()])
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
        let frames = [
            frame(10, "le\u{1b}[1maf", "python"),
            frame(11, "main", "native"),
        ];
        let answers = [
            span([0, 1], 17),
            span([1, 0], 17),
            span([1, 1], 17),
            answer::<Service>(&[&service("b", 1), &service("a'", SAMPLES)]),
            answer::<Sums>(&[&sums]),
            answer::<Thread>(&[&thread]),
            lying(2, 5),
            well(&block(&[(u64::MAX, &[10, 11]), (3, &[12])])),
            answer::<Frame>(&[&frames[0], &frames[1], &frames[1]]),
        ];
        let (address, heads) = serve(&answers.each_ref().map(|one| &**one));
        let profile = open_at(&address, "host=x%27%0Ay&from=2026-01-01").unwrap();
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
        for asked in 0..answers.len() {
            let head = heads.recv().unwrap();
            assert!(head[0].contains("param_host=x%27%5Cny&"), "{head:?}");
            let range = head[0].contains("param_first=b&param_last=a%27 ");
            assert_eq!(range, asked > 3, "{head:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let none = span([0, 0], 0);
        let refuses = b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\nCode: 516. Who are you?\n";
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\nConnection: close\r\n\r\n";
        let endless = [
            &b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"[..],
            &head::<Span>(),
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
                span([1, 1], 60),
                answer::<Service>(&[&service("a", 1)]),
                answer::<Sums>(sums),
                answer::<Thread>(threads),
                lying(9, 9),
                well(&[]),
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
        let answers = [
            span([1, 1], 60),
            answer::<Service>(&[&service("a", 1)]),
            refuses.to_vec(),
            answer::<Sums>(&[]),
        ];
        let (address, heads) = serve(&answers.each_ref().map(|one| &**one));
        assert_eq!(open_at(&address, "").unwrap().whole(), 0);
        assert_eq!(heads.try_iter().count(), answers.len());
    }

    #[test]
    fn who_is_one_too_many_asks_again() {
        let refuses = b"HTTP/1.1 429 No\r\nConnection: close\r\n\r\nCode: 202. Too many\n";
        let (none, services) = (span([0, 0], 0), answer::<String>(&[]));
        let (address, heads) = serve(&[&refuses[..], refuses, &none, &services]);
        let why = open_at(&address, "").unwrap_err().to_string();
        assert!(why.contains("has no sample of that time"), "{why}");
        assert_eq!(heads.try_iter().count(), 4);
    }

    #[test]
    fn an_error_is_said_while_another_answer_is_waited_for() {
        // Of two who ask for sums at once one gets no answer.
        let refuses = b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\nCode: 516. Not you\n";
        let services = [service("a", SAMPLES), service("b", SAMPLES)];
        let answers = [
            span([1, 1], 60),
            answer::<Service>(&[&services[0], &services[1]]),
            refuses.to_vec(),
        ];
        let (address, _heads) = serve(&answers.each_ref().map(|one| &**one));
        let why = open_at(&address, "").unwrap_err().to_string();
        assert!(why.ends_with("403 Code: 516. Not you"), "{why}");
    }

    #[test]
    fn small_services_are_read_together() {
        let service = |samples: u64| Service {
            service: samples.to_string(),
            samples,
        };
        let services = [1, 2, SAMPLES, 3, SAMPLES - 3, 4, u64::MAX, 5].map(service);
        let number = |text: &str| text.parse::<u64>().unwrap();
        let ranges: Vec<_> = ranges(&services)
            .map(|range| range.each_ref().map(|name| number(name)))
            .collect();
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
