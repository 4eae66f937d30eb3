//! A user stack beside the kernel samples of its entry, and whether a sample that was not taken at
//! its leaf was taken in a function of libc's that held our signal back, so that the caller of that
//! function is on both stacks. libc notes nothing of such stretches: sp and ip are known, and that
//! nothing else was sampled in them.
//!
//! Not here: what becomes of a sample then ([`super::join`]).

use super::kernel_samples::agrees;
use super::samples::Made;
use crate::recording::{ModuleId, ProcessId, RawFrame, Recording, StackId};
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::kernel::KernelHead;
use engine::wire::sample::{SampleHead, flags};

/// How far below its own frame a function of libc that holds all signals back enters the kernel at
/// most, bytes. No handler can run there.
const LIBC_REACH: u64 = 64 << 10;

/// A user stack, to be compared with kernel samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) head: SampleHead,
    pub(super) stack: Option<StackId>,
    /// Where the leaf is, and in which module.
    leaf: u64,
    module: Option<ModuleId>,
    /// If the leaf lies in our own library, the stack from the outermost of its frames there: the
    /// wrapper that the program called.
    pub(super) caller: Option<StackId>,
    /// Events beside CPU time were recorded: probes of the program's code may be among them.
    probes: bool,
    /// From which cursor on all samples of the entry were taken at one place.
    pub(super) newest: u64,
}

impl User {
    pub(super) fn of(
        recording: &Recording,
        made: &Made,
        head: SampleHead,
        stack: Option<StackId>,
        newest: u64,
    ) -> Self {
        let mut found = Self {
            head,
            stack,
            leaf: 0,
            module: None,
            caller: None,
            probes: !recording.sources.is_empty(),
            newest,
        };
        let mut at = stack;
        while let Some(id) = at {
            let node = made.stacks[id.index()];
            let RawFrame::Code { frame, module, .. } = made.frames[node.frame.index()] else {
                break;
            };
            if at == stack {
                let (CodeAddress::Instruction(address) | CodeAddress::Return(address)) = frame;
                (found.leaf, found.module) = (address.0, module);
            }
            if !module.is_some_and(|module| recording.modules[module.index()].ours) {
                break;
            }
            found.caller = Some(id);
            at = node.parent;
        }
        found
    }

    /// Whether a sample was taken where the leaf is.
    pub(super) fn agrees(&self, kernel: &KernelHead) -> bool {
        agrees(kernel, &self.head, self.leaf, self.probes)
    }

    /// Whether the thread was in a function of libc that may have held all signals back on its own
    /// account.
    pub(super) fn is_in_libc(&self, recording: &Recording) -> bool {
        const OTHERWISE: u64 =
            flags::LET_IN | flags::FROM_OUTSIDE | flags::LAST | flags::WALKS_LEFT_OUT;
        let is_libc = |module: ModuleId| recording.modules[module.index()].is_libc();
        self.head.flags & OTHERWISE == 0 && self.module.is_some_and(is_libc)
    }

    /// Whether a sample was taken in what such a function called.
    pub(super) fn is_deeper_in_libc(
        &self,
        recording: &Recording,
        process: ProcessId,
        kernel: &KernelHead,
    ) -> bool {
        let ip = RuntimeAddress(kernel.user_ip);
        let module = recording.module_at(process, ip, self.head.time_ns);
        is_below(kernel.user_sp, self.head.sp, LIBC_REACH)
            && module.is_some_and(|module| recording.modules[module.index()].is_libc())
    }
}

fn is_below(sp: u64, upper: u64, reach: u64) -> bool {
    sp < upper && upper - sp <= reach
}
