//! A sample's call chain as perf wrote it, taken apart: the kernel's frames, and what perf found of
//! the user's by frame pointers.

use perf_data::format::context;
use perf_data::{Fields, PerfFile, What};
use std::collections::HashMap;

/// Entries from here on are marks.
const FIRST_MARK: u64 = (-4095i64).cast_unsigned();

/// Call chain in two parts, each from its leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) kernel: Vec<u64>,
    pub(super) user: Vec<u64>,
    /// The kernel's name of the entry, if it has deferred the user's part; else 0.
    pub(super) cookie: u64,
}

/// User stacks that stand apart, by thread and cookie.
#[derive(Debug, Default)]
pub(super) struct Deferred<'a>(HashMap<(u32, u64), &'a [u64]>);

impl<'a> Deferred<'a> {
    pub(super) fn new(file: &'a PerfFile) -> Self {
        let apart = file.records.iter().filter_map(|record| match &record.what {
            What::Deferred { tid, cookie, stack } => Some(((*tid, *cookie), stack.as_slice())),
            _ => None,
        });
        Self(apart.collect())
    }
}

impl Chain {
    /// Of a sample. Without a call chain its own place is all there is.
    pub(super) fn new(fields: &Fields, in_kernel: bool, deferred: &Deferred<'_>) -> Self {
        let mut chain = Self::default();
        let mut mark = if in_kernel {
            context::KERNEL
        } else {
            context::USER
        };
        for entry in &fields.chain {
            match (*entry, mark) {
                (cookie, context::USER_DEFERRED) => {
                    let apart = deferred.0.get(&(fields.tid, cookie));
                    chain
                        .user
                        .extend_from_slice(apart.copied().unwrap_or_default());
                    chain.cookie = cookie;
                    mark = 0;
                }
                (entry, _) if entry >= FIRST_MARK => mark = entry,
                (entry, context::KERNEL) => chain.kernel.push(entry),
                (entry, context::USER) => chain.user.push(entry),
                _ => {}
            }
        }
        if in_kernel && chain.kernel.is_empty() {
            chain.kernel.push(fields.ip);
        }
        if !in_kernel && chain.user.is_empty() {
            chain.user.push(fields.ip);
        }
        if let (true, Some((_, ip))) = (chain.user.is_empty(), fields.user) {
            chain.user.push(ip);
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_data::Record;

    #[test]
    fn marks_say_whose_addresses_follow_and_cookies_stand_for_stacks() {
        let mut file = PerfFile::default();
        file.records.push(Record {
            offset: 0,
            time: 9,
            what: What::Deferred {
                tid: 7,
                cookie: 0xb_0000_0006,
                stack: vec![0x401000, 0x402000],
            },
        });
        let deferred = Deferred::new(&file);
        let fields = |tid, chain: &[u64]| Fields {
            tid,
            ip: 0xffff_ffff_8100_0000,
            chain: chain.to_vec(),
            ..Fields::default()
        };
        let cookie = [context::KERNEL, 5, 6, context::USER_DEFERRED, 0xb_0000_0006];
        let chain = Chain::new(&fields(7, &cookie), true, &deferred);
        assert_eq!(
            (chain.kernel, chain.user),
            (vec![5, 6], vec![0x401000, 0x402000])
        );
        assert_eq!(chain.cookie, 0xb_0000_0006);
        let other = Chain::new(&fields(8, &cookie), true, &deferred);
        assert!(other.user.is_empty(), "a cookie is one thread's");
        let plain = [context::KERNEL, 5, context::USER, 0x401000];
        let chain = Chain::new(&fields(7, &plain), true, &deferred);
        assert_eq!(chain.cookie, 0);
        assert_eq!((chain.kernel, chain.user), (vec![5], vec![0x401000]));
        let bare = Chain::new(&fields(7, &[]), false, &deferred);
        assert_eq!(bare.user, [0xffff_ffff_8100_0000]);
    }
}
