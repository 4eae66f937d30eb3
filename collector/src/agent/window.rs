//! One window of a recording that goes on: what is asked for, and what is made of it.
//!
//! Not here: which window is next ([`super::windows`]), the process that makes it
//! ([`super::reader`]), and where messages go.

use super::books::Books;
use super::chosen;
use super::containers::Containers;
use super::form::{Form, Source};
use super::names::Names;
use crate::clickhouse::rows;
use crate::clock;
use crate::correlate::{self, Window};
use crate::recording::SessionInfo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// For so much of a message there is room at once, bytes.
const AT_ONCE: u64 = 1 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What is read: files, and the session's directory.
    pub(super) paths: Vec<PathBuf>,
    /// Where names are kept from one reader to the next.
    pub(super) names: PathBuf,
    /// Whether all is looked for that can be known of an address.
    pub(super) thorough: bool,
    pub(super) window: Window,
    /// What the windows before it had.
    pub(super) books: Books,
    pub(super) asked: Asked,
}

/// What is asked for of every window.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Which messages are made.
    pub(super) forms: Vec<Form>,
    /// What is said of where it was recorded.
    pub(super) attributes: Arc<BTreeMap<String, String>>,
    /// Only processes of these names are in it, if there are any.
    pub(super) processes: Vec<String>,
    /// Whether it is said of each process where it is.
    pub(super) each: bool,
}

/// What was made of a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    /// Samples in it, and their weight in sampling periods.
    pub(super) samples: u64,
    pub(super) weight: u64,
    /// CPU time that they stand for, ns.
    pub(super) cpu_ns: u64,
    /// From when to when it is, ns since 1970.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// What the next one has to know.
    pub(super) books: Books,
    /// Whether the reader ends.
    pub(super) ends: bool,
    /// A message in each form that was asked for, unless there was nothing to say.
    pub(super) messages: Vec<(Form, Vec<u8>)>,
}

/// Makes a window.
///
/// # Errors
/// A sentence.
pub(super) fn make(
    request: &Request,
    names: &mut Names,
    containers: &mut Containers,
) -> Result<Made, String> {
    let asked = &request.asked;
    let mut paths = request.paths.clone();
    if names.is_empty() && request.names.exists() {
        paths.push(request.names.clone());
    }
    let window = request.window;
    let mut books = request.books.clone();
    let recording = correlate::read_window(&paths, window, &mut books.late);
    let mut recording = recording.map_err(|error| error.to_string())?;
    let realtime_offset_ns = clock::realtime_offset_ns();
    let times = recording.samples.iter().map(|sample| sample.time_ns);
    let first = times.clone().min().unwrap_or(0);
    let last = times.max().unwrap_or(0);
    let start_ns = match window.after_ns {
        0 => first,
        after => after,
    };
    let end_ns = match window.is_last() {
        true => last.max(start_ns),
        false => window.until_ns,
    };
    let mut rows = books.enter(&recording, window.after_ns, window.until_ns);
    if !asked.processes.is_empty() {
        chosen::leave_only(&asked.processes, &mut recording, &mut rows);
    }
    recording.session = Some(SessionInfo {
        start_ns,
        end_ns,
        realtime_offset_ns,
        ..recording.session.unwrap_or_default()
    });
    let mut profile = names.name(recording, &rows, request.thorough);
    if asked.each {
        containers.label(&mut profile);
    }
    let from_ns = realtime_offset_ns.saturating_add(start_ns);
    let mut made = Made {
        from_ns,
        to_ns: realtime_offset_ns.saturating_add(end_ns),
        books,
        ..Made::default()
    };
    for sample in &profile.samples {
        made.samples += 1;
        made.weight = made.weight.saturating_add(sample.weight);
        made.cpu_ns = made.cpu_ns.saturating_add(profile.time_ns(sample));
    }
    if profile.weighed().next().is_some() {
        let window = rows::Window {
            attributes: &asked.attributes,
            from_ns,
            to_ns: made.to_ns,
            realtime_offset_ns,
        };
        let source = Source {
            profile: &profile,
            window,
        };
        for form in &asked.forms {
            let bytes = form.encode(&source);
            let bytes = bytes.map_err(|error| error.to_string())?;
            made.messages.push((*form, bytes));
        }
    }
    Ok(made)
}

impl Request {
    pub(super) fn encode(&self) -> String {
        let window = &self.window;
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        json!({
            "paths": self.paths.iter().map(|one| path(one)).collect::<Vec<_>>(),
            "names": path(&self.names),
            "thorough": self.thorough,
            "window": [window.after_ns, window.until_ns, window.late_after_ns, window.late_until_ns],
            "forms": self.asked.forms.iter().map(|form| form.name()).collect::<Vec<_>>(),
            "attributes": *self.asked.attributes,
            "processes": self.asked.processes,
            "each": self.asked.each,
            "books": self.books.encode(),
        })
        .to_string()
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let list = |name: &str| value.get(name)?.as_array();
        let byte = |value: &Value| u8::try_from(value.as_u64()?).ok();
        let path = |value: &Value| {
            let bytes = value.as_array()?.iter().map(byte);
            Some(PathBuf::from(OsString::from_vec(
                bytes.collect::<Option<_>>()?,
            )))
        };
        let times = list("window")?.iter().map(Value::as_u64);
        let [after_ns, until_ns, late_after_ns, late_until_ns] =
            times.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let attributes = value.get("attributes")?.as_object()?.iter();
        let attribute = |(key, value): (&String, &Value)| {
            let value = value.as_str()?;
            Some((key.clone(), value.to_owned()))
        };
        let forms = list("forms")?.iter();
        let names = list("processes")?.iter();
        let asked = Asked {
            forms: forms
                .map(|form| Form::named(form.as_str()?))
                .collect::<Option<_>>()?,
            attributes: Arc::new(attributes.map(attribute).collect::<Option<_>>()?),
            processes: names
                .map(|name| name.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            each: value.get("each")?.as_bool()?,
        };
        Some(Self {
            paths: list("paths")?.iter().map(path).collect::<Option<_>>()?,
            names: path(value.get("names")?)?,
            thorough: value.get("thorough")?.as_bool()?,
            window: Window {
                after_ns,
                until_ns,
                late_after_ns,
                late_until_ns,
            },
            books: Books::decode(value.get("books")?)?,
            asked,
        })
    }
}

impl Made {
    pub(super) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let messages = self.messages.iter();
        let messages = messages.map(|(form, bytes)| json!([form.name(), bytes.len()]));
        let head = json!({
            "numbers": [self.samples, self.weight, self.cpu_ns, self.from_ns, self.to_ns],
            "messages": messages.collect::<Vec<_>>(),
            "books": self.books.encode(),
            "ends": self.ends,
        });
        writeln!(out, "{head}")?;
        for (_, bytes) in &self.messages {
            out.write_all(bytes)?;
        }
        out.flush()
    }

    /// Reads what [`Made::write`] gave, and nothing behind it.
    ///
    /// # Errors
    /// As read, and if it is something else.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut head = Vec::new();
        from.read_until(b'\n', &mut head)?;
        let made = Self::of_head(&head);
        let (mut made, lengths) = made.ok_or(io::ErrorKind::InvalidData)?;
        for (form, length) in lengths {
            let mut message = Vec::with_capacity(length.min(AT_ONCE) as usize);
            from.by_ref().take(length).read_to_end(&mut message)?;
            if message.len() as u64 != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            made.messages.push((form, message));
        }
        Ok(made)
    }

    /// Without its messages; of each the form, and how many bytes it has.
    fn of_head(head: &[u8]) -> Option<(Self, Vec<(Form, u64)>)> {
        let head: Value = serde_json::from_slice(head).ok()?;
        let numbers = head.get("numbers")?.as_array()?.iter().map(Value::as_u64);
        let [samples, weight, cpu_ns, from_ns, to_ns] =
            numbers.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let length = |message: &Value| {
            let form = Form::named(message.get(0)?.as_str()?)?;
            Some((form, message.get(1)?.as_u64()?))
        };
        let messages = head.get("messages")?.as_array()?.iter();
        let made = Self {
            samples,
            weight,
            cpu_ns,
            from_ns,
            to_ns,
            books: Books::decode(head.get("books")?)?,
            ends: head.get("ends")?.as_bool()?,
            messages: Vec::new(),
        };
        Some((made, messages.map(length).collect::<Option<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn what_is_asked_for_and_what_is_made_is_read_back() {
        let request = Request {
            paths: vec![OsStr::from_bytes(b"/a/\xff\n").into(), "/b".into()],
            names: "/n".into(),
            thorough: true,
            window: Window {
                after_ns: 1,
                until_ns: u64::MAX,
                late_after_ns: 3,
                late_until_ns: 4,
            },
            books: Books::default(),
            asked: Asked {
                forms: vec![Form::Otlp, Form::Pprof],
                attributes: Arc::new([("k\"".to_owned(), "v\n}".to_owned())].into()),
                processes: vec!["a\"".to_owned()],
                each: true,
            },
        };
        let read = Request::decode(&request.encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
        let made = Made {
            samples: 1,
            weight: 2,
            cpu_ns: 3,
            from_ns: u64::MAX,
            to_ns: 5,
            books: Books::default(),
            ends: true,
            messages: vec![(Form::Pprof, vec![1, 10, 3]), (Form::Otlp, vec![])],
        };
        let mut bytes = Vec::new();
        made.write(&mut bytes).unwrap();
        let read = Made::read(&mut &*bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{made:?}"));
        assert!(Made::read(&mut &bytes[..bytes.len() - 1]).is_err());
        assert!(Made::read(&mut &b""[..]).is_err() && Request::decode("{}").is_none());
    }
}
