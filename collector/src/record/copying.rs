//! Stacks that the kernel copies: of programs that the preload library cannot get into, and of all
//! programs where their threads go off the CPU, if that is asked for. Whether it does, and what is
//! said about it.
//!
//! Not here: how that is done ([`crate::copy`]).

use super::args::{Args, Trigger};
use super::drain::Drain;
use super::hold::Hold;
use crate::clock;
use crate::copy::{Attached, Beside, Copying, Settings, attach, attach_everybody, attach_running};
use crate::cpu_rings::{Refusal, Start};
use crate::numbers::plural;
use crate::obstacle::{Obstacle, ObstacleKind};
use crate::seccomp;
use crate::visible::say;
use nix::unistd::{Pid, geteuid};
use std::io;

/// Copies of the stacks of programs, where they are needed.
#[derive(Debug)]
pub struct Copies<'a> {
    obstacle: Option<&'a Obstacle>,
    quiet: bool,
    settings: Settings,
    /// Whether the user allows perf events, and whether nothing else.
    allowed: bool,
    insists: bool,
    state: State,
    samples_kernel: bool,
    /// On a program whose events cannot be opened before it runs.
    hold: Option<Hold>,
}

enum State {
    /// Nothing was done.
    Idle,
    /// The program is about to begin.
    Attached(Box<Attached>),
    /// It runs.
    Copying(Copying),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Attached(_) => "Attached",
            Self::Copying(_) => "Copying",
        })
    }
}

impl<'a> Copies<'a> {
    /// For a program with that obstacle, or none.
    #[must_use]
    pub fn new(args: &Args, obstacle: Option<&'a Obstacle>) -> Self {
        let realtime_offset_ns = clock::realtime_offset_ns();
        let mut settings = Settings::new(args.rate.period_ns(), args.max_depth, realtime_offset_ns);
        let is_linked = obstacle.is_some_and(|one| one.kind == ObstacleKind::Linked);
        let records_itself = is_linked && args.notices_programs();
        settings.cpu_time = obstacle.is_some() && !records_itself;
        settings.switches = args.records_off_cpu();
        settings.execs = !settings.cpu_time && args.notices_programs();
        Self {
            obstacle,
            quiet: args.quiet,
            settings,
            allowed: args.trigger != Trigger::Timer,
            insists: args.trigger == Trigger::Perf,
            state: State::Idle,
            samples_kernel: false,
            hold: None,
        }
    }

    /// Of processes that run already, at once; or of everybody. Some of them may unwind themselves
    /// beside that.
    ///
    /// # Errors
    /// [`Refusal`] if events cannot be had; with errno ESRCH if all the processes have ended.
    pub fn of_running(
        args: &Args,
        pids: Option<&[Pid]>,
        beside: Option<Beside>,
    ) -> Result<Self, Refusal> {
        let mut copies = Self::new(args, None);
        if !copies.insists && seccomp::is_in_force() {
            return Err(Refusal::FILTERED);
        }
        copies.settings.cpu_time = true;
        copies.settings.execs = false;
        let attached = match pids {
            Some(pids) => attach_running(pids, copies.settings, beside)?,
            None => attach_everybody(copies.settings)?,
        };
        copies.samples_kernel = attached.samples_kernel();
        copies.state = State::Copying(attached.begin()?);
        Ok(copies)
    }

    /// Whether kernel mode of those is sampled.
    #[must_use]
    pub const fn samples_kernel(&self) -> bool {
        self.samples_kernel
    }

    /// The program's process is there, and about to become the program.
    pub fn before_exec(&mut self, pid: Pid) {
        match self.way() {
            Some((kind, true)) if kind.is_seen_at_exec() => self.attach(pid, Start::AtExec),
            Some((ObstacleKind::Privileged(_), true)) if geteuid().is_root() => {
                self.hold = Hold::at_exec(pid);
            }
            None if self.settings.switches || self.settings.execs => {
                self.attach(pid, Start::AtExec)
            }
            _ => {}
        }
    }

    /// It has become the program: from then on the kernel lets nobody in who may not look at it.
    pub fn after_exec(&mut self, pid: Pid) {
        if let Some((ObstacleKind::Privileged(_), true)) = self.way()
            && geteuid().is_root()
        {
            self.hold.iter_mut().for_each(Hold::wait);
            self.attach(pid, Start::Now);
            self.hold = None;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Attached(attached) => match attached.begin() {
                Ok(copying) => self.state = State::Copying(copying),
                Err(refusal) => self.say_why_not(Some(&refusal)),
            },
            // Said already if it was tried.
            State::Idle | State::Copying(_) if self.tried() => {}
            State::Idle | State::Copying(_) => self.say_why_not(None),
        }
        if self.obstacle.is_some() && self.settings.switches && matches!(self.state, State::Idle) {
            say(format_args!("its time off the CPU is not recorded either"));
        }
    }

    /// What the obstacle is, and whether perf events may be used.
    fn way(&self) -> Option<(ObstacleKind, bool)> {
        self.obstacle.map(|obstacle| (obstacle.kind, self.allowed))
    }

    fn tried(&self) -> bool {
        match self.way() {
            Some((kind, allowed)) if kind.is_seen_at_exec() => allowed,
            Some((ObstacleKind::Privileged(_), allowed)) => allowed && geteuid().is_root(),
            _ => false,
        }
    }

    fn attach(&mut self, pid: Pid, start: Start) {
        let attached = if !self.insists && seccomp::is_in_force() {
            Err(Refusal::FILTERED)
        } else {
            attach(pid, start, self.settings)
        };
        match attached {
            Ok(attached) => {
                if let (Some(obstacle), false) = (self.obstacle, self.quiet) {
                    say(match self.settings.cpu_time {
                        true => obstacle.circumvented(attached.samples_kernel()),
                        false => obstacle.records_itself(),
                    });
                }
                self.state = State::Attached(Box::new(attached));
            }
            Err(refusal) => self.say_why_not(Some(&refusal)),
        }
    }

    fn say_why_not(&self, refusal: Option<&Refusal>) {
        match (self.obstacle, refusal) {
            (Some(obstacle), Some(refusal)) => {
                say(format_args!(
                    "{obstacle}; its stacks cannot be copied either: {refusal}"
                ));
            }
            (Some(obstacle), None) if !self.allowed && obstacle.kind.is_seen_at_exec() => {
                say(format_args!(
                    "{obstacle}; or leave --trigger timer out: then the kernel may copy its stacks"
                ));
            }
            (Some(obstacle), None) => say(format_args!("{obstacle}")),
            (None, Some(refusal)) if self.settings.switches => {
                say(format_args!("time off the CPU is not recorded: {refusal}"));
            }
            (None, _) => {}
        }
    }

    /// Recording ends, though programs may go on.
    pub fn end(&mut self) {
        if let State::Copying(copying) = &mut self.state {
            copying.end();
        }
    }

    /// Puts what there is into the recording.
    ///
    /// # Errors
    /// As write.
    pub fn look(&mut self, drain: &mut Drain) -> io::Result<()> {
        let State::Copying(copying) = &mut self.state else {
            return Ok(());
        };
        for (info, records) in copying.take() {
            drain.writer().chunk(&info, &records)?;
        }
        Ok(())
    }

    /// Ends it, and puts all that is left into the recording.
    ///
    /// # Errors
    /// As write.
    pub fn finish(&mut self, drain: &mut Drain) -> io::Result<()> {
        if let State::Copying(copying) = &mut self.state {
            let outcome = copying.finish();
            drain.count(outcome.runs, copying.period_ns());
            if outcome.unnoticed > 0 && !self.quiet {
                let unnoticed = plural(outcome.unnoticed, "program", "programs");
                say(format_args!(
                    "{unnoticed} began faster than could be noted: those of them that cannot unwind themselves are not profiled"
                ));
            }
        }
        self.look(drain)
    }
}
