//! A profile as rows: each sample one, frames and stacks by their hashes.

use super::message::Packer;
use super::table::Table;
use crate::intern::HashMap;
use crate::profile::{CallId, Function, Mode, Profile, Sample, SourceFrameId};
use crate::visible::visible;
use serde::Serialize;
use std::collections::BTreeMap;
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

/// The rows of a window, packed.
///
/// # Errors
/// Those of compression into memory: none.
pub(crate) fn packed(profile: &Profile, window: &Window<'_>) -> io::Result<Vec<u8>> {
    let mut maker = Maker {
        profile,
        packer: Packer::new(),
        frames: HashMap::default(),
        stacks: HashMap::default(),
    };
    for sample in profile.weighed() {
        maker.stack(sample.stack)?;
    }
    maker.window(window)?;
    maker.packer.finish()
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

#[derive(Serialize)]
struct SampleRow<'a> {
    service: &'a str,
    time: String,
    host: &'a str,
    process: &'a str,
    pid: u32,
    thread: &'a str,
    tid: u32,
    language: &'a str,
    stack: u64,
    weight: u64,
    cpu_ns: u64,
    window: u64,
    regions: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct WindowRow<'a> {
    window: u64,
    service: &'a str,
    host: &'a str,
    begin: String,
    end: String,
    rows: u64,
    weight: u64,
    cpu_ns: u64,
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct StackRow<'a> {
    hash: u64,
    frames: &'a [u64],
}

#[derive(Serialize)]
struct FrameRow<'a> {
    hash: u64,
    function: &'a str,
    short: &'a str,
    file: &'a str,
    line: u32,
    binary: &'a str,
    build_id: &'a str,
    language: &'a str,
    inlined: u32,
}

struct Maker<'a> {
    profile: &'a Profile,
    packer: Packer,
    frames: HashMap<SourceFrameId, u64>,
    stacks: HashMap<CallId, u64>,
}

impl Maker<'_> {
    fn window(&mut self, window: &Window<'_>) -> io::Result<()> {
        let profile = self.profile;
        let attribute = |key: &str| window.attributes.get(key).map_or("", String::as_str);
        let (service, host) = (attribute("service.name"), attribute("host.name"));
        let id = window_id(window.attributes, window.from_ns, window.to_ns);
        let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e9);
        let (mut rows, mut weight, mut cpu_ns) = (0u64, 0u64, 0u64);
        for sample in profile.weighed() {
            let thread = &profile.recording.threads[sample.thread.index()];
            let process = &profile.recording.processes[thread.process.index()];
            let own_ns = profile.time_ns(sample);
            // A remainder has none of its own.
            let at = window.realtime_offset_ns.saturating_add(sample.time_ns);
            let at = at.clamp(window.from_ns, window.to_ns.max(window.from_ns));
            let thread_name = match &*thread.name {
                "" => process.name(),
                name => name,
            };
            let regions = profile.recording.labels.get(sample.labels).iter();
            let regions: BTreeMap<_, _> = regions.map(|(k, v)| (&**k, &**v)).collect();
            let row = SampleRow {
                service,
                time: ms(at),
                host,
                process: process.name(),
                pid: process.pid,
                thread: thread_name,
                tid: thread.tid,
                language: language_of(profile, sample),
                stack: self.stacks.get(&sample.stack).copied().unwrap_or(0),
                weight: sample.weight,
                cpu_ns: own_ns,
                window: id,
                regions,
            };
            rows += 1;
            weight = weight.saturating_add(sample.weight);
            cpu_ns = cpu_ns.saturating_add(own_ns);
            self.packer.push(Table::Samples, 0, &row)?;
        }
        let row = WindowRow {
            window: id,
            service,
            host,
            begin: ms(window.from_ns),
            end: ms(window.to_ns),
            rows,
            weight,
            cpu_ns,
            labels: window.attributes,
        };
        self.packer.push(Table::Windows, 0, &row)
    }

    fn stack(&mut self, id: CallId) -> io::Result<()> {
        if self.stacks.contains_key(&id) {
            return Ok(());
        }
        let mut frames = Vec::new();
        let mut at = Some(id);
        while let Some(call) = at.and_then(|id| self.profile.stacks.get(id.index())) {
            frames.push(self.frame(call.frame)?);
            at = call.parent;
        }
        let mut hasher = XxHash64::with_seed(0);
        frames.iter().for_each(|frame| hasher.write_u64(*frame));
        let hash = hasher.finish();
        self.stacks.insert(id, hash);
        let row = StackRow {
            hash,
            frames: &frames,
        };
        self.packer.push(Table::Stacks, hash, &row)
    }

    fn frame(&mut self, id: SourceFrameId) -> io::Result<u64> {
        if let Some(hash) = self.frames.get(&id) {
            return Ok(*hash);
        }
        let profile = self.profile;
        let frame = &profile.frames[id.index()];
        let function = profile.function(frame);
        let image = function.image.map(|id| &profile.symbols.images[id.index()]);
        let binary = image.map_or("", |image| &*image.path);
        let build_id = image.map(crate::symbolize::Image::build_id_text);
        let build_id = build_id.unwrap_or_default();
        let file = frame.file.as_deref().or(function.source.as_deref());
        let language = language(profile, function);
        let short = function.short.as_deref().unwrap_or("");
        let texts = [
            &*function.name,
            short,
            file.unwrap_or(""),
            binary,
            &build_id,
            language,
        ];
        let mut hasher = XxHash64::with_seed(0);
        texts.iter().for_each(|one| text(&mut hasher, one));
        hasher.write_u32(frame.line);
        hasher.write_u32(frame.inline_depth);
        let hash = hasher.finish();
        self.frames.insert(id, hash);
        let [name, short, file, binary, build_id, language] = texts.map(visible);
        let row = FrameRow {
            hash,
            function: &name,
            short: &short,
            file: &file,
            line: frame.line,
            binary: &binary,
            build_id: &build_id,
            language: &language,
            inlined: frame.inline_depth,
        };
        self.packer.push(Table::Frames, hash, &row)?;
        Ok(hash)
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

/// With its end, so that two texts are not another two.
fn text(hasher: &mut XxHash64, text: &str) {
    hasher.write(text.as_bytes());
    hasher.write_u8(0xff);
}
