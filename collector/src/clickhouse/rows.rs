//! A profile as rows: each sample one, frames and stacks by their hashes.

use super::message::Rows;
use super::native::Block;
use crate::intern::{HashMap, Strings};
use crate::profile::{CallId, Function, Mode, Profile, Sample, SourceFrameId};
use crate::symbolize::Image;
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
    let images = profile.symbols.images.iter();
    let build_ids: Vec<String> = images.map(Image::build_id_text).collect();
    let mut maker = Maker {
        profile,
        build_ids: &build_ids,
        rows: Rows::default(),
        strings: Strings::default(),
        frames: vec![None; profile.frames.len()],
        hashes: String::new(),
        ends: Vec::new(),
        stacks: HashMap::default(),
        text: String::new(),
    };
    for sample in profile.weighed() {
        maker.stack(sample.stack);
    }
    maker.window(window)?;
    maker.rows.strings = maker.strings.list();
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
    /// Of its images.
    build_ids: &'a [String],
    rows: Rows,
    strings: Strings,
    /// Places in the rows, of each of the profile's frames.
    frames: Vec<Option<u32>>,
    /// The hashes of the frames in the rows, as text, and where each ends in it.
    hashes: String,
    ends: Vec<usize>,
    stacks: HashMap<CallId, u64>,
    /// Of the stack that is made.
    text: String,
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
        samples.texts("service", all().map(|_| service));
        samples.times("time", all().map(time));
        samples.texts("host", all().map(|_| host));
        samples.texts("process", all().map(|sample| process(sample).name()));
        samples.u32s("pid", all().map(|sample| process(sample).pid));
        samples.texts("thread", all().map(thread_name));
        samples.u32s("tid", all().map(|sample| thread(sample).tid));
        samples.texts("language", all().map(|one| language_of(profile, one)));
        let hash = |sample: &Sample| self.stacks.get(&sample.stack).copied().unwrap_or(0);
        samples.u64s("stack", all().map(hash));
        samples.u32s("weight", all().map(|sample| small(sample.weight)));
        samples.u64s("cpu_ns", all().map(|sample| profile.time_ns(sample)));
        samples.u64s("window", all().map(|_| id));
        samples.maps("regions", all().map(regions));
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
        // As the table's definition has it.
        self.text.clear();
        let mut depth = 0;
        let mut at = Some(id);
        while let Some(call) = at.and_then(|id| self.profile.stacks.get(id.index())) {
            let place = self.frame(call.frame);
            if depth > 0 {
                self.text.push(',');
            }
            let mut ends = self.ends[..=place as usize].iter().rev();
            let end = ends.next().copied().unwrap_or(0);
            let begin = ends.next().copied().unwrap_or(0);
            self.text.push_str(&self.hashes[begin..end]);
            self.rows.stacks.frames.push(place);
            depth += 1;
            at = call.parent;
        }
        let hash = XxHash64::oneshot(0, self.text.as_bytes());
        self.stacks.insert(id, hash);
        self.rows.stacks.hash.push(hash);
        self.rows.stacks.depth.push(depth);
    }

    fn frame(&mut self, id: SourceFrameId) -> u32 {
        if let Some(place) = self.frames[id.index()] {
            return place;
        }
        let profile = self.profile;
        let frame = &profile.frames[id.index()];
        let function = profile.function(frame);
        let image = function.image.map(|id| &profile.symbols.images[id.index()]);
        let binary = image.map_or("", |image| &*image.path);
        let build_id = function.image.and_then(|id| self.build_ids.get(id.index()));
        let file = frame.file.as_deref().or(function.source.as_deref());
        let texts = [
            &*function.name,
            function.short.as_deref().unwrap_or(""),
            file.unwrap_or(""),
            binary,
            build_id.map_or("", String::as_str),
            language(profile, function),
        ]
        .map(visible);
        let mut hasher = XxHash64::with_seed(0);
        texts.iter().for_each(|one| text(&mut hasher, one));
        hasher.write_u32(frame.line);
        hasher.write_u32(frame.inline_depth);
        let hash = hasher.finish();
        let _ = write!(self.hashes, "{hash}");
        self.ends.push(self.hashes.len());
        let [function, short, file, binary, build_id, language] =
            texts.map(|text| self.strings.place(&text));
        let frames = &mut self.rows.frames;
        let place = small(frames.hash.len() as u64);
        frames.hash.push(hash);
        frames.function.push(function);
        frames.short.push(short);
        frames.file.push(file);
        frames.line.push(frame.line);
        frames.binary.push(binary);
        frames.build_id.push(build_id);
        frames.language.push(language);
        frames.inlined.push(frame.inline_depth);
        self.frames[id.index()] = Some(place);
        place
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

/// With its end, so that two texts are not another two.
fn text(hasher: &mut XxHash64, text: &str) {
    hasher.write(text.as_bytes());
    hasher.write_u8(0xff);
}
