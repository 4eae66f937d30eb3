//! Whose processes were, as the kernel says: what those that are gone left is believed only from
//! the same users.

use std::collections::{BTreeSet, HashMap};

/// What is known of the session's processes.
#[derive(Debug, Default)]
pub struct Owners {
    /// By pid and start time: those that were looked at while they lived, or whose segment was the
    /// first of that name.
    users: HashMap<(u32, u64), BTreeSet<u32>>,
    /// By pid and key: who has offered a ring, which a program does as soon as it has a segment.
    senders: HashMap<(u32, u64), Sender>,
}

/// Who has offered a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The user that it was when it connected.
    pub user: u32,
    /// The kernel says that it was the process that the offer names.
    pub is_process: bool,
}

impl Owners {
    /// A process was seen to be those users'.
    pub fn saw(&mut self, pid: u32, start_ticks: u64, users: &BTreeSet<u32>) {
        // 0 is what a process says to which /proc is hidden.
        if start_ticks != 0 {
            self.users
                .entry((pid, start_ticks))
                .or_default()
                .extend(users);
        }
    }

    /// A program run has offered its first ring.
    pub fn heard(&mut self, pid: u32, process_key: u64, sender: Sender) {
        self.senders.entry((pid, process_key)).or_insert(sender);
    }

    /// Whether a file may be of that program run, as far as is known of one that is gone.
    #[must_use]
    pub fn may_be(&self, user: u32, pid: u32, start_ticks: u64, process_key: u64) -> bool {
        let seen = self.users.get(&(pid, start_ticks));
        match self.senders.get(&(pid, process_key)) {
            // A process may have given up its rights since it was seen, and have ended before it
            // was seen again.
            Some(sender) if sender.is_process => sender.user == user,
            sender => {
                seen.is_none_or(|users| users.contains(&user))
                    && sender.is_none_or(|sender| sender.user == user)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_held_against_a_file_and_what_is_not_is_not() {
        let mut owners = Owners::default();
        assert!(owners.may_be(1, 10, 100, 1000));
        owners.saw(10, 100, &BTreeSet::from([0, 7]));
        assert!(owners.may_be(7, 10, 100, 1000) && !owners.may_be(1, 10, 100, 1000));
        assert!(
            owners.may_be(1, 10, 101, 1000),
            "another of the same number"
        );
        owners.saw(11, 0, &BTreeSet::from([7]));
        assert!(owners.may_be(1, 11, 0, 1000), "its start is not known");
        let heard = |user, is_process| Sender { user, is_process };
        owners.heard(12, 1000, heard(7, false));
        owners.heard(12, 1000, heard(8, true));
        assert!(owners.may_be(7, 12, 5, 1000) && !owners.may_be(8, 12, 5, 1000));
        assert!(owners.may_be(8, 12, 5, 1001), "its next program");
        owners.heard(10, 1001, heard(1, false));
        assert!(!owners.may_be(1, 10, 100, 1001), "anybody may have sent it");
        owners.heard(10, 1002, heard(1, true));
        assert!(
            owners.may_be(1, 10, 100, 1002) && !owners.may_be(7, 10, 100, 1002),
            "it has become another user's"
        );
    }
}
