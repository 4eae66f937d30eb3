//! `rsunwind record -p` from inside: a library of ours is brought into the processes, by which
//! their threads unwind themselves in user mode, and taken away at the end ([`crate::inside`]).
//! What they do in the kernel, threads that may not be sampled, and the programs that they start
//! are copied meanwhile, as ever ([`super::attach`]); into their fork children the library comes a
//! little later ([`super::children`]).

use super::args::{Args, How};
use super::children::Children;
use super::drain::Drain;
use super::error::Error;
use super::session::Session;
use super::turn::Progress;
use crate::clock;
use crate::copy::Beside;
use crate::inside::{Departure, Inside, Prepared, Refusal, Settings, has_room};
use crate::numbers::plural;
use crate::recording::records::Records;
use crate::remote::RemoteUnwinder;
use crate::target::Target;
use crate::visible::say;
use engine::wire::chunk::{ChunkInfo, FROM_SWITCHES};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// From one look to the next: threads that were born meanwhile are armed then.
const INTERVAL: Duration = Duration::from_millis(20);
/// Where there are many threads, they are looked for this many times as rarely.
const MANY: usize = 200;
/// Samples are taken out of the segments this often.
const DRAIN: Duration = Duration::from_millis(120);
/// For so long it is waited at the beginning for threads that wait for a processor.
const ARMING: Duration = Duration::from_millis(500);
/// For so long it is waited for one that holds the signal back: some do for a moment, others
/// always.
const HELD_BACK: Duration = Duration::from_millis(40);
const PAUSE: Duration = Duration::from_millis(2);
/// No thread should be held for longer, if there is a processor for it.
const LONG: Duration = Duration::from_millis(20);

/// Who is to unwind itself.
pub(super) struct Wanted<'a> {
    targets: Vec<Candidate<'a>>,
    /// Whether it was asked for, so that nothing else will do.
    insists: bool,
}

struct Candidate<'a> {
    target: &'a Target,
    /// Of its interpreter.
    language: Option<&'static str>,
    prepared: Result<Prepared, Refusal>,
}

impl<'a> Wanted<'a> {
    /// All of them, those whose interpreters' functions copies lack, or nobody.
    pub(super) fn of(how: How, targets: &'a [Target]) -> Self {
        let insists = how == How::Inside;
        let mut unwinder = RemoteUnwinder::default();
        let chosen = targets.iter().filter_map(|target| {
            let pid = target.pid.as_raw().cast_unsigned();
            let language = (how != How::Copies).then(|| language(&mut unwinder, pid))?;
            (insists || language.is_some()).then(|| Candidate {
                target,
                language,
                prepared: match insists {
                    true => Prepared::new(pid),
                    false => has_room(pid).and_then(|()| Prepared::new(pid)),
                },
            })
        });
        Self {
            targets: chosen.collect(),
            insists,
        }
    }

    pub(super) const fn is_nobody(&self) -> bool {
        self.targets.is_empty()
    }
}

/// The language of its interpreter.
fn language(unwinder: &mut RemoteUnwinder, pid: u32) -> Option<&'static str> {
    let code = unwinder.code(pid);
    match code.python() {
        Some(_) => Some("Python"),
        None => code.v8().map(|_| "JavaScript"),
    }
}

/// The library in processes.
pub(super) struct Entered {
    entered: Vec<One>,
    children: Children,
    settings: Settings,
    insists: bool,
    beside: Beside,
    next_drain: Instant,
    next_look: Instant,
    /// The languages that are read.
    languages: Vec<&'static str>,
    /// Where it was, and of which it is to be told how many threads were copied.
    left: Vec<u32>,
    blocked: Vec<(u32, usize)>,
}

/// The library in one process.
struct One {
    inside: Inside,
    /// How many threads could have no events, at all looks together.
    blocked: usize,
    looks: usize,
    is_child: bool,
}

impl Entered {
    /// Goes into those processes and arms their threads: all of them if that was asked for, else
    /// those where nothing speaks against it.
    ///
    /// # Errors
    /// [`Error::Inside`] if it was asked for and cannot be.
    pub(super) fn enter(
        args: &Args,
        session: &Session,
        wanted: Wanted<'_>,
        beside: Beside,
    ) -> Result<Self, Error> {
        let mut all = Self {
            entered: Vec::new(),
            children: Children::default(),
            settings: settings(args, session),
            insists: wanted.insists,
            beside,
            next_drain: Instant::now(),
            next_look: Instant::now(),
            languages: Vec::new(),
            left: Vec::new(),
            blocked: Vec::new(),
        };
        for one in wanted.targets {
            let (target, language) = (one.target, one.language);
            let entered = one
                .prepared
                .and_then(|one| Inside::enter(one, &all.settings));
            match entered.and_then(|inside| all.arm_first(inside)) {
                Ok(()) => all.languages.extend(language),
                Err(refusal) if wanted.insists => {
                    all.leave();
                    let target = target.to_string();
                    return Err(Error::Inside { target, refusal });
                }
                Err(refusal) if !args.quiet => say(format_args!(
                    "{target}: copies have no functions of {}, and it cannot be recorded from inside: {refusal}",
                    language.unwrap_or_default()
                )),
                Err(_) => {}
            }
        }
        all.beside.begin(clock::monotonic_ns());
        Ok(all)
    }

    fn arm_first(&mut self, mut inside: Inside) -> Result<(), Refusal> {
        let began = Instant::now();
        let mut armed = inside.arm();
        while let Ok(is_told) = armed {
            // Of one that waits for a processor it cannot be told, and one may block all for a
            // moment.
            let patience = if is_told { HELD_BACK } else { ARMING };
            let is_enough = is_told && inside.armed().next().is_some();
            if is_enough || began.elapsed() >= patience {
                break;
            }
            armed = if is_told {
                thread::sleep(PAUSE);
                inside.arm()
            } else {
                inside.arm_rest()
            };
        }
        self.tell(&inside);
        if let Err(refusal) = armed {
            leave(inside);
            return Err(refusal);
        }
        self.entered.push(One::new(inside, false));
        Ok(())
    }

    fn tell(&self, inside: &Inside) {
        let now_ns = clock::monotonic_ns();
        (self.beside).are(inside.pid(), inside.library(), inside.armed(), now_ns);
    }

    /// What is said at the beginning; none if nobody is recorded from inside.
    pub(super) fn said(&self) -> Option<String> {
        let entered = || self.entered.iter().map(|one| &one.inside);
        let held = entered().map(Inside::held).max_by_key(|held| held.all())?;
        let threads: usize = entered().map(|inside| inside.armed().count()).sum();
        let threads = plural(
            threads as u64,
            "thread unwinds itself",
            "threads unwind themselves",
        );
        let functions = functions_of(&self.languages);
        Some(format!(
            "{threads} in user mode{functions}; one was held for {held}",
        ))
    }

    /// Arms threads that have begun, and takes samples out. Gives after what time to look again.
    ///
    /// # Errors
    /// As write.
    pub(super) fn look(&mut self, drain: &mut Drain, session: &Session) -> io::Result<Duration> {
        let now = Instant::now();
        if now >= self.next_look {
            let many = self.arm();
            self.enter_children();
            self.next_look = now + if many { DRAIN } else { INTERVAL };
        }
        // A control page that cannot be written is no reason to stop.
        let _ = session.beat();
        if now >= self.next_drain {
            let _ = drain.look()?;
            self.next_drain = now + DRAIN;
        }
        Ok(self.next_look.saturating_duration_since(Instant::now()))
    }

    /// Gives whether there are many threads.
    fn arm(&mut self) -> bool {
        let mut many = false;
        // Of children there may be any number, one after the other.
        self.entered
            .retain(|one| !one.is_child || one.inside.is_there());
        for one in &mut self.entered {
            one.looks += 1;
            let inside = &mut one.inside;
            if inside.is_there() {
                // Refused for a thread that is born later, it is copied.
                let _ = inside.arm();
                one.blocked += inside.blocked();
                many |= inside.armed().nth(MANY).is_some();
            }
        }
        self.entered.iter().for_each(|one| self.tell(&one.inside));
        many
    }

    fn enter_children(&mut self) {
        self.children.add(self.beside.born());
        let pids = self.entered.iter().map(|one| one.inside.pid());
        let new = self.children.enter(&self.settings, pids, self.insists);
        for mut inside in new {
            // What cannot be told yet of its threads is at the next look.
            let _ = inside.arm();
            self.tell(&inside);
            self.entered.push(One::new(inside, true));
        }
    }

    /// Sampling ends at once.
    pub(super) fn disarm(&mut self) {
        let entered = self.entered.iter_mut();
        entered.for_each(|one| one.inside.disarm());
    }

    /// Takes the library away, from all but fork children that it was not brought into.
    pub(super) fn leave(&mut self) {
        self.disarm();
        for one in self.entered.drain(..) {
            self.left.push(one.inside.pid());
            self.blocked.extend(one.usually_blocked());
            leave(one.inside);
        }
    }

    /// Takes what is left of samples, and says in the recording what it lacks.
    ///
    /// # Errors
    /// As write.
    pub(super) fn finish(self, drain: &mut Drain, session: &Session) -> io::Result<()> {
        let _ = session.end();
        while drain.finish()? == Progress::Begun {}
        for (pid, usual) in &self.blocked {
            let threads = plural(
                *usual as u64,
                "thread blocks SIGURG, waits under another mask, has a filter or little room on its stack: its stacks are copied",
                "threads block SIGURG, wait under another mask, have a filter or little room on their stacks: their stacks are copied",
            );
            self.note(drain, *pid, &format!("{threads} meanwhile"))?;
        }
        if let (Some(said), Some(pid)) = (self.children.said(), self.left.first()) {
            self.note(drain, *pid, &said)?;
        }
        self.children.leave(self.beside.born(), &self.left);
        Ok(())
    }

    /// Says something of a process in the recording.
    fn note(&self, drain: &mut Drain, pid: u32, text: &str) -> io::Result<()> {
        let (pid, process_key) = self.beside.owner(pid);
        let mut records = Records::default();
        records.note(clock::monotonic_ns(), text);
        let (info, records) = records.into_chunk(ChunkInfo {
            pid,
            process_key,
            sequence: FROM_SWITCHES,
            ..ChunkInfo::default()
        });
        drain.writer().chunk(&info, &records)
    }
}

impl One {
    const fn new(inside: Inside, is_child: bool) -> Self {
        Self {
            inside,
            blocked: 0,
            looks: 0,
            is_child,
        }
    }

    /// How many threads could have no events most of the time, if any: each may hold all signals
    /// back for a moment.
    fn usually_blocked(&self) -> Option<(u32, usize)> {
        let looks = self.looks.max(1);
        let usual = (self.blocked + looks / 2) / looks;
        (usual > 0).then(|| (self.inside.pid(), usual))
    }
}

/// Which functions stacks have then, for a message; nothing if they are of no interpreter.
fn functions_of(languages: &[&str]) -> String {
    let mut languages = languages.to_vec();
    languages.sort_unstable();
    languages.dedup();
    match languages.is_empty() {
        true => String::new(),
        false => format!(", with the functions of {}", languages.join(" and ")),
    }
}

fn leave(inside: Inside) {
    let pid = inside.pid();
    match inside.leave() {
        Ok(Departure::Gone(held)) if held.held > LONG => say(format_args!(
            "process {pid}: at the end a thread of it was held for {held}"
        )),
        Ok(Departure::Gone(_) | Departure::Over) => {}
        Err(Refusal::Ended) => {}
        Err(refusal) => say(format_args!(
            "process {pid}: our library stays in it, and does nothing: {refusal}; the next record -p --how inside takes it away"
        )),
    }
}

fn settings(args: &Args, session: &Session) -> Settings {
    let millihertz = args.rate.millihertz;
    let text = format!(
        "session={},rate={}.{:03},depth={},unwind={},size={},signal=urg,kernel=no",
        session.path().display(),
        millihertz / 1000,
        millihertz % 1000,
        args.max_depth,
        args.unwind.name(),
        args.size,
    );
    Settings {
        text,
        period_ns: args.rate.period_ns(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_language_is_named_once() {
        let said = super::functions_of(&["Python", "JavaScript", "Python"]);
        assert_eq!(said, ", with the functions of JavaScript and Python");
        assert_eq!(super::functions_of(&[]), "");
    }
}
