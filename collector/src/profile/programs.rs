//! Which functions are the program's own: what people can change, where the innermost functions of
//! a stack are the C library's or the kernel's.
//!
//! A program's own is what is in its file, but the standard libraries that are linked or inlined
//! there; and what is in its language, but what is installed with that. Where that language has own
//! functions on a stack, the native ones are its interpreter's. If nothing of that language is own,
//! an installed tool was run, whose package is.

use super::{
    Frame, FunctionId, Kind, Kinds, Mode, Names, PREEMPTED, Profile, Sample, SourceFrameId, is_root,
};
use crate::intern::HashMap;
use engine::wire::source::OFF_CPU;

/// How much a frame is the program's; of what is the most on a stack, the innermost counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The kernel's, or no function.
    Foreign,
    /// The C library, or the standard library of a language.
    Standard,
    /// Another library.
    Library,
    /// In the program's file.
    Native,
    /// In the program's language.
    Language,
}

/// The rank of each frame.
#[derive(Debug)]
pub struct Ranks(Vec<Rank>);

impl Ranks {
    /// Of a profile's frames.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let kinds = Kinds::of(profile);
        let frames = profile.frames.iter();
        let mut ranks: Vec<_> = frames.map(|frame| rank(profile, &kinds, frame)).collect();
        let sourced = languages_with_sources(profile);
        for (rank, frame) in ranks.iter_mut().zip(&profile.frames) {
            let function = profile.function(frame);
            if let Mode::Language(id) = function.mode
                && function.source.is_none()
                && sourced[id.index()]
            {
                *rank = Rank::Standard; // what the language itself brings
            }
        }
        if !ranks.contains(&Rank::Language) {
            let run = package_run(profile, &kinds);
            for (rank, frame) in ranks.iter_mut().zip(&profile.frames) {
                if run.is_some() && package_of(profile, &kinds, frame) == run {
                    *rank = Rank::Language;
                }
            }
        }
        Self(ranks)
    }

    /// Of a frame.
    #[must_use]
    pub fn rank(&self, frame: SourceFrameId) -> Rank {
        self.0[frame.index()]
    }
}

impl Profile {
    /// What was spent in each function itself, the most first.
    #[must_use]
    pub fn busiest(&self, names: Names) -> Vec<(FunctionId, u64)> {
        self.busiest_of(&self.alike(names))
    }

    fn busiest_of(&self, alike: &[FunctionId]) -> Vec<(FunctionId, u64)> {
        self.sums(self.weighed(), alike, |sample| Some(self.leaf(sample)))
    }

    fn leaf(&self, sample: &Sample) -> FunctionId {
        let leaf = self.stacks[sample.stack.index()].frame;
        self.frames[leaf.index()].function
    }

    /// What was spent in each of the program's own functions or in what it called of others', the
    /// most first; nothing if the busiest of all is the program's own.
    #[must_use]
    pub fn own_functions(&self, names: Names) -> Vec<(FunctionId, u64)> {
        let found = self.own_of_stacks();
        let alike = self.alike(names);
        let own = self.sums(self.weighed(), &alike, |sample| {
            let (rank, function) = found[sample.stack.index()];
            (rank >= Rank::Native).then_some(function)
        });
        let first = |sums: &[(FunctionId, u64)]| sums.first().map(|(function, _)| *function);
        match first(&own) == first(&self.busiest_of(&alike)) {
            true => Vec::new(),
            false => own,
        }
    }

    /// In which of the program's own functions its threads waited, or in what they called, the most
    /// first.
    #[must_use]
    pub fn waits(&self, names: Names) -> Vec<(FunctionId, u64)> {
        let found = self.own_of_stacks();
        let waits = self
            .all_samples()
            .filter(|sample| sample.event == OFF_CPU)
            .filter(|sample| &*self.functions[self.leaf(sample).index()].name != PREEMPTED);
        self.sums(waits, &self.alike(names), |sample| {
            let (rank, function) = found[sample.stack.index()];
            (rank > Rank::Foreign).then_some(function)
        })
    }

    /// Of each stack the innermost function of those that are the most the program's.
    fn own_of_stacks(&self) -> Vec<(Rank, FunctionId)> {
        let ranks = Ranks::of(self);
        let mut found: Vec<(Rank, FunctionId)> = Vec::with_capacity(self.stacks.len());
        for call in &self.stacks {
            // A parent comes before its children.
            let above = call.parent.map(|parent| found[parent.index()]);
            let here = ranks.rank(call.frame);
            let function = self.frames[call.frame.index()].function;
            let more = above.filter(|(rank, _)| *rank > here);
            found.push(more.unwrap_or((here, function)));
        }
        found
    }

    fn sums<'a>(
        &self,
        samples: impl Iterator<Item = &'a Sample>,
        alike: &[FunctionId],
        of: impl Fn(&Sample) -> Option<FunctionId>,
    ) -> Vec<(FunctionId, u64)> {
        let mut sums = vec![0u64; self.functions.len()];
        for sample in samples {
            if let Some(function) = of(sample) {
                let sum = &mut sums[alike[function.index()].index()];
                *sum = sum.saturating_add(self.time_ns(sample));
            }
        }
        let sums = sums.into_iter().enumerate().filter(|(_, sum)| *sum > 0);
        let mut sums: Vec<_> = sums
            .map(|(index, sum)| (FunctionId::next_of(index), sum))
            .collect();
        sums.sort_by_key(|(function, sum)| (std::cmp::Reverse(*sum), *function));
        sums
    }
}

fn rank(profile: &Profile, kinds: &Kinds, frame: &Frame) -> Rank {
    let function = profile.function(frame);
    let file = frame.file.as_deref().unwrap_or_default();
    match kinds.kind(function) {
        Kind::Kernel | Kind::Missing => Rank::Foreign,
        _ if is_root(&function.name) => Rank::Standard,
        Kind::Language(_) if is_installed(function.source.as_deref().unwrap_or(file)) => {
            Rank::Library
        }
        Kind::Language(_) => Rank::Language,
        _ if is_standard(function.called(Names::Short), file) => Rank::Standard,
        Kind::Program | Kind::Anonymous => Rank::Native,
        Kind::Library if is_c_library(profile.image_name(function)) => Rank::Standard,
        Kind::Library => Rank::Library,
    }
}

/// Of each language whether it says where functions are: those of which it does not are its own.
fn languages_with_sources(profile: &Profile) -> Vec<bool> {
    let mut found = vec![false; profile.recording.languages.len()];
    for function in &profile.functions {
        if let (Mode::Language(id), Some(_)) = (function.mode, &function.source) {
            found[id.index()] = true;
        }
    }
    found
}

/// The package that most of the time was spent in or below, where it is the outermost on a stack:
/// what came with the language calls the one that is run.
fn package_run<'a>(profile: &'a Profile, kinds: &Kinds) -> Option<&'a str> {
    let frames = profile.frames.iter();
    let packages = frames.map(|frame| package_of(profile, kinds, frame));
    let packages: Vec<_> = packages.collect();
    packages.iter().flatten().next()?;
    let mut outermost: Vec<Option<&str>> = Vec::with_capacity(profile.stacks.len());
    for call in &profile.stacks {
        // A parent comes before its children.
        let above = call.parent.and_then(|parent| outermost[parent.index()]);
        outermost.push(above.or(packages[call.frame.index()]));
    }
    let mut times: HashMap<&str, u64> = HashMap::default();
    for sample in profile.weighed() {
        if let Some(package) = outermost[sample.stack.index()] {
            let sum = times.entry(package).or_default();
            *sum = sum.saturating_add(profile.time_ns(sample));
        }
    }
    let most = times.into_iter().max_by_key(|(name, time)| (*time, *name));
    most.map(|(package, _)| package)
}

fn package_of<'a>(profile: &'a Profile, kinds: &Kinds, frame: &'a Frame) -> Option<&'a str> {
    let function = profile.function(frame);
    let source = function.source.as_deref().or(frame.file.as_deref())?;
    matches!(kinds.kind(function), Kind::Language(_)).then_some(())?;
    package(source)
}

/// The directory of the package that a source file is in, or the file, if it is one by itself.
fn package(file: &str) -> Option<&str> {
    const INSTALLED: [&str; 3] = ["/node_modules/", "/site-packages/", "/dist-packages/"];
    let behind = |place: &str| file.rfind(place).map(|at| at + place.len());
    let begin = INSTALLED.into_iter().filter_map(behind).max()?;
    let depth = match file[begin..].starts_with('@') {
        true => 2, // of somebody's, who is named first
        false => 1,
    };
    let mut ends = file[begin..].match_indices('/').map(|(at, _)| begin + at);
    Some(&file[..ends.nth(depth - 1).unwrap_or(file.len())])
}

fn is_c_library(file: &str) -> bool {
    [
        "libc.so",
        "libpthread.so",
        "ld-linux",
        "ld-musl",
        "libc-2.",
        "[vdso]",
    ]
    .iter()
    .any(|name| file.starts_with(name))
}

/// Of C++, Rust and Go, whose standard libraries become part of programs; and the stubs by which a
/// program calls any library.
fn is_standard(name: &str, file: &str) -> bool {
    const NAMES: [&str; 11] = [
        "std::",
        "core::",
        "alloc::",
        "<std::",
        "<core::",
        "<alloc::",
        "__gnu_cxx::",
        "runtime.",
        "internal/",
        "sync.(",
        "time.Sleep",
    ];
    const FILES: [&str; 3] = ["/rustc/", "/usr/include/c++/", "/usr/local/go/src/"];
    NAMES.iter().any(|begin| name.starts_with(begin))
        || name.ends_with("@plt")
        || FILES.iter().any(|begin| file.starts_with(begin))
        || file.contains("/rustlib/src/")
}

/// Whether a source file of a language came with it, or as a package.
fn is_installed(file: &str) -> bool {
    file.starts_with("node:")
        || file.starts_with("<frozen")
        || file.contains("/lib/python")
        || file.contains("/node_modules/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;
    use crate::recording::LanguageId;

    #[test]
    fn standard_libraries_are_nobodys_own() {
        assert!(is_standard("std::this_thread::sleep_for", "a.cpp"));
        assert!(is_standard("memcmp@plt", ""));
        assert!(is_standard(
            "wait<…>",
            "/rustc/0123/library/std/src/sync/mod.rs"
        ));
        assert!(!is_standard("stdio_loop", "/home/me/a.c"));
        assert!(is_installed("/usr/lib/python3.11/threading.py"));
        assert!(!is_installed("/home/me/server.py"));
        assert!(is_c_library("libc.so.6") && !is_c_library("libcurl.so.4"));
    }

    #[test]
    fn packages_are_where_they_are_installed() {
        let tsc = "/a/node_modules/typescript";
        assert_eq!(package(&format!("{tsc}/lib/tsc.js")), Some(tsc));
        let inner = "/a/node_modules/x/node_modules/@who/y";
        assert_eq!(package(&format!("{inner}/z.js")), Some(inner));
        let six = "/usr/lib/python3/dist-packages/six.py";
        assert_eq!(package(six), Some(six));
        assert_eq!(package("/usr/lib/python3.11/threading.py"), None);
    }

    #[test]
    fn of_an_installed_tool_its_package_is_own() {
        let mut profile = example();
        profile.recording.languages = vec!["javascript".to_owned()];
        let tool = "/a/node_modules/tool/main.js";
        // `main` called `work`, which called `leaf`.
        let sources = [("main", "node:internal"), ("work; more", tool)];
        let other = "/a/node_modules/other/index.js";
        for function in &mut profile.functions {
            let mut sources = sources.into_iter().chain([("leaf", other)]);
            if let Some((_, source)) = sources.find(|(name, _)| **name == *function.name) {
                function.mode = Mode::Language(LanguageId::new(0));
                function.source = Some(source.into());
            }
        }
        let ranks = |profile: &Profile| {
            let ranks = Ranks::of(profile);
            let of = |name: &str| {
                let is_it = |frame: &Frame| *profile.function(frame).name == *name;
                let place = profile.frames.iter().position(is_it).unwrap();
                ranks.rank(SourceFrameId::next_of(place))
            };
            ["main", "work; more", "leaf"].map(of)
        };
        let tool = [Rank::Library, Rank::Language, Rank::Library];
        assert_eq!(ranks(&profile), tool);
        for function in &mut profile.functions {
            if &*function.name == "leaf" {
                function.source = Some("/home/me/mine.js".into());
            }
        }
        let mine = [Rank::Library, Rank::Library, Rank::Language];
        assert_eq!(ranks(&profile), mine, "they are called by a tool");
        for function in &mut profile.functions {
            if &*function.name == "leaf" {
                function.source = None;
            }
        }
        let built_in = [Rank::Library, Rank::Language, Rank::Standard];
        assert_eq!(ranks(&profile), built_in, "of no file, as forEach is");
    }

    #[test]
    fn what_was_spent_below_a_function_of_the_program_is_spent_for_it() {
        let mut profile = example();
        let own = |profile: &Profile| -> Vec<(String, u64)> {
            let name = |id: FunctionId| profile.functions[id.index()].name.to_string();
            let own = profile.own_functions(Names::Whole).into_iter();
            own.map(|(id, ns)| (name(id), ns / 1_000_000)).collect()
        };
        assert_eq!(own(&profile), [], "the busiest is its own");
        for function in &mut profile.functions {
            if &*function.name == "leaf" {
                function.name = "std::leaf".into();
            }
        }
        // Two of them in `leaf` called by `work`, one by `main`, one by what was left out.
        let expected = [("work; more", 5), ("main", 2)];
        let expected = expected.map(|(name, ms)| (name.to_owned(), ms));
        assert_eq!(own(&profile), expected);
    }
}
