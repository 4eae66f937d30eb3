//! Which module an address lay in, at a time.
//!
//! A module is noticed some time after it was mapped, and its last samples may be dated after it
//! was noticed to be gone; so the best match in time is taken among all modules that ever were at
//! the address.

use super::ids::{CodeId, ModuleId, ProcessId};
use crate::intern::{HashMap, HashSet};
use engine::address::RuntimeAddress;
use engine::wire::module::ModuleGone;
use std::collections::VecDeque;

/// How the names of C libraries begin: glibc's, which was several before 2.34, and musl's, under
/// which name ever.
const LIBC: [&str; 7] = [
    "libc.so",
    "libc-2",
    "libpthread",
    "librt.so",
    "librt-2",
    "ld-musl",
    "libc.musl",
];

/// Code mapped into one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Whose.
    pub process: ProcessId,
    /// When it was noticed (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// When it was unmapped; `u64::MAX` if it was not.
    pub gone_ns: u64,
    /// First runtime address.
    pub start: RuntimeAddress,
    /// One past the last.
    pub end: RuntimeAddress,
    /// Runtime address minus file address.
    pub bias: u64,
    /// `NT_GNU_BUILD_ID`; empty if it has none.
    pub build_id: Vec<u8>,
    /// As the process saw it; `[vdso]` for the vDSO; empty if unknown.
    pub path: String,
    /// It is the library that unwinds, by the word of the process itself: its frames are not the
    /// program's.
    pub ours: bool,
    /// It is no file but code that a JIT made, which is described there.
    pub code: Option<CodeId>,
}

impl Module {
    /// Whether it is a C library.
    pub(crate) fn is_libc(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or("");
        LIBC.iter().any(|libc| name.starts_with(libc))
    }
}

/// The modules of one process.
#[derive(Debug, Default)]
pub struct ModuleMap {
    /// By start address and time; with the greatest end address among this and all before.
    entries: Vec<(u64, u64, ModuleId)>,
    changes: bool,
    overlaps: bool,
}

/// More overlapping modules at one address than this that begin at different ones are not looked
/// at,
const MOST_OVERLAPPING: usize = 256;
/// and of those that begin at one address only so many from before the time and behind it: a JIT
/// may make code at one place for ever.
const MOST_NEAR: usize = 8;

impl ModuleMap {
    /// Of these modules, which are indices into `modules`.
    pub(crate) fn new(ids: impl Iterator<Item = ModuleId>, modules: &[Module]) -> Self {
        let of = |id: ModuleId| modules.get(id.index());
        let mut entries: Vec<_> = ids
            .filter_map(|id| of(id).map(|module| (module.start.0, module.end.0, id)))
            .collect();
        let time_ns = |id: ModuleId| of(id).map_or(0, |module| module.time_ns);
        entries.sort_by_key(|(start, _, id)| (*start, time_ns(*id), *id));
        let (mut furthest, mut overlaps) = (0, false);
        for (start, end, _) in &mut entries {
            overlaps |= *start < furthest;
            furthest = furthest.max(*end);
            *end = furthest;
        }
        let went = |id: ModuleId| of(id).is_some_and(|module| module.gone_ns != u64::MAX);
        let changes = entries.iter().any(|(_, _, id)| went(*id));
        Self {
            entries,
            changes,
            overlaps,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an address may mean different modules at different times.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Whether an address means the same module at all times.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        !self.changes && !self.overlaps
    }

    /// The module at `address` at `time_ns`; if none was known there then, the next one noticed, or
    /// else the last one that went.
    #[must_use]
    pub fn find(
        &self,
        address: RuntimeAddress,
        time_ns: u64,
        modules: &[Module],
    ) -> Option<ModuleId> {
        let behind = self
            .entries
            .partition_point(|(start, _, _)| *start <= address.0);
        let mut best: Option<((u8, u64), ModuleId)> = None;
        let mut rest = self.entries.get(..behind)?;
        for _ in 0..MOST_OVERLAPPING {
            let Some((start, furthest, _)) = rest.last().copied() else {
                break;
            };
            if furthest <= address.0 {
                break;
            }
            let first = rest.partition_point(|entry| entry.0 < start);
            let (before, here) = rest.split_at(first);
            rest = before;
            for (_, _, id) in near(here, time_ns, modules) {
                let Some(module) = modules.get(id.index()).filter(|m| m.end > address) else {
                    continue;
                };
                let rank = if time_ns < module.time_ns {
                    (1, u64::MAX - module.time_ns)
                } else if time_ns < module.gone_ns {
                    (2, module.time_ns)
                } else {
                    (0, module.gone_ns)
                };
                if best.is_none_or(|(found, _)| rank > found) {
                    best = Some((rank, *id));
                }
            }
        }
        best.map(|(_, id)| id)
    }
}

/// Of entries in the order of time those around one.
fn near<'e>(
    entries: &'e [(u64, u64, ModuleId)],
    time_ns: u64,
    modules: &[Module],
) -> &'e [(u64, u64, ModuleId)] {
    let came = |id: ModuleId| modules.get(id.index()).map_or(0, |module| module.time_ns);
    let later = entries.partition_point(|(_, _, id)| came(*id) <= time_ns);
    let end = later.saturating_add(MOST_NEAR).min(entries.len());
    &entries[later.saturating_sub(MOST_NEAR)..end]
}

/// A module that others saw in a process from outside is ours if a process said so of the same
/// build.
pub(super) fn own(modules: &mut [Module]) {
    let builds = modules.iter().filter(|module| module.ours);
    let builds: HashSet<_> = builds.map(|module| module.build_id.clone()).collect();
    for module in modules {
        module.ours |= !module.build_id.is_empty() && builds.contains(&module.build_id);
    }
}

/// Dates the end of each module by the first record of its going after it came.
pub(super) fn unmap(modules: &mut [Module], mut gone: Vec<(ProcessId, ModuleGone)>) {
    let mut at: HashMap<(ProcessId, u64), VecDeque<usize>> = HashMap::default();
    let mut by_time: Vec<usize> = (0..modules.len()).collect();
    by_time.sort_by_key(|index| modules[*index].time_ns);
    for index in by_time {
        let module = &modules[index];
        let here = at.entry((module.process, module.start.0)).or_default();
        here.push_back(index);
    }
    gone.sort_by_key(|(_, gone)| gone.time_ns);
    for (process, gone) in gone {
        let Some(here) = at.get_mut(&(process, gone.start)) else {
            continue;
        };
        while let Some(index) = here.front().copied() {
            if modules[index].time_ns > gone.time_ns {
                break;
            }
            modules[index].gone_ns = gone.time_ns;
            here.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(start: u64, end: u64, time_ns: u64, gone_ns: u64) -> Module {
        Module {
            process: ProcessId::new(0),
            time_ns,
            gone_ns,
            start: RuntimeAddress(start),
            end: RuntimeAddress(end),
            bias: 0,
            build_id: Vec::new(),
            path: String::new(),
            ours: false,
            code: None,
        }
    }

    #[test]
    fn the_module_of_the_time_is_found() {
        let modules = [
            module(0x1000, 0x9000, 10, u64::MAX), // a large one …
            module(0x2000, 0x3000, 20, 30),       // … a plug-in mapped into its gap, unmapped
            module(0x2000, 0x2800, 40, u64::MAX), // … and another, later, at the same place
        ];
        let map = ModuleMap::new((0..3).map(ModuleId::new), &modules);
        let find = |address, time| {
            map.find(RuntimeAddress(address), time, &modules)
                .map(ModuleId::number)
        };
        assert_eq!(find(0x8000, 15), Some(0));
        assert_eq!(find(0x2100, 25), Some(1));
        assert_eq!(find(0x2100, 50), Some(2));
        assert_eq!(find(0x2900, 50), Some(0));
        assert_eq!(find(0x2100, 35), Some(0));
        assert_eq!(find(0x8000, 5), Some(0), "mapped before it was noticed");
        assert_eq!(find(0x9000, 50), None);
        assert_eq!(find(0xfff, 50), None);
    }

    #[test]
    fn code_that_was_made_at_one_place_a_thousand_times_is_that_of_the_time() {
        let modules: Vec<Module> = (0..1000)
            .map(|n| module(0x2000, 0x2040, 10 + n * 10, 15 + n * 10))
            .chain([module(0x1000, 0x9000, 0, u64::MAX)])
            .collect();
        let map = ModuleMap::new((0..1001).map(ModuleId::new), &modules);
        for n in 0..1000u32 {
            let time = 12 + u64::from(n) * 10;
            let found = map.find(RuntimeAddress(0x2010), time, &modules);
            assert_eq!(found, Some(ModuleId::new(n)));
        }
        let around = map.find(RuntimeAddress(0x2050), 12, &modules);
        assert_eq!(around, Some(ModuleId::new(1000)));
    }

    #[test]
    fn a_module_that_went_is_better_than_none() {
        let modules = [module(0x1000, 0x2000, 10, 20)];
        let map = ModuleMap::new([ModuleId::new(0)].into_iter(), &modules);
        assert_eq!(
            map.find(RuntimeAddress(0x1800), 21, &modules),
            Some(ModuleId::new(0))
        );
    }
}
