//! One window of a recording that goes on, read in a process of its own that ends when it is done:
//! what reading, naming and writing takes of memory is given back.
//!
//! Start at [`cut`], which is on the agent's side, and [`run`], which is on the other: a request
//! goes to its standard input as JSON, and what it has made comes out of its standard output, a
//! line of JSON and then the messages that the line has the lengths of.
//!
//! Not here: which window is next ([`super::windows`]), and where messages go.

use super::books::Books;
use super::form::{Form, Source};
use super::names;
use crate::clickhouse::rows;
use crate::clock;
use crate::correlate::{self, Window};
use crate::profile::Profile;
use crate::recording::SessionInfo;
use crate::symbolize::Places;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The hidden subcommand.
pub(super) const COMMAND: &str = "agent-window";
/// A file that is read for names may lie where nobody answers any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What is read: files, and the session's directory.
    pub(super) paths: Vec<PathBuf>,
    /// Where names are kept from one window to the next.
    pub(super) names: PathBuf,
    pub(super) window: Window,
    /// What the windows before it had.
    pub(super) books: Books,
    /// Which messages are made.
    pub(super) forms: Vec<Form>,
    /// What is said of where it was recorded.
    pub(super) attributes: BTreeMap<String, String>,
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
    /// A message in each form that was asked for, unless there was nothing to say.
    pub(super) messages: Vec<(Form, Vec<u8>)>,
}

/// Has a window read.
///
/// # Errors
/// A sentence.
pub(super) fn cut(request: &Request) -> Result<Made, String> {
    let failed = |error: io::Error| error.to_string();
    let mut command = Command::new("/proc/self/exe");
    command.arg(COMMAND);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| {
        stdin.write_all(request.encode().as_bytes())
    });
    // Whatever went wrong, it is said by its status.
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("the window's reader ended with {}", output.status));
    }
    written.map_err(failed)?;
    Made::decode(&output.stdout).ok_or_else(|| "the window's reader said nothing".into())
}

/// The other side of [`cut`].
///
/// # Errors
/// A sentence.
pub(super) fn run() -> Result<(), String> {
    let _ = nix::unistd::alarm::set(PATIENCE.as_secs() as u32);
    let mut request = String::new();
    let read = io::stdin().read_to_string(&mut request);
    read.map_err(|error| error.to_string())?;
    let request = Request::decode(&request).ok_or("this is for rsunwind agent alone")?;
    let made = make(&request)?;
    let written = made.write(&mut io::stdout().lock());
    written.map_err(|error| error.to_string())
}

fn make(request: &Request) -> Result<Made, String> {
    let mut paths = request.paths.clone();
    if request.names.exists() {
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
    let rows = books.enter(&recording, window.after_ns, window.until_ns);
    recording.session = Some(SessionInfo {
        start_ns,
        end_ns,
        realtime_offset_ns,
        ..recording.session.unwrap_or_default()
    });
    let mut profile = Profile::of_part(recording, &Places::default(), &rows);
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
            attributes: &request.attributes,
            from_ns,
            to_ns: made.to_ns,
            realtime_offset_ns,
        };
        let source = Source::new(&profile, window);
        for form in &request.forms {
            let bytes = form.encode(&source);
            let bytes = bytes.map_err(|error| error.to_string())?;
            made.messages.push((*form, bytes));
        }
        // Without them the next window takes longer, and that is all.
        let _ = names::keep(&mut profile, &request.names);
    }
    Ok(made)
}

impl Request {
    fn encode(&self) -> String {
        let window = &self.window;
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        json!({
            "paths": self.paths.iter().map(|one| path(one)).collect::<Vec<_>>(),
            "names": path(&self.names),
            "window": [window.after_ns, window.until_ns, window.late_after_ns, window.late_until_ns],
            "forms": self.forms.iter().map(|form| form.name()).collect::<Vec<_>>(),
            "attributes": self.attributes,
            "books": self.books.encode(),
        })
        .to_string()
    }

    fn decode(text: &str) -> Option<Self> {
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
        Some(Self {
            paths: list("paths")?.iter().map(path).collect::<Option<_>>()?,
            names: path(value.get("names")?)?,
            window: Window {
                after_ns,
                until_ns,
                late_after_ns,
                late_until_ns,
            },
            books: Books::decode(value.get("books")?)?,
            forms: forms
                .map(|form| Form::named(form.as_str()?))
                .collect::<Option<_>>()?,
            attributes: attributes.map(attribute).collect::<Option<_>>()?,
        })
    }
}

impl Made {
    fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let messages = self.messages.iter();
        let messages = messages.map(|(form, bytes)| json!([form.name(), bytes.len()]));
        let head = json!({
            "numbers": [self.samples, self.weight, self.cpu_ns, self.from_ns, self.to_ns],
            "messages": messages.collect::<Vec<_>>(),
            "books": self.books.encode(),
        });
        writeln!(out, "{head}")?;
        for (_, bytes) in &self.messages {
            out.write_all(bytes)?;
        }
        out.flush()
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut head = String::new();
        bytes.read_line(&mut head).ok()?;
        let head: Value = serde_json::from_str(&head).ok()?;
        let numbers = head.get("numbers")?.as_array()?.iter().map(Value::as_u64);
        let [samples, weight, cpu_ns, from_ns, to_ns] =
            numbers.collect::<Option<Vec<_>>>()?.try_into().ok()?;
        let mut messages = Vec::new();
        for message in head.get("messages")?.as_array()? {
            let form = Form::named(message.get(0)?.as_str()?)?;
            let length = usize::try_from(message.get(1)?.as_u64()?).ok()?;
            let (message, rest) = bytes.split_at_checked(length)?;
            messages.push((form, message.to_vec()));
            bytes = rest;
        }
        Some(Self {
            samples,
            weight,
            cpu_ns,
            from_ns,
            to_ns,
            books: Books::decode(head.get("books")?)?,
            messages,
        })
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
            window: Window {
                after_ns: 1,
                until_ns: u64::MAX,
                late_after_ns: 3,
                late_until_ns: 4,
            },
            books: Books::default(),
            forms: vec![Form::Otlp, Form::Pprof],
            attributes: [("k\"".to_owned(), "v\n}".to_owned())].into(),
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
            messages: vec![(Form::Pprof, vec![1, 10, 3]), (Form::Otlp, vec![])],
        };
        let mut bytes = Vec::new();
        made.write(&mut bytes).unwrap();
        let read = Made::decode(&bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{made:?}"));
        assert!(Made::decode(&bytes[..bytes.len() - 1]).is_none());
        assert!(Made::decode(b"").is_none() && Request::decode("{}").is_none());
    }
}
