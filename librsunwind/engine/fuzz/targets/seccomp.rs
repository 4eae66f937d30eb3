//! Filters of any content: each has an answer or none, after as many steps as it has instructions,
//! and what is unknown of a call never changes an answer that does not depend on it.
#![no_main]

use engine::seccomp::{MOST, SystemCall, answer};
use libfuzzer_sys::fuzz_target;
use std::sync::atomic::AtomicU64;

fuzz_target!(|data: &[u8]| {
    let words = data.chunks_exact(8).take(MOST);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let program: Vec<_> = words.map(AtomicU64::new).collect();
    let any = answer(&program, &SystemCall::any(14));
    for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 8 << 32, 5, 6]] {
        let known = answer(&program, &SystemCall::with(14, &arguments));
        assert!(any.is_none() || any == known);
    }
});
