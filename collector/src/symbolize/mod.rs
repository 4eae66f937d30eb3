//! Names for the addresses of a recording: functions, inlined ones included, with file and line.
//!
//! Start at [`symbolize`]. Each distinct address of each distinct binary is looked up once, binaries in parallel. A binary counts only if
//! its build-id is the recorded one; what has no name is shown as `[module+0xoffset]`, or `[unknown]` if it lies in no module.
//!
//! Not here: reading recordings (`recording`), stacks and weights (`profile`).

mod elf;
mod entry;
mod images;
mod kernel;
mod perf_map;
mod progress;
#[cfg(test)]
mod tests;
mod vdso;

pub use images::{Image, ImageId, Places};
pub(crate) use kernel::{is_this_boot, text_start as kernel_text_start};
pub(crate) use vdso::own_bytes as own_vdso;

use crate::recording::{Process, ProcessId, RawFrame, Recording};
use engine::address::{FileAddress, RuntimeAddress};
use images::Found;
use perf_map::PerfMap;
use progress::Progress;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;

/// What code outside of all modules is called when no JIT names it.
pub const UNKNOWN: &str = "[unknown]";

/// What the function is called in which a thread begins, in a C library without symbols.
pub const THREAD_ENTRY: &str = "[thread entry]";

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// Its name, demangled.
    pub function: Arc<str>,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line in it; 0 if unknown.
    pub line: u32,
    /// Inlined into the next one of the list.
    pub inlined: bool,
    /// Where the function begins in its module.
    pub start: Option<u64>,
}

impl Named {
    fn only(function: impl Into<Arc<str>>) -> Self {
        Self {
            function: function.into(),
            file: None,
            line: 0,
            inlined: false,
            start: None,
        }
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
    /// What could not be found, in sentences.
    pub notes: Vec<String>,
}

/// An address before it is looked up: of an image, or of a process's code outside of all modules.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Image(ImageId, FileAddress),
    Anonymous(ProcessId, RuntimeAddress),
    Kernel(RuntimeAddress),
}

/// Looks up all addresses of a recording.
#[must_use]
pub fn symbolize(recording: &Recording, places: &Places) -> Symbols {
    let mut symbols = Symbols::default();
    let mut keys = Vec::new();
    let mut known: HashMap<Key, u32> = HashMap::new();
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
    let mut found: Vec<Vec<Named>> = vec![Vec::new(); keys.len()];
    name_images(&mut symbols, &keys, &mut found, places);
    name_anonymous(recording, &keys, &mut found);
    name_kernel(recording, &keys, &mut found, &mut symbols.notes);
    let finish = |(key, functions)| place(&symbols.images, key, functions);
    symbols.places = keys.into_iter().zip(found).map(finish).collect();
    symbols.notes.sort();
    symbols.notes.dedup();
    symbols
}

fn intern_images(recording: &Recording, images: &mut Vec<Image>) -> Vec<ImageId> {
    let mut known: HashMap<Image, ImageId> = HashMap::new();
    let intern = |module: &crate::recording::Module| {
        let image = Image {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
        };
        *known.entry(image).or_insert_with_key(|image| {
            images.push(image.clone());
            ImageId::next_of(images.len() - 1)
        })
    };
    recording.modules.iter().map(intern).collect()
}

fn key_of(recording: &Recording, of_module: &[ImageId], frame: &RawFrame) -> Option<Key> {
    if let RawFrame::Kernel(frame) = frame {
        return Some(Key::Kernel(frame.lookup()));
    }
    let RawFrame::Code {
        process,
        frame,
        module,
        ..
    } = frame
    else {
        return None;
    };
    let address = frame.lookup();
    Some(match module {
        Some(id) => {
            let bias = recording.modules[id.index()].bias;
            let file_address = FileAddress(address.0.wrapping_sub(bias));
            Key::Image(of_module[id.index()], file_address)
        }
        None => Key::Anonymous(*process, address),
    })
}

/// The addresses of one image that are to be looked up, and where their names go.
struct Batch {
    image: ImageId,
    addresses: Vec<u64>,
    slots: Vec<usize>,
}

fn name_images(symbols: &mut Symbols, keys: &[Key], found: &mut [Vec<Named>], places: &Places) {
    let mut batches: HashMap<ImageId, Batch> = HashMap::new();
    for (slot, key) in keys.iter().enumerate() {
        if let Key::Image(image, address) = *key {
            let batch = batches.entry(image).or_insert_with(|| Batch {
                image,
                addresses: Vec::new(),
                slots: Vec::new(),
            });
            batch.addresses.push(address.0);
            batch.slots.push(slot);
        }
    }
    let progress = Progress::new(batches.values().map(|batch| batch.slots.len()).sum());
    let mut queue: Vec<Batch> = batches.into_values().collect();
    queue.sort_by_key(|batch| (batch.slots.len(), batch.image));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.min(queue.len()).min(8);
    let queue = Mutex::new(queue);
    let results = Mutex::new((found, &mut symbols.notes));
    let images = &symbols.images;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let symbolizer = elf::symbolizer(&places.debug_directories);
                while let Some(batch) = next(&queue) {
                    let image = &images[batch.image.index()];
                    let named = name_batch(&symbolizer, image, &batch, places, &progress);
                    let Ok(mut results) = results.lock() else {
                        return;
                    };
                    match named {
                        Ok(named) => {
                            for (slot, functions) in batch.slots.iter().zip(named) {
                                results.0[*slot] = functions;
                            }
                        }
                        Err(note) => results.1.push(note),
                    }
                }
            });
        }
    });
    progress.finish();
}

fn next(queue: &Mutex<Vec<Batch>>) -> Option<Batch> {
    queue.lock().ok()?.pop()
}

/// How many addresses are looked up between two updates of the progress bar.
const STEP: usize = 2000;

fn name_batch(
    symbolizer: &blazesym::symbolize::Symbolizer,
    image: &Image,
    batch: &Batch,
    places: &Places,
    progress: &Progress,
) -> Result<Vec<Vec<Named>>, String> {
    let own_vdso;
    let file: PathBuf = if image.path == vdso::NAME {
        own_vdso = vdso::own_copy(&image.build_id).ok_or_else(|| {
            "[vdso] has no symbols: it is recorded from another kernel than the one running here".to_owned()
        })?;
        own_vdso.path().to_owned()
    } else {
        match places.find(image) {
            Found::File(file) => file,
            Found::Nothing(note) => return Err(note),
        }
    };
    let mut named = Vec::with_capacity(batch.addresses.len());
    for addresses in batch.addresses.chunks(STEP) {
        named.extend(elf::names(symbolizer, &file, addresses)?);
        progress.add(addresses.len());
    }
    let unnamed = batch.addresses.iter().zip(&mut named);
    entry::name(
        &file,
        image.name(),
        unnamed.filter(|(_, names)| names.is_empty()),
    );
    Ok(named)
}

fn name_anonymous(recording: &Recording, keys: &[Key], found: &mut [Vec<Named>]) {
    let mut maps: HashMap<ProcessId, PerfMap> = HashMap::new();
    for (slot, key) in keys.iter().enumerate() {
        let Key::Anonymous(process, address) = *key else {
            continue;
        };
        let map = maps.entry(process).or_insert_with(|| {
            let process = &recording.processes[process.index()];
            PerfMap::parse(&map_text(recording, process))
        });
        if let Some(name) = map.find(address) {
            found[slot].push(Named::only(name));
        }
    }
}

fn name_kernel(
    recording: &Recording,
    keys: &[Key],
    found: &mut [Vec<Named>],
    notes: &mut Vec<String>,
) {
    let of_kernel = keys.iter().enumerate().filter_map(|(slot, key)| match key {
        Key::Kernel(address) => Some((slot, address.0)),
        _ => None,
    });
    let (slots, addresses): (Vec<usize>, Vec<u64>) = of_kernel.unzip();
    if slots.is_empty() {
        return;
    }
    match kernel::names(recording, &addresses) {
        Ok(named) => slots
            .into_iter()
            .zip(named)
            .for_each(|(slot, functions)| found[slot] = functions),
        Err(note) => notes.push(note),
    }
}

/// The JIT's symbol file: as recorded, else from `/tmp` if this is the machine and the file is not older than the process.
fn map_text(recording: &Recording, process: &Process) -> Vec<u8> {
    if !process.perf_map.is_empty() {
        return process.perf_map.clone();
    }
    let here = nix::sys::utsname::uname().ok();
    let here = here.as_ref().map(|here| here.nodename().to_string_lossy());
    let session = recording.session.as_ref();
    if session.is_some_and(|session| Some(&*session.host) != here.as_deref()) {
        return Vec::new();
    }
    let pids = process.ns_pids.iter().copied().chain([process.pid]);
    let started_ns = process.key.saturating_add(process.realtime_offset_ns);
    for pid in pids {
        let path = format!("/tmp/perf-{pid}.map");
        let file = std::fs::metadata(&path)
            .ok()
            .filter(std::fs::Metadata::is_file);
        let modified = file.and_then(|file| file.modified().ok());
        let modified_ns = modified
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |time| time.as_nanos());
        if modified_ns >= u128::from(started_ns)
            && let Ok(text) = std::fs::read(path)
        {
            return text;
        }
    }
    Vec::new()
}

fn place(images: &[Image], key: Key, mut functions: Vec<Named>) -> Place {
    let (image, address) = match key {
        Key::Image(id, address) => (Some(id), address.0),
        Key::Anonymous(_, address) | Key::Kernel(address) => (None, address.0),
    };
    if functions.is_empty() {
        let name = match (image, key) {
            (Some(id), _) => nameless(images[id.index()].name(), address),
            (None, Key::Kernel(_)) => nameless("kernel", address),
            (None, _) => UNKNOWN.to_owned(),
        };
        functions.push(Named::only(name));
    }
    Place {
        image,
        address,
        functions,
    }
}

/// What code without a symbol is called.
fn nameless(image: &str, offset: u64) -> String {
    let bare = image.trim_start_matches('[').trim_end_matches(']');
    format!("[{bare}+{offset:#x}]")
}
