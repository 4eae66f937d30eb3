//! A hash of one word.

/// A bijection whose every output bit depends on every input bit.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}

/// A number for several words, one after the other: of half the work of [`mix`], which each word
/// has to wait for. Another word gives another number, whatever came before.
#[must_use]
pub const fn join(digest: u64, word: u64) -> u64 {
    let value = (digest ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}
