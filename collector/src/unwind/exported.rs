//! What a file with V8 in it exports for debuggers: by that it is known.

use engine::v8::layout::{self, Layout};
use object::{File, Object, ObjectSegment, ObjectSymbol};
use std::collections::HashMap;
use std::ffi::CStr;

/// Where V8's objects have what, if the file is a V8 that is known.
pub(super) fn v8(elf: &File<'_>) -> Option<Layout> {
    let symbols = elf.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let wanted = symbols.filter_map(|symbol| {
        let name = symbol.name().ok()?;
        let is_wanted = name.starts_with("v8dbg_") || name.starts_with("_ZN2v88internal7Version");
        is_wanted.then(|| (name, symbol.address()))
    });
    let found: HashMap<&str, u64> = wanted.collect();
    let constant = |name: &CStr| number(elf, *found.get(name.to_str().ok()?)?);
    (!found.is_empty()).then(|| layout::of(constant).ok())?
}

/// The four bytes at one of the file's own addresses.
fn number(elf: &File<'_>, address: u64) -> Option<u32> {
    let mut segments = elf.segments();
    let bytes = segments.find_map(|segment| segment.data_range(address, 4).ok().flatten())?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
