//! The modules of the process, found when a walk first meets their code: `dlopen` is never wrapped,
//! because libc resolves `$ORIGIN` by its caller.
//!
//! A pc that the map does not know is looked up with `_dl_find_object` (glibc; lock-free), else in
//! `/proc/self/maps` (musl, code that the loader did not map, JIT code), read a piece at a time
//! with raw system calls and, where that was in vain, not again before [`SCAN_PAUSE_NS`]. What is
//! found is recorded, so that the recording can be symbolized later.
//!
//! # Safety
//! The map and the rule cache are mapped once and stay. The loader's structures are read for the
//! object that it just gave for a pc on this thread's stack, which its own code keeps loaded.
#![allow(unsafe_code)]

mod image;
mod mapped;
mod maps;
pub mod notes;
pub mod python;
mod sections;
pub mod unloading;
pub mod v8;

use image::When;

use crate::process::PROCESS;
use crate::sys::{self, Errno};
use crate::text::{Text, copy};
use crate::thread::ThreadState;
use crate::{clock, weak_address};
use core::ffi::{CStr, c_char, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use engine::address::RuntimeAddress;
use engine::elf_image;
use engine::memory::is_readable;
use engine::module_map::{Module, ModuleKind, ModuleMap, Modules};
use engine::rule_cache::RuleCache;
use engine::wire::event::EventKind;
use engine::wire::module::Module as ModuleRecord;
use engine::wire::record::RecordKind;

/// How long to wait between two looks at `/proc/self/maps`.
const SCAN_PAUSE_NS: u64 = 20_000_000;

static MAP: AtomicPtr<ModuleMap> = AtomicPtr::new(ptr::null_mut());
static RULES: AtomicPtr<RuleCache> = AtomicPtr::new(ptr::null_mut());
static LAST_SCAN_NS: AtomicU64 = AtomicU64::new(0);
/// Mappings of no file after which there is no pause: with a pause after each, V8's second copy of
/// its builtins, which is of a file, was found only after its compiled code, 100 ms late.
const ANONYMOUS_AT_ONCE: u32 = 16;
/// How many were found.
static ANONYMOUS_FOUND: AtomicU32 = AtomicU32::new(0);
static VDSO: AtomicU64 = AtomicU64::new(0);
static ENTRY: AtomicU64 = AtomicU64::new(0);

/// Whether the kernel started the loader, which has then loaded the program.
static BY_LOADER: AtomicBool = AtomicBool::new(false);

/// Facts that the kernel gave the program at its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Auxiliary {
    /// `AT_SYSINFO_EHDR`: where the vDSO lies, or 0.
    pub vdso: usize,
    /// `AT_ENTRY`: where the program is entered, or 0.
    pub entry: u64,
    /// Whether `AT_BASE` is 0: the kernel has loaded no loader for the program, but is told to
    /// start the loader itself, with the program as its argument.
    pub by_loader: bool,
    /// `AT_PHDR` and `AT_PHNUM`: the program's headers, and how many there are; 0 if unknown.
    pub headers: (usize, usize),
    /// `AT_EXECFN`: an address above all frames of the main thread's stack.
    pub above_stack: u64,
    /// `AT_SECURE`: whether the program has rights that who started it lacks, so that the
    /// environment is not to be trusted.
    pub is_secure: bool,
}

impl Auxiliary {
    /// Those of this process. Static programs may have no `getauxval`.
    pub fn of_process() -> Self {
        type Getauxval = unsafe extern "C" fn(u64) -> u64;
        let getauxval = weak_address!("getauxval");
        if getauxval == 0 {
            let mut vector = [0; 1024];
            let (words, _) = sys::read_file(b"/proc/self/auxv\0", &mut vector).as_chunks::<8>();
            let (pairs, _) = words.as_chunks::<2>();
            return Self::from(|kind: u64| {
                let found = pairs.iter().find(|[key, _]| *key == kind.to_ne_bytes());
                found.map_or(0, |[_, value]| u64::from_ne_bytes(*value))
            });
        }
        // SAFETY: the program's function of that signature.
        let value = |kind| unsafe { core::mem::transmute::<usize, Getauxval>(getauxval)(kind) };
        Self::from(value)
    }

    fn from(value: impl Fn(u64) -> u64) -> Self {
        Self {
            vdso: value(libc::AT_SYSINFO_EHDR) as usize,
            entry: value(libc::AT_ENTRY),
            by_loader: value(libc::AT_BASE) == 0,
            headers: (
                value(libc::AT_PHDR) as usize,
                value(libc::AT_PHNUM) as usize,
            ),
            above_stack: value(libc::AT_EXECFN),
            is_secure: value(libc::AT_SECURE) != 0,
        }
    }
}

/// What walks need, whether the process is recorded or not.
///
/// # Errors
/// `ENOMEM`.
pub fn find_tables(auxiliary: Auxiliary) -> Result<(), Errno> {
    clock::find_vdso(auxiliary.vdso);
    PROCESS.set_main_stack_top(auxiliary.above_stack);
    ENTRY.store(auxiliary.entry, Relaxed);
    VDSO.store(auxiliary.vdso as u64, Relaxed);
    BY_LOADER.store(auxiliary.by_loader, Relaxed);
    make_tables()
}

const RULES_SIZE: usize = size_of::<RuleCache>().next_multiple_of(sys::PAGE);
const TABLES_SIZE: usize = RULES_SIZE + size_of::<ModuleMap>();

/// Makes the memory for the map and the rule cache, if it is not there.
///
/// # Errors
/// `ENOMEM`.
pub fn make_tables() -> Result<(), Errno> {
    if MAP.load(Relaxed).is_null() {
        let rules = sys::map_anonymous(TABLES_SIZE)?;
        RULES.store(rules.cast(), Release);
        MAP.store(rules.wrapping_add(RULES_SIZE).cast(), Release);
    }
    Ok(())
}

/// Gives it back: nothing has been looked for, and no signal can come in.
pub(crate) fn give_tables_back() {
    MAP.store(ptr::null_mut(), Release);
    let rules = RULES.swap(ptr::null_mut(), Release);
    if !rules.is_null() {
        // SAFETY: made above; nobody else has seen it.
        unsafe { sys::unmap(rules.cast(), TABLES_SIZE) };
    }
}

fn map() -> Option<&'static ModuleMap> {
    // SAFETY: null or zeroed memory of that size, which is an empty map; it stays.
    unsafe { MAP.load(Acquire).as_ref() }
}

/// The rule cache of the process.
pub fn rules() -> Option<&'static RuleCache> {
    let memory = NonNull::new(RULES.load(Acquire).cast::<u8>())?;
    // SAFETY: page-aligned zeroed memory of that size, used for this alone; it stays.
    Some(unsafe { RuleCache::from_zeroed(memory) })
}

/// Says what the answers of walks rest on beside the stack: two walks of the same stack between
/// which this has not changed find the same. `None` while libraries are closed.
///
/// # Signal safety
/// Loads.
pub fn standing() -> Option<u64> {
    let is_calm = notes::UNLOADING.load(Acquire) == 0;
    rules().filter(|_| is_calm).map(RuleCache::generation)
}

/// Records the vDSO, which the loader does not list.
pub fn record_vdso(this: &ThreadState) {
    let base = VDSO.load(Relaxed);
    if base == 0 {
        return;
    }
    if let Some(mut image) = elf_image::at(RuntimeAddress(base)) {
        image.module.kind = ModuleKind::Vdso;
        add(this, &image.module, image.build_id().as_bytes(), b"[vdso]");
    }
}

/// Records this library itself, so that samples taken in it are known for what they are.
pub fn record_own(this: &ThreadState) {
    Finder::new(this).find(here());
}

/// An address in this library. Only a library of its own sets a recording up, so that all its
/// module is ours.
fn here() -> RuntimeAddress {
    RuntimeAddress(record_own as *const () as u64)
}

/// Records the program itself before it starts, so that an index that its tables lack is made
/// outside of the handler. `executable` is its file, if that is known.
pub fn record_program(this: &ThreadState, executable: &[u8]) {
    if program().0 != 0 {
        let finder = Finder {
            this,
            when: When::Start,
            executable,
        };
        finder.find(program());
    }
}

/// Where the program is entered; 0 if that is not known.
fn program() -> RuntimeAddress {
    RuntimeAddress(ENTRY.load(Relaxed))
}

/// Records all modules known so far, in the recording of a fork child.
pub fn record_known(this: &ThreadState) {
    let Some(map) = map() else { return };
    for module in map.iter() {
        let build_id = || image::build_id(module.start);
        match module.kind {
            ModuleKind::Anonymous => {}
            ModuleKind::Vdso => record(this, &module, build_id().as_bytes(), b"[vdso]"),
            ModuleKind::Elf => {
                let mut buffer = [0u8; 1024];
                let path = path_of(module.start, &mut buffer);
                record(this, &module, build_id().as_bytes(), path);
            }
        }
    }
}

/// The file of the module at an address.
///
/// # Signal safety
/// The loader's own name, or raw system calls.
pub fn path_of(start: RuntimeAddress, buffer: &mut [u8; 1024]) -> &[u8] {
    match loader_object(start) {
        Some(object) => object.path(&[], buffer),
        None => maps::path_at(start, buffer),
    }
}

/// Adds a module to the map and the recording; `false` if the map has no room for it.
fn add(this: &ThreadState, module: &Module, build_id: &[u8], path: &[u8]) -> bool {
    let Some(map) = map() else { return false };
    // Code that was somebody's before: JIT code, or a module that went without our noticing.
    if map.remove(module.start, module.end) > 0
        && let Some(rules) = rules()
    {
        rules.invalidate();
    }
    let is_new = map.insert(module);
    if is_new && module.kind != ModuleKind::Anonymous {
        record(this, module, build_id, path);
    }
    is_new
}

fn record(this: &ThreadState, module: &Module, build_id: &[u8], path: &[u8]) {
    let record = ModuleRecord {
        time_ns: clock::monotonic_ns(),
        start: module.start.0,
        end: module.end.0,
        bias: module.bias,
        build_id,
        path,
        // What is linked in cannot be told from the program.
        ours: module.contains(here()) && !module.contains(program()),
    };
    this.write(RecordKind::Module, |out| record.encode(out));
}

/// Finds modules for a walk of one thread, and records those that are new.
pub struct Finder<'a> {
    this: &'a ThreadState,
    when: When,
    /// The program's file; empty if it is to be asked for.
    executable: &'a [u8],
}

impl<'a> Finder<'a> {
    /// For a walk of this thread.
    pub fn new(this: &'a ThreadState) -> Self {
        Self {
            this,
            when: When::Handler,
            executable: &[],
        }
    }
}

/// What `_dl_find_object` gives: `struct dl_find_object` of glibc 2.35 and later.
#[repr(C)]
struct LoaderObject {
    flags: u64,
    start: u64,
    end: u64,
    link_map: *const LinkMap,
    eh_frame: *const c_void,
    reserved: [u64; 7],
}

/// The public head of the loader's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
    dynamic: u64,
}

impl LoaderObject {
    /// The object's file; the main program's, which the loader does not name, is `executable`, or
    /// if that is empty from `/proc/self/exe`: unless the loader itself was started, with the
    /// program as its argument.
    fn path<'b>(&self, executable: &[u8], buffer: &'b mut [u8; 1024]) -> &'b [u8] {
        // SAFETY: the loader's structure and string, of an object in use.
        let name = unsafe {
            self.link_map.as_ref().map_or(c"", |map| {
                if map.name.is_null() {
                    c""
                } else {
                    CStr::from_ptr(map.name)
                }
            })
        };
        match (name.to_bytes(), executable) {
            (b"", _) if BY_LOADER.load(Relaxed) => {
                maps::path_at(RuntimeAddress(self.start), buffer)
            }
            (b"", b"") => sys::read_link(b"/proc/self/exe\0", buffer),
            (b"", executable) => copy(buffer, executable),
            (name, _) => copy(buffer, name),
        }
    }
}

impl LoaderObject {
    fn look_for_interpreters(&self, module: &Module, path: &[u8]) {
        // SAFETY: the loader's structure, of an object in use.
        if let Some(map) = unsafe { self.link_map.as_ref() } {
            python::look_at(module.start.0, map.bias, map.dynamic);
            python::look_for_tasks(module.start, map.bias, map.dynamic, path);
            v8::look_at(map.bias, map.dynamic);
        }
    }
}

fn loader_object(pc: RuntimeAddress) -> Option<LoaderObject> {
    type FindObject = unsafe extern "C" fn(pc: u64, result: *mut LoaderObject) -> i32;
    let find = weak_address!("_dl_find_object");
    if find == 0 {
        return None;
    }
    let mut object = core::mem::MaybeUninit::<LoaderObject>::zeroed();
    // SAFETY: glibc's function, async-signal-safe by its documentation; it fills the structure if
    // it gives 0.
    unsafe {
        let find = core::mem::transmute::<usize, FindObject>(find);
        (find(pc.0, object.as_mut_ptr()) == 0).then(|| object.assume_init())
    }
}

impl Modules for Finder<'_> {
    fn find(&self, pc: RuntimeAddress) -> Option<Module> {
        let known = map()?.find(pc);
        if unloading::is_suspended(pc) {
            return None;
        }
        match known {
            Some(module) if module.kind != ModuleKind::Anonymous => Some(module),
            // The loader may have put a library where there was JIT code.
            _ => self.discover(pc, known.is_some()).or(known),
        }
    }

    fn distrust_sframe(&self, module: &Module) {
        let Some(map) = map() else { return };
        let mut changed = *module;
        changed.sframe = engine::module_map::Table::default();
        map.replace(&changed);
        let text = Text::<160>::new()
            .then(b"damaged .sframe in the module at 0x")
            .hexadecimal(module.start.0)
            .then(b": using .eh_frame there");
        self.this
            .event(EventKind::Note, module.start.0, text.bytes());
    }
}

impl Finder<'_> {
    fn discover(&self, pc: RuntimeAddress, known: bool) -> Option<Module> {
        let mut buffer = [0u8; 1024];
        // The loader gives single segments of an image that is not mapped in one piece: its header
        // is then found in the maps.
        let object = loader_object(pc);
        if let Some(object) = &object {
            let base = RuntimeAddress(object.start);
            // What is known not to be an image is not looked for in the maps once more.
            let image = if known {
                elf_image::at(base)
            } else {
                image::at(base)
            };
            if let Some(image) = image {
                let path = object.path(self.executable, &mut buffer);
                let module = self.take_in(image.module, image.build_id().as_bytes(), path);
                object.look_for_interpreters(&module, path);
                return Some(module).filter(|module| module.contains(pc));
            }
        }
        // Without tables a walk may take any word of the stack for a pc: where nothing is mapped
        // there is no need to ask what is.
        if known || !is_readable(pc.0) {
            return None;
        }
        let now = clock::monotonic_ns();
        let last = LAST_SCAN_NS.load(Relaxed);
        if now.saturating_sub(last) < SCAN_PAUSE_NS
            || LAST_SCAN_NS
                .compare_exchange(last, now, Relaxed, Relaxed)
                .is_err()
        {
            return None;
        }
        let found = mapped::find(pc, &mut buffer)?;
        // No pause after a find: a process maps only so many files, and a first walk meets several
        // of them. A JIT may map code without end: only its first mappings count as finds.
        let is_find = found.module.kind == ModuleKind::Elf
            || ANONYMOUS_FOUND.fetch_add(1, Relaxed) < ANONYMOUS_AT_ONCE;
        if is_find {
            LAST_SCAN_NS.store(last, Relaxed);
        }
        let module = self.take_in(found.module, found.build_id.as_bytes(), found.path);
        if let Some(object) = object {
            object.look_for_interpreters(&module, found.path);
        }
        Some(module)
    }

    /// Adds a module that was found, with an index if it needs one.
    fn take_in(&self, mut module: Module, build_id: &[u8], path: &[u8]) -> Module {
        if module.kind == ModuleKind::Elf {
            image::give_index(&mut module, path, self.when);
        }
        if !add(self.this, &module, build_id, path) {
            // SAFETY: nobody else has seen this module.
            unsafe { image::take_index(&mut module) };
        } else if module.kind == ModuleKind::Elf && !notes::look_at(&module, program(), here()) {
            let text = b"too many files describe languages of their own: this one's are left out";
            self.this.event(EventKind::Note, module.start.0, text);
        }
        module
    }
}

/// Whether code is a file's: not what a JIT made.
///
/// # Signal safety
/// Loads.
pub fn is_of_file(pc: u64) -> bool {
    let found = map().and_then(|map| map.find(RuntimeAddress(pc)));
    found.is_some_and(|module| module.kind != ModuleKind::Anonymous)
}
