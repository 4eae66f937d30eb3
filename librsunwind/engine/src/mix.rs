//! A hash of one word.

/// A bijection whose every output bit depends on every input bit.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}
