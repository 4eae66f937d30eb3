//! Questions to ClickHouse over HTTP: SQL goes there, rows come back.

use super::address::Wanted;
use super::answer::{self, Row};
use super::asking;
use super::read::Error;
use super::turns::Turns;
use crate::http::{Client, Failure};
use std::env;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of an answer no more is read, bytes.
const LONGEST: u64 = 1 << 30;
/// What who may not set something is told: by who may only read, by a constraint, and by those that
/// do not know it.
const NOT_TO_BE_SET: [&str; 3] = ["Code: 164.", "Code: 452.", "Code: 115."];
/// What who asks more at once than is allowed is told.
const TOO_MANY: &str = "Code: 202.";
/// Who is told that while none of ours is answered asks so many times more, ...
const TIMES: usize = 50;
/// ... with such a pause in front of each.
const PAUSE: Duration = Duration::from_millis(100);

/// Who is asked.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    pub(super) wanted: Wanted,
    turns: Turns,
}

impl Server {
    pub(super) fn new(wanted: Wanted) -> Result<Self, Error> {
        let client = Client::new(env::var_os("SSL_CERT_FILE").map(PathBuf::from).as_deref());
        match client {
            Ok(client) => Ok(Self {
                client,
                wanted,
                turns: Turns::new(),
            }),
            Err(why) => Err(Error::Refused(wanted.base, why)),
        }
    }

    /// What is answered to a query by a setting, which not everybody may set.
    pub(super) fn answer_by(
        &self,
        sql: &str,
        setting: &str,
        services: &[String],
    ) -> Result<Vec<u8>, Error> {
        match self.answer(&format!("{sql} SETTINGS {setting}"), services) {
            Err(Error::Refused(_, why)) if NOT_TO_BE_SET.iter().any(|code| why.contains(code)) => {
                self.answer(sql, services)
            }
            found => found,
        }
    }

    /// The rows that a query gives.
    pub(super) fn rows<R: for<'a> Row<'a>>(
        &self,
        sql: &str,
        services: &[String],
    ) -> Result<Vec<R>, Error> {
        self.rows_of(&self.answer(sql, services)?)
    }

    /// Those of an answer.
    pub(super) fn rows_of<'a, R: Row<'a>>(&self, body: &'a [u8]) -> Result<Vec<R>, Error> {
        answer::rows(body).map_err(|why| self.is_another(&why))
    }

    /// The error that an answer is of other tables.
    pub(super) fn is_another(&self, why: &str) -> Error {
        self.refused(&format!(
            "its answer is not that of rsunwind's tables: {why}"
        ))
    }

    /// What is answered to a query, in which `first` and `last` are those services.
    pub(super) fn answer(&self, sql: &str, services: &[String]) -> Result<Vec<u8>, Error> {
        let mut times = TIMES;
        loop {
            let turn = self.turns.take();
            let answer = self.answer_at_once(sql, services);
            let is_one_too_many =
                matches!(&answer, Err(Error::Refused(_, why)) if why.contains(TOO_MANY));
            if !is_one_too_many {
                return answer;
            }
            if !turn.refused() {
                // Others of that user ask.
                if times == 0 {
                    return answer;
                }
                times -= 1;
                thread::sleep(PAUSE);
            }
        }
    }

    fn answer_at_once(&self, sql: &str, services: &[String]) -> Result<Vec<u8>, Error> {
        let wanted = &self.wanted;
        let parameters = wanted.parameters.iter();
        let parameters = parameters.map(|(key, value)| (&**key, &**value));
        let parameters = parameters.chain(
            ["first", "last"]
                .into_iter()
                .zip(services.iter().map(|service| &**service)),
        );
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

    pub(super) fn refused(&self, why: &str) -> Error {
        Error::Refused(self.wanted.base.clone(), why.to_owned())
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
