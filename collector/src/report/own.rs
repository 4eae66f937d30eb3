//! Which of the program's own functions a stack is in, and what that called: of waiting the first
//! question, since the innermost functions are the kernel's.

use crate::profile::{CallId, Frame, Mode, PREEMPTED, Profile, Rank, Ranks};

/// A function and the one that it called, by number.
pub(super) type Pair = (u32, Option<u32>);

/// Finds them, for one profile.
pub(super) struct Own<'a> {
    profile: &'a Profile,
    ranks: Ranks,
}

impl<'a> Own<'a> {
    pub(super) fn of(profile: &'a Profile) -> Self {
        Self {
            profile,
            ranks: Ranks::of(profile),
        }
    }

    /// The innermost own function of a stack; without any, the innermost that is the least foreign.
    pub(super) fn find(&self, stack: CallId) -> Pair {
        let leaf = self.profile.stacks[stack.index()].frame;
        let leaf = self.profile.frames[leaf.index()].function;
        if &*self.profile.functions[leaf.index()].name == PREEMPTED {
            return (leaf.number(), None); // wherever it was
        }
        let mut found: Option<(Rank, u32, Option<u32>)> = None;
        let mut below = None;
        let mut next = Some(stack);
        while let Some(call) = next.map(|id| self.profile.stacks[id.index()]) {
            next = call.parent;
            let frame = &self.profile.frames[call.frame.index()];
            let rank = self.ranks.rank(call.frame);
            if found.is_none_or(|(best, ..)| rank > best) {
                found = Some((rank, frame.function.number(), below));
            }
            // The way into the kernel says nothing.
            if !self.is_entry(frame) || below.is_none() {
                below = Some(frame.function.number());
            }
        }
        match found {
            Some((Rank::Foreign, ..)) | None => (leaf.number(), None),
            Some((_, function, called)) => (function, called),
        }
    }

    fn is_entry(&self, frame: &Frame) -> bool {
        let function = self.profile.function(frame);
        function.mode == Mode::Kernel && ENTRIES.iter().any(|it| function.name.starts_with(it))
    }
}

/// What every system call goes through.
const ENTRIES: [&str; 4] = ["entry_SYSCALL", "do_syscall_64", "x64_sys_call", "asm_"];
