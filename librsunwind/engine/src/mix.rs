//! A hash of one word.

/// A bijection whose every output bit depends on every input bit.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let value = (value ^ value >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ value >> 32
}

/// A number for a word at one of several places, which with those for the others makes a sum that
/// is another if one of them is. None has to wait for another, as it would where each is mixed with
/// what came before; the sum is to be mixed yet.
#[inline]
#[must_use]
pub const fn part(place: u64, word: u64) -> u64 {
    // Such as differ in their highest bits alone are to differ in others, too.
    let factor = place.wrapping_mul(0xb492_b66f_be98_f274) ^ 0x9ae1_6a3b_2f90_404f;
    (word ^ word >> 32).wrapping_mul(factor)
}
