//! Names for the frames of all threads, found as those of a recording are ([`symbolize`]), and
//! as those of the process's code.

use super::stack::{KernelHalf, ThreadStack};
use super::target::Target;
use crate::clock;
use crate::interpreters::LANGUAGES;
use crate::jit_map;
use crate::processes;
use crate::recording::{
    CodeId, CodeObject, LanguageId, Module, ModuleId, ModuleMap, Process, ProcessId, RawFrame,
    Recording,
};
use crate::symbolize::{Place, Places, UNKNOWN, symbolize};
use crate::visible::visible;
use engine::address::{CodeAddress, RuntimeAddress};
use engine::wire::sample::{Frame as Found, Method};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

/// A frame with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// The function.
    pub(super) function: String,
    /// The same without template arguments and parameters.
    pub(super) short: String,
    /// The file that it was mapped from; empty if from none.
    pub(super) module: String,
    /// The source; empty if unknown.
    pub(super) file: String,
    /// The line in it; 0 if unknown.
    pub(super) line: u32,
    /// Inlined into the next one.
    pub(super) inlined: bool,
    /// In the process, of native frames.
    pub(super) address: Option<u64>,
}

/// Whose code a frame runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Kernel,
    Native,
    /// An interpreter's, of a language of that name.
    Language(&'static str),
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Native => "native",
            Self::Language(name) => name,
        }
    }
}

impl Frame {
    fn new(kind: Kind, function: &str) -> Self {
        let function = visible(function).into_owned();
        Self {
            kind,
            short: function.clone(),
            function,
            module: String::new(),
            file: String::new(),
            line: 0,
            inlined: false,
            address: None,
        }
    }
}

/// The stacks of all threads, from leaf to root, and what is to be said of names that are missing.
pub(super) fn name(target: &mut Target, stacks: &[ThreadStack]) -> (Vec<Vec<Frame>>, Vec<String>) {
    let mut recording = recording(target, stacks);
    let of_frames: Vec<RawFrame> = stacks
        .iter()
        .flat_map(|stack| raw(&recording, stack))
        .collect();
    recording.frames = of_frames;
    let symbols = symbolize(&recording, &Places::default());
    let mut places = symbols
        .of_frame
        .iter()
        .map(|place| place.map(|place| &symbols.places[place as usize]));
    let image = |place: &Place| {
        let image = place.image.map(|id| symbols.images[id.index()].name());
        visible(image.unwrap_or_default()).into_owned()
    };
    let named = stacks.iter().map(|stack| whole(stack, &mut places, &image));
    (named.collect(), symbols.notes)
}

/// One stack from the places of its frames, which come next.
fn whole<'s>(
    stack: &ThreadStack,
    places: &mut impl Iterator<Item = Option<&'s Place>>,
    image: &impl Fn(&Place) -> String,
) -> Vec<Frame> {
    let mut all = Vec::new();
    match &stack.kernel {
        KernelHalf::None => {}
        KernelHalf::Names(names) => {
            all.extend(names.iter().map(|name| Frame::new(Kind::Kernel, name)))
        }
        KernelHalf::Addresses(addresses) => {
            for place in places.by_ref().take(addresses.len()).flatten() {
                all.extend(
                    place
                        .functions
                        .first()
                        .map(|named| Frame::new(Kind::Kernel, &named.function)),
                );
            }
        }
    }
    let user = stack.user.iter().flat_map(|user| &user.frames);
    let mut user = user.peekable();
    while let Some(found) = user.next() {
        let Some(place) = places.next().flatten() else {
            continue;
        };
        let runs_function = user.peek().is_some_and(|next| is_language(next));
        let kind = match place.language {
            Some(id) => Kind::Language(LANGUAGES[id.index()]),
            None => Kind::Native,
        };
        for named in &place.functions {
            // Code made for the function that comes next.
            if &*named.function == UNKNOWN && runs_function {
                continue;
            }
            let short = named.short.as_ref().unwrap_or(&named.function);
            all.push(Frame {
                short: visible(short).into_owned(),
                module: image(place),
                file: visible(named.file.as_deref().unwrap_or_default()).into_owned(),
                line: named.line,
                inlined: named.inlined,
                address: (!is_language(found)).then_some(found.pc.0),
                ..Frame::new(kind, &named.function)
            });
        }
    }
    all
}

fn is_language(frame: &Found) -> bool {
    frame.method == Method::Language
}

/// The frames of a stack that are looked up.
fn raw<'s>(
    recording: &'s Recording,
    stack: &'s ThreadStack,
) -> impl Iterator<Item = RawFrame> + 's {
    let kernel = match &stack.kernel {
        KernelHalf::Addresses(addresses) => &addresses[..],
        _ => &[],
    };
    let kernel = kernel.iter().enumerate().map(|(depth, address)| {
        let address = RuntimeAddress(*address);
        RawFrame::Kernel(match depth {
            0 => CodeAddress::Instruction(address),
            _ => CodeAddress::Return(address),
        })
    });
    let user = stack.user.iter().flat_map(|user| &user.frames);
    kernel.chain(user.map(|frame| recording.raw_frame(ProcessId::new(0), *frame, 0)))
}

/// A recording of the process as it is now, without samples.
fn recording(target: &mut Target, stacks: &[ThreadStack]) -> Recording {
    let pid = target.pid;
    let users = stacks.iter().filter_map(|stack| stack.user.as_ref());
    let frames: Vec<Found> = users.flat_map(|user| &user.frames).copied().collect();
    let modules = target
        .unwinder
        .modules(pid, &frames, 0)
        .map(|module| Module {
            process: ProcessId::new(0),
            time_ns: 0,
            gone_ns: u64::MAX,
            start: RuntimeAddress(module.start),
            end: RuntimeAddress(module.end),
            bias: module.bias,
            build_id: module.build_id.to_vec(),
            path: reachable(pid, module.path),
            ours: false,
            code: None,
        });
    let modules: Vec<Module> = modules.collect();
    let offset_ns = clock::realtime_offset_ns();
    let born_ns = processes::born_ns(pid.cast_signed()).unwrap_or(0);
    let inner = processes::inner_number(pid.cast_signed(), pid.cast_signed());
    let described = target.interpreters.descriptions.since(0);
    let described = described.map(|(number, description)| {
        let language = LanguageId::new(u32::from(description.language));
        let code = description.code(number, 0);
        (number, CodeObject::new(language, &code))
    });
    let (numbers, codes): (Vec<u64>, Vec<CodeObject>) = described.unzip();
    let process = Process {
        codes: numbers
            .into_iter()
            .zip((0..codes.len()).map(CodeId::next_of))
            .collect(),
        pid: inner.unwrap_or(pid),
        key: born_ns,
        realtime_offset_ns: offset_ns,
        map: ModuleMap::new((0..modules.len()).map(ModuleId::next_of), &modules),
        perf_map: perf_map(pid, inner, born_ns.saturating_add(offset_ns)),
        ..Process::default()
    };
    Recording {
        processes: vec![process],
        modules,
        languages: LANGUAGES.map(str::to_owned).to_vec(),
        codes,
        ..Recording::default()
    }
}

/// A file by a name under which it can be opened here: the process may have a root of its own.
fn reachable(pid: u32, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path).into_owned();
    let there = format!("/proc/{pid}/root{path}");
    let file = |path: &str| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    match file(&there) {
        Some(its) if path.starts_with('/') && file(&path) != Some(its) => there,
        _ => path,
    }
}

/// What its JIT says of its code, if that is the process's own file.
fn perf_map(pid: u32, inner: Option<u32>, started_ns: u64) -> Vec<u8> {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
    let is_rightful = |user| owner.as_ref().is_ok_and(|owner| *owner == user);
    let mut text = Vec::new();
    for pid in inner.into_iter().chain([pid]) {
        if let Ok(Some(mut file)) = jit_map::open(pid, started_ns, is_rightful) {
            // What can be read of it is better than nothing.
            let _ = file.read_to_end(&mut text);
            break;
        }
    }
    text
}
