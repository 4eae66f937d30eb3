//! The image mapped at an address: its headers, wherever in the file they are, and an index for its
//! `.eh_frame` where the linker wrote none. Done once for each module.
//!
//! Not here: reading headers ([`engine::elf_image`]) and making indices ([`engine::table::index`]).
//!
//! # Safety
//! Slices of the `.eh_frame` of an image that is in use, and of memory mapped here.
#![allow(unsafe_code)]

use super::{maps, sections};
use crate::sys;
use engine::address::RuntimeAddress;
use engine::elf_image::{BuildId, ElfImage, Headers};
use engine::module_map::{Module, Table};
use engine::{memory, table::index};

/// An `.eh_frame` of more bytes than this gets no index in a signal handler: a millisecond or two.
const MOST_IN_HANDLER: u64 = 1 << 20;
/// Nor one of more than this at all.
const MOST: u64 = 32 << 20;

/// When a module is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the program starts.
    Start,
    /// In a walk.
    Handler,
}

/// The headers of the image mapped at `base`.
pub fn headers_at(base: RuntimeAddress) -> Option<Headers<'static>> {
    Headers::at(base, |offset| maps::mapped_at(base, offset))
}

/// What the headers of the image mapped at `base` say.
pub fn at(base: RuntimeAddress) -> Option<ElfImage> {
    headers_at(base)?.image()
}

/// The build-id of the image mapped at `base`.
pub fn build_id(base: RuntimeAddress) -> BuildId {
    at(base).map(|image| image.build_id()).unwrap_or_default()
}

/// Gives a module without `.eh_frame_hdr` an index for its `.eh_frame`, if it has one. `path` is
/// its file.
pub fn give_index(module: &mut Module, path: &[u8], when: When) {
    if module.eh_frame_hdr.is_present() {
        return;
    }
    if let Some(table) = index_for(module, path, when) {
        module.eh_frame_hdr = table;
    }
}

fn index_for(module: &Module, path: &[u8], when: When) -> Option<Table> {
    let section = sections::section(module.start, path, b".eh_frame\0")?;
    let headers = headers_at(module.start)?;
    let table = headers.table_at(section.address, section.size, module.bias);
    let (start, end) = (table.start, table.end);
    let most = if when == When::Start {
        MOST
    } else {
        MOST_IN_HANDLER
    };
    if !table.is_present() || end.0.wrapping_sub(start.0) > most {
        return None;
    }
    // SAFETY: the file part of a readable segment of a module that is in use; read-only data.
    let bytes = unsafe { memory::mapped(start.0, end.0) };
    let code = module.start.0..module.end.0;
    let size = index::size(bytes, start.0, &code)?;
    let place = sys::map_anonymous(size).ok()?;
    // SAFETY: fresh memory of that size, not shared yet.
    let out = unsafe { core::slice::from_raw_parts_mut(place, size) };
    if !index::fill(bytes, start.0, &code, out) {
        // SAFETY: mapped above, and nobody else knows of it.
        unsafe { sys::unmap(place, size) };
        return None;
    }
    let index = place.expose_provenance() as u64;
    Some(Table {
        start: RuntimeAddress(index),
        end: RuntimeAddress(index.wrapping_add(size as u64)),
        readable: (start, end),
    })
}

/// Takes away the index that a module was given.
///
/// # Safety
/// No walk uses the module any more, and none will.
pub unsafe fn take_index(module: &mut Module) {
    let table = module.eh_frame_hdr;
    if !table.is_present() || table.is_inside() {
        return;
    }
    module.eh_frame_hdr = Table::default();
    let size = table.end.0.wrapping_sub(table.start.0) as usize;
    let place = core::ptr::with_exposed_provenance_mut(table.start.0 as usize);
    // SAFETY: mapped by `index_for` with that size; unused, as the caller vouches.
    unsafe { sys::unmap(place, size) };
}
