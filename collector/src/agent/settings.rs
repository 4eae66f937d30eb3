//! What the agent is told: by its command line, a file (TOML), and OpenTelemetry's variables of the
//! environment; the first that says something holds. The file can be read anew.

use super::Error;
use super::address::{joined, path_of, without_user};
use super::args::{Args, window_length};
use super::queue::Limits;
use super::receiver::{Kind, Receiver};
use crate::http;
use crate::regular_file;
use crate::units;
use crate::visible::Shown;
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::{Table, Value};

/// How long windows are.
const WINDOW: Duration = Duration::from_secs(15);
/// How long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The attribute that is the service.
pub(super) const SERVICE: &str = "service.name";
/// Where OTLP receivers take profiles.
const OTLP_PATH: &str = "v1development/profiles";

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) window: Duration,
    /// What is recorded in another way than the command line says.
    pub(super) rate: Option<units::Rate>,
    pub(super) max_overhead: Option<units::Share>,
    pub(super) processes: Option<String>,
    pub(super) service: Option<String>,
    /// What is said of all that is sent.
    pub(super) labels: BTreeMap<String, String>,
    /// Where messages wait that find no room in memory.
    pub(super) spool: Option<PathBuf>,
    pub(super) limits: Limits,
    pub(super) receivers: Vec<Receiver>,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::Settings`] names the one that is wrong, [`Error::NoReceiver`].
    pub(super) fn read(args: &Args) -> Result<Self, Error> {
        let file = args.config.as_deref().map(read_file).transpose()?;
        let file = file.unwrap_or_default();
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let mut settings = of(&file, variable).map_err(|why| {
            let place = args.config.as_deref();
            let place = place.map_or("the environment".to_owned(), |it| it.shown().to_string());
            Error::Settings(format!("{place}: {why}"))
        })?;
        settings.take(args, variable).map_err(Error::Settings)?;
        if settings.receivers.is_empty() {
            let found = of_environment(variable).map_err(Error::Settings)?;
            settings.receivers.extend(found);
        }
        match settings.receivers.is_empty() {
            true => Err(Error::NoReceiver),
            false => Ok(settings),
        }
    }

    /// Reads them anew, for a recording that goes on: nobody waits for what comes out of a pipe.
    ///
    /// # Errors
    /// Those of [`Settings::read`].
    pub(super) fn reread(args: &Args) -> Result<Self, Error> {
        if let Some(path) = &args.config
            && std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir())
        {
            let why = "it is no file, and is read only at the beginning";
            return Err(Error::Settings(format!("{}: {why}", path.shown())));
        }
        Self::read(args)
    }

    /// What the command line says.
    fn take(
        &mut self,
        args: &Args,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), String> {
        self.window = args.window.unwrap_or(self.window);
        self.spool = args.spool.clone().or(self.spool.take());
        for label in &args.label {
            let pair = label.split_once('=').filter(|(key, _)| !key.is_empty());
            let (key, value) = pair.ok_or(format!("--label {label}: give KEY=VALUE"))?;
            self.labels.insert(key.to_owned(), value.to_owned());
            if key == SERVICE {
                self.service = Some(value.to_owned());
            }
        }
        self.service = args.service.clone().or(self.service.take());
        let given = [
            (Kind::Otlp, &args.otlp),
            (Kind::Pyroscope, &args.pyroscope),
            (Kind::Parca, &args.parca),
            (Kind::ClickHouse, &args.clickhouse),
            (Kind::Files, &args.files),
        ];
        for (kind, all) in given {
            for address in all {
                self.receivers.push(receiver(kind, address, &variable)?);
            }
        }
        Ok(())
    }
}

fn read_file(path: &Path) -> Result<Table, Error> {
    let failed = |why: String| Error::Settings(format!("{}: {why}", path.shown()));
    let bytes = regular_file::read(path).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("it is no text".to_owned()))?;
    parse(&text).map_err(failed)
}

/// The line itself is not shown: there may be a secret in it.
fn parse(text: &str) -> Result<Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        format!("line {line}: {}", error.message())
    })
}

/// What a file and the environment say.
fn of(file: &Table, variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
    let known = [
        "window",
        "rate",
        "max_overhead",
        "processes",
        "service",
        "spool",
        "memory",
        "disk",
        "labels",
        "send",
    ];
    only(file, &known)?;
    let mut labels = BTreeMap::new();
    if let Some(list) = variable("OTEL_RESOURCE_ATTRIBUTES") {
        labels.extend(pairs("OTEL_RESOURCE_ATTRIBUTES", &list)?);
    }
    // What the file says in either way comes before what the environment does, as for all else.
    let of_environment = variable("OTEL_SERVICE_NAME").or_else(|| labels.get(SERVICE).cloned());
    let of_file = texts(file, "labels")?;
    let service = text(file, "service")?.or_else(|| of_file.get(SERVICE).cloned());
    labels.extend(of_file);
    let mut receivers = Vec::new();
    for entry in list(file, "send")? {
        receivers.push(receiver_of(entry, &variable)?);
    }
    let size = |name: &str, otherwise: &str| {
        let given = text(file, name)?;
        units::size(given.as_deref().unwrap_or(otherwise)).map_err(|why| format!("{name}: {why}"))
    };
    let window = read(file, "window", window_length)?;
    Ok(Settings {
        window: window.unwrap_or(WINDOW),
        rate: read(file, "rate", units::Rate::parse)?,
        max_overhead: read(file, "max_overhead", units::Share::parse)?,
        processes: text(file, "processes")?,
        service: service.or(of_environment),
        labels,
        spool: text(file, "spool")?.map(PathBuf::from),
        limits: Limits {
            memory: size("memory", "8M")?,
            disk: size("disk", "256M")?,
        },
        receivers,
    })
}

/// The receiver that the environment names, where nothing else names one.
fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Receiver>, String> {
    let whole = variable("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT");
    let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    let whole = whole.or_else(|| base.map(|base| joined(&base, OTLP_PATH)));
    let found = whole.map(|address| {
        let found = receiver(Kind::Otlp, &address, variable)?;
        // As it is, with or without a path.
        let (address, _) = without_user(&address);
        Ok(Receiver { address, ..found })
    });
    found.transpose()
}

/// An entry of `send`.
fn receiver_of(
    entry: &Table,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Receiver, String> {
    let kinds = Kind::ALL.map(Kind::name);
    let mut known = vec!["headers", "certificate", "timeout"];
    known.extend(kinds);
    only(entry, &known).map_err(|why| format!("send: {why}"))?;
    let mut found = Kind::ALL.into_iter().filter_map(|kind| {
        let address = text(entry, kind.name()).transpose()?;
        Some(address.map(|address| (kind, address)))
    });
    let (Some(one), None) = (found.next(), found.next()) else {
        return Err(format!("send: give one of {}", kinds.join(", ")));
    };
    let (kind, address) = one?;
    let mut receiver = receiver(kind, &address, variable)?;
    receiver.headers.extend(named(texts(entry, "headers")?));
    receiver.timeout = read(entry, "timeout", units::duration)?.unwrap_or(receiver.timeout);
    if let Some(path) = text(entry, "certificate")? {
        receiver.certificate = Some(path.into());
    }
    Ok(receiver)
}

/// Headers by their names, in which case does not count: what is said later stands for the other.
fn named(headers: BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    let headers = headers.into_iter();
    headers.map(|(name, value)| (name.to_ascii_lowercase(), value))
}

/// A receiver at an address, with what the environment says of its kind.
fn receiver(
    kind: Kind,
    address: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Receiver, String> {
    let (address, user) = match kind {
        Kind::Files => (address.to_owned(), None),
        _ => without_user(address),
    };
    let address = match kind {
        Kind::Files => address,
        _ if !address.starts_with("http://") && !address.starts_with("https://") => {
            let name = kind.name();
            return Err(format!(
                "{name}: {} is no address: give http://HOST:PORT",
                http::shown(&address)
            ));
        }
        Kind::Pyroscope => joined(&address, "ingest"),
        Kind::Parca => joined(&address, "profiles/writeraw"),
        Kind::ClickHouse => database(&address)?,
        // One with a path is meant as it is.
        Kind::Otlp if path_of(&address).is_empty() => joined(&address, OTLP_PATH),
        Kind::Otlp => address,
    };
    let mut receiver = Receiver {
        kind,
        address,
        headers: BTreeMap::new(),
        certificate: None,
        timeout: TIMEOUT,
    };
    let user = user.map(|user| ("authorization".to_owned(), user));
    receiver.headers.extend(user);
    if kind == Kind::Otlp {
        let prefixes = ["OTEL_EXPORTER_OTLP_PROFILES_", "OTEL_EXPORTER_OTLP_"];
        let names = |last: &'static str| prefixes.map(|prefix| format!("{prefix}{last}"));
        let given = |last| {
            let mut names = names(last).into_iter();
            names.find_map(|name| variable(&name).map(|value| (name, value)))
        };
        for name in names("HEADERS").into_iter().rev() {
            if let Some(list) = variable(&name) {
                receiver.headers.extend(named(pairs(&name, &list)?));
            }
        }
        receiver.certificate = given("CERTIFICATE").map(|(_, path)| path.into());
        if let Some((name, text)) = given("TIMEOUT") {
            let ms = text.parse().map_err(|_| format!("{name}: give ms"))?;
            receiver.timeout = Duration::from_millis(ms);
        }
        if let Some((name, other)) = given("PROTOCOL").filter(|(_, it)| it != "http/protobuf") {
            return Err(format!(
                "{name}={other}: profiles are sent as http/protobuf only"
            ));
        }
    }
    Ok(receiver)
}

/// `http://HOST:PORT/DATABASE`, as ClickHouse wants to be asked.
fn database(address: &str) -> Result<String, String> {
    let name = path_of(address).trim_end_matches('/');
    if address.contains(['?', '#']) || name.contains(['/', '&']) {
        return Err(format!(
            "clickhouse: {address}: give http://HOST:PORT/DATABASE"
        ));
    }
    let base = address.trim_end_matches('/');
    let base = base
        .strip_suffix(name)
        .unwrap_or(base)
        .trim_end_matches('/');
    let name = if name.is_empty() { "default" } else { name };
    Ok(format!("{base}/?database={name}"))
}

/// `k=v,k2=v2`, both percent-encoded.
fn pairs(name: &str, list: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = list.split(',').filter(|pair| !pair.trim().is_empty());
    let text = |part: &str| {
        let text = percent_encoding::percent_decode_str(part.trim());
        Some(text.decode_utf8().ok()?.into_owned())
    };
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((text(key)?, text(value)?)).filter(|(key, _)| !key.is_empty())
    };
    let all: Option<_> = pairs.map(pair).collect();
    all.ok_or_else(|| format!("{name}: give KEY=VALUE,KEY=VALUE"))
}

fn only(table: &Table, known: &[&str]) -> Result<(), String> {
    let unknown = table.keys().find(|key| !known.contains(&&***key));
    unknown.map_or(Ok(()), |key| {
        Err(format!(
            "there is no setting {key:?}; there are {}",
            known.join(", ")
        ))
    })
}

fn text(table: &Table, name: &str) -> Result<Option<String>, String> {
    match table.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{name}: give a text in quotes")),
    }
}

/// A text that means something.
fn read<T>(
    table: &Table,
    name: &str,
    meaning: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    let found = text(table, name)?.map(|text| meaning(&text));
    found.transpose().map_err(|why| format!("{name}: {why}"))
}

fn texts(table: &Table, name: &str) -> Result<BTreeMap<String, String>, String> {
    let wrong = || format!("{name}: give a table of texts");
    let inner = match table.get(name) {
        None => return Ok(BTreeMap::new()),
        Some(Value::Table(inner)) => inner,
        Some(_) => return Err(wrong()),
    };
    let pair = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    inner
        .iter()
        .map(pair)
        .collect::<Option<_>>()
        .ok_or_else(wrong)
}

fn list<'a>(table: &'a Table, name: &str) -> Result<Vec<&'a Table>, String> {
    let wrong = || format!("{name}: give tables, each begun with [[{name}]]");
    match table.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let tables = list.iter().map(Value::as_table);
            tables.collect::<Option<_>>().ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
