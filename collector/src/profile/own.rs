//! What of a stack is ours and not the program's: frames of the library that unwinds.
//!
//! A wrapper is the function of libc that it stands for, shown once: by libc's own frame if that is
//! there, else by its name. Whatever else of ours lies on a stack is left out: trampolines of
//! threads, stubs of signal handlers, what wrappers call. Time that our own code takes is the
//! program's nowhere, and has one row ([`OWN_WORK`]). The program's own system call is its time,
//! whoever sends the thread into it: what is left of one that our signal has cut short is made in
//! code of ours, and belongs to the function that made the call.
//!
//! A library that is linked into a program is code of the program's module, and cannot be told from
//! it; it has no wrappers.

use crate::intern::HashMap;
use crate::preload_library;
use crate::recording::{FrameId, KernelHalf, ProcessId, RawFrame, RawSample, Recording, StackId};
use crate::symbolize::{ImageId, Symbols};
use engine::wire::sample::flags;
use engine::wire::source::OFF_CPU;
use std::sync::Arc;

/// The row of all that we take ourselves.
pub const OWN_WORK: &str = "[rsunwind]";

/// Whether frames of ours are shown as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnFrames {
    /// No.
    #[default]
    Hidden,
    /// Yes, and our own work where it was done.
    Shown,
}

/// How what is ours is found in a recording.
pub(super) struct Own<'a> {
    recording: &'a Recording,
    symbols: &'a Symbols,
    frames: OwnFrames,
    /// Of each frame whether it is ours.
    ours: Vec<bool>,
    /// The C library of each process that has one.
    libc: HashMap<ProcessId, ImageId>,
}

/// What we did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnWork {
    /// Something in a function that the program called.
    Call,
    /// Anything else: the handler, what threads begin and end with.
    Other,
}

/// A user stack's inner end.
enum Leaf {
    Theirs,
    /// In our code, which the program entered at that frame.
    Ours(FrameId),
}

impl<'a> Own<'a> {
    pub(super) fn new(recording: &'a Recording, symbols: &'a Symbols, frames: OwnFrames) -> Self {
        let mut libc = HashMap::default();
        for module in recording.modules.iter().filter(|module| module.is_libc()) {
            let same = |image: &&crate::symbolize::Image| {
                image.path == module.path && image.build_id == module.build_id
            };
            if let Some((place, _)) = symbols.images.iter().enumerate().find(|(_, i)| same(i)) {
                libc.entry(module.process)
                    .or_insert(ImageId::next_of(place));
            }
        }
        let is_ours = |frame: &RawFrame| match frame {
            RawFrame::Code { module, .. } => {
                module.is_some_and(|module| recording.modules[module.index()].ours)
            }
            _ => false,
        };
        Self {
            recording,
            symbols,
            frames,
            ours: recording.frames.iter().map(is_ours).collect(),
            libc,
        }
    }

    /// Whether a frame is ours, and not to be shown.
    pub(super) fn hides(&self, frame: FrameId) -> bool {
        self.frames == OwnFrames::Hidden && self.ours[frame.index()]
    }

    /// The function of libc, and its image, that a stack that ends in our code stands in.
    pub(super) fn stands_for(&self, stack: StackId) -> Option<(Arc<str>, Option<ImageId>)> {
        let Leaf::Ours(entered) = self.leaf(Some(stack)) else {
            return None;
        };
        let name = self.called(entered)?;
        let RawFrame::Code { process, .. } = self.recording.frames[entered.index()] else {
            return None;
        };
        let any = || self.libc.values().min().copied();
        let libc = || self.libc.get(&process).copied().or_else(any);
        let image = (!is_interface(&name)).then(libc).flatten();
        Some((name, image))
    }

    /// What of our own work, not of the program's, a sample is of.
    pub(super) fn work(&self, sample: &RawSample) -> Option<OwnWork> {
        // Taken where the time did not go.
        const ELSEWHERE: u64 = flags::LAST | flags::LET_IN;
        if self.frames == OwnFrames::Shown || sample.event == OFF_CPU {
            return None;
        }
        match sample.kernel {
            KernelHalf::Profiler => return Some(OwnWork::Other),
            KernelHalf::Shielded => return None,
            _ if sample.flags & ELSEWHERE != 0 => return None,
            _ => {}
        }
        let mut entered = Entered::No;
        let mut at = sample.stack;
        while let Some(id) = at {
            let node = self.recording.stacks[id.index()];
            if !matches!(
                self.recording.frames[node.frame.index()],
                RawFrame::Kernel(_)
            ) {
                break;
            }
            entered = entered.or(self.name(node.frame));
            at = node.parent;
        }
        let Leaf::Ours(frame) = self.leaf(at) else {
            return None;
        };
        match self.called(frame) {
            Some(name) => (!is_programs(&name, entered)).then_some(OwnWork::Call),
            None => Some(OwnWork::Other),
        }
    }

    fn leaf(&self, stack: Option<StackId>) -> Leaf {
        let mut found = Leaf::Theirs;
        let mut at = stack;
        while let Some(id) = at {
            let node = self.recording.stacks[id.index()];
            if !self.hides(node.frame) {
                break;
            }
            let name = self.name(node.frame);
            if !name.is_some_and(|name| preload_library::makes_rest_of_call(name)) {
                found = Leaf::Ours(node.frame);
            }
            at = node.parent;
        }
        found
    }

    /// The function by which the program called ours, if it is one that programs call.
    fn called(&self, frame: FrameId) -> Option<Arc<str>> {
        let name = self.name(frame)?;
        let name = interface_name(name).unwrap_or_else(|| name.clone());
        preload_library::exports(&name).then_some(name)
    }

    /// The function that a frame's address is in, whatever was inlined there.
    fn name(&self, frame: FrameId) -> Option<&'a Arc<str>> {
        let place = self.symbols.of_frame[frame.index()]?;
        let place = &self.symbols.places[place as usize];
        place.functions.last().map(|named| &named.function)
    }
}

/// How the kernel was entered, as far as its frames tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered<'a> {
    /// It was not, or by an interrupt or a fault.
    No,
    /// In a way that has no name.
    Unknown,
    /// By some system call.
    Call,
    /// By that one.
    Named(&'a str),
}

impl<'a> Entered<'a> {
    /// With what one more frame tells.
    fn or(self, name: Option<&'a Arc<str>>) -> Self {
        const CALLS: [&str; 5] = [
            "__x64_sys_",
            "__arm64_sys_",
            "__se_sys_",
            "__do_sys_",
            "ksys_",
        ];
        const ENTRIES: [&str; 3] = ["entry_SYSCALL", "do_syscall", "el0_svc"];
        let Some(name) = name else {
            return self.max(Self::Unknown);
        };
        let call = CALLS.iter().find_map(|start| name.strip_prefix(start));
        match call {
            Some(call) => self.max(Self::Named(call)),
            None if ENTRIES.iter().any(|start| name.starts_with(start)) => self.max(Self::Call),
            None if name.starts_with('[') => self.max(Self::Unknown),
            None => self,
        }
    }

    fn max(self, other: Self) -> Self {
        let rank = |entered| match entered {
            Self::No => 0,
            Self::Unknown => 1,
            Self::Call => 2,
            Self::Named(_) => 3,
        };
        if rank(other) > rank(self) {
            other
        } else {
            self
        }
    }
}

/// Whether what is done in a function that programs call is what they called it for: its own system
/// call, which is made by a hand of ours, or our interface. Anything else that is done there is
/// ours.
fn is_programs(function: &str, entered: Entered<'_>) -> bool {
    if is_interface(function) {
        return true;
    }
    match entered {
        Entered::No => false,
        Entered::Unknown | Entered::Call => !makes_threads(function),
        Entered::Named(call) => is_its_call(function, call),
    }
}

/// The name in C of a function of our interface, which is a jump to that function.
fn interface_name(function: &str) -> Option<Arc<str>> {
    let (_, name) = function
        .strip_prefix("rsunwind::interface::")?
        .rsplit_once("::")?;
    Some(format!("rsunwind_{name}").into())
}

/// Whether it is a function of ours that programs may call.
fn is_interface(function: &str) -> bool {
    function.starts_with("rsunwind_")
}

fn makes_threads(function: &str) -> bool {
    matches!(function, "pthread_create" | "thrd_create")
}

/// Whether a function of libc makes that system call.
fn is_its_call(function: &str, call: &str) -> bool {
    let call = call.trim_start_matches("rt_");
    let plain = function
        .trim_start_matches('_')
        .trim_start_matches("pthread_");
    let starts = |all: &[&str]| all.iter().any(|start| call.starts_with(start));
    match plain {
        "syscall" => true,
        _ if call.contains(plain) || plain.contains(call) => true,
        _ if plain.starts_with("exec") || plain == "fexecve" => call.starts_with("execve"),
        _ if plain.starts_with("posix_spawn") => starts(&["clone", "vfork", "execve"]),
        "exit" | "Exit" | "quick_exit" => call.starts_with("exit"),
        "Fork" => starts(&["fork", "clone"]),
        _ if plain.starts_with("sig") || plain.starts_with("xpg_sig") => call.starts_with("sig"),
        _ if plain.starts_with("wait") => call.starts_with("wait"),
        "sleep" | "usleep" | "thrd_sleep" => call.ends_with("nanosleep"),
        _ if plain.starts_with("sem_") || plain.starts_with("cond_") => call.starts_with("futex"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(names: &[&str]) -> Entered<'static> {
        names.iter().fold(Entered::No, |entered, name| {
            entered.or(Some(Box::leak(Box::new(Arc::from(*name)))))
        })
    }

    #[test]
    fn a_wrapper_makes_the_programs_call_and_some_of_its_own() {
        let read = entered(&["vfs_read", "ksys_read", "__x64_sys_read", "do_syscall_64"]);
        let mask = entered(&["__x64_sys_rt_sigprocmask", "do_syscall_64"]);
        let open = entered(&["__x64_sys_perf_event_open", "do_syscall_64"]);
        let nothing = entered(&["asm_sysvec_apic_timer_interrupt"]);
        assert!(is_programs("read", read) && is_programs("syscall", read));
        assert!(!is_programs("read", mask) && is_programs("pthread_sigmask", mask));
        assert!(!is_programs("pthread_create", open) && !is_programs("read", nothing));
        let unnamed = entered(&["do_syscall_64", "entry_SYSCALL_64_after_hwframe"]);
        assert!(is_programs("read", unnamed) && !is_programs("pthread_create", unnamed));
    }

    #[test]
    fn our_interface_is_called_by_the_program() {
        assert!(is_programs("rsunwind_backtrace", Entered::No));
        let named = |function| interface_name(function).as_deref().map(str::to_owned);
        assert_eq!(
            named("rsunwind::interface::clients::backtrace").as_deref(),
            Some("rsunwind_backtrace")
        );
        assert_eq!(named("rsunwind::clients::broker::request"), None);
    }
}
