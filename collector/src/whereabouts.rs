//! Where the kernel says that a thread is: `/proc/PID/task/TID/syscall`.

use std::fs;
use std::io;

/// What the kernel says of where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// It is in the kernel, which it entered at that place, and does not run.
    Asleep {
        /// The user's instruction pointer.
        ip: u64,
        /// The user's stack pointer.
        sp: u64,
        /// In which system call; none if it was interrupted (a page fault, a signal that stops).
        call: Option<Call>,
    },
    /// It runs or could run, in the kernel or not.
    Running,
    /// It is gone, or we may not know.
    Elsewhere,
}

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

impl Whereabouts {
    /// Of a thread.
    pub(crate) fn of(pid: u32, tid: u32) -> Self {
        Self::ask(pid, tid).unwrap_or(Self::Elsewhere)
    }

    /// The same, with the kernel's refusal to say.
    pub(crate) fn ask(pid: u32, tid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))?;
        Ok(parse(&text))
    }

    /// Whether it sleeps, and came from there (instruction pointer, stack pointer).
    pub(crate) fn is(self, place: (u64, u64)) -> bool {
        matches!(self, Self::Asleep { ip, sp, .. } if (ip, sp) == place)
    }
}

/// `running`; or the number of a system call, its arguments, sp and ip; or -1, sp and ip.
fn parse(text: &str) -> Whereabouts {
    let text = text.trim_end();
    if text == "running" {
        return Whereabouts::Running;
    }
    let mut words = text.split(' ');
    let first = words.next().and_then(|number| number.parse().ok());
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let rest: Option<Vec<u64>> = words.map(number).collect();
    match (first, rest.as_deref()) {
        (Some(-1), Some(&[sp, ip])) => Whereabouts::Asleep { ip, sp, call: None },
        (Some(number), Some(&[a, b, c, d, e, f, sp, ip])) => Whereabouts::Asleep {
            ip,
            sp,
            call: Some(Call {
                number,
                arguments: [a, b, c, d, e, f],
            }),
        },
        _ => Whereabouts::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let asleep = "7 0x7ffd1 0x1 0xffffffff 0x0 0x0 0x9 0x7ffd12345678 0x7f0012345678\n";
        let call = Call {
            number: 7,
            arguments: [0x7_ffd1, 1, 0xffff_ffff, 0, 0, 9],
        };
        assert_eq!(
            parse(asleep),
            Whereabouts::Asleep {
                ip: 0x7f00_1234_5678,
                sp: 0x7ffd_1234_5678,
                call: Some(call)
            }
        );
        assert!(parse(asleep).is((0x7f00_1234_5678, 0x7ffd_1234_5678)));
        assert_eq!(
            parse("-1 0x7ffd12345678 0x10\n"),
            Whereabouts::Asleep {
                ip: 0x10,
                sp: 0x7ffd_1234_5678,
                call: None
            }
        );
        assert_eq!(parse("running\n"), Whereabouts::Running);
        for text in ["", "7", "7 0x1 0x2", "-1 0x", "x 0x1 0x2"] {
            assert_eq!(parse(text), Whereabouts::Elsewhere, "{text}");
        }
        assert_eq!(Whereabouts::of(u32::MAX, 1), Whereabouts::Elsewhere);
    }
}
