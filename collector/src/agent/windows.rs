//! Cuts a recording that goes on into windows, each of them once: what one had the next has not.
//!
//! ```text
//!        carried away      │ kept for late kernel samples │ this window │ too new
//! ─────────────────────────┼──────────────────────────────┼─────────────┼────────► time
//!                   cut before last                   last cut         cut      now
//! ```
//!
//! What a recording had when it was looked at is no younger than that look: so much of it can be
//! carried away once a cut behind the look is the one before last.
//!
//! Not here: how a window is read ([`super::window`]).

use super::books::Books;
use super::carry::{self, carry};
use super::meanwhile::{Wait, only_wait};
use super::reader::Reader;
use super::window::{Asked, Made, Request};
use crate::clock;
use crate::correlate::Window;
use crate::underway;
use crate::visible::say;
use std::collections::{HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What was sampled is in the recording or its segments after this time at the latest: a second
/// that it is gathered, and two from one look of the recorder's to the next.
pub(super) const SETTLED: Duration = Duration::from_secs(3);

/// The shortest ones.
pub(super) const SHORTEST: Duration = Duration::from_secs(2);

/// How often a window is tried that cannot be read, each time with what came since.
const TRIES: u32 = 3;

/// Of an address that was not met before the next window has its function's name only; after this
/// time all that can be known of it is looked for, which takes some hundred ms ...
const FIRST_THOROUGH: Duration = Duration::from_secs(60);
/// ... then after four times as long, and in the end every so often.
const RARELY: Duration = Duration::from_secs(3600);

/// What is kept of the part that was taken away, and of names.
const CARRIED: &str = "carried.rsu";
const NAMES: &str = "names.rsu";

/// How far a recording was looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    /// Everything up to there is in a window (`CLOCK_MONOTONIC`, ns).
    time_ns: u64,
    /// How long the recording was when it was looked at before that, bytes.
    length: u64,
}

/// A look at how long the recording is.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// When (`CLOCK_MONOTONIC`, ns).
    time_ns: u64,
    /// Bytes.
    length: u64,
}

/// The windows of a recording.
pub(super) struct Windows {
    folder: PathBuf,
    /// How the recording is called.
    name: &'static str,
    /// Where it was when it was looked for: it has another name in the end.
    recording: Option<PathBuf>,
    /// Which of its processes were gone, if they are recorded from outside.
    gone: Option<HashSet<(u32, u64)>>,
    session: Option<PathBuf>,
    last: Cut,
    before_last: Cut,
    /// The last one that what it saw has settled since, and those after it.
    looks: VecDeque<Look>,
    /// Where what is left of the recording begins.
    begins: u64,
    /// What windows up to the last cut had.
    books: Books,
    /// How often the next one could not be read.
    failures: u32,
    /// When the next thorough one is, and how long after the last.
    thorough: (Option<Instant>, Duration),
    reader: Cutter,
}

/// Has windows read.
type Cutter = Box<dyn FnMut(&Request, &mut Wait<'_>) -> Result<Made, String>>;

impl Windows {
    /// Of the recording of that name in a folder.
    pub(super) fn of(folder: &Path, name: &'static str, copied: bool) -> Self {
        let mut reader = Reader::default();
        Self {
            folder: folder.to_owned(),
            name,
            recording: None,
            session: None,
            last: Cut::default(),
            before_last: Cut::default(),
            looks: VecDeque::new(),
            gone: copied.then(HashSet::new),
            begins: carry::FIRST,
            books: Books::default(),
            failures: 0,
            thorough: (None, FIRST_THOROUGH),
            reader: Box::new(move |request, wait| reader.cut(request, wait)),
        }
    }

    /// Whether none was made yet.
    pub(super) const fn is_first(&self) -> bool {
        self.last.time_ns == 0
    }

    /// The recording, if it has begun, and how long it is, bytes.
    fn recording(&mut self) -> Option<(PathBuf, u64)> {
        let with_length = |path: PathBuf| {
            let length = fs::metadata(&path).ok()?.len();
            Some((path, length))
        };
        let known = self.recording.take().and_then(with_length);
        let find = || with_length(underway::recording_in(&self.folder, self.name)?);
        let (path, length) = known.or_else(find)?;
        self.recording = Some(path.clone());
        Some((path, length))
    }

    /// Notes how long the recording is now, and gives that, bytes; `None` if it has not begun.
    pub(super) fn look(&mut self) -> Option<u64> {
        let (_, length) = self.recording()?;
        let time_ns = clock::monotonic_ns();
        self.looks.push_back(Look { time_ns, length });
        let settled_ns = before(time_ns, SETTLED);
        let is_settled = |look: Option<&Look>| look.is_some_and(|it| it.time_ns <= settled_ns);
        while is_settled(self.looks.get(1)) {
            self.looks.pop_front();
        }
        Some(length)
    }

    /// The session that it is of, once that has begun and its program was started.
    pub(super) fn session(&mut self) -> Option<&Path> {
        if self.session.is_none() {
            self.session = underway::session_of(&self.recording()?.0);
        }
        self.session.as_deref()
    }

    /// The next window of a recording that goes on. Of what is too new the next one is. `wait`
    /// waits until it is read.
    ///
    /// # Errors
    /// A sentence; what is in the window is in the next one, then, or lost, if that was tried often
    /// enough.
    pub(super) fn next(&mut self, asked: &Asked, wait: &mut Wait<'_>) -> Result<Made, String> {
        let Some((recording, length)) = self.recording() else {
            return Ok(Made::default());
        };
        let session = self.session().map(Path::to_owned);
        let time_ns = before(clock::monotonic_ns(), SETTLED).max(self.last.time_ns);
        let seen = self.looks.iter().rev();
        let seen = seen.copied().find(|look| look.time_ns <= time_ns);
        let cut = Cut {
            time_ns,
            length: seen.map_or(0, |look| look.length),
        };
        if length == 0 {
            // Of a whole machine a recording begins late.
            return Ok(Made::default());
        }
        self.look();
        let paths = vec![session.unwrap_or_else(|| recording.clone())];
        let made = self.read(paths, (cut.time_ns, self.last.time_ns), asked, wait);
        let is_over = |session: &PathBuf| !underway::is_of(&recording, session);
        if self.session.as_ref().is_some_and(is_over) {
            // It has ended meanwhile; not all may have been found.
            return Ok(Made::default());
        }
        let made = match made {
            Ok(made) => {
                self.failures = 0;
                self.books = made.books.clone();
                Ok(made)
            }
            Err(why) => {
                // Names that were kept may be the cause.
                let _ = fs::remove_file(self.folder.join(NAMES));
                self.failures += 1;
                if self.failures < TRIES {
                    return Err(format!("a window waits for the next one: {why}"));
                }
                self.failures = 0;
                let seconds = cut.time_ns.saturating_sub(self.last.time_ns) / 1_000_000_000;
                Err(format!(
                    "{seconds} s of the profile are lost, since they could not be read: {why}"
                ))
            }
        };
        (self.before_last, self.last) = (self.last, cut);
        self.carry(&recording);
        made
    }

    /// The last window, of a recording that has ended.
    ///
    /// # Errors
    /// A sentence; it is lost, then.
    pub(super) fn rest(&mut self, asked: &Asked) -> Result<Made, String> {
        let Some((recording, _)) = self.recording() else {
            return Ok(Made::default());
        };
        // One that was killed has left its session, with what it had not taken from there.
        let paths = vec![underway::session_of(&recording).unwrap_or(recording)];
        let all = (u64::MAX, u64::MAX);
        let mut read = self.read(paths.clone(), all, asked, &mut only_wait);
        if read.is_err() {
            let _ = fs::remove_file(self.folder.join(NAMES));
            read = self.read(paths, all, asked, &mut only_wait);
        }
        read.map_err(|why| {
            format!("the end of the profile is lost, since it could not be read: {why}")
        })
    }

    /// Takes away what no window needs any more. Where that fails it is tried again with the next.
    fn carry(&mut self, recording: &Path) {
        let to = self.before_last.length;
        if to <= self.begins {
            return;
        }
        let beside = self.folder.join(CARRIED);
        match carry(recording, &beside, self.begins, to, self.gone.as_mut()) {
            Ok(begins) => self.begins = begins,
            // It has ended, and has another name.
            Err(_) if !recording.exists() => {}
            Err(error) => say(format_args!(
                "the recording grows, since its beginning cannot be taken away: {error}"
            )),
        }
    }

    /// Whether all is to be known of the addresses of the next window.
    fn is_thorough(&mut self) -> bool {
        let now = Instant::now();
        let (next, after) = self.thorough;
        if next.is_some_and(|next| now < next) {
            return false;
        }
        // Of the first one all is new in any case.
        let then = if next.is_some() { after * 4 } else { after };
        let then = then.min(RARELY);
        self.thorough = (now.checked_add(then), then);
        next.is_some()
    }

    fn read(
        &mut self,
        mut paths: Vec<PathBuf>,
        (until_ns, late_until_ns): (u64, u64),
        asked: &Asked,
        wait: &mut Wait<'_>,
    ) -> Result<Made, String> {
        let carried = self.folder.join(CARRIED);
        if carried.exists() {
            paths.insert(0, carried);
        }
        let request = Request {
            paths,
            names: self.folder.join(NAMES),
            thorough: self.is_thorough(),
            window: Window {
                after_ns: self.last.time_ns,
                until_ns,
                late_after_ns: self.before_last.time_ns,
                late_until_ns,
            },
            books: self.books.clone(),
            asked: asked.clone(),
        };
        (self.reader)(&request, wait)
    }
}

/// That long before a time of `CLOCK_MONOTONIC`, ns.
fn before(time_ns: u64, span: Duration) -> u64 {
    time_ns.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_given_up_and_what_follows_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.rsu"), "x").unwrap();
        let mut windows = Windows::of(folder.path(), "a.rsu", false);
        let mut next = |reader: fn(&Request) -> Result<Made, String>| {
            fs::write(folder.path().join(NAMES), "x").unwrap();
            windows.reader = Box::new(move |request, _| reader(request));
            let made = windows.next(&Asked::default(), &mut only_wait);
            let names = folder.path().join(NAMES).exists();
            (made.map(|made| made.samples), windows.last.time_ns, names)
        };
        let sent = |_: &Request| {
            Ok(Made {
                samples: 7,
                ..Made::default()
            })
        };
        let fails = |_: &Request| Err("it failed".to_owned());
        fs::write(folder.path().join("a.rsu"), "").unwrap();
        let early = next(|_| panic!("there is nothing to read yet"));
        assert_eq!((early.0, early.1), (Ok(0), 0));
        fs::write(folder.path().join("a.rsu"), "x").unwrap();
        let (first, begun, names) = next(sent);
        assert!(first == Ok(7) && begun > 0 && names);
        for _ in 1..TRIES {
            let (made, last, names) = next(fails);
            assert_eq!(
                made.unwrap_err(),
                "a window waits for the next one: it failed"
            );
            assert!(last == begun && !names);
        }
        let (made, last, _) = next(fails);
        let why = made.unwrap_err();
        assert!(
            why.ends_with("lost, since they could not be read: it failed"),
            "{why}"
        );
        assert!(last > begun);
        let (made, ..) = next(fails);
        assert_eq!(
            made.unwrap_err(),
            "a window waits for the next one: it failed"
        );
        assert_eq!(next(sent).0, Ok(7));
        windows.reader = Box::new(move |request, _| fails(request));
        let rest = windows.rest(&Asked::default());
        assert!(
            rest.unwrap_err()
                .starts_with("the end of the profile is lost")
        );
    }
}
