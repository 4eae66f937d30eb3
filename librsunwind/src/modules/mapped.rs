//! The module of a pc, as the maps and the headers there tell it, where the loader does not know
//! the code.
//!
//! # Safety
//! None needed: addresses in, addresses out; images are read through [`engine::elf_image`], which
//! checks.

use super::{image, maps};
use engine::address::RuntimeAddress;
use engine::elf_image::BuildId;
use engine::module_map::{Module, ModuleKind, Table};

/// A module found in the maps.
pub struct Found<'b> {
    /// Where it is.
    pub module: Module,
    /// Which it is.
    pub build_id: BuildId,
    /// Its file.
    pub path: &'b [u8],
}

/// The module of a pc.
pub fn find<'b>(pc: RuntimeAddress, buffer: &'b mut [u8; 1024]) -> Option<Found<'b>> {
    let (range, length) = maps::locate(pc, buffer)?;
    let anonymous = Module {
        start: RuntimeAddress(range.start),
        end: RuntimeAddress(range.end),
        kind: ModuleKind::Anonymous,
        ..Module::default()
    };
    if range.inode == 0 {
        return Some(Found {
            module: anonymous,
            build_id: BuildId::default(),
            path: &[],
        });
    }
    let path = buffer.get(..length).unwrap_or(&[]);
    let head = maps::image_start(range.device, range.inode).map(RuntimeAddress);
    let headers = head.and_then(image::headers_at);
    let Some(image) = headers.and_then(|headers| headers.image()) else {
        return Some(Found {
            module: anonymous,
            build_id: BuildId::default(),
            path: &[],
        });
    };
    let build_id = image.build_id();
    if image.module.contains(pc) {
        return Some(Found {
            module: image.module,
            build_id,
            path,
        });
    }
    // A second mapping of part of the file (V8 moves its builtins so): same names, other addresses,
    // no tables there.
    let own = headers.and_then(|headers| headers.address_of_code(range.offset));
    let module = Module {
        start: RuntimeAddress(range.start),
        end: RuntimeAddress(range.end),
        bias: range.start.wrapping_sub(own.unwrap_or(range.offset)),
        eh_frame_hdr: Table::default(),
        sframe: Table::default(),
        kind: ModuleKind::Elf,
    };
    Some(Found {
        module,
        build_id,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_function_is_found_in_the_test_program() {
        let here =
            RuntimeAddress(this_very_function_is_found_in_the_test_program as *const () as u64);
        let mut buffer = [0; 1024];
        let found = find(here, &mut buffer).unwrap();
        assert!(found.module.contains(here) && found.module.eh_frame_hdr.is_present());
        assert_eq!(
            found.path,
            std::env::current_exe()
                .unwrap()
                .as_os_str()
                .as_encoded_bytes()
        );
    }
}
