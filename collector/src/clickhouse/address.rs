//! `clickhouse://USER:PASSWORD@HOST:PORT/DATABASE?service=…&from=…&to=…`: which samples are read.
//! Everything in it goes to ClickHouse as a parameter.

use super::read::Error;
use crate::clock;
use crate::http::shown;
use crate::units;
use percent_encoding::percent_decode_str;

/// How addresses begin.
const SCHEME: &str = "clickhouse://";
/// ClickHouse's port for HTTP, and for HTTPS.
const PORTS: [&str; 2] = ["8123", "8443"];
/// From when on, if nobody says.
const FROM: &str = "-1h";
/// By what labels are asked for.
const LABEL: &str = "label.";
/// By what labels of regions are.
const REGION: &str = "region.";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// `http://HOST:PORT/`.
    pub(super) base: String,
    pub(super) database: String,
    /// Who asks, if that is said.
    pub(super) user: Option<(String, String)>,
    /// SQL that holds for samples that are wanted; only names of parameters are from the address.
    pub(super) condition: String,
    /// SQL that holds for samples that lie where some of that time may be, by the index alone.
    pub(super) place: String,
    /// Parameters, by name.
    pub(super) parameters: Vec<(String, String)>,
}

/// Whether this is no file but an address.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with(SCHEME)
}

/// Reads one; `now_ns` since 1970.
pub(super) fn parse(text: &str, now_ns: u64) -> Result<Wanted, Error> {
    let behind = text.strip_prefix(SCHEME).unwrap_or(text);
    let (place, query) = behind.split_once('?').unwrap_or((behind, ""));
    let read = read(place, query, now_ns);
    read.map_err(|why| Error::Address(without_user(text), why))
}

fn read(place: &str, query: &str, now_ns: u64) -> Result<Wanted, String> {
    let (user, place) = match place.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, place),
    };
    let (host, database) = place.split_once('/').unwrap_or((place, ""));
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    let user = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        Ok::<_, String>((decoded(name)?, decoded(password)?))
    });
    let database = match decoded(database.trim_end_matches('/'))? {
        none if none.is_empty() => "default".to_owned(),
        name => name,
    };
    let mut wanted = Wanted {
        database,
        user: user.transpose()?,
        ..Wanted::default()
    };
    let is_secure = wanted.choose(query, now_ns)?;
    let scheme = if is_secure { "https" } else { "http" };
    let has_port = host.rsplit_once(':');
    let has_port = has_port.is_some_and(|(_, port)| !port.contains(']'));
    let port = match has_port {
        true => String::new(),
        false => format!(":{}", PORTS[usize::from(is_secure)]),
    };
    wanted.base = format!("{scheme}://{host}{port}/");
    Ok(wanted)
}

fn decoded(text: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(String::from)
        .map_err(|_| "its text is no UTF-8".to_owned())
}

impl Wanted {
    /// Takes what stands behind `?`; gives whether it is HTTPS.
    fn choose(&mut self, query: &str, now_ns: u64) -> Result<bool, String> {
        let (mut from, mut to, mut secure) = (FROM.to_owned(), "-0s".to_owned(), false);
        let (mut conditions, mut labels) = (Vec::new(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decoded(key)?, decoded(value)?);
            match (&*key, key.strip_prefix(LABEL)) {
                ("from", _) => from = value,
                ("to", _) => to = value,
                ("secure", _) => secure = value != "0",
                ("service" | "host" | "process" | "thread" | "language", _) => {
                    if self.parameters.iter().any(|(known, _)| *known == key) {
                        return Err(format!("there are two of {key}"));
                    }
                    conditions.push(format!("{key} = {{{key}:String}}"));
                    self.parameters.push((key, value));
                }
                (_, Some(label)) => labels.push(self.labelled("labels", label, value)),
                _ => match key.strip_prefix(REGION) {
                    Some(label) => conditions.push(self.labelled("regions", label, value)),
                    None => {
                        let key = shown(&key);
                        return Err(format!(
                            "there is no {key}; there are service, host, process, thread, language, label.KEY, region.KEY, from, to, secure"
                        ));
                    }
                },
            }
        }
        let has_labels = !labels.is_empty();
        for (name, sign, edge, time) in [("from", ">=", "end", from), ("to", "<", "begin", to)] {
            labels.push(format!("{edge} {sign} {}", in_sql(name)));
            let time = absolute(&time, now_ns).map_err(|why| format!("{name}: {why}"))?;
            self.parameters.push((name.to_owned(), time));
        }
        if has_labels {
            let labels = labels.join(" AND ");
            let windows = format!("SELECT window FROM rsunwind_windows WHERE {labels}");
            conditions.push(format!("window IN ({windows})"));
        }
        let [from, to] = ["from", "to"].map(in_sql);
        let place = format!("{} AND {}", since(&from), until(&to));
        conditions.push(format!("time >= {from} AND time < {to} AND {place}"));
        self.condition = conditions.join(" AND ");
        self.place = place;
        Ok(secure)
    }

    /// That a column of labels has this one.
    fn labelled(&mut self, column: &str, label: &str, wanted: String) -> String {
        let number = self.parameters.len();
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        self.parameters.push((key.clone(), label.to_owned()));
        self.parameters.push((value.clone(), wanted));
        format!("{column}[{{{key}:String}}] = {{{value}:String}}")
    }
}

/// The time that is a parameter of that name.
pub(super) fn in_sql(name: &str) -> String {
    format!("parseDateTime64BestEffort({{{name}:String}}, 3, 'UTC')")
}

/// Holds for samples that may lie beside some from a time on. The index knows minutes, and has to
/// be told of them: it takes a condition on the time for one on the column behind, by which it
/// leaves out nothing.
pub(super) fn since(time: &str) -> String {
    format!("indexHint(toStartOfMinute(time) >= {time} - INTERVAL 1 MINUTE)")
}

/// Likewise of some before a time.
pub(super) fn until(time: &str) -> String {
    format!("indexHint(toStartOfMinute(time) < {time})")
}

/// The address without user and password, to be shown.
fn without_user(text: &str) -> String {
    let behind = text.strip_prefix(SCHEME).unwrap_or(text);
    let (place, rest) = behind.split_at(behind.find('?').unwrap_or(behind.len()));
    match place.rsplit_once('@') {
        Some((_, place)) => format!("{SCHEME}{place}{rest}"),
        // What stands before one may be a password with a `?` in it.
        None => format!("{SCHEME}{}", shown(behind)),
    }
}

/// Now, ns since 1970.
pub(super) fn now_ns() -> u64 {
    clock::realtime_offset_ns().saturating_add(clock::monotonic_ns())
}

/// `-15m` is so long ago; anything else is what ClickHouse takes for a time, which says itself if
/// it is none.
fn absolute(text: &str, now_ns: u64) -> Result<String, String> {
    let Some(ago) = text.strip_prefix('-') else {
        return Ok(text.to_owned());
    };
    let ago = match ago {
        "0s" => 0,
        ago => u64::try_from(units::duration(ago)?.as_nanos()).unwrap_or(u64::MAX),
    };
    let at = now_ns.saturating_sub(ago);
    Ok(format!(
        "{}.{:03}",
        at / 1_000_000_000,
        at / 1_000_000 % 1000
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_an_address_is_a_parameter() {
        let hostile = "clickhouse://u%40:p@h/d?service=x'%3B%20DROP&label.a%27=b%5C&region.c%27=d%5C&from=-15m&to=2026-11-23T08:00:00Z";
        let wanted = parse(hostile, 1_700_000_000_123_000_000).unwrap();
        assert_eq!(wanted.base, "http://h:8123/");
        assert_eq!(
            (&*wanted.database, wanted.user),
            ("d", Some(("u@".into(), "p".into())))
        );
        assert!(!wanted.condition.contains("DROP") && !wanted.condition.contains("b\\"));
        assert!(wanted.condition.ends_with(&wanted.place));
        let parameter = |name: &str| {
            let found = wanted.parameters.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| &**value)
        };
        assert_eq!(parameter("service"), Some("x'; DROP"));
        assert_eq!(
            (parameter("key1"), parameter("value1")),
            (Some("a'"), Some("b\\"))
        );
        assert_eq!(
            (parameter("key3"), parameter("value3")),
            (Some("c'"), Some("d\\"))
        );
        assert!(
            wanted
                .condition
                .contains("regions[{key3:String}] = {value3:String}")
        );
        assert_eq!(parameter("from"), Some("1699999100.123"));
        assert_eq!(parameter("to"), Some("2026-11-23T08:00:00Z"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |text: &str| parse(text, 0).unwrap_err().to_string();
        assert!(says("clickhouse://h?sevrice=x").contains("there is no sevrice"));
        assert!(says("clickhouse:///d").contains("no host"));
        assert!(says("clickhouse://h?from=-x").contains("from: "));
        assert!(says("clickhouse://h?service=%ff").contains("UTF-8"));
        assert!(says("clickhouse://h?host=a&host=b").contains("two of host"));
        let hidden = says("clickhouse://user:secret@h/d?x=1");
        assert!(hidden.starts_with("clickhouse://h/d?x=1: "), "{hidden}");
        let hidden = says("clickhouse://user:sec?ret@h/d");
        assert!(
            hidden.starts_with("clickhouse://h/d: there is no h/d"),
            "{hidden}"
        );
        let base = |text: &str| parse(text, 0).unwrap().base;
        assert_eq!(base("clickhouse://h:1"), "http://h:1/");
        assert_eq!(base("clickhouse://[::1]?secure=1"), "https://[::1]:8443/");
    }
}
