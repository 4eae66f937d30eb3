//! Finding a function of the program without `dlsym`, which before glibc 2.34 is not in libc:
//! through the loader's list of objects and their hash tables.
//!
//! # Safety
//! Reads structures that the loader made and keeps for objects that are loaded at start, at the
//! offsets of the ELF-64 specification.
#![allow(unsafe_code)]

use crate::weak_address;
use core::ffi::{CStr, c_char};
use core::ops::Range;

/// The loader's `struct link_map`, its public head.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const [usize; 2],
    next: *const LinkMap,
}

/// The loader's `struct r_debug`, its head.
#[repr(C)]
struct Debug {
    version: i32,
    map: *const LinkMap,
}

const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
const HIDDEN_VERSION: u16 = 0x8000;
const TYPE_OBJECT: u8 = 1;
const TYPE_FUNCTION: u8 = 2;
const TYPE_THREAD_LOCAL: u8 = 6;

/// The address of the function of that name in the first object behind the one that `own` lies in,
/// in the loader's order: what `dlsym(RTLD_NEXT, name)` finds for a function that is no resolver of
/// others.
pub fn next_function(own: usize, name: &CStr) -> Option<usize> {
    next_function_until(own, usize::MAX, name)
}

/// The same, no further than the object that `last` lies in: of objects up to libc, which were
/// loaded at start and stay, nobody changes the list, so that no lock of the loader's is needed.
///
/// # Signal safety
/// Loads.
pub fn next_function_until(own: usize, last: usize, name: &CStr) -> Option<usize> {
    let debug = weak_address!("_r_debug") as *const Debug;
    // SAFETY: null, or the loader's variable.
    let mut map = unsafe { debug.as_ref() }?.map;
    let mut is_behind = false;
    // SAFETY: the list is the loader's, and ends in null.
    while let Some(object) = unsafe { map.as_ref() } {
        map = object.next;
        let tables = Tables::of(object);
        if is_behind {
            if let Some(found) = tables.and_then(|tables| tables.find(name, &[TYPE_FUNCTION])) {
                return Some(found.start);
            }
            if object.next_is_beyond(last) {
                return None;
            }
        } else {
            is_behind = object.next_is_beyond(own);
        }
    }
    None
}

/// The address of the function or variable of that name that an object exports, which is loaded
/// with that bias and has its dynamic section there.
///
/// # Signal safety
/// Loads, some hundred at most where the object has a GNU hash table.
///
/// # Safety
/// The loader has loaded the object, and it stays for the duration of the call.
pub(crate) unsafe fn exported(bias: usize, dynamic: usize, name: &CStr) -> Option<usize> {
    // SAFETY: the caller's promise.
    Some(unsafe { extent(bias, dynamic, name) }?.start)
}

/// The same, to behind its end.
///
/// # Signal safety
/// As above.
///
/// # Safety
/// As above.
pub(crate) unsafe fn extent(bias: usize, dynamic: usize, name: &CStr) -> Option<Range<usize>> {
    let object = LinkMap {
        bias,
        name: core::ptr::null(),
        dynamic: dynamic as *const [usize; 2],
        next: core::ptr::null(),
    };
    Tables::of(&object)?.find(name, &[TYPE_OBJECT, TYPE_FUNCTION])
}

/// How far below each thread's block a thread-local variable lies that the program's own file
/// exports, bytes. `headers` are where its program headers are, and how many.
///
/// The program's variables end where the block begins, as the ABI has it; nobody has looked where
/// it has them above the block.
///
/// # Signal safety
/// Loads.
pub(crate) fn below_thread_block(headers: (usize, usize), name: &CStr) -> Option<u64> {
    if cfg!(not(target_arch = "x86_64")) || headers.0 == 0 {
        return None;
    }
    let debug = weak_address!("_r_debug") as *const Debug;
    // SAFETY: null, or the loader's variable, whose list begins with the program.
    let program = unsafe { debug.as_ref()?.map.as_ref() }?;
    let found = Tables::of(program)?.find(name, &[TYPE_THREAD_LOCAL])?;
    // SAFETY: the kernel says that they are there.
    let headers =
        unsafe { core::slice::from_raw_parts(headers.0 as *const libc::Elf64_Phdr, headers.1) };
    let variables = headers.iter().find(|one| one.p_type == libc::PT_TLS)?;
    let end = variables
        .p_memsz
        .checked_next_multiple_of(variables.p_align.max(1))?;
    let start = found.start.wrapping_sub(program.bias) as u64;
    end.checked_sub(start)
}

impl LinkMap {
    /// Whether this is the object that an address lies in: the dynamic section of the next loaded
    /// object above is not needed for that, since an object's own dynamic section and its code are
    /// within its span.
    fn next_is_beyond(&self, own: usize) -> bool {
        // The dynamic section lies in the data behind the code; 16 MiB bounds our own library.
        let dynamic = self.dynamic as usize;
        self.bias <= own && own < dynamic && dynamic.wrapping_sub(self.bias) < 16 << 20
    }
}

/// The symbol tables of an object.
struct Tables {
    bias: usize,
    symbols: usize,
    strings: usize,
    versions: usize,
    gnu_hash: usize,
    hash: usize,
}

impl Tables {
    fn of(object: &LinkMap) -> Option<Self> {
        let mut tables = Self {
            bias: object.bias,
            symbols: 0,
            strings: 0,
            versions: 0,
            gnu_hash: 0,
            hash: 0,
        };
        let mut entry = object.dynamic;
        // SAFETY: an array that ends in a null tag.
        while let Some(&[tag, value]) = unsafe { entry.as_ref() } {
            // glibc has relocated these addresses; the vDSO's and other loaders' are still
            // relative.
            let address = if value < object.bias {
                value.wrapping_add(object.bias)
            } else {
                value
            };
            match tag {
                0 => break,
                DT_SYMTAB => tables.symbols = address,
                DT_STRTAB => tables.strings = address,
                DT_VERSYM => tables.versions = address,
                DT_GNU_HASH => tables.gnu_hash = address,
                DT_HASH => tables.hash = address,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        (tables.symbols != 0 && tables.strings != 0).then_some(tables)
    }

    fn find(&self, name: &CStr, kinds: &[u8]) -> Option<Range<usize>> {
        if self.gnu_hash != 0 {
            self.by_gnu_hash(name, kinds)
        } else if self.hash != 0 {
            let count = word(self.hash.wrapping_add(4));
            (1..count).find_map(|index| self.matching(index, name, kinds))
        } else {
            None
        }
    }

    /// Header: buckets, first symbol, words of the filter, shift; then filter, buckets, chains.
    fn by_gnu_hash(&self, name: &CStr, kinds: &[u8]) -> Option<Range<usize>> {
        let at = |index: usize| word(self.gnu_hash.wrapping_add(index.wrapping_mul(4)));
        let (buckets, first, filter) = (at(0), at(1), at(2) as usize);
        let start_of_buckets = 4usize.wrapping_add(filter.wrapping_mul(2));
        let start_of_chains = start_of_buckets.wrapping_add(buckets as usize);
        let hash = name.to_bytes().iter().fold(5381u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        let mut index = at(start_of_buckets.wrapping_add(hash.checked_rem(buckets)? as usize));
        if index < first {
            return None;
        }
        loop {
            let entry = at(start_of_chains.wrapping_add(index.wrapping_sub(first) as usize));
            if (entry ^ hash) >> 1 == 0
                && let Some(found) = self.matching(index, name, kinds)
            {
                return Some(found);
            }
            if entry & 1 == 1 {
                return None;
            }
            index = index.wrapping_add(1);
        }
    }

    /// What the symbol at an index stands for, if it is defined, visible under its default version,
    /// and of that name and one of those types.
    fn matching(&self, index: u32, name: &CStr, kinds: &[u8]) -> Option<Range<usize>> {
        let symbol = self.symbols.wrapping_add((index as usize).wrapping_mul(24));
        // SAFETY: (all reads) within the object's tables, whose extent the hash table gives.
        let (kind, section, value, size, version) = unsafe {
            (
                (symbol.wrapping_add(4) as *const u8).read(),
                (symbol.wrapping_add(6) as *const u16).read_unaligned(),
                (symbol.wrapping_add(8) as *const usize).read_unaligned(),
                (symbol.wrapping_add(16) as *const usize).read_unaligned(),
                match self.versions {
                    0 => 0,
                    versions => (versions.wrapping_add((index as usize).wrapping_mul(2))
                        as *const u16)
                        .read_unaligned(),
                },
            )
        };
        let text = self.strings.wrapping_add(word(symbol) as usize) as *const c_char;
        let visible = kinds.contains(&(kind & 15)) && section != 0 && version & HIDDEN_VERSION == 0;
        // SAFETY: strings of the table end in a zero byte.
        let is_it = visible && unsafe { CStr::from_ptr(text) } == name;
        let start = self.bias.wrapping_add(value);
        is_it.then(|| start..start.wrapping_add(size))
    }
}

fn word(address: usize) -> u32 {
    // SAFETY: within an object's tables, by the callers.
    unsafe { (address as *const u32).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn dladdr1(
            address: usize,
            info: *mut libc::Dl_info,
            extra: *mut *mut LinkMap,
            flags: i32,
        ) -> i32;
    }

    /// The test program is the first object, so what comes next to it is what libc has.
    #[test]
    fn finds_what_dlsym_finds() {
        let own = next_function as *const () as usize;
        for name in [
            c"pthread_create",
            c"poll",
            c"execve",
            c"sigaction",
            c"dlclose",
            c"pthread_sigmask",
            c"fork",
        ] {
            // SAFETY: a C string.
            let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
            assert_ne!(known, 0);
            assert_eq!(next_function(own, name), Some(known), "{name:?}");
        }
        assert_eq!(next_function(own, c"no_function_has_this_name"), None);
        // SAFETY: as above.
        let in_libc = unsafe { libc::dlsym(libc::RTLD_NEXT, c"read".as_ptr()) } as usize;
        let until_libc = |name| next_function_until(own, in_libc, name);
        assert_eq!(until_libc(c"poll"), next_function(own, c"poll"));
        assert_eq!(until_libc(c"no_function_has_this_name"), None);
        // SAFETY: the structure is written by dladdr1, for libc, which stays.
        let environ = unsafe {
            let (mut info, mut map) = (core::mem::zeroed(), core::ptr::null_mut::<LinkMap>());
            assert_ne!(dladdr1(in_libc, &mut info, &mut map, 2), 0);
            exported((*map).bias, (*map).dynamic as usize, c"environ")
        };
        // SAFETY: as above.
        let known = unsafe { libc::dlsym(libc::RTLD_NEXT, c"environ".as_ptr()) } as usize;
        assert_eq!(environ, Some(known), "a variable");
    }
}
