//! The engine wired up for tests: modules of this process from `/proc/self/maps`, a cache, a stack.
#![allow(unsafe_code, dead_code, missing_docs)]

pub mod random;
pub mod suites;

use rsunwind_engine::address::RuntimeAddress;
use rsunwind_engine::elf_image;
use rsunwind_engine::frame_buffer::FrameBuffer;
use rsunwind_engine::last_walk::{Known, LastWalk, MEMORY};
use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::module_map::{Module, ModuleKind, ModuleMap, Modules, Table};
use rsunwind_engine::registers::Registers;
use rsunwind_engine::rule_cache::RuleCache;
use rsunwind_engine::table::Preference;
use rsunwind_engine::unwind::{Outcome, Unwinder, unwind};
use rsunwind_engine::wire::sample::{Frame, Method};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Process {
    pub map: &'static ModuleMap,
    pub cache: &'static RuleCache,
    pub preference: Preference,
    pub distrusted: AtomicU32,
    /// Of whichever thread has walked last.
    pub last: Cell<Option<&'static mut LastWalk<'static>>>,
}

impl Modules for Process {
    fn find(&self, pc: RuntimeAddress) -> Option<Module> {
        self.map.find(pc)
    }

    fn distrust_sframe(&self, module: &Module) {
        self.distrusted.fetch_add(1, Ordering::Relaxed);
        self.map.replace(&Module {
            sframe: Table::default(),
            ..*module
        });
    }
}

pub struct Stack {
    pub frames: Vec<Frame>,
    pub outcome: Outcome,
}

impl Stack {
    pub fn pcs(&self) -> Vec<u64> {
        self.frames.iter().map(|f| f.pc.0).collect()
    }
    pub fn methods(&self) -> Vec<Method> {
        self.frames.iter().map(|f| f.method).collect()
    }
}

pub fn zeroed<T>() -> &'static T {
    let layout = Layout::new::<T>();
    let memory = unsafe { alloc_zeroed(layout) };
    unsafe { NonNull::new(memory).unwrap().cast::<T>().as_ref() }
}

pub fn new_cache() -> &'static RuleCache {
    let memory = unsafe { alloc_zeroed(Layout::new::<RuleCache>()) };
    unsafe { RuleCache::from_zeroed(NonNull::new(memory).unwrap()) }
}

pub fn new_last_walk() -> &'static mut LastWalk<'static> {
    let memory = vec![Known::default(); MEMORY].leak();
    Box::leak(Box::new(LastWalk::new(memory)))
}

impl Process {
    pub fn new() -> Self {
        let process = Self::empty();
        process.discover();
        process
    }

    /// Without modules.
    pub fn empty() -> Self {
        Self {
            map: zeroed(),
            cache: new_cache(),
            preference: Preference::Auto,
            distrusted: AtomicU32::new(0),
            last: Cell::new(Some(new_last_walk())),
        }
    }

    pub fn with(preference: Preference) -> Self {
        Self {
            preference,
            ..Self::new()
        }
    }

    /// Adds every mapped image.
    pub fn discover(&self) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        for line in maps.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (range, offset) = (fields[0], fields[2]);
            let is_vdso = fields.get(5) == Some(&"[vdso]");
            let is_file = fields.get(5).is_some_and(|name| name.starts_with('/'));
            if u64::from_str_radix(offset, 16) != Ok(0) || !(is_file || is_vdso) {
                continue;
            }
            let start = u64::from_str_radix(range.split('-').next().unwrap(), 16).unwrap();
            if let Some(image) = elf_image::at(RuntimeAddress(start)) {
                let mut module = image.module;
                if is_vdso {
                    module.kind = ModuleKind::Vdso;
                }
                self.map.insert(&module);
            }
        }
    }

    pub fn walk(&self, registers: &Registers, memory: &mut StackMemory) -> Stack {
        self.walk_deep(registers, memory, 1024)
    }

    /// Walks in full, and by what is remembered of the last walk, which must make no difference.
    pub fn walk_deep(&self, registers: &Registers, memory: &mut StackMemory, room: usize) -> Stack {
        // What is known of a deep stack grows by some pages a walk, so the first would be another.
        while {
            let known = memory.verified();
            memory.begin(registers.sp());
            memory.verified() != known
        } {}
        let none = &mut LastWalk::none();
        let [full, reused] = [true, false].map(|is_full| {
            let mut frames = vec![Frame::default(); room];
            let (outcome, kept) = match is_full {
                true => self.walk_with(registers, memory, &mut frames, none),
                false => self.walk_into(registers, memory, &mut frames),
            };
            frames.truncate(kept);
            Stack { frames, outcome }
        });
        assert_eq!(reused.outcome, full.outcome);
        assert_eq!(reused.frames, full.frames);
        full
    }

    /// Allocates nothing: for signal handlers.
    pub fn walk_into(
        &self,
        registers: &Registers,
        memory: &mut StackMemory,
        frames: &mut [Frame],
    ) -> (Outcome, usize) {
        let last = self.last.take().expect("not within a walk");
        let found = self.walk_with(registers, memory, frames, last);
        self.last.set(Some(last));
        found
    }

    /// Likewise, with what another walk has left.
    pub fn walk_with(
        &self,
        registers: &Registers,
        memory: &mut StackMemory,
        frames: &mut [Frame],
        last: &mut LastWalk<'_>,
    ) -> (Outcome, usize) {
        let unwinder = Unwinder {
            modules: self,
            cache: self.cache,
            preference: self.preference,
            languages: None,
        };
        let mut buffer = FrameBuffer::new(frames);
        let outcome = unwind(&unwinder, registers, memory, &mut buffer, last);
        (outcome, buffer.finish().kept)
    }
}

/// The calling thread's stack.
pub fn own_stack() -> StackMemory {
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(
            libc::pthread_getattr_np(libc::pthread_self(), &mut attributes),
            0
        );
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attributes, &mut start, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        let high = start as u64 + size as u64;
        StackMemory::new(high - 4096, high)
    }
}

/// The name of the function at an address, by the dynamic symbol table.
pub fn symbol(pc: u64) -> String {
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr((pc - 1) as *const _, &mut info) == 0 || info.dli_sname.is_null() {
            return String::new();
        }
        std::ffi::CStr::from_ptr(info.dli_sname)
            .to_string_lossy()
            .into_owned()
    }
}
