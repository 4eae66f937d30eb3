//! What a file with V8 in it exports for debuggers: by that it is known.

use crate::binary::Binary;
use crate::segments::Segments;
use engine::v8::layout::{self, Layout};
use object::{Object, ObjectSymbol, ReadRef as _};
use std::collections::HashMap;
use std::ffi::CStr;

/// Where V8's objects have what, if the file is a V8 that is known.
pub(super) fn v8<'a>(
    elf: &object::File<'a, &'a Binary>,
    file: &'a Binary,
    segments: &Segments,
) -> Option<Layout> {
    let symbols = elf.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let wanted = symbols.filter_map(|symbol| {
        let name = symbol.name_bytes().ok()?;
        let is_wanted = name.starts_with(b"v8dbg_") || name.starts_with(b"_ZN2v88internal7Version");
        let name = str::from_utf8(is_wanted.then_some(name)?).ok()?;
        Some((name, symbol.address()))
    });
    let found: HashMap<&str, u64> = wanted.collect();
    let number = |address: u64| {
        let bytes = file
            .read_bytes_at(segments.offset_of(address, 4)?, 4)
            .ok()?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let constant = |name: &CStr| number(*found.get(name.to_str().ok()?)?);
    (!found.is_empty()).then(|| layout::of(constant).ok())?
}
