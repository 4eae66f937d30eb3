//! A profile as rows: each sample one, frames and stacks by their hashes.

use super::call_path::CallPath;
use super::message::Rows;
use super::native::Block;
use crate::intern::{HashMap, Strings};
use crate::profile::{CallId, Frame, Function, FunctionId, Mode, Profile, Sample, SourceFrameId};
use crate::visible::visible;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;
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
        hashes: String::new(),
        hash_ends: Vec::new(),
        known_calls: HashMap::with_capacity_and_hasher(profile.stacks.len(), Default::default()),
        stack_hashes: Vec::with_capacity(profile.stacks.len()),
        stacks: vec![0; profile.stacks.len()],
        path: CallPath::default(),
    };
    for image in &profile.symbols.images {
        let texts = [&*image.path, &image.build_id_text()];
        let places = texts.map(|text| maker.strings.place(&visible(text)));
        maker.images.push(places);
    }
    maker.stacks();
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
    /// Of its functions that were met what was said of the last frame.
    functions: Vec<Option<Said>>,
    /// Places in the rows of each of the profile's frames ...
    frames: Vec<Option<u32>>,
    /// ... which may differ by their address alone, and then are one: of a function at a line of a
    /// file, inlined so often.
    known_frames: HashMap<(FunctionId, u32, u32, u32), u32>,
    /// Their hashes as text, one behind the other, and where each ends, by these places.
    hashes: String,
    hash_ends: Vec<usize>,
    /// Places of calls that are one, by their caller and frame.
    known_calls: HashMap<(Option<u32>, u32), u32>,
    /// Of calls, by their places, the hashes of the stacks that they are the innermost of.
    stack_hashes: Vec<Option<u64>>,
    /// The same of the profile's calls that samples have; 0 for others.
    stacks: Vec<u64>,
    /// From the outermost frame to that of the last call.
    path: CallPath,
}

/// What a frame has in common with most frames of its function: all but the line.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// Name, short name, file, binary, build-id, language: places in the strings.
    texts: [u32; 6],
    inlined: u32,
    /// The line, but for what the hash's end says of it.
    lines: u32,
    /// Of all of this.
    hash: u64,
}

/// Where in [`Said::texts`] the file is.
const FILE: usize = 2;

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
        let processes = &profile.recording.processes;
        let names: Vec<&str> = processes.iter().map(|process| process.name()).collect();
        let process = |sample| &processes[thread(sample).process.index()];
        let process_name = |sample| names[thread(sample).process.index()];
        let time = |sample: &Sample| {
            // A remainder has none of its own.
            let at = window.realtime_offset_ns.saturating_add(sample.time_ns);
            at.clamp(window.from_ns, window.to_ns.max(window.from_ns))
        };
        let thread_name = |sample| match &*thread(sample).name {
            "" => process_name(sample),
            name => name,
        };
        let regions = |sample: &Sample| {
            let labels = profile.recording.labels.get(sample.labels).iter();
            labels.map(|(key, value)| (&**key, &**value))
        };
        let mut samples = Block::of(number);
        samples.labels("service", all().map(|_| service));
        samples.labels("host", all().map(|_| host));
        samples.labels("process", all().map(process_name));
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
        let hash = |sample: &Sample| self.stacks[sample.stack.index()];
        samples.u64s("stack", all().map(hash));
        self.rows.samples = samples.finish_soon()?;

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

    /// Hashes the stacks of samples. Whatever a call made follows it, so that each is met once: in
    /// the order of samples, outer frames come and go.
    fn stacks(&mut self) {
        let calls = &self.profile.stacks;
        let mut is_stack = vec![false; calls.len()];
        for sample in self.profile.weighed() {
            is_stack[sample.stack.index()] = true;
        }
        // Of each call the first one that it made and that leads to a stack, and the next one that
        // its caller made.
        let mut leads = is_stack.clone();
        let (mut first, mut next) = (vec![None; calls.len()], vec![None; calls.len()]);
        let mut outermost = None;
        for (index, call) in calls.iter().enumerate().rev() {
            if leads[index] {
                let first = match call.parent {
                    Some(parent) => {
                        leads[parent.index()] = true;
                        &mut first[parent.index()]
                    }
                    None => &mut outermost,
                };
                next[index] = first.replace(CallId::next_of(index));
            }
        }
        let mut todo: Vec<_> = outermost.map(|id| (id, 0)).into_iter().collect();
        while let Some((id, callers)) = todo.pop() {
            self.path.cut(callers);
            let place = self.call(id);
            if is_stack[id.index()] {
                self.stacks[id.index()] = self.hash(place);
            }
            todo.extend(next[id.index()].map(|next| (next, callers)));
            todo.extend(first[id.index()].map(|first| (first, callers + 1)));
        }
    }

    /// The hash of the stack whose innermost call is the path's last, which has that place.
    fn hash(&mut self, place: u32) -> u64 {
        let known = &mut self.stack_hashes[place as usize];
        *known.get_or_insert_with(|| {
            let hash = self.path.hash();
            self.rows.stacks.push(hash, place);
            hash
        })
    }

    /// The place of a call whose caller is the path's last; then it is that itself.
    fn call(&mut self, id: CallId) -> u32 {
        let frame = self.frame(self.profile.stacks[id.index()].frame);
        let caller = self.path.last();
        let place = *self.known_calls.entry((caller, frame)).or_insert_with(|| {
            self.stack_hashes.push(None);
            self.rows.stacks.call(caller, frame)
        });
        let end = self.hash_ends[frame as usize];
        let before = frame.checked_sub(1).map(|one| self.hash_ends[one as usize]);
        let hash = &self.hashes[before.unwrap_or(0)..end];
        self.path.push(place, hash.as_bytes());
        place
    }

    fn frame(&mut self, id: SourceFrameId) -> u32 {
        if let Some(place) = self.frames[id.index()] {
            return place;
        }
        let frame = &self.profile.frames[id.index()];
        let said = self.said(frame);
        let distinct = (
            frame.function,
            said.texts[FILE],
            frame.line,
            frame.inline_depth,
        );
        let place = *self.known_frames.entry(distinct).or_insert_with(|| {
            let hash = at_line(said.hash, frame.line);
            let frames = &mut self.rows.frames;
            let place = small(frames.hash.len() as u64);
            frames.hash.push(hash);
            let _ = write!(self.hashes, "{hash}");
            self.hash_ends.push(self.hashes.len());
            for (column, text) in frames.texts_mut().into_iter().zip(said.texts) {
                column.push(text);
            }
            frames.line.push(frame.line);
            frames.inlined.push(frame.inline_depth);
            place
        });
        self.frames[id.index()] = Some(place);
        place
    }

    /// What is said of a frame but its line.
    fn said(&mut self, frame: &Frame) -> Said {
        let profile = self.profile;
        let function = profile.function(frame);
        let file = frame.file.as_deref().or(function.source.as_deref());
        let file = file.unwrap_or("");
        let (inlined, lines) = (frame.inline_depth, frame.line & !LINES);
        let before = self.functions[frame.function.index()];
        let texts = match before {
            // What is visible stays as it is.
            Some(said) if self.strings.at(said.texts[FILE]) == file => said.texts,
            _ => {
                let mut place = |text: &str| self.strings.place(&visible(text));
                let name = place(&function.name);
                let short = place(function.short.as_deref().unwrap_or(""));
                let (language, file) = (place(language(profile, function)), place(file));
                let image = function.image.and_then(|id| self.images.get(id.index()));
                let [binary, build_id] = image.copied().unwrap_or_default();
                [name, short, file, binary, build_id, language]
            }
        };
        let is_same =
            |said: &Said| (said.texts, said.inlined, said.lines) == (texts, inlined, lines);
        let said = before.filter(is_same).unwrap_or_else(|| {
            let all = texts.iter().map(|place| self.strings.at(*place));
            Said {
                texts,
                inlined,
                lines,
                hash: hash_but_line(all, lines, inlined),
            }
        });
        self.functions[frame.function.index()] = Some(said);
        said
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

/// The hash of a frame but for what its end says of the line. The lines of a function have hashes
/// that differ in their last two bytes only: a list of many in their order then takes two thirds of
/// what as many random numbers take.
fn hash_but_line<'a>(texts: impl Iterator<Item = &'a str>, lines: u32, inlined: u32) -> u64 {
    let mut hasher = XxHash64::with_seed(0);
    texts.for_each(|one| text(&mut hasher, one));
    hasher.write_u32(inlined);
    hasher.write_u32(lines);
    hasher.finish() << LINES.count_ones()
}

/// The hash of a frame at a line.
fn at_line(hash_but_line: u64, line: u32) -> u64 {
    hash_but_line | u64::from(line & LINES)
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
        let hash = |texts: [&str; 2], line: u32, inlined| {
            let but_line = hash_but_line(texts.into_iter(), line & !LINES, inlined);
            at_line(but_line, line)
        };
        let first = hash(["a", "f.c"], 7, 0);
        assert_eq!(hash(["a", "f.c"], 7, 0), first);
        assert_eq!(hash(["a", "f.c"], 8, 0), first + 1);
        let lines_before = 7 + LINES + 1;
        for (function, line, inlined) in [("b", 7, 0), ("a", 7, 1), ("a", lines_before, 0)] {
            assert_ne!(hash([function, "f.c"], line, inlined) >> 16, first >> 16);
        }
        assert_ne!(hash(["af", ".c"], 7, 0), first);
    }
}
