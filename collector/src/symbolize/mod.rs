//! Names for the addresses of a recording: functions, inlined ones included, with file and line.
//!
//! Start at [`symbolize`]. Each distinct address of each distinct binary is looked up once,
//! binaries in parallel. A binary counts only if its build-id is the recorded one; a function that
//! has no name is `[module+0xoffset]`, `[module, no symbols]` if not even its beginning is known,
//! and `[unknown]` if it lies in no module.
//!
//! Not here: reading recordings (`recording`), stacks and weights (`profile`).

mod batch;
mod by_symbols;
mod code_starts;
mod demangle;
mod elf;
mod entry;
mod go_functions;
mod go_table;
mod images;
mod kernel;
#[cfg(test)]
mod name_tests;
mod perf_map;
mod plt;
mod remembered;
mod scope;
mod short;
mod stored;
#[cfg(test)]
mod tests;
mod vdso;

pub use crate::recording::names::Named;
pub use images::{Image, ImageId, Places};
pub(crate) use images::{Version, version, version_of};
pub use kernel::KernelSymbols;
pub(crate) use kernel::{is_this_boot, text_start as kernel_text_start};
pub use remembered::Functions;
pub use stored::Effort;
pub(crate) use vdso::own_bytes as own_vdso;

use crate::cut_short;
use crate::intern::{HashMap, Interner};
use crate::jit_map;
use crate::progress;
use crate::recording::names::Owner;
use crate::recording::{
    CodeId, CodeObject, LanguageId, Module, Process, ProcessId, RawFrame, Recording,
};
use batch::{Batch, name_batch};
use engine::address::{FileAddress, RuntimeAddress};
use perf_map::PerfMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::Mutex;

/// What code outside of all modules is called when no JIT names it.
pub const UNKNOWN: &str = "[unknown]";

/// What a frame of an interpreter is called whose code nobody described.
pub const NOT_DESCRIBED: &str = "[not described]";

/// What the function is called in which a thread begins, in a C library without symbols.
pub const THREAD_ENTRY: &str = "[thread entry]";

impl Named {
    pub(crate) fn only(function: impl Into<Arc<str>>) -> Self {
        Self {
            function: function.into(),
            short: None,
            file: None,
            line: 0,
            begins: 0,
            inlined: false,
            start: None,
        }
    }

    /// Whether it is called by its module and address, for want of a symbol.
    pub(crate) fn is_nameless(&self) -> bool {
        self.function.starts_with('[')
            && (self.function.contains("+0x") || self.function.ends_with(NO_SYMBOLS))
    }
}

/// What an address of a frame is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The binary that it lies in.
    pub image: Option<ImageId>,
    /// The address looked up: the image's own, or the runtime address in code of no module.
    pub address: u64,
    /// The functions there, innermost first; at least one.
    pub functions: Vec<Named>,
    /// Whose code it is, if a language has said so.
    pub language: Option<LanguageId>,
}

/// Names for a whole recording.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Distinct binaries.
    pub images: Vec<Image>,
    /// Distinct addresses.
    pub places: Vec<Place>,
    /// For each of [`Recording::frames`] its place; `None` for frames that are not code.
    pub of_frame: Vec<Option<u32>>,
    /// Of each binary from where its names are.
    pub sources: Vec<NameSource>,
    /// Of each place whether the recording had its names.
    were_stored: Vec<bool>,
    /// What could not be found, in sentences.
    pub notes: Vec<String>,
}

/// From where the names of a binary are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameSource {
    /// From nowhere: it was not found.
    #[default]
    None,
    /// From its symbols.
    Symbols,
    /// From its debug information.
    Debug,
}

/// An address before it is looked up: of an image, or of a process's code outside of all modules.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Image(ImageId, FileAddress),
    Anonymous(ProcessId, RuntimeAddress),
    Kernel(RuntimeAddress),
    /// A position in a code object, if that is known.
    Language(Option<CodeId>, u32),
}

/// Looks up all addresses of a recording.
#[must_use]
pub fn symbolize(recording: &Recording, places: &Places) -> Symbols {
    let mut symbols = Symbols::default();
    let mut keys = Vec::new();
    let mut known: HashMap<Key, u32> = HashMap::default();
    let of_module = intern_images(recording, &mut symbols.images);
    for frame in &recording.frames {
        let place = key_of(recording, &of_module, frame).map(|key| {
            *known.entry(key).or_insert_with(|| {
                keys.push(key);
                u32::try_from(keys.len() - 1).unwrap_or(u32::MAX)
            })
        });
        symbols.of_frame.push(place);
    }
    symbols.sources = vec![NameSource::None; symbols.images.len()];
    let mut found = stored::names(recording, &mut symbols, &keys, places);
    symbols.were_stored = found.iter().map(|names| !names.is_empty()).collect();
    let (slots, addresses) = unnamed_of_kernel(&keys, &found);
    let name_kernel = || match addresses.is_empty() {
        true => Ok(Vec::new()),
        false => kernel::names(recording, &addresses, &places.kernel, places.effort),
    };
    let of_kernel = match places.effort {
        Effort::Whole => std::thread::scope(|scope| {
            let of_kernel = scope.spawn(name_kernel);
            name_images(recording, &mut symbols, &keys, &mut found, places);
            of_kernel.join()
        }),
        Effort::Little | Effort::Again => {
            name_images(recording, &mut symbols, &keys, &mut found, places);
            Ok(name_kernel())
        }
    };
    name_anonymous(recording, &keys, &mut found, &mut symbols.notes);
    match of_kernel {
        Ok(Ok(named)) => {
            let named = slots.into_iter().zip(named);
            named.for_each(|(slot, functions)| found[slot] = functions);
        }
        // Of what is stored the rest had no name.
        Ok(Err(_)) if recording.names.contains_key(&Owner::Kernel) => {}
        Ok(Err(note)) => symbols.notes.push(note),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    name_languages(recording, &keys, &mut found);
    let finish = |(key, functions)| place(recording, &symbols.images, key, functions);
    symbols.places = keys.into_iter().zip(found).map(finish).collect();
    symbols.notes.sort();
    symbols.notes.dedup();
    symbols
}

/// What makes two modules one binary, under whatever paths they were found.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Identity<'a> {
    BuildId(&'a [u8]),
    /// Device and inode, of a file without a build-id that is on this machine.
    File(u64, u64),
    Path(&'a str),
}

fn identity(module: &Module) -> Identity<'_> {
    if !module.build_id.is_empty() {
        return Identity::BuildId(&module.build_id);
    }
    let path = &module.path;
    let file = Some(path).filter(|path| path.starts_with('/'));
    match file.and_then(|path| std::fs::metadata(path).ok()) {
        Some(file) => Identity::File(file.dev(), file.ino()),
        None => Identity::Path(path),
    }
}

fn intern_images(recording: &Recording, images: &mut Vec<Image>) -> Vec<ImageId> {
    let (mut known, mut identities) = (Interner::default(), Vec::new());
    let modules = recording.modules.iter();
    let ids = modules.map(|module| {
        if module.code.is_some() {
            return ImageId::new(u32::MAX); // which nobody asks for
        }
        let id = known.place(&mut identities, identity(module));
        if identities.len() > images.len() {
            images.push(Image {
                path: module.path.clone(),
                build_id: module.build_id.clone(),
            });
        }
        id
    });
    ids.collect()
}

fn key_of(recording: &Recording, of_module: &[ImageId], frame: &RawFrame) -> Option<Key> {
    let (process, frame, module) = match frame {
        RawFrame::Kernel(frame) => return Some(Key::Kernel(frame.lookup())),
        RawFrame::Language { code, position } => return Some(Key::Language(*code, *position)),
        RawFrame::Missing | RawFrame::Elided(_) | RawFrame::Lost => return None,
        RawFrame::Code {
            process,
            frame,
            module,
            ..
        } => (process, frame, module),
    };
    let address = frame.lookup();
    Some(match module {
        Some(id) => {
            let module = &recording.modules[id.index()];
            let offset = address.0.wrapping_sub(module.bias);
            match module.code {
                Some(code) => Key::Language(Some(code), u32::try_from(offset).unwrap_or(u32::MAX)),
                None => Key::Image(of_module[id.index()], FileAddress(offset)),
            }
        }
        None => Key::Anonymous(*process, address),
    })
}

fn name_images(
    recording: &Recording,
    symbols: &mut Symbols,
    keys: &[Key],
    found: &mut [Vec<Named>],
    places: &Places,
) {
    let mut batches: HashMap<ImageId, Batch> = HashMap::default();
    let remembered = |image: ImageId, address: FileAddress| {
        let image = &symbols.images[image.index()];
        let known = recording.names.get(&stored::owner(image));
        let known = known.filter(|_| places.effort == Effort::Little)?;
        places.functions.find(image, address.0, known)
    };
    if places.effort != Effort::Little {
        places.functions.forget();
    }
    for (slot, key) in keys.iter().enumerate() {
        if let Key::Image(image, address) = *key
            && found[slot].is_empty()
        {
            if let Some(named) = remembered(image, address) {
                found[slot].push(named);
                continue;
            }
            let batch = batches.entry(image).or_insert_with(|| Batch {
                image,
                addresses: Vec::new(),
                slots: Vec::new(),
            });
            batch.addresses.push(address.0);
            batch.slots.push(slot);
        }
    }
    for batch in batches.values_mut() {
        // What is close together in the file is so in its tables.
        let mut both: Vec<_> = batch.addresses.iter().zip(&batch.slots).collect();
        both.sort_unstable();
        let (addresses, slots) = both.into_iter().unzip();
        (batch.addresses, batch.slots) = (addresses, slots);
    }
    let all = batches.values().map(|batch| batch.slots.len() as u64);
    progress::begin("names", all.sum());
    let mut queue: Vec<Batch> = batches.into_values().collect();
    queue.sort_by_key(|batch| (batch.slots.len(), batch.image));
    let workers = match places.effort {
        Effort::Whole => std::thread::available_parallelism().map_or(1, usize::from),
        Effort::Little | Effort::Again => 1,
    };
    let workers = workers.min(queue.len()).min(8);
    let queue = Mutex::new(queue);
    let results = Mutex::new((found, &mut symbols.notes, &mut symbols.sources));
    let images = &symbols.images;
    let work = || {
        let symbolizer = elf::symbolizer(&places.debug_directories);
        while let Some(batch) = next(&queue) {
            let image = &images[batch.image.index()];
            let known = recording.names.get(&stored::owner(image));
            let known = known.filter(|_| places.effort == Effort::Little);
            let missing = cut_short::missing();
            let named = name_batch(&symbolizer, image, &batch, known, places);
            let is_whole = cut_short::missing() == missing;
            let Ok(mut results) = results.lock() else {
                return;
            };
            if !is_whole {
                let name = image.name();
                results.1.push(format!(
                    "{name} was cut short while its names were looked up: some are missing, or wrong; run it again when it is whole"
                ));
            }
            match named {
                Ok((named, source)) => {
                    results.2[batch.image.index()] = source;
                    for (slot, functions) in batch.slots.iter().zip(named) {
                        results.0[*slot] = functions;
                    }
                }
                Err(note) => results.1.push(note),
            }
        }
    };
    match workers {
        0 | 1 => work(),
        _ => std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(work);
            }
        }),
    }
}

fn next(queue: &Mutex<Vec<Batch>>) -> Option<Batch> {
    queue.lock().ok()?.pop()
}

fn name_anonymous(
    recording: &Recording,
    keys: &[Key],
    found: &mut [Vec<Named>],
    notes: &mut Vec<String>,
) {
    let mut maps: HashMap<ProcessId, PerfMap> = HashMap::default();
    for (slot, key) in keys.iter().enumerate() {
        let Key::Anonymous(process, address) = *key else {
            continue;
        };
        if !found[slot].is_empty() {
            continue;
        }
        let map = maps.entry(process).or_insert_with(|| {
            let process = &recording.processes[process.index()];
            let text = map_text(recording, process);
            PerfMap::parse(&text.unwrap_or_else(|note| {
                notes.push(note);
                Vec::new()
            }))
        });
        if let Some(name) = map.find(address) {
            found[slot] = vec![Named::only(name)];
        }
    }
}

/// The addresses of the kernel that have no names yet, and their slots.
fn unnamed_of_kernel(keys: &[Key], found: &[Vec<Named>]) -> (Vec<usize>, Vec<u64>) {
    let keys = keys.iter().enumerate();
    let of_kernel = keys.filter_map(|(slot, key)| match key {
        Key::Kernel(address) if found[slot].is_empty() => Some((slot, address.0)),
        _ => None,
    });
    of_kernel.unzip()
}

/// What a function of a language is called. One without a name is told from others of the file by
/// where it begins, as there may be hundreds.
fn called(code: &CodeObject) -> Arc<str> {
    const NAMELESS: [&str; 2] = ["(anonymous)", "<lambda>"];
    let file = code.file.rsplit('/').next().unwrap_or_default();
    let is_nameless = NAMELESS.iter().any(|name| code.name.ends_with(name));
    match is_nameless && code.first_line != 0 && !file.is_empty() {
        true => format!("{} {file}:{}", code.name, code.first_line).into(),
        false => code.name.clone(),
    }
}

/// Names what interpreters ran, by what they said of it.
fn name_languages(recording: &Recording, keys: &[Key], found: &mut [Vec<Named>]) {
    for (slot, key) in keys.iter().enumerate() {
        let Key::Language(Some(code), position) = *key else {
            continue;
        };
        let code = &recording.codes[code.index()];
        if code.name.is_empty() {
            continue;
        }
        found[slot] = vec![Named {
            file: Some(code.file.clone()).filter(|file| !file.is_empty()),
            line: code.line(position),
            begins: code.first_line,
            ..Named::only(called(code))
        }];
    }
}

/// The JIT's symbol file: as recorded, else from `/tmp` if this is the machine and the file is not
/// older than the process. Then it must be ours, or of whoever recorded.
fn map_text(recording: &Recording, process: &Process) -> Result<Vec<u8>, String> {
    if !process.perf_map.is_empty() {
        return Ok(process.perf_map.clone());
    }
    let here = nix::sys::utsname::uname().ok();
    let here = here.as_ref().map(|here| here.nodename().to_string_lossy());
    let session = recording.session.as_ref();
    if session.is_some_and(|session| Some(&*session.host) != here.as_deref()) {
        return Ok(Vec::new());
    }
    let owners = recording.files.iter().map(|file| &file.path);
    let owners = owners.filter_map(|path| std::fs::metadata(path).ok());
    let own = nix::unistd::geteuid().as_raw();
    let rightful: Vec<u32> = owners.map(|file| file.uid()).chain([own]).collect();
    let pids = process.ns_pids.iter().copied().chain([process.pid]);
    let started_ns = process.key.saturating_add(process.realtime_offset_ns);
    let mut refused = None;
    for pid in pids {
        match jit_map::open(pid, started_ns, |user| rightful.contains(&user)) {
            Ok(Some(mut file)) => {
                let mut text = Vec::new();
                // What can be read of it is better than nothing.
                let _ = file.read_to_end(&mut text);
                return Ok(text);
            }
            Ok(None) => {}
            Err(error) => refused = refused.or(Some(error.to_string())),
        }
    }
    refused.map_or(Ok(Vec::new()), Err)
}

fn place(recording: &Recording, images: &[Image], key: Key, mut functions: Vec<Named>) -> Place {
    let mut language = None;
    let (image, address) = match key {
        Key::Language(code, position) => {
            language = code.map(|code| recording.codes[code.index()].language);
            (None, u64::from(position))
        }
        Key::Image(id, address) => (Some(id), address.0),
        Key::Anonymous(_, address) | Key::Kernel(address) => (None, address.0),
    };
    if functions.is_empty() {
        let name = match (image, key) {
            (Some(id), _) => without_symbols(images[id.index()].name()),
            (None, Key::Kernel(_)) => without_symbols("kernel"),
            (None, Key::Language(..)) => NOT_DESCRIBED.to_owned(),
            (None, _) => UNKNOWN.to_owned(),
        };
        functions = vec![Named::only(name)];
    }
    Place {
        image,
        address,
        functions,
        language,
    }
}

/// How the name of code ends of which not even a function's beginning is known.
const NO_SYMBOLS: &str = ", no symbols]";

/// What such code is called.
fn without_symbols(image: &str) -> String {
    format!("[{}{NO_SYMBOLS}", bare(image))
}

/// What a function is called that has no symbol and begins there.
fn nameless(image: &str, offset: u64) -> String {
    format!("[{}+{offset:#x}]", bare(image))
}

fn bare(image: &str) -> &str {
    image.trim_start_matches('[').trim_end_matches(']')
}
