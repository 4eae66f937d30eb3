//! What is recorded, and how: as the command line says, and where the settings say otherwise as
//! those do, which may change meanwhile.
//!
//! A program that was started is told of another rate by the page that it shares with its recorder;
//! processes that run already are recorded anew.

use super::Args;
use super::settings::Settings;
use crate::target;
use crate::units::{Rate, Share};
use engine::wire::session::{CONTROL_FILE, Control, Orders};
use nix::fcntl::OFlag;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course {
    pub(super) rate: Rate,
    pub(super) share: Option<Share>,
    /// Processes that run, as `-p` takes them.
    pub(super) pid: Option<String>,
    /// Of what is recorded only processes of these names are sent, if there are any.
    pub(super) only: Vec<String>,
    is_running: bool,
}

impl Course {
    /// As both say.
    ///
    /// # Errors
    /// A sentence that begins with the setting that is wrong.
    pub(super) fn of(args: &Args, settings: &Settings) -> Result<Self, String> {
        let mut course = Self {
            rate: settings.rate.unwrap_or(args.rate),
            share: settings.max_overhead.or(args.max_overhead),
            pid: args.target.pid.clone(),
            only: Vec::new(),
            is_running: args.is_running(),
        };
        if course.is_running && course.share.is_some() {
            return Err(
                "max_overhead is for programs that are started: of processes that run give a lower rate"
                    .to_owned(),
            );
        }
        if let Some(processes) = settings.processes.as_ref().or(args.processes.as_ref()) {
            match (&mut course.pid, args.all) {
                (Some(pid), _) => pid.clone_from(processes),
                (None, true) => {
                    let names = processes.split(',').map(str::trim);
                    let names = names.filter(|name| !name.is_empty());
                    course.only.extend(names.map(str::to_owned));
                }
                (None, false) => {
                    return Err(
                        "processes is for -p and -a: here a program is recorded that is started"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(course)
    }

    /// How a recording begins that is to be so: one of a program so that it may be sampled as
    /// often as the command line says.
    pub(super) fn beginning(&self, args: &Args) -> Self {
        let most = self.rate.millihertz.max(args.rate.millihertz);
        let rate = match self.is_running {
            true => self.rate,
            false => Rate { millihertz: most },
        };
        Self {
            rate,
            ..self.clone()
        }
    }

    /// Whether it may take the place of the one that a recording began with.
    ///
    /// # Errors
    /// A sentence that begins with the setting that is wrong.
    pub(super) fn may_follow(&self, began: &Self) -> Result<(), String> {
        if let Some(pid) = self.pid.as_deref().filter(|_| self.pid != began.pid) {
            target::find(pid).map_err(|error| format!("processes: {error}"))?;
        }
        match !self.is_running && self.rate.millihertz > began.rate.millihertz {
            true => Err(format!(
                "rate: a program that was started is sampled {} times a second at most, as when it began",
                began.rate
            )),
            false => Ok(()),
        }
    }

    /// Whether that needs a recording of its own.
    pub(super) fn takes_a_new_recording(&self, began: &Self) -> bool {
        self.is_running && (self.rate != began.rate || self.pid != began.pid)
    }

    /// What the programs of a recording that began so are to be told.
    pub(super) fn orders(&self, began: &Self) -> Orders {
        if self.is_running {
            return Orders::default();
        }
        let periods = began.rate.millihertz.div_ceil(self.rate.millihertz.max(1));
        let share = match self.share == began.share {
            true => 0,
            false => self.share.unwrap_or_default().0,
        };
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Orders {
            periods: number(periods),
            share: number(share),
        }
    }
}

/// Tells the programs of a session.
///
/// # Errors
/// As open and write.
pub(super) fn tell(session: &Path, orders: Orders) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).custom_flags(OFlag::O_NOFOLLOW.bits());
    match options.open(session.join(CONTROL_FILE)) {
        Ok(control) => {
            let word = orders.pack().to_ne_bytes();
            control.write_all_at(&word, offset_of!(Control, orders) as u64)
        }
        // It has ended.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(text: &str) -> Course {
        Course {
            rate: Rate::parse(text).unwrap(),
            share: None,
            pid: None,
            only: Vec::new(),
            is_running: false,
        }
    }

    #[test]
    fn a_program_is_told_what_is_other_than_at_its_beginning() {
        let began = course("99");
        let asked = |periods, share| Orders { periods, share };
        assert_eq!(began.orders(&began), asked(1, 0));
        assert_eq!(course("19").orders(&began), asked(6, 0));
        assert_eq!(course("49.5").orders(&began), asked(2, 0));
        assert_eq!(course("0.1").orders(&began), asked(990, 0));
        let one = Course {
            share: Some(Share::parse("1%").unwrap()),
            ..began.clone()
        };
        assert_eq!(one.orders(&began), asked(1, 1000));
        assert_eq!(began.orders(&one), asked(1, 25_000));
        assert_eq!(one.orders(&one), asked(1, 0));
    }

    #[test]
    fn only_processes_that_run_are_recorded_anew_and_sampled_more_often() {
        let (slow, fast) = (course("19"), course("99"));
        let why = fast.may_follow(&slow).unwrap_err();
        assert!(why.starts_with("rate: "), "{why}");
        assert_eq!(slow.may_follow(&fast), Ok(()));
        assert!(!slow.takes_a_new_recording(&fast));
        let running = |course: &Course| Course {
            is_running: true,
            ..course.clone()
        };
        let (slow, fast) = (running(&slow), running(&fast));
        assert_eq!(fast.may_follow(&slow), Ok(()));
        assert!(fast.takes_a_new_recording(&slow));
        assert!(!fast.takes_a_new_recording(&fast));
        let nobody = Course {
            pid: Some("no process is called so".to_owned()),
            ..slow.clone()
        };
        let why = nobody.may_follow(&slow).unwrap_err();
        assert!(why.starts_with("processes: no process is called"), "{why}");
    }
}
