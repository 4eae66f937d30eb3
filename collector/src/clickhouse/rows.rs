//! A profile as rows: each sample one, frames and stacks by their hashes.

use super::call_path::CallPath;
use super::message::Rows;
use super::native::Block;
use crate::intern::{HashMap, Strings};
use crate::profile::{CallId, Function, FunctionId, Mode, Profile, Sample, SourceFrameId};
use crate::visible::visible;
use prost::Message as _;
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::io;
use twox_hash::XxHash64;

/// Names of languages that are none of an interpreter's.
pub(super) const NATIVE: &str = "native";
pub(super) const KERNEL: &str = "kernel";
pub(super) const NONE: &str = "none";

/// So many lines of a function are told apart by the end of their hash.
const LINES: u32 = 0xffff;

/// What is said of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    pub(crate) attributes: &'a BTreeMap<String, String>,
    /// From when to when it is, ns since 1970.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, ns.
    pub(crate) realtime_offset_ns: u64,
}

/// The rows of a window, as bytes.
///
/// # Errors
/// Those of compression into memory: none.
pub(crate) fn encode(profile: &Profile, window: &Window<'_>) -> io::Result<Vec<u8>> {
    let mut maker = Maker {
        profile,
        rows: Rows::default(),
        strings: Strings::default(),
        images: Vec::new(),
        functions: vec![None; profile.functions.len()],
        frames: vec![None; profile.frames.len()],
        known_frames: HashMap::default(),
        hashes: Vec::new(),
        calls: vec![None; profile.stacks.len()],
        known_calls: HashMap::default(),
        stack_hashes: Vec::new(),
        stacks: HashMap::default(),
        path: CallPath::default(),
        new: Vec::new(),
    };
    for image in &profile.symbols.images {
        let texts = [&*image.path, &image.build_id_text()];
        let places = texts.map(|text| maker.strings.place(&visible(text)));
        maker.images.push(places);
    }
    for sample in profile.weighed() {
        maker.stack(sample.stack);
    }
    maker.window(window)?;
    for text in maker.strings.list() {
        maker.rows.strings.push(&text);
    }
    Ok(maker.rows.encode_to_vec())
}

/// What a window is called: the same however often it is sent.
pub(crate) fn window_id(attributes: &BTreeMap<String, String>, from_ns: u64, to_ns: u64) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    for (key, value) in attributes {
        text(&mut hasher, key);
        text(&mut hasher, value);
    }
    hasher.write_u64(from_ns);
    hasher.write_u64(to_ns);
    hasher.finish()
}

struct Maker<'a> {
    profile: &'a Profile,
    rows: Rows,
    strings: Strings,
    /// Of the profile's images the path and the build-id; places in the strings.
    images: Vec<[u32; 2]>,
    /// Of its functions that were met the name, the short one and the language, likewise.
    functions: Vec<Option<[u32; 3]>>,
    /// Places in the rows of each of the profile's frames ...
    frames: Vec<Option<u32>>,
    /// ... which may differ by their address alone, and then are one: of a function at a line of a
    /// file, inlined so often.
    known_frames: HashMap<(FunctionId, u32, u32, u32), u32>,
    /// Their hashes as text, by these places, ...
    hashes: Vec<String>,
    /// ... and of each of its calls, with how many callers it has.
    calls: Vec<Option<(u32, usize)>>,
    /// Likewise of those that are one, by their caller and frame.
    known_calls: HashMap<(Option<u32>, u32), u32>,
    /// Of calls, by their places, the hashes of the stacks that they are the innermost of.
    stack_hashes: Vec<Option<u64>>,
    stacks: HashMap<CallId, u64>,
    /// From the outermost frame to that of the last stack.
    path: CallPath,
    /// Of the stack that is made, what is not on it, from the innermost.
    new: Vec<CallId>,
}

impl Maker<'_> {
    /// What the window has of its own: its samples, and what they are together.
    fn window(&mut self, window: &Window<'_>) -> io::Result<()> {
        let profile = self.profile;
        let attribute = |key: &str| window.attributes.get(key).map_or("", String::as_str);
        let (service, host) = (attribute("service.name"), attribute("host.name"));
        let id = window_id(window.attributes, window.from_ns, window.to_ns);
        let all = || profile.weighed();
        let number = all().count();
        let thread = |sample: &Sample| &profile.recording.threads[sample.thread.index()];
        let process = |sample| &profile.recording.processes[thread(sample).process.index()];
        let time = |sample: &Sample| {
            // A remainder has none of its own.
            let at = window.realtime_offset_ns.saturating_add(sample.time_ns);
            at.clamp(window.from_ns, window.to_ns.max(window.from_ns))
        };
        let thread_name = |sample| match &*thread(sample).name {
            "" => process(sample).name(),
            name => name,
        };
        let regions = |sample: &Sample| {
            let labels = profile.recording.labels.get(sample.labels).iter();
            labels.map(|(key, value)| (&**key, &**value))
        };
        let mut samples = Block::of(number);
        samples.labels("service", all().map(|_| service));
        samples.labels("host", all().map(|_| host));
        samples.labels("process", all().map(|sample| process(sample).name()));
        samples.few_u32s("pid", all().map(|sample| process(sample).pid));
        samples.labels("thread", all().map(thread_name));
        samples.few_u32s("tid", all().map(|sample| thread(sample).tid));
        samples.labels("language", all().map(|one| language_of(profile, one)));
        samples.few_u32s("weight", all().map(|sample| small(sample.weight)));
        samples.few_u64s("cpu_ns", all().map(|sample| profile.time_ns(sample)));
        samples.few_u64s("window", all().map(|_| id));
        samples.maps("regions", all().map(regions));
        samples.apart();
        samples.times("time", all().map(time));
        samples.apart();
        let hash = |sample: &Sample| self.stacks.get(&sample.stack).copied().unwrap_or(0);
        samples.u64s("stack", all().map(hash));
        self.rows.samples = samples.finish()?;

        let sum = |sum: u64, one| sum.saturating_add(one);
        let weight = all().map(|sample| sample.weight).fold(0, sum);
        let cpu_ns = all().map(|sample| profile.time_ns(sample)).fold(0, sum);
        let mut row = Block::of(1);
        row.u64s("window", [id].into_iter());
        row.texts("service", [service].into_iter());
        row.texts("host", [host].into_iter());
        row.times("begin", [window.from_ns].into_iter());
        row.times("end", [window.to_ns].into_iter());
        row.u32s("rows", [small(number as u64)].into_iter());
        row.u64s("weight", [weight].into_iter());
        row.u64s("cpu_ns", [cpu_ns].into_iter());
        let labels = window.attributes.iter();
        let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
        row.maps("labels", [labels].into_iter());
        self.rows.window = row.finish()?;
        Ok(())
    }

    fn stack(&mut self, id: CallId) {
        if self.stacks.contains_key(&id) {
            return;
        }
        let calls = &self.profile.stacks;
        self.new.clear();
        let (mut at, mut shared) = (Some(id), 0);
        while let Some(call) = at {
            if let Some((place, callers)) = self.calls[call.index()]
                && self.path.has(callers, place)
            {
                shared = callers + 1;
                break;
            }
            self.new.push(call);
            at = calls[call.index()].parent;
        }
        self.path.cut(shared);
        while let Some(call) = self.new.pop() {
            let place = self.call(call);
            let frame = self.rows.stacks.frame_of(place);
            self.path
                .push(place, self.hashes[frame as usize].as_bytes());
        }
        let innermost = self.path.last();
        let known = innermost.and_then(|call| *self.stack_hashes.get(call as usize)?);
        let hash = known.unwrap_or_else(|| {
            let hash = self.path.hash();
            self.rows.stacks.push(hash, innermost);
            hash
        });
        if let Some(call) = innermost {
            self.stack_hashes[call as usize] = Some(hash);
        }
        self.stacks.insert(id, hash);
    }

    /// The place of a call whose caller is the path's last.
    fn call(&mut self, id: CallId) -> u32 {
        if let Some((place, _)) = self.calls[id.index()] {
            return place;
        }
        let frame = self.frame(self.profile.stacks[id.index()].frame);
        let caller = self.path.last();
        let place = *self.known_calls.entry((caller, frame)).or_insert_with(|| {
            self.stack_hashes.push(None);
            self.rows.stacks.call(caller, frame)
        });
        self.calls[id.index()] = Some((place, self.path.len()));
        place
    }

    fn frame(&mut self, id: SourceFrameId) -> u32 {
        if let Some(place) = self.frames[id.index()] {
            return place;
        }
        let profile = self.profile;
        let frame = &profile.frames[id.index()];
        let function = profile.function(frame);
        let [name, short, language] = self.function(frame.function);
        let file = frame.file.as_deref().or(function.source.as_deref());
        let file = self.strings.place(&visible(file.unwrap_or("")));
        let distinct = (frame.function, file, frame.line, frame.inline_depth);
        if let Some(place) = self.known_frames.get(&distinct) {
            self.frames[id.index()] = Some(*place);
            return *place;
        }
        let image = function.image.and_then(|id| self.images.get(id.index()));
        let [binary, build_id] = image.copied().unwrap_or_default();
        let texts = [name, short, file, binary, build_id, language];
        let all = texts.iter().map(|place| self.strings.at(*place));
        let hash = frame_hash(all, frame.line, frame.inline_depth);
        let frames = &mut self.rows.frames;
        let place = small(frames.hash.len() as u64);
        frames.hash.push(hash);
        self.hashes.push(hash.to_string());
        for (column, text) in frames.texts_mut().into_iter().zip(texts) {
            column.push(text);
        }
        frames.line.push(frame.line);
        frames.inlined.push(frame.inline_depth);
        self.known_frames.insert(distinct, place);
        self.frames[id.index()] = Some(place);
        place
    }

    fn function(&mut self, id: FunctionId) -> [u32; 3] {
        if let Some(places) = self.functions[id.index()] {
            return places;
        }
        let profile = self.profile;
        let function = &profile.functions[id.index()];
        let short = function.short.as_deref().unwrap_or("");
        let texts = [&*function.name, short, language(profile, function)];
        let places = texts.map(|text| self.strings.place(&visible(text)));
        self.functions[id.index()] = Some(places);
        places
    }
}

fn language_of<'a>(profile: &'a Profile, sample: &Sample) -> &'a str {
    let leaf = profile.walk(sample.stack).next();
    leaf.map_or(NONE, |leaf| language(profile, profile.function(leaf)))
}

fn language<'a>(profile: &'a Profile, function: &Function) -> &'a str {
    match function.mode {
        Mode::User => NATIVE,
        Mode::Kernel => KERNEL,
        Mode::Note => NONE,
        Mode::Language(id) => &profile.recording.languages[id.index()],
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The lines of a function have hashes that differ in their last two bytes only: a list of many in
/// their order then takes two thirds of what as many random numbers take.
fn frame_hash<'a>(texts: impl Iterator<Item = &'a str>, line: u32, inlined: u32) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    texts.for_each(|one| text(&mut hasher, one));
    hasher.write_u32(inlined);
    hasher.write_u32(line & !LINES);
    hasher.finish() << LINES.count_ones() | u64::from(line & LINES)
}

/// With its end, so that two texts are not another two.
fn text(hasher: &mut XxHash64, text: &str) {
    hasher.write(text.as_bytes());
    hasher.write_u8(0xff);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_has_another_hash_and_lines_of_a_function_one_near_it() {
        let hash =
            |function, line, inlined| frame_hash([function, "f.c"].into_iter(), line, inlined);
        let first = hash("a", 7, 0);
        assert_eq!(hash("a", 7, 0), first);
        assert_eq!(hash("a", 8, 0), first + 1);
        let lines_before = 7 + LINES + 1;
        for other in [hash("b", 7, 0), hash("a", 7, 1), hash("a", lines_before, 0)] {
            assert_ne!(other >> 16, first >> 16);
        }
        assert_ne!(frame_hash(["af", ".c"].into_iter(), 7, 0), first);
    }
}
