//! Who takes windows, and how each takes them.
//!
//! Not here: when they are sent, and what is done with those that are not taken
//! ([`super::sender`]).

mod clickhouse;
mod files;

use super::form::Form;
use super::queue::Message;
use crate::http::{self, Client, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost::Message as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// OpenTelemetry's protocol over HTTP.
    Otlp,
    /// Pyroscope's `/ingest`.
    Pyroscope,
    /// Parca's `/profiles/writeraw`.
    Parca,
    /// Tables of ClickHouse.
    ClickHouse,
    /// A folder.
    Files,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Otlp,
        Self::Pyroscope,
        Self::Parca,
        Self::ClickHouse,
        Self::Files,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Otlp => "otlp",
            Self::Pyroscope => "pyroscope",
            Self::Parca => "parca",
            Self::ClickHouse => "clickhouse",
            Self::Files => "files",
        }
    }

    /// In which form it takes windows.
    pub(super) const fn form(self) -> Form {
        match self {
            Self::Otlp => Form::Otlp,
            Self::ClickHouse => Form::Rows,
            Self::Pyroscope | Self::Parca | Self::Files => Form::Pprof,
        }
    }
}

/// A receiver, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Receiver {
    pub(super) kind: Kind,
    /// The address that is posted to, or the folder.
    pub(super) address: String,
    pub(super) headers: BTreeMap<String, String>,
    /// Who is trusted, instead of those whom the machine trusts (PEM).
    pub(super) certificate: Option<PathBuf>,
    /// How long an answer is waited for.
    pub(super) timeout: Duration,
}

impl Receiver {
    fn own_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.headers.iter();
        own.map(|(key, value)| (&**key, &**value))
    }
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was taken. Perhaps there was something to say.
    Taken(Option<String>),
    /// It will never be, and why.
    Refused(String),
    /// The receiver takes nothing now, whatever it is: why, and after which time it may, if it has
    /// said so.
    Later(String, Option<Duration>),
    /// The same, but perhaps it takes others: this one may be what it fails on.
    InDoubt(String, Option<Duration>),
}

/// What an answer says became of it.
fn outcome(answer: Result<http::Answer, Failure>) -> Outcome {
    match answer {
        Ok(answer) if answer.is_well() => Outcome::Taken(None),
        // Who is not let in may be with other settings.
        Ok(answer) if matches!(answer.status, 401 | 403 | 429 | 503) => {
            Outcome::Later(answer.says(), answer.after)
        }
        Ok(answer) if matches!(answer.status, 408 | 500..) => {
            Outcome::InDoubt(answer.says(), answer.after)
        }
        Ok(answer) => Outcome::Refused(answer.says()),
        Err(Failure::Never(why)) => Outcome::Refused(why),
        Err(Failure::Unreached(why)) => Outcome::Later(why, None),
        Err(Failure::Later(why)) => Outcome::InDoubt(why, None),
    }
}

/// Whether OpenTelemetry's protocol forbids to try again what was answered so, where others have it
/// tried.
const fn is_refused(status: u16) -> bool {
    status >= 400 && !matches!(status, 429 | 502..=504)
}

/// A receiver that is written to.
#[derive(Debug)]
pub(super) struct Connection {
    receiver: Receiver,
    /// None for files.
    client: Option<Client>,
    /// What ClickHouse has already.
    there: Mutex<clickhouse::There>,
    /// Bytes that may be in a folder.
    room: u64,
}

impl Connection {
    /// Gets ready; nothing is written yet.
    ///
    /// # Errors
    /// A sentence, about the address, a header, the certificate or the folder.
    pub(super) fn new(receiver: Receiver, room: u64) -> Result<Self, String> {
        let client = match receiver.kind {
            Kind::Files => {
                let made = std::fs::create_dir_all(&receiver.address);
                made.map_err(|error| format!("{}: {error}", receiver.address))?;
                None
            }
            _ => {
                http::check(&receiver.address, receiver.own_headers())?;
                Some(Client::new(receiver.certificate.as_deref())?)
            }
        };
        Ok(Self {
            receiver,
            client,
            there: Mutex::default(),
            room,
        })
    }

    /// Where it is.
    pub(super) fn address(&self) -> &str {
        &self.receiver.address
    }

    /// Sends a message. It takes as long as the receiver's timeout at most, and no longer than
    /// `patience`.
    pub(super) fn send(&self, message: &Message, patience: Duration) -> Outcome {
        let Some(client) = &self.client else {
            let folder = Path::new(&self.receiver.address);
            return files::write(folder, message, self.room);
        };
        let bytes = &message.bytes;
        let (address, body, mut headers) = match self.receiver.kind {
            Kind::Pyroscope => {
                let address = self.pyroscope_address(message);
                (address, multipart(bytes), vec![("Content-Type", MULTIPART)])
            }
            Kind::Parca => {
                let headers = vec![("Content-Type", "application/json")];
                (self.receiver.address.clone(), parca_body(message), headers)
            }
            Kind::ClickHouse => {
                let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
                return there.send(client, &self.receiver, message, patience);
            }
            Kind::Otlp | Kind::Files => {
                let headers = vec![
                    ("Content-Type", "application/x-protobuf"),
                    ("Content-Encoding", "gzip"),
                ];
                (self.receiver.address.clone(), bytes.to_vec(), headers)
            }
        };
        headers.extend(self.receiver.own_headers());
        let timeout = self.receiver.timeout.min(patience);
        let answer = client.post(&address, &headers, &body, timeout, http::SHORT);
        match &answer {
            Ok(answer) if answer.is_well() && self.receiver.kind == Kind::Otlp => {
                Outcome::Taken(partly(&answer.body))
            }
            Ok(answer) if self.receiver.kind == Kind::Otlp && is_refused(answer.status) => {
                Outcome::Refused(answer.says())
            }
            _ => outcome(answer),
        }
    }

    /// `name=SERVICE{KEY=VALUE,…}`, from and until in seconds.
    fn pyroscope_address(&self, message: &Message) -> String {
        let labels = labels(message).into_iter();
        let labels = labels.filter(|(key, _)| key != "service_name");
        let labels = labels.map(|(key, value)| format!("{key}={}", harmless(&value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let name = format!("{}{{{labels}}}", harmless(service(message)));
        let seconds = |ns: u64| ns / 1_000_000_000;
        let address = &self.receiver.address;
        let mark = if address.contains('?') { '&' } else { '?' };
        format!(
            "{address}{mark}name={}&from={}&until={}&format=pprof&spyName=rsunwind",
            utf8_percent_encode(&name, NON_ALPHANUMERIC),
            seconds(message.from_ns),
            seconds(message.to_ns).max(seconds(message.from_ns) + 1),
        )
    }
}

fn parca_body(message: &Message) -> Vec<u8> {
    let label = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut all = vec![label("__name__", "process_cpu")];
    let own = labels(message);
    all.extend(own.iter().map(|(key, value)| label(key, value)));
    let body = json!({
        "series": [{
            "labels": {"labels": all},
            "samples": [{"raw_profile": STANDARD.encode(&message.bytes)}],
        }],
    });
    body.to_string().into_bytes()
}

/// What a message's service is called.
fn service(message: &Message) -> &str {
    let service = message.attributes.get("service.name");
    service.map_or("unknown", String::as_str)
}

/// Attributes, as Prometheus would have them called.
fn labels(message: &Message) -> BTreeMap<String, String> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let label = |(key, value): (&String, &String)| {
        let mut key: String = key.chars().map(allowed).collect();
        if key.starts_with(|c: char| c.is_ascii_digit()) {
            key.insert(0, '_');
        }
        (key, value.clone())
    };
    message.attributes.iter().map(label).collect()
}

/// A value with nothing in it that ends one in Pyroscope's names.
fn harmless(value: &str) -> String {
    let ends = |c: char| matches!(c, '{' | '}' | ',' | '=' | '"') || c.is_control();
    value
        .chars()
        .map(|c| if ends(c) { '_' } else { c })
        .collect()
}

const BOUNDARY: &str = "rsunwind-9f1c6bd4a8e25307";
const MULTIPART: &str = "multipart/form-data; boundary=rsunwind-9f1c6bd4a8e25307";

/// A profile as a form, with what its columns are.
fn multipart(profile: &[u8]) -> Vec<u8> {
    let columns = json!({
        "samples": {"units": "samples", "sampled": true},
        "cpu": {"units": "nanoseconds", "sampled": true},
    });
    let part = |name: &str, file: &str| {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
    };
    [
        part("profile", "profile.pprof").as_bytes(),
        profile,
        b"\r\n",
        part("sample_type_config", "sample_type_config.json").as_bytes(),
        columns.to_string().as_bytes(),
        format!("\r\n--{BOUNDARY}--\r\n").as_bytes(),
    ]
    .concat()
}

/// What an OTLP receiver says that has not taken all of a request.
fn partly(answer: &[u8]) -> Option<String> {
    let answer = ExportProfilesServiceResponse::decode(answer).ok()?;
    let partial = answer.partial_success?;
    let says = partial.rejected_profiles > 0 || !partial.error_message.is_empty();
    says.then(|| {
        let count = partial.rejected_profiles;
        let why = http::beginning(partial.error_message.as_bytes());
        format!("{count} of its profiles rejected: {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::serve;
    use std::sync::Arc;

    fn message(bytes: &[u8]) -> Message {
        let attribute = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let attributes = [
            ("service.name", "a,b"),
            ("host.name", "h}=\"1"),
            ("9\u{e4}", "\u{1b}x"),
        ];
        Message {
            bytes: bytes.into(),
            attributes: Arc::new(attributes.into_iter().map(attribute).collect()),
            from_ns: 1_500_000_000,
            to_ns: 1_600_000_000,
        }
    }

    #[test]
    fn labels_end_nothing_but_themselves() {
        let connection = Connection {
            receiver: Receiver {
                kind: Kind::Pyroscope,
                address: "http://p/ingest".into(),
                headers: BTreeMap::new(),
                certificate: None,
                timeout: Duration::ZERO,
            },
            client: None,
            there: Mutex::default(),
            room: 0,
        };
        let address = connection.pyroscope_address(&message(b""));
        let (_, name) = address.split_once("name=").unwrap();
        let (name, rest) = name.split_once('&').unwrap();
        let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
        assert_eq!(name, "a_b{_9_=_x,host_name=h___1}");
        assert_eq!(rest, "from=1&until=2&format=pprof&spyName=rsunwind");
        let receiver = Receiver {
            address: "http://p/ingest?t=x".into(),
            ..connection.receiver
        };
        let connection = Connection {
            receiver,
            ..connection
        };
        let address = connection.pyroscope_address(&message(b""));
        assert!(
            address.starts_with("http://p/ingest?t=x&name="),
            "{address}"
        );
    }

    #[test]
    fn parca_gets_a_series_with_all_labels() {
        let body = parca_body(&message(b"abc"));
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let series = &body["series"][0];
        assert_eq!(series["samples"][0]["raw_profile"], "YWJj");
        let labels = series["labels"]["labels"].as_array().unwrap();
        let find = |name: &str| labels.iter().find(|label| label["name"] == name);
        assert_eq!(find("host_name").unwrap()["value"], "h}=\"1");
        assert_eq!(find("__name__").unwrap()["value"], "process_cpu");
    }

    #[test]
    fn only_what_may_be_tried_again_is() {
        let statuses = [400, 401, 403, 408, 429, 500, 501, 502, 503, 504];
        let answer = |status| {
            format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        };
        let answers = statuses.map(answer);
        let again = |kind: Kind| {
            let (address, _heads) = serve(&answers.each_ref().map(|one| &**one));
            let receiver = Receiver {
                kind,
                address,
                headers: BTreeMap::new(),
                certificate: None,
                timeout: Duration::from_secs(60),
            };
            let connection = Connection::new(receiver, 0).unwrap();
            let send = || connection.send(&message(b"x"), Duration::MAX);
            let outcomes = statuses.map(|status| (status, send()));
            let statuses = |is: fn(&Outcome) -> bool| {
                let those = outcomes.iter().filter(|(_, outcome)| is(outcome));
                those.map(|(status, _)| *status).collect::<Vec<_>>()
            };
            (
                statuses(|outcome| matches!(outcome, Outcome::Later(..))),
                statuses(|outcome| matches!(outcome, Outcome::InDoubt(..))),
            )
        };
        assert_eq!(again(Kind::Otlp), (vec![429, 503], vec![502, 504]));
        let others = (vec![401, 403, 429, 503], vec![408, 500, 501, 502, 504]);
        for kind in [Kind::Pyroscope, Kind::Parca] {
            assert_eq!(again(kind), others, "{kind:?}");
        }
    }

    #[test]
    fn what_a_receiver_says_of_a_part_is_shown_as_far_as_it_is_short() {
        use opentelemetry_proto::tonic::collector::profiles::v1development as answers;
        let answer = ExportProfilesServiceResponse {
            partial_success: Some(answers::ExportProfilesPartialSuccess {
                rejected_profiles: 1,
                error_message: "\u{1b}no ".repeat(20_000),
            }),
        };
        let says = partly(&answer.encode_to_vec()).unwrap();
        assert!(
            says.starts_with("1 of its profiles rejected: \\u{1b}no "),
            "{says}"
        );
        assert!(says.len() < 1000, "{} bytes", says.len());
    }
}
