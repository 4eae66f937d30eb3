//! Modules that `dlclose` is about to unmap: walks look nothing up there, since a word of a stack
//! that is no return address may lead to any of them.
//!
//! # Safety
//! A handle that the program closes is the loader's. What a closed module leaves is nobody's.

use super::image;
use super::maps;
use super::notes::{self, UNLOADING};
use super::python;
use super::{LinkMap, loader_object, map, rules};
use crate::clock;
use crate::thread::{self, ThreadState};
use core::ffi::c_void;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use engine::address::RuntimeAddress;
use engine::module_map::{Module, ModuleKind};
use engine::wire::module::ModuleGone;
use engine::wire::record::RecordKind;

/// So many calls of `dlclose` may be under way at once: of other threads, or of destructors of what
/// is closed. What is closed beyond that stays loaded.
const PLACES: usize = 16;

/// A range of code.
struct Place {
    /// 0: free.
    start: AtomicU64,
    end: AtomicU64,
}

static SUSPENDED: [Place; PLACES] = [const {
    Place {
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
    }
}; PLACES];

/// A call of `dlclose` that is under way.
#[derive(Debug)]
pub struct Unloading(usize);

/// Whether code belongs to a module that is being closed.
///
/// # Signal safety
/// Loads.
pub(super) fn is_suspended(pc: RuntimeAddress) -> bool {
    UNLOADING.load(Acquire) != 0
        && SUSPENDED.iter().any(|place| {
            let start = place.start.load(Acquire);
            start != 0 && (start..place.end.load(Relaxed)).contains(&pc.0)
        })
}

/// Before `dlclose`: takes the handle's module out of use and waits for the walks under way. `None`
/// if one does not end, or too many are closed at once; the library must then stay.
pub fn begin(handle: *mut c_void) -> Option<Unloading> {
    // A handle is the loader's link_map, in glibc; musl's begins with the same fields, and musl
    // never unloads. SAFETY: a handle that the program may pass to dlclose; checked for null.
    let dynamic = unsafe { handle.cast::<LinkMap>().as_ref() }.map_or(0, |map| map.dynamic);
    let dynamic = RuntimeAddress(dynamic);
    let known = map().and_then(|map| map.find(dynamic));
    let known = known.map(|module| (module.start.0, module.end.0));
    // A walk may meet it for the first time now.
    let range = known.or_else(|| loader_object(dynamic).map(|object| (object.start, object.end)));
    let (start, end) = range.unwrap_or((u64::MAX, 0));
    let claim = |place: &Place| {
        // Nothing lies between that and any end.
        let claimed = place.start.compare_exchange(0, u64::MAX, Acquire, Relaxed);
        claimed.is_ok()
    };
    let index = SUSPENDED.iter().position(claim)?;
    let unloading = Unloading(index);
    if let Some(place) = SUSPENDED.get(index) {
        place.end.store(end, Relaxed);
        place.start.store(start, Release);
    }
    UNLOADING.fetch_add(1, SeqCst);
    if thread::wait_for_walks(ThreadState::current()) {
        return Some(unloading);
    }
    unloading.over();
    None
}

impl Unloading {
    /// After `dlclose`: forgets what is gone.
    pub fn end(self) {
        if let Some(map) = map() {
            let is_gone = |module: &Module| {
                module.kind == ModuleKind::Elf
                    && loader_object(module.start).is_none()
                    && maps::find_range(module.start).is_none()
            };
            let mut any = false;
            for mut module in map.iter().filter(is_gone) {
                map.remove(module.start, module.end);
                python::forget(module.start.0);
                notes::forget(module.start.0);
                // SAFETY: the walks that used it are over, and it cannot be found any more.
                unsafe { image::take_index(&mut module) };
                any = true;
                if let Some(this) = ThreadState::current() {
                    let gone = ModuleGone {
                        time_ns: clock::monotonic_ns(),
                        start: module.start.0,
                    };
                    this.write(RecordKind::ModuleGone, |out| gone.encode(out));
                }
            }
            if any && let Some(rules) = rules() {
                rules.invalidate();
            }
        }
        self.over();
    }

    fn over(self) {
        if let Some(place) = SUSPENDED.get(self.0) {
            place.start.store(0, Release);
        }
        UNLOADING.fetch_sub(1, SeqCst);
    }
}
