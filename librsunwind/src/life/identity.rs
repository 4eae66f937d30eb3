//! What `/proc` says of the process, each file read once.
//!
//! # Safety
//! The kernel says where the arguments of the program are, which nobody has changed yet when it
//! begins.
#![allow(unsafe_code)]

use crate::sys::{self, File};
use crate::text::{Text, copy, parse_decimal};
use core::ops::Range;
use engine::memory;
use engine::wire::process::Origin;

/// Fields of `/proc/self/stat`, counted from the one behind the command name.
const START_TICKS: usize = 19;
const CAUGHT: usize = 31;
const ARGUMENTS_START: usize = 45;
const ARGUMENTS_END: usize = 46;
const ALL: [usize; 4] = [START_TICKS, CAUGHT, ARGUMENTS_START, ARGUMENTS_END];

/// The signals of which the kernel does not tell whether they have a handler.
const UNTOLD: u64 = !0 << 31;

/// See the module. Empty and 0 where `/proc` is hidden.
#[derive(Debug)]
pub(super) struct Identity {
    pub origin: Origin,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Signals that have a handler, one bit for each. The kernel does not tell of those from 32 on:
    /// they are in it if any other is.
    pub caught: u64,
    arguments: Range<u64>,
    executable: Text<1024>,
}

impl Identity {
    /// Of this process, which has come about so.
    pub fn read(origin: Origin) -> Self {
        let (mut stat, mut link) = ([0; 1024], [0; 1024]);
        let stat = match File::open(b"/proc/self/stat\0", libc::O_RDONLY, 0) {
            // The kernel gives it whole.
            Ok(file) => {
                let length = file.read_some(&mut stat);
                stat.get(..length).unwrap_or(&[])
            }
            Err(_) => &[],
        };
        let executable = sys::read_link(b"/proc/self/exe\0", &mut link);
        let [start_ticks, caught, start, end] = fields(stat);
        Self {
            origin,
            start_ticks: start_ticks.unwrap_or(0),
            caught: match caught {
                Some(0) => 0,
                Some(some) => some | UNTOLD,
                None => !0,
            },
            arguments: start.unwrap_or(0)..end.unwrap_or(0),
            executable: Text::new().then(executable),
        }
    }

    /// Of a process that has run for a while, and may have changed its arguments.
    #[cfg(feature = "inside")]
    pub fn read_late() -> Self {
        Self {
            arguments: 0..0,
            ..Self::read(Origin::Exec)
        }
    }

    /// The file of the program.
    pub fn executable(&self) -> &[u8] {
        self.executable.bytes()
    }

    /// The program's arguments, each with its zero byte, as far as they fit. A fork child's may
    /// have been changed.
    pub fn command<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let Range { start, end } = self.arguments;
        if self.origin != Origin::Exec || start == 0 || end < start {
            return sys::read_file(b"/proc/self/cmdline\0", buffer);
        }
        let end = end.min(start.saturating_add(buffer.len() as u64));
        // SAFETY: on the stack that the program was given, which nobody has written to yet.
        copy(buffer, unsafe { memory::mapped(start, end) })
    }
}

/// [`ALL`] of the fields behind the command name, which may hold anything, but the last parenthesis
/// ends it.
fn fields(stat: &[u8]) -> [Option<u64>; 4] {
    let end = stat.iter().rposition(|byte| *byte == b')');
    let rest = end.and_then(|end| stat.get(end.wrapping_add(2)..));
    let mut found = [None; 4];
    for (index, field) in rest.unwrap_or(&[]).split(|byte| *byte == b' ').enumerate() {
        if let Some(slot) = ALL.iter().position(|wanted| *wanted == index)
            && let Some(slot) = found.get_mut(slot)
        {
            *slot = parse_decimal(field);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_read_behind_any_command_name() {
        let stat = b"4711 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21";
        assert_eq!(fields(stat), [Some(19), None, None, None]);
        assert_eq!(fields(b""), [None; 4]);
    }

    #[test]
    fn a_signal_with_a_handler_is_caught() {
        let caught = || Identity::read(Origin::Exec).caught;
        let action = |handler| sys::KernelAction {
            handler,
            flags: sys::SA_RESTORER,
            restorer: crate::arch::restorer(),
            mask: 0,
        };
        extern "C" fn nothing(_: i32) {}
        let (signal, handler) = (libc::SIGWINCH, nothing as *const () as usize);
        let before = sys::signal_action(signal, Some(&action(handler))).expect("an action");
        assert_eq!(caught() & sys::bit(signal), sys::bit(signal));
        assert_eq!(caught() & UNTOLD, UNTOLD);
        sys::signal_action(signal, Some(&action(libc::SIG_IGN))).expect("an action");
        assert_eq!(caught() & sys::bit(signal), 0);
        sys::signal_action(signal, Some(&before)).expect("the action before");
    }

    #[test]
    fn the_command_is_that_of_proc() {
        let (mut here, mut there) = ([0; 4096], [0; 4096]);
        for origin in [Origin::Exec, Origin::Fork] {
            let identity = Identity::read(origin);
            assert!(identity.start_ticks > 0 && identity.arguments.start > 0);
            let command = identity.command(&mut here);
            let expected = sys::read_file(b"/proc/self/cmdline\0", &mut there);
            assert_eq!(command, expected);
            assert!(command.ends_with(b"\0"));
            let executable = std::env::current_exe().expect("its path");
            assert_eq!(
                identity.executable(),
                executable.as_os_str().as_encoded_bytes()
            );
            let mut little = [0; 5];
            assert_eq!(identity.command(&mut little), &expected[..5]);
        }
    }
}
