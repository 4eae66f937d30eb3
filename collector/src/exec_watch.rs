//! Programs that a profiled one starts and that cannot unwind themselves (static ones, those with
//! rights of their own, those that lost the preload library from their environment, those that a
//! seccomp filter keeps from writing samples): noticed when they begin, and copied from then on.
//!
//! All processes inherit an event that counts nothing and tells of each exec, in a small ring for
//! each processor. Its record wakes our reader, who looks at the program's file a moment later:
//! nothing is asked of the process, and nothing done in it. The first one that needs it makes us
//! take rings for copies; they are held by events of our own, which lend them to those of all such
//! programs.
//!
//! Not here: what is in the rings ([`crate::cpu_rings`]), and what is made of it ([`crate::copy`]).

mod copied_already;
mod linked;

use crate::clock::monotonic_ns;
use crate::cpu_rings::opening::Opening;
use crate::cpu_rings::request::{self, Kind, Request, Tells};
use crate::cpu_rings::{
    Adopted, CpuRing, LARGEST_RING, Refusal, Start, Task, TaskRecord, What, lend, memory, open,
    processors,
};
use crate::obstacle::{Nature, Obstacle, ObstacleKind};
use crate::perf_event::THIS_THREAD;
use crate::processes;
use crate::seccomp;
use copied_already::{Beginning, CopiedAlready};
use engine::wire::session::CONTROL_FILE;
use linked::{Linked, Progress};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, geteuid};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a ring for records of programs that begin: some three hundred.
const RING: usize = 16 << 10;
/// On larger machines nobody is listened for: each event that a process has makes the threads that
/// it starts some two microseconds slower.
const MOST_PROCESSORS: usize = 64;
/// By then a program has mostly mapped the preload library; until it has, it is looked at as often.
const PROOF: Duration = Duration::from_millis(30);
/// CPU time that a program has used by then to make a place for its samples, once it has the
/// library, ns.
const PLACE_NS: u64 = 10_000_000;
/// A program that takes on rights of its own loses the events that it had some microseconds after
/// the record of its exec.
const TAKING_RIGHTS: Duration = Duration::from_millis(1);
/// Of a program whose file we may not even look at.
const CLOSED: &str = "it has a setuid or setgid bit or file capabilities, so the loader ignores LD_PRELOAD: it runs unprofiled; record it as root";
/// Of a program that has the library, which finds no session to join.
const OUT_OF_REACH: &str = "the session's folder cannot be reached from where it runs (a mount namespace with another /dev/shm, or chroot): it runs unprofiled";
/// Files whose nature is remembered.
const MOST_FILES: usize = 1000;

/// Whether programs can be noticed here.
pub(crate) fn is_possible() -> bool {
    processors().len() <= MOST_PROCESSORS
}

/// Opens the events that tell of programs on a process that is about to call exec, or runs.
pub(crate) fn listen(pid: Pid, start: Start) -> Result<Vec<CpuRing>, Refusal> {
    if !is_possible() {
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
    open(pid, request, RING).map(|(rings, _)| rings)
}

/// The same on the calling thread at once, to find out what it costs; nothing where that is
/// refused.
pub(crate) fn listen_here() -> Vec<CpuRing> {
    let rings = listen(THIS_THREAD, Start::Now).unwrap_or_default();
    let events = rings.iter().map(|ring| ring.buffer.event());
    events.for_each(request::enable);
    rings
}

/// What a program lacks that should unwind itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lack {
    Library,
    /// A file for its samples.
    Place,
}

impl Lack {
    const fn words(self) -> &'static str {
        match self {
            Self::Library => "it did not load the preload library, and runs unprofiled",
            Self::Place => {
                "a seccomp filter keeps it from writing its samples, and it runs unprofiled"
            }
        }
    }
}

/// A program that should unwind itself.
#[derive(Clone, Copy)]
struct Unproven {
    pid: i32,
    /// When it is looked at.
    due: Instant,
    /// CPU time that it had used before, ns.
    cpu_ns: u64,
    /// CPU time that it had used since then when it was first seen with the library and without a
    /// place for its samples, ns.
    seen_ns: Option<u64>,
}

impl Unproven {
    /// Whether it makes no place for its samples, having used so much CPU time. One that has not
    /// run since it was seen may be about to, however long that is ago by the clock.
    fn makes_no_place(&self, used_ns: u64) -> bool {
        let since_ns = self.seen_ns.map(|seen_ns| used_ns.saturating_sub(seen_ns));
        since_ns.is_some_and(|since_ns| since_ns > PLACE_NS)
    }
}

/// Looks out for them.
pub(crate) struct ExecWatch {
    /// How copies are asked for.
    request: Request,
    /// What was found out of a file, by device, number and time of change.
    natures: HashMap<(u64, u64, i64), Option<Obstacle>>,
    copied_already: CopiedAlready,
    /// Programs that should load the preload library and write their samples.
    unproven: Vec<Unproven>,
    /// Events on the threads of each program that is copied, all of whose descendants inherit them.
    copied: Vec<Vec<OwnedFd>>,
    linked: Linked,
    /// errno of the refusal to sample kernel mode, if it was refused.
    kernel_refused: Option<u32>,
    /// What the rings of copies had while events were opened.
    early: Vec<TaskRecord>,
}

impl ExecWatch {
    pub(crate) fn new(request: Request) -> Self {
        Self {
            linked: Linked::new(&request),
            request,
            natures: HashMap::new(),
            copied_already: CopiedAlready::default(),
            unproven: Vec::new(),
            copied: Vec::new(),
            kernel_refused: None,
            early: Vec::new(),
        }
    }

    /// What was taken out of rings, to be looked at with what is found there next.
    pub(crate) fn take_early(&mut self) -> Vec<TaskRecord> {
        std::mem::take(&mut self.early)
    }

    /// Whether programs are being copied.
    pub(crate) const fn are_copied(&self) -> bool {
        !self.copied.is_empty()
    }

    /// In how long there is something to look at, if there is.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let due = self.unproven.iter().map(|one| one.due).min();
        let due = due.into_iter().chain(self.linked.next_look()).min();
        due.map(|due| due.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }

    /// Ends the sampling of all.
    pub(crate) fn disable(&mut self) {
        self.copied.iter().flatten().for_each(request::disable);
        self.linked.close();
    }

    /// Looks at the programs that began according to what was `found`, and adds what there is to
    /// say of them. Rings that are needed for their copies are added to the others.
    pub(crate) fn attend(&mut self, rings: &mut Vec<CpuRing>, found: &mut Vec<TaskRecord>) {
        self.copied.retain(|events| !events.iter().all(is_over));
        let tells = self.request.tells;
        for beginning in self.copied_already.began(found, tells, processes::born_ns) {
            let pid = beginning.pid;
            self.unproven.retain(|known| known.pid != pid);
            self.linked.forget(pid);
            match self.obstacle(pid) {
                Some(obstacle) if !beginning.is_copied || obstacle.takes_events() => {
                    found.extend(self.circumvent(pid, &obstacle, rings));
                }
                // Only the record of the exec is missing.
                Some(_) => found.extend(exec_of(beginning, tells)),
                None if processes::has_rights_of_its_own(pid) => {
                    found.push(unprofiled(pid, CLOSED))
                }
                None => {
                    if beginning.is_copied {
                        found.extend(exec_of(beginning, tells));
                    }
                    self.expect(pid);
                }
            }
        }
        self.linked.look();
        let now = Instant::now();
        let due = self.unproven.extract_if(.., |one| one.due <= now);
        let due: Vec<Unproven> = due.collect();
        for one in due {
            let pid = one.pid;
            let mappings = processes::mappings(pid);
            let used_ns = used_ns(pid).saturating_sub(one.cpu_ns);
            let without_place = Unproven {
                seen_ns: one.seen_ns.or(Some(used_ns)),
                ..one
            };
            if processes::goes_without_library(&mappings, used_ns) {
                match linked::progress(pid, &mappings) {
                    Some(Progress::Begun) => {
                        let refused = self.linked.begin(pid).err();
                        found.extend(refused.map(|why| unprofiled(pid, &why.to_string())));
                    }
                    Some(Progress::Loaded) if !one.makes_no_place(used_ns) => {
                        self.look_again(without_place);
                    }
                    _ => found.push(self.copy_or_say(pid, Lack::Library, rings)),
                }
            } else if !mappings.is_empty() && !mappings.iter().any(processes::is_library) {
                self.look_again(one);
            } else if is_out_of_reach(pid) {
                found.push(unprofiled(pid, OUT_OF_REACH));
            } else if seccomp::is_in_force_for(pid) && processes::has_session_only(pid) {
                match one.makes_no_place(used_ns) {
                    true => found.push(self.copy_or_say(pid, Lack::Place, rings)),
                    false => self.look_again(without_place),
                }
            }
        }
    }

    /// A program has begun that should unwind itself.
    fn expect(&mut self, pid: i32) {
        self.look_again(Unproven {
            pid,
            due: Instant::now(),
            cpu_ns: used_ns(pid),
            seen_ns: None,
        });
    }

    fn look_again(&mut self, one: Unproven) {
        let due = Instant::now() + PROOF;
        self.unproven.push(Unproven { due, ..one });
    }

    /// Has the stacks of a program copied that does not unwind itself, or says why not.
    fn copy_or_say(&mut self, pid: i32, lack: Lack, rings: &mut Vec<CpuRing>) -> TaskRecord {
        self.copy(pid, lack == Lack::Place, rings)
            .unwrap_or_else(|refusal| {
                let why = lack.words();
                let text = format!("{why}; its stacks cannot be copied either: {refusal}");
                unprofiled(pid, &text)
            })
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
        rings: &mut Vec<CpuRing>,
    ) -> Option<TaskRecord> {
        match obstacle.kind {
            ObstacleKind::Linked if linked::records_itself(pid) => {
                let refusal = self.linked.begin(pid).err()?;
                return Some(unprofiled(pid, &refusal.to_string()));
            }
            ObstacleKind::Static { .. } | ObstacleKind::Linked | ObstacleKind::Sanitized => {}
            ObstacleKind::Privileged(_) if geteuid().is_root() => {
                std::thread::sleep(TAKING_RIGHTS);
            }
            _ => return Some(unprofiled(pid, &obstacle.to_string())),
        }
        match self.copy(pid, false, rings) {
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

    fn copy(
        &mut self,
        pid: i32,
        has_library: bool,
        rings: &mut Vec<CpuRing>,
    ) -> Result<TaskRecord, Refusal> {
        let is_copies = |ring: &mut CpuRing| matches!(ring.request.kind, Kind::CpuTime(_));
        if !rings.iter_mut().any(is_copies) {
            rings.extend(self.rings(pid)?);
        }
        let time_ns = monotonic_ns();
        let mut opening = Opening::on(rings.extract_if(.., is_copies).collect());
        let opened = opening.process(pid);
        rings.append(&mut opening.rings);
        self.early.append(&mut opening.early);
        let tids = opened?;
        if tids.is_empty() {
            return Err(Refusal::ENDED);
        }
        self.copied.push(opening.events);
        let adopted = Adopted {
            found: processes::find(pid, &tids),
            kernel_refused: self.kernel_refused,
            unwatched: 0,
            has_library,
        };
        Ok(TaskRecord {
            time_ns,
            task: Task { pid, tid: pid },
            what: What::Adopted(Box::new(adopted)),
        })
    }

    /// Rings for copies, after a try of what is permitted.
    fn rings(&mut self, pid: i32) -> Result<Vec<CpuRing>, Refusal> {
        let processor = processors().first().copied().unwrap_or(0);
        let tried = request::open(&self.request, Pid::from_raw(pid), processor);
        if let Err(errno @ (Errno::EACCES | Errno::EPERM)) = tried {
            self.request.kernel = false;
            self.kernel_refused = Some(errno as u32);
        }
        lend(self.request, memory::share().min(LARGEST_RING)).map(|(rings, _)| rings)
    }
}

/// CPU time of a process, ns; 0 if it is gone.
fn used_ns(pid: i32) -> u64 {
    let clock = nix::time::clock_getcpuclockid(Pid::from_raw(pid));
    let time = clock.and_then(nix::time::clock_gettime);
    time.map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

fn obstacle_of(path: &Path) -> Option<Obstacle> {
    let obstacle = Nature::of(path).obstacle?;
    Some(Obstacle {
        path: fs::read_link(path).unwrap_or(obstacle.path),
        ..obstacle
    })
}

/// Whether the session that stands in its environment is not there as the process sees the file
/// system. One that is over is nowhere.
fn is_out_of_reach(pid: i32) -> bool {
    let Some(session) = processes::setting(pid, b"session=") else {
        return false;
    };
    let control = Path::new(OsStr::from_bytes(&session)).join(CONTROL_FILE);
    let Ok(inside) = control.strip_prefix("/") else {
        return false;
    };
    let there = Path::new("/proc").join(pid.to_string()).join("root");
    let seen = fs::symlink_metadata(there.join(inside));
    control.exists()
        && seen.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        && there.exists()
}

/// In the place of the copies' record of an exec, which was lost; none where events of context
/// switches tell of it.
fn exec_of(Beginning { pid, time_ns, .. }: Beginning, copies_tell: Tells) -> Option<TaskRecord> {
    (copies_tell == Tells::Everything).then(|| TaskRecord {
        time_ns,
        task: Task { pid, tid: pid },
        what: What::Exec(processes::name(pid, pid)),
    })
}

fn unprofiled(pid: i32, why: &str) -> TaskRecord {
    TaskRecord {
        time_ns: monotonic_ns(),
        task: Task { pid, tid: pid },
        what: What::Unprofiled(Box::new((processes::find(pid, &[]), why.to_owned()))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_not_run_since_it_was_seen_may_be_about_to_make_a_place() {
        let seen = |seen_ns| Unproven {
            pid: 1,
            due: Instant::now(),
            cpu_ns: 0,
            seen_ns,
        };
        assert!(!seen(None).makes_no_place(u64::MAX));
        assert!(!seen(Some(5)).makes_no_place(5 + PLACE_NS));
        assert!(seen(Some(5)).makes_no_place(6 + PLACE_NS));
    }

    #[test]
    fn a_processes_time_is_that_of_all_its_threads() {
        let own = std::process::id().cast_signed();
        let before = used_ns(own);
        let work = || {
            let begun = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
            while begun.now().is_ok_and(|time| time.tv_nsec() < 20_000_000) {}
        };
        std::thread::scope(|scope| scope.spawn(work).join()).unwrap();
        assert!(used_ns(own) - before >= 20_000_000);
        assert_eq!(used_ns(1 << 22), 0, "the kernel gives no such number");
    }
}
