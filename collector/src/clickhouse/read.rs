//! Samples of ClickHouse's as a profile: the sums of stacks by thread, of all hosts together.

use super::address::{self, Wanted};
use super::answer::{self, Frame, Stack, Sums};
use super::asking;
use super::build::Builder;
use crate::http::{Client, Failure};
use crate::profile::Profile;
use crate::progress;
use crate::visible::visible;
use serde::de::DeserializeOwned;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of an answer no more is read, bytes.
const LONGEST: u64 = 1 << 30;

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
    let where_ = &wanted.condition;
    let by_stack = format!(
        "SELECT process, thread, intDiv(cpu_ns, greatest(weight, 1)) AS period, stack, \
         min(time) AS first, max(time) AS last, sum(weight) AS weights \
         FROM rsunwind_samples WHERE {where_} GROUP BY process, thread, period, stack"
    );
    let mut sums: Vec<Sums> = engine.rows(&format!(
        "SELECT process, thread, period, toUnixTimestamp64Milli(min(first)), \
         toUnixTimestamp64Milli(max(last)), groupArray((stack, weights)) \
         FROM ({by_stack}) GROUP BY process, thread, period"
    ))?;
    if sums.is_empty() {
        return Err(engine.empty());
    }
    let stacks = format!("SELECT stack FROM rsunwind_samples WHERE {where_}");
    let stacks = format!("FROM rsunwind_stacks WHERE hash IN ({stacks})");
    let frames: Vec<Frame> = engine.rows(&format!(
        "SELECT hash, function, short, file, line, binary, build_id, language, inlined \
         FROM rsunwind_frames WHERE hash IN (SELECT arrayJoin(frames) {stacks}) LIMIT 1 BY hash"
    ))?;
    let stacks: Vec<Stack> =
        engine.rows(&format!("SELECT hash, frames {stacks} LIMIT 1 BY hash"))?;
    let mut builder = Builder::default();
    frames.iter().for_each(|row| builder.frame(row));
    let stacks = stacks
        .into_iter()
        .map(|row| (row.hash, row.frames))
        .collect();
    // What is asked for twice is the same twice.
    sums.sort_unstable_by(|one, other| one.name().cmp(&other.name()));
    for thread in &mut sums {
        thread.stacks.sort_unstable();
        builder.sums(thread, &stacks);
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
    /// The rows that a query gives.
    fn rows<T: DeserializeOwned>(&self, sql: &str) -> Result<Vec<T>, Error> {
        let wanted = self.wanted;
        let named = |(key, value): &(String, String)| (format!("param_{key}"), escaped(value));
        let parameters: Vec<_> = wanted.parameters.iter().map(named).collect();
        let mut asked = vec![
            ("database", &*wanted.database),
            ("default_format", "JSONCompactEachRow"),
            ("output_format_json_quote_64bit_integers", "0"),
            ("output_format_json_named_tuples_as_objects", "0"),
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
        let services: Vec<[String; 1]> = self.rows(sql).unwrap_or_default();
        let hint = match services.is_empty() {
            true => String::new(),
            false => format!(
                "; of any time there are the services {}",
                visible(&services.concat().join(", "))
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
    use crate::clickhouse::build::NO_STACK;
    use crate::profile::Sample;
    use crate::test_server::serve;

    fn answer(body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    }

    fn open_at(address: &str, query: &str) -> Result<Profile, Error> {
        let address = address.replace("http", "clickhouse");
        let profile = open(&[PathBuf::from(format!("{address}/db?{query}"))])?;
        Ok(profile.expect("it is an address"))
    }

    #[test]
    fn rows_become_a_profile_and_names_stay_parameters() {
        let frame = |hash: u64, name: &str, language: &str| {
            format!("[{hash},\"{name}\",\"\",\"a.py\",7,\"/bin/prog\",\"0aff\",\"{language}\",0]\n")
        };
        let sums = "[\"prog\",\"worker\",1000,5,9,[[18446744073709551615,3],[2,4]]]\n";
        let frames = [
            frame(10, "le\\u001b[1maf", "python"),
            frame(11, "main", "native"),
        ]
        .concat();
        let stacks = "[18446744073709551615,[10,11]]\n";
        let answers = [sums, &frames, stacks].map(answer);
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
        let none = answer("");
        let refuses = "HTTP/1.1 403 No\r\nConnection: close\r\n\r\nCode: 516. Who are you?\n";
        let long = "HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\nConnection: close\r\n\r\n";
        let endless = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[\"a\",\"b\",1,2,3,[[4,5]]]\n";
        let services = answer("[\"shop\"]\n[\"a\\u001b\"]\n");
        let page = answer("<html>\n");
        let other = answer("[1,2]\n");
        let answers = [
            refuses,
            &none,
            &services,
            &page,
            &other,
            long,
            endless,
            "",
            "SSH-2.0-x\r\n",
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
            assert!(
                why.contains("not that of rsunwind's tables: line 1: "),
                "{why}"
            );
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
    fn an_address_is_read_alone() {
        let files = ["a.rsu", "clickhouse://h"].map(PathBuf::from);
        assert!(matches!(open(&files), Err(Error::Several)));
        assert!(matches!(open(&files[..1]), Ok(None)));
    }
}
