//! Programs that a profiled one starts and that cannot unwind themselves (static ones, those with rights of their own, those that lost the
//! preload library from their environment): noticed when they begin, and copied from then on.
//!
//! All processes inherit an event that counts nothing and tells of each exec, in a small ring for each processor. Its record wakes our
//! reader, who looks at the program's file a moment later: nothing is asked of the process, and nothing done in it. The first one
//! that needs it makes us take rings for copies; they are held by events of our own, which lend them to those of all such programs.
//!
//! Not here: what is in the rings ([`super::record`]), and what is made of it ([`super::world`]).

use super::copier::{Channel, monotonic_ns};
use super::event::{self, Kind, Request, Tells};
use super::maps;
use super::record::{Adopted, Happening, Task, What};
use super::refusal::{Refusal, Step};
use super::{LARGEST_RING, Settings, Start, memory, open, processors};
use crate::obstacle::{Nature, Obstacle, ObstacleKind};
use crate::perf_event::THIS_THREAD;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, geteuid};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a ring for records of programs that begin: some three hundred.
const RING: usize = 16 << 10;
/// On larger machines nobody is listened for: each event that a process has makes the threads that it starts some two microseconds slower.
const MOST_PROCESSORS: usize = 64;
/// By then a program has mapped the preload library, which is the first that the loader maps.
const PROOF: Duration = Duration::from_millis(30);
/// A program that takes on rights of its own loses the events that it had some microseconds after the record of its exec.
const TAKING_RIGHTS: Duration = Duration::from_millis(1);
/// Of a program whose file we may not even look at.
const CLOSED: &str = "it has a setuid or setgid bit or file capabilities, so the loader ignores LD_PRELOAD: it runs unprofiled; record it as root";
/// Files whose nature is remembered.
const MOST_FILES: usize = 1000;

/// Opens the events that tell of programs on a process that is about to call exec, or runs.
pub(super) fn listen(pid: Pid, start: Start) -> Result<Vec<Channel>, Refusal> {
    if processors().len() > MOST_PROCESSORS {
        return Ok(Vec::new());
    }
    let request = Request {
        kind: Kind::Nothing,
        tells: Tells::Programs,
        stack_bytes: 0,
        kernel: false,
        at_exec: start == Start::AtExec,
        watermark: 1,
    };
    open(pid, request, RING).map(|(channels, _)| channels)
}

/// Looks out for them.
pub(super) struct Newcomers {
    settings: Settings,
    /// What was found out of a file, by device, number and time of change.
    natures: HashMap<(u64, u64, i64), Option<Obstacle>>,
    /// Programs that should load the preload library, and when they must have.
    unproven: Vec<(i32, Instant)>,
    /// Events on the threads of each program that is copied, all of whose descendants inherit them.
    copied: Vec<Vec<OwnedFd>>,
    /// errno of the refusal to sample kernel mode, if it was refused.
    kernel_refused: Option<u32>,
}

impl Newcomers {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            natures: HashMap::new(),
            unproven: Vec::new(),
            copied: Vec::new(),
            kernel_refused: None,
        }
    }

    /// Whether programs are being copied.
    pub(super) const fn are_copied(&self) -> bool {
        !self.copied.is_empty()
    }

    /// In how long there is something to look at, if there is.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let due = self.unproven.iter().map(|(_, due)| *due).min();
        due.map(|due| due.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Ends the sampling of all.
    pub(super) fn disable(&self) {
        self.copied.iter().flatten().for_each(event::disable);
    }

    /// Looks at the programs that began according to what was `found`, and adds what there is to say of them. Rings that are needed for
    /// their copies are added to the others.
    pub(super) fn attend(&mut self, channels: &mut Vec<Channel>, found: &mut Vec<Happening>) {
        self.copied.retain(|events| !events.iter().all(is_over));
        for pid in began(found, self.request().tells) {
            self.unproven.retain(|(known, _)| *known != pid);
            match self.obstacle(pid) {
                Some(obstacle) => found.extend(self.circumvent(pid, &obstacle, channels)),
                None if maps::has_rights_of_its_own(pid) => found.push(unprofiled(pid, CLOSED)),
                None => self.unproven.push((pid, Instant::now() + PROOF)),
            }
        }
        let now = Instant::now();
        let due = self.unproven.extract_if(.., |(_, due)| *due <= now);
        let due: Vec<i32> = due.map(|(pid, _)| pid).collect();
        for pid in due {
            let mappings = maps::of(pid);
            if !mappings.is_empty() && !mappings.iter().any(maps::is_library) {
                let copied = self.copy(pid, channels);
                found.push(copied.unwrap_or_else(|refusal| {
                    let why = "it did not load the preload library, and runs unprofiled";
                    unprofiled(
                        pid,
                        &format!("{why}; its stacks cannot be copied either: {refusal}"),
                    )
                }));
            }
        }
    }

    /// What keeps the preload library out of the program that a process runs.
    fn obstacle(&mut self, pid: i32) -> Option<Obstacle> {
        let path = PathBuf::from(format!("/proc/{pid}/exe"));
        let about = fs::metadata(&path).ok()?;
        if self.natures.len() >= MOST_FILES {
            self.natures.clear();
        }
        let name = (
            about.dev(),
            about.ino(),
            about.ctime_nsec() ^ about.ctime() << 30,
        );
        let nature = self.natures.entry(name);
        nature.or_insert_with(|| obstacle_of(&path)).clone()
    }

    /// Has the stacks of a program with that obstacle copied, or says why not.
    fn circumvent(
        &mut self,
        pid: i32,
        obstacle: &Obstacle,
        channels: &mut Vec<Channel>,
    ) -> Option<Happening> {
        match obstacle.kind {
            ObstacleKind::Static { .. } => {}
            ObstacleKind::Privileged(_) if geteuid().is_root() => {
                std::thread::sleep(TAKING_RIGHTS);
            }
            _ => return Some(unprofiled(pid, &obstacle.to_string())),
        }
        match self.copy(pid, channels) {
            Ok(adopted) => Some(adopted),
            // It is gone already.
            Err(Refusal {
                errno: Errno::ESRCH,
                ..
            }) => None,
            Err(refusal) => {
                let why = format!("{obstacle}; its stacks cannot be copied either: {refusal}");
                Some(unprofiled(pid, &why))
            }
        }
    }

    fn copy(&mut self, pid: i32, channels: &mut Vec<Channel>) -> Result<Happening, Refusal> {
        let is_copies = |channel: &&Channel| matches!(channel.kind, Kind::CpuTime(_));
        if !channels.iter().any(|channel| is_copies(&channel)) {
            channels.extend(self.rings(pid)?);
        }
        let time_ns = monotonic_ns();
        let tids = maps::threads(pid);
        let mut events = Vec::new();
        // Threads that begin from here on inherit the events of those that begin them.
        for tid in &tids {
            for channel in channels.iter().filter(is_copies) {
                match self.copy_thread(*tid, channel) {
                    // This thread is gone; or the processor.
                    Err(Errno::ESRCH) if *tid != pid => break,
                    Err(Errno::ENODEV) => {}
                    opened => events.push(opened.map_err(|errno| Refusal {
                        step: Step::Open,
                        errno,
                    })?),
                }
            }
        }
        self.copied.push(events);
        let adopted = Adopted {
            found: maps::find(pid, &tids),
            kernel_refused: self.kernel_refused,
            unwatched: 0,
        };
        Ok(Happening {
            time_ns,
            task: Task { pid, tid: pid },
            what: What::Adopted(Box::new(adopted)),
        })
    }

    fn copy_thread(&self, tid: i32, channel: &Channel) -> Result<OwnedFd, Errno> {
        let event = event::open(&self.request(), Pid::from_raw(tid), channel.processor)?;
        event::redirect(&event, channel.ring.event())?;
        event::enable(&event);
        Ok(event)
    }

    fn request(&self) -> Request {
        Request {
            kind: Kind::CpuTime(self.settings.period_ns),
            // Where context switches are recorded, their events tell everything else.
            tells: match self.settings.switches {
                true => Tells::Programs,
                false => Tells::Everything,
            },
            stack_bytes: self.settings.stack_bytes,
            kernel: self.settings.kernel,
            at_exec: false,
            watermark: 0,
        }
    }

    /// Rings for copies, held by events on this thread, after a try of what is permitted.
    fn rings(&mut self, pid: i32) -> Result<Vec<Channel>, Refusal> {
        let processor = processors().first().copied().unwrap_or(0);
        let tried = event::open(&self.request(), Pid::from_raw(pid), processor);
        if let Err(errno @ (Errno::EACCES | Errno::EPERM)) = tried {
            self.settings.kernel = false;
            self.kernel_refused = Some(errno as u32);
        }
        let lender = Request {
            kind: Kind::Nothing,
            tells: Tells::Nothing,
            ..self.request()
        };
        let (mut channels, _) = open(THIS_THREAD, lender, memory::share().min(LARGEST_RING))?;
        for channel in &mut channels {
            channel.kind = self.request().kind;
            channel.tells = self.request().tells;
        }
        Ok(channels)
    }
}

/// Processes whose programs began, and that are not copied: takes what tells of it out of what was found.
fn began(found: &mut Vec<Happening>, copies_tell: Tells) -> Vec<i32> {
    let is_copied = |happening: &&Happening| match copies_tell {
        Tells::Everything => matches!(happening.what, What::Exec(_)),
        Tells::Programs | Tells::Nothing => matches!(happening.what, What::Began(true)),
    };
    let copied = found.iter().filter(is_copied);
    let copied: HashSet<i32> = copied.map(|happening| happening.task.pid).collect();
    let mut began = Vec::new();
    found.retain(|happening| {
        let pid = happening.task.pid;
        let What::Began(by_copies) = happening.what else {
            return true;
        };
        if !by_copies && !copied.contains(&pid) && !began.contains(&pid) {
            began.push(pid);
        }
        false
    });
    began
}

fn obstacle_of(path: &Path) -> Option<Obstacle> {
    let obstacle = Nature::of(path).obstacle?;
    Some(Obstacle {
        path: fs::read_link(path).unwrap_or(obstacle.path),
        ..obstacle
    })
}

fn unprofiled(pid: i32, why: &str) -> Happening {
    Happening {
        time_ns: monotonic_ns(),
        task: Task { pid, tid: pid },
        what: What::Unprofiled(Box::new((maps::find(pid, &[]), why.to_owned()))),
    }
}

/// Whether nobody has an event any more.
fn is_over(event: &OwnedFd) -> bool {
    let mut place = [PollFd::new(event.as_fd(), PollFlags::POLLIN)];
    let looked = poll(&mut place, PollTimeout::ZERO);
    let [place] = place;
    let happened = place.revents().unwrap_or(PollFlags::empty());
    looked.is_ok() && happened.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
}
