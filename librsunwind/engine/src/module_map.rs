//! Where code is mapped, and where its unwind tables are.
//!
//! The runtime discovers modules and implements [`Modules`]; it may keep them in a [`ModuleMap`],
//! which handlers on all threads read while normal code changes it, without locks. Not here:
//! reading ELF headers ([`crate::elf_image`]).

use crate::address::RuntimeAddress;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// A table inside a mapped module, and the readable part of the module that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Table {
    /// Where the table starts.
    pub start: RuntimeAddress,
    /// Where its program header says that it ends; the header may exaggerate.
    pub end: RuntimeAddress,
    /// The mapped, readable bytes around it: at least the file part of its segment.
    pub readable: (RuntimeAddress, RuntimeAddress),
}

impl Table {
    /// Whether there is one.
    #[inline]
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.start.0 != 0
    }

    /// Whether it lies in the bytes around it. Else it is an index that was made of them
    /// ([`crate::table::index`]), in memory of ours.
    #[inline]
    #[must_use]
    pub const fn is_inside(&self) -> bool {
        let (start, end) = self.readable;
        start.0 <= self.start.0 && self.start.0 < end.0
    }
}

/// What kind of module it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ModuleKind {
    /// A file that the loader mapped.
    #[default]
    Elf = 0,
    /// The kernel's.
    Vdso = 1,
    /// Executable memory of no file: JIT code.
    Anonymous = 2,
}

/// A mapped module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Where it starts.
    pub start: RuntimeAddress,
    /// One past its last byte.
    pub end: RuntimeAddress,
    /// What is added to an address in the file to make an address in memory.
    pub bias: u64,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Table,
    /// `.sframe`.
    pub sframe: Table,
    /// What kind of module it is.
    pub kind: ModuleKind,
}

impl Module {
    /// Whether an address lies in it.
    #[inline]
    #[must_use]
    pub const fn contains(&self, address: RuntimeAddress) -> bool {
        self.start.0 <= address.0 && address.0 < self.end.0
    }
}

/// Finds the module of a code address.
///
/// An answer with a module is remembered in the rule cache until
/// [`crate::rule_cache::RuleCache::invalidate`]; "none" is asked again at every step.
pub trait Modules {
    /// The module at an address, if any.
    ///
    /// # Signal safety
    /// Implementations allocate nothing and take no locks.
    fn find(&self, pc: RuntimeAddress) -> Option<Module>;

    /// The module's `.sframe` is damaged: from now on [`Modules::find`] should give it without.
    /// Called from the handler, usually once.
    fn distrust_sframe(&self, module: &Module) {
        let _ = module;
    }
}

/// How many modules a map holds.
pub const CAPACITY: usize = 2048;
const WORDS: usize = 12;

/// A module under a sequence number: odd while it is written.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Modules by address range. Zeroed memory is an empty map.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ModuleMap {
    /// One past the highest slot ever used.
    used: AtomicU64,
    slots: [Slot; CAPACITY],
}

impl ModuleMap {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            used: AtomicU64::new(0),
            slots: [const {
                Slot {
                    sequence: AtomicU64::new(0),
                    words: [const { AtomicU64::new(0) }; WORDS],
                }
            }; CAPACITY],
        }
    }

    /// The module at an address.
    ///
    /// # Signal safety
    /// Loads only. A module that another thread is writing at this moment is not found.
    #[must_use]
    pub fn find(&self, pc: RuntimeAddress) -> Option<Module> {
        self.used_slots().iter().find_map(|slot| {
            let (start, end) = slot.range();
            let inside = start <= pc.0 && pc.0 < end;
            let module = if inside { slot.read() } else { None };
            module.filter(|module| module.contains(pc))
        })
    }

    /// Adds a module; `false` if the map is full or has it already.
    ///
    /// # Signal safety
    /// Bounded; a slot that someone else is writing is passed over.
    pub fn insert(&self, module: &Module) -> bool {
        if module.start >= module.end || self.find(module.start) == Some(*module) {
            return false;
        }
        for (index, slot) in (1u64..).zip(&self.slots) {
            if slot.range().1 == 0 && slot.write_if(|end| end == 0, &words_of(module)) {
                self.used.fetch_max(index, Ordering::AcqRel);
                return true;
            }
        }
        false
    }

    /// Removes every module that overlaps a range, and gives their number. The caller then
    /// invalidates the rule cache.
    ///
    /// # Signal safety
    /// Bounded, no locks.
    pub fn remove(&self, start: RuntimeAddress, end: RuntimeAddress) -> usize {
        let overlaps = |slot: &&Slot| {
            let (slot_start, slot_end) = slot.range();
            slot_start < end.0 && start.0 < slot_end
        };
        let slots = self.used_slots().iter().filter(overlaps);
        slots
            .filter(|slot| slot.write_if(|end| end != 0, &[0; WORDS]))
            .count()
    }

    /// Replaces a module by a changed one of the same range: one whose table is not to be trusted.
    ///
    /// # Signal safety
    /// Bounded, no locks.
    pub fn replace(&self, module: &Module) -> bool {
        let slots = self.used_slots().iter();
        let mut same = slots.filter(|slot| slot.range() == (module.start.0, module.end.0));
        same.next()
            .is_some_and(|slot| slot.write_if(|end| end == module.end.0, &words_of(module)))
    }

    /// All modules.
    pub fn iter(&self) -> impl Iterator<Item = Module> + '_ {
        let modules = self.used_slots().iter().filter_map(Slot::read);
        modules.filter(|module| module.end.0 != 0)
    }

    fn used_slots(&self) -> &[Slot] {
        let used = self.used.load(Ordering::Acquire) as usize;
        self.slots.get(..used).unwrap_or(&self.slots)
    }
}

impl Default for ModuleMap {
    fn default() -> Self {
        Self::new()
    }
}

impl Slot {
    /// Start and end, which need not belong together.
    #[inline]
    fn range(&self) -> (u64, u64) {
        let [start, end, ..] = &self.words;
        (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed))
    }

    fn read(&self) -> Option<Module> {
        for _ in 0..3 {
            let before = self.sequence.load(Ordering::Acquire);
            let words = self
                .words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let after = self.sequence.load(Ordering::Relaxed);
            if before == after && before & 1 == 0 {
                return Some(module_of(&words));
            }
        }
        None
    }

    /// Writes if the end found under the claim passes the test.
    fn write_if(&self, test: impl Fn(u64) -> bool, words: &[u64; WORDS]) -> bool {
        let before = self.sequence.load(Ordering::Relaxed);
        let busy = before.wrapping_add(1);
        if before & 1 != 0 {
            return false;
        }
        let claimed =
            self.sequence
                .compare_exchange(before, busy, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_err() {
            return false;
        }
        fence(Ordering::Release);
        let passes = test(self.range().1);
        if passes {
            for (place, word) in self.words.iter().zip(words) {
                place.store(*word, Ordering::Relaxed);
            }
        }
        self.sequence.store(busy.wrapping_add(1), Ordering::Release);
        passes
    }
}

const fn words_of(module: &Module) -> [u64; WORDS] {
    let (hdr, sframe) = (&module.eh_frame_hdr, &module.sframe);
    [
        module.start.0,
        module.end.0,
        module.bias,
        hdr.start.0,
        hdr.end.0,
        hdr.readable.0.0,
        hdr.readable.1.0,
        sframe.start.0,
        sframe.end.0,
        sframe.readable.0.0,
        sframe.readable.1.0,
        module.kind as u64,
    ]
}

const fn module_of(words: &[u64; WORDS]) -> Module {
    let [start, end, bias, a, b, c, d, e, f, g, h, kind] = *words;
    Module {
        start: RuntimeAddress(start),
        end: RuntimeAddress(end),
        bias,
        eh_frame_hdr: table_of(a, b, c, d),
        sframe: table_of(e, f, g, h),
        kind: match kind {
            1 => ModuleKind::Vdso,
            2 => ModuleKind::Anonymous,
            _ => ModuleKind::Elf,
        },
    }
}

const fn table_of(start: u64, end: u64, readable_start: u64, readable_end: u64) -> Table {
    Table {
        start: RuntimeAddress(start),
        end: RuntimeAddress(end),
        readable: (RuntimeAddress(readable_start), RuntimeAddress(readable_end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A module all of whose fields follow from its start.
    fn module(start: u64, salt: u64) -> Module {
        let table = |distance: u64| {
            table_of(
                start + distance,
                start + distance + salt,
                start,
                start + 0x1000,
            )
        };
        Module {
            start: RuntimeAddress(start),
            end: RuntimeAddress(start + 0x1000),
            bias: start ^ salt,
            eh_frame_hdr: table(8),
            sframe: table(16),
            kind: ModuleKind::Vdso,
        }
    }

    #[test]
    fn modules_are_found_by_any_address_in_them_and_gone_when_removed() {
        let map = Box::new(ModuleMap::new());
        for n in 1..100 {
            assert!(map.insert(&module(n * 0x10000, n)));
            assert!(!map.insert(&module(n * 0x10000, n)), "twice");
        }
        let at = |address: u64| map.find(RuntimeAddress(address));
        assert_eq!(at(0x5_0000), Some(module(0x5_0000, 5)));
        assert_eq!(at(0x5_0fff), Some(module(0x5_0000, 5)));
        assert_eq!(at(0x5_1000), None);
        assert_eq!(at(0x4_ffff), None);
        assert_eq!(map.iter().count(), 99);
        let removed = map.remove(RuntimeAddress(0x5_0800), RuntimeAddress(0x7_0001));
        assert_eq!(removed, 3);
        assert_eq!(
            (at(0x5_0000), at(0x8_0000)),
            (None, Some(module(0x8_0000, 8)))
        );
        assert!(map.insert(&module(0x5_0000, 1)));
        assert!(map.replace(&module(0x5_0000, 2)));
        assert_eq!(at(0x5_0000), Some(module(0x5_0000, 2)));
    }

    #[test]
    fn a_full_map_refuses_and_an_empty_module_too() {
        let map = Box::new(ModuleMap::new());
        for n in 0..CAPACITY as u64 {
            assert!(map.insert(&module((n + 1) * 0x10000, 1)));
        }
        assert!(!map.insert(&module(0x7000_0000_0000, 1)));
        assert!(!map.insert(&Module::default()));
    }

    #[test]
    fn readers_never_see_a_mixture() {
        let map = Box::new(ModuleMap::new());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut found = 0u64;
                    while !over.load(Ordering::Relaxed) || found == 0 {
                        for start in [0x10000, 0x20000] {
                            if let Some(seen) = map.find(RuntimeAddress(start + 5)) {
                                assert_eq!(seen, module(start, seen.bias ^ start));
                                found += 1;
                            }
                        }
                    }
                });
            }
            for salt in 0..50_000 {
                let start = if salt & 1 == 0 { 0x10000 } else { 0x20000 };
                assert!(map.insert(&module(start, salt)));
                assert_eq!(
                    map.remove(RuntimeAddress(start), RuntimeAddress(start + 1)),
                    1
                );
            }
            for start in [0x10000, 0x20000] {
                map.insert(&module(start, 1));
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
