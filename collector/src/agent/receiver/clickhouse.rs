//! Rows for ClickHouse: in the order in which they refer to each other, each frame and stack once,
//! each window with a token by which it is known when it comes again.

use super::{Outcome, Receiver, outcome};
use crate::agent::queue::Message;
use crate::clickhouse::message;
use crate::clickhouse::table::{Table, statements};
use crate::clickhouse::{asking, rows};
use crate::http::{self, Answer, Client, Failure};
use crate::intern::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

/// So many frames and stacks are remembered that were sent.
const MOST: usize = 1 << 18;
/// So long: somebody may empty the tables.
const LONGEST: Duration = Duration::from_secs(3600);
/// What an answer begins with that says that a table is not there.
const NO_TABLE: &[u8] = b"Code: 60.";

/// Frames and stacks that the receiver has.
#[derive(Debug)]
pub(super) struct There {
    /// By service, the tables and hashes.
    known: HashMap<String, HashSet<(Table, u64)>>,
    since: Instant,
}

impl Default for There {
    fn default() -> Self {
        Self {
            known: HashMap::default(),
            since: Instant::now(),
        }
    }
}

impl There {
    /// Sends the rows of a window.
    pub(super) fn send(
        &mut self,
        client: &Client,
        receiver: &Receiver,
        message: &Message,
        patience: Duration,
    ) -> Outcome {
        let deadline = Instant::now() + receiver.timeout.min(patience);
        if self.known.values().map(HashSet::len).sum::<usize>() > MOST
            || self.since.elapsed() > LONGEST
        {
            *self = Self::default();
        }
        let id = rows::window_id(&message.attributes, message.from_ns, message.to_ns);
        let post = Post {
            client,
            receiver,
            deadline,
            token: format!("{id:016x}"),
        };
        let mut rows = match message::unpack(&message.bytes) {
            Ok(rows) => rows,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Outcome::Refused("it is too large: make windows shorter".into());
            }
            Err(_) => return Outcome::Refused("it is damaged, or of another version".into()),
        };
        let service = message.attributes.get("service.name");
        let service = service.map_or("", String::as_str);
        let known = self.known.entry(service.to_owned()).or_default();
        let mut new = HashSet::default();
        let mut is_new = |table, hash| !known.contains(&(table, hash)) && new.insert((table, hash));
        for table in Table::ALL {
            let body = match table {
                Table::Frames => rows.frames_that(service, |hash| is_new(table, hash)),
                Table::Stacks => rows.stacks_that(service, |hash| is_new(table, hash)),
                Table::Windows => Some(Ok(std::mem::take(&mut rows.window))),
                Table::Samples => Some(Ok(std::mem::take(&mut rows.samples))),
            };
            let sent = match body {
                None => continue,
                Some(Ok(body)) => post.rows(table, &body),
                Some(Err(error)) => Outcome::Refused(error.to_string()),
            };
            match sent {
                Outcome::Taken(_) => {}
                other => return other,
            }
        }
        known.extend(new);
        Outcome::Taken(None)
    }
}

struct Post<'a> {
    client: &'a Client,
    receiver: &'a Receiver,
    deadline: Instant,
    token: String,
}

impl Post<'_> {
    fn rows(&self, table: Table, body: &[u8]) -> Outcome {
        let statement = format!("INSERT INTO {} FORMAT Native", table.columns());
        let mut asked = vec![
            ("query", &*statement),
            // Many agents' rows become one part, of which each is told when it is on disk.
            ("async_insert", "1"),
            ("wait_for_async_insert", "1"),
        ];
        if !table.is_by_hash() {
            asked.extend([
                ("async_insert_deduplicate", "1"),
                ("insert_deduplicate", "1"),
                ("insert_deduplication_token", &*self.token),
            ]);
        }
        let compressed = [("Content-Encoding", "gzip")];
        let mut answer = self.ask(&asked, &compressed, body);
        if lacks_table(&answer) {
            for statement in statements() {
                let made = self.ask(&[], &[], statement.as_bytes());
                if !made.as_ref().is_ok_and(Answer::is_well) {
                    return outcome(made);
                }
            }
            answer = self.ask(&asked, &compressed, body);
        }
        outcome(answer)
    }

    fn ask(
        &self,
        asked: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, Failure> {
        // It has the name of the database already.
        let address = asking(&self.receiver.address, asked.iter().copied());
        let headers = headers.iter().copied().chain(self.receiver.own_headers());
        let headers: Vec<_> = headers.collect();
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.client
            .post(&address, &headers, body, left, http::SHORT)
    }
}

fn lacks_table(answer: &Result<Answer, Failure>) -> bool {
    let answer = answer.as_ref();
    answer.is_ok_and(|answer| !answer.is_well() && answer.body.starts_with(NO_TABLE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::receiver::Kind;
    use crate::clickhouse::message::tests::example;
    use crate::test_server::serve;
    use prost::Message as _;
    use std::sync::mpsc;

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const BUSY: &str =
        "HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const NONE: &str =
        "HTTP/1.1 404 No\r\nContent-Length: 16\r\nConnection: close\r\n\r\nCode: 60. No one";

    fn message(hashes: [u64; 2], from_ns: u64) -> Message {
        let rows = example(hashes);
        Message {
            bytes: rows.encode_to_vec().into(),
            attributes: std::sync::Arc::default(),
            from_ns,
            to_ns: from_ns + 1,
        }
    }

    /// What was asked: the table that rows go to, and the token if there is one; or nothing.
    fn asked(heads: &mpsc::Receiver<Vec<String>>) -> (String, Option<String>) {
        let head = heads.recv_timeout(Duration::from_secs(60)).unwrap();
        let path = head[0].split(' ').nth(1).unwrap();
        let value = |key: &str| {
            let behind = path.split_once(key)?.1;
            Some(behind.split(['&', '%']).next().unwrap().to_owned())
        };
        (
            value("query=INSERT%20INTO%20rsunwind_").unwrap_or_default(),
            value("token="),
        )
    }

    #[test]
    fn it_is_said_whether_a_message_is_damaged_or_too_large() {
        let receiver = Receiver {
            kind: Kind::ClickHouse,
            address: "http://127.0.0.1:1/".into(),
            headers: std::collections::BTreeMap::new(),
            certificate: None,
            timeout: Duration::from_secs(60),
        };
        let client = Client::new(None).unwrap();
        let refused = |bytes: Vec<u8>| {
            let message = Message {
                bytes: bytes.into(),
                ..message([1, 2], 5)
            };
            match There::default().send(&client, &receiver, &message, Duration::MAX) {
                Outcome::Refused(why) => why,
                other => panic!("{other:?}"),
            }
        };
        assert!(refused(vec![7]).contains("damaged"));
        let mut large = example([1, 2]);
        large.samples = vec![0; 64 << 20];
        let why = refused(large.encode_to_vec());
        assert!(why.contains("large") && !why.contains("damaged"), "{why}");
    }

    #[test]
    fn each_frame_goes_once_and_each_window_by_its_token() {
        let first = [NONE, OK, OK, OK, OK, OK, BUSY];
        let again = [OK, OK, OK, OK];
        let more = [OK, OK, OK];
        let (address, heads) = serve(&[&first[..], &again, &more].concat());
        let receiver = Receiver {
            kind: Kind::ClickHouse,
            address: format!("{address}/?database=d"),
            headers: std::collections::BTreeMap::new(),
            certificate: None,
            timeout: Duration::from_secs(60),
        };
        let client = Client::new(None).unwrap();
        let mut there = There::default();
        let mut send = |message| there.send(&client, &receiver, &message, Duration::MAX);
        let busy = Outcome::Later("503".to_owned(), Some(Duration::from_secs(7)));
        assert_eq!(send(message([1, 2], 5)), busy);
        let seen: Vec<_> = first.iter().map(|_| asked(&heads)).collect();
        let tables: Vec<_> = seen.iter().map(|(table, _)| &**table).collect();
        assert_eq!(tables, ["frames", "", "", "", "", "frames", "stacks"]);
        // What an answer was lost for is sent again, and then no more.
        assert_eq!(send(message([1, 2], 5)), Outcome::Taken(None));
        let seen: Vec<_> = again.iter().map(|_| asked(&heads)).collect();
        let token = seen[2].1.clone();
        assert!(token.is_some() && seen[0].1.is_none());
        let [samples, windows] = [&seen[3], &seen[2]];
        assert_eq!(
            (&*windows.0, &*samples.0, &samples.1),
            ("windows", "samples", &token)
        );
        assert_eq!(send(message([1, 3], 6)), Outcome::Taken(None));
        let seen: Vec<_> = more.iter().map(|_| asked(&heads)).collect();
        assert_eq!((&*seen[0].0, &*seen[1].0), ("stacks", "windows"));
        assert!(seen[1].1.is_some() && seen[1].1 != token);
    }
}
