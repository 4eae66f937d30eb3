//! Where tables are wrong at the end of a function, by the compiler's fault: in `.eh_frame`, and in
//! the SFrame made of the same directives.

use crate::cursor::Cursor;
use crate::memory::StackMemory;
use crate::registers::{FP, RETURN_ADDRESS_ON_STACK};
use crate::rule::wide::{Cfa, Row, Saved};

/// The code at a frame's pc, if that is where execution stands.
pub(super) fn code(cursor: &Cursor, memory: &mut StackMemory) -> Option<u64> {
    let instruction = cursor.is_exact().then_some(cursor.pc())?;
    memory.load(instruction)
}

/// GCC describes the end of a function that realigned its stack as if rbp still were its own: in
/// the last two instructions, `lea -8(%r10), %rsp; ret`, it and all others have been popped
/// already. `code` is the code at the pc, if that is where execution stands.
pub(super) fn mend(row: &mut Row, code: impl FnOnce() -> Option<u64>) {
    let by_fp =
        |saved: &Saved| matches!(saved, Saved::AtRegister { register, .. } if *register == FP);
    let is_suspect = matches!(row.cfa, Cfa::Offset { .. }) && row.saved.iter().any(by_fp);
    if !is_suspect || !RETURN_ADDRESS_ON_STACK {
        return;
    }
    let is_end = match code().map(u64::to_le_bytes) {
        Some([0xc3, ..]) => true,
        Some([0x48 | 0x49, 0x8d, modrm, 0xf8, 0xc3, ..]) => modrm & 0xf8 == 0x60,
        _ => false,
    };
    if is_end {
        row.saved = [Saved::Same; 6];
    }
}
