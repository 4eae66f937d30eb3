//! Messages made of 64-bit words.

/// Writes words, as many as there is room for.
///
/// # Signal safety
/// Arithmetic only. Not by `copy_from_slice`, which could panic as far as the compiler can see.
pub(super) fn put(bytes: &mut [u8], words: impl IntoIterator<Item = u64>) {
    for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
        slot.iter_mut()
            .zip(word.to_le_bytes())
            .for_each(|(to, from)| *to = from);
    }
}

/// The whole words of a message.
pub(super) fn read(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, _) = bytes.as_chunks();
    words.iter().copied().map(u64::from_le_bytes)
}
