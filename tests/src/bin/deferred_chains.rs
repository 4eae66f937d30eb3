//! `deferred_chains PERF_DATA RECORDING PROGRAM`: compares the stacks that a program took of itself
//! with those that the kernel found of it by frame pointers, in a `perf record` of the same time
//! (`--call-graph fp,defer -k mono`). `tests/kernel/run` runs it inside that kernel.
//!
//! A kernel sample is compared with the chain of its cookie, a sample of user mode with the chain
//! that the kernel took on the way back from the interrupt: the thread's newest before our handler
//! ran. The exit status is 0 if enough were compared, 99.9 % are equal but for what frame pointers
//! cannot know, which is told from the instruction at the leaf and from where the chain begins, and
//! 95 % without any such allowance.
//!
//! With `--forge` every cookie is another entry's, and every time 5 ms earlier: then it must fail.

use collector::correlate;
use collector::recording::{KernelHalf, Module, RawFrame, RawSample, Recording};
use engine::address::{CodeAddress, RuntimeAddress};
use object::{Object, ObjectSegment};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::process::ExitCode;

/// The least that is compared, of each kind.
const ENOUGH: u64 = 200;

/// Where a stack differs, the kernel's chains of its thread are shown that were taken so near in
/// time, ns.
const SHOWN_NS: u64 = 5_000_000;

/// What the kernel found.
#[derive(Default)]
struct Chains {
    by_cookie: HashMap<(u32, u64), Vec<u64>>,
    by_time: HashMap<u32, BTreeMap<u64, Vec<u64>>>,
}

/// How the stack of one entry and the kernel's chain of it compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Equal,
    /// The chain lacks the leaf's caller, because the leaf had not set up its frame yet, or had
    /// taken it down.
    WithoutCaller,
    /// The kernel was asked while it delivered our signal: the chain begins in our handler, and the
    /// callers are the same.
    AtHandler,
    Different,
    /// There is no chain.
    Missing,
    /// The sample hit our handler: there is a chain of that, and the stack was taken behind it,
    /// without asking the kernel again.
    InHandler,
}

const NAMES: [(Verdict, &str); 6] = [
    (Verdict::Equal, "equal"),
    (
        Verdict::WithoutCaller,
        "equal but for the caller of a leaf that had no frame",
    ),
    (
        Verdict::AtHandler,
        "equal but for the leaf, asked for during delivery of our signal",
    ),
    (Verdict::Different, "different"),
    (Verdict::Missing, "without a chain"),
    (
        Verdict::InHandler,
        "not compared, the sample hit our handler",
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, files): (Vec<&str>, Vec<&str>) = arguments
        .iter()
        .map(String::as_str)
        .partition(|argument| argument.starts_with("--"));
    let [perf_data, recording, program] = files[..] else {
        eprintln!("usage: deferred_chains [--forge] PERF_DATA RECORDING PROGRAM");
        return ExitCode::from(2);
    };
    match compare(perf_data, recording, program, !options.is_empty()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("deferred_chains: {error}");
            ExitCode::from(2)
        }
    }
}

fn compare(
    perf_data: &str,
    recording: &str,
    program: &str,
    forged: bool,
) -> Result<bool, Box<dyn Error>> {
    let compared = Compared {
        chains: Chains::read(&fs::read(perf_data)?)?,
        recording: correlate::read(&[recording])?,
        image: fs::read(program)?,
        program,
    };
    let (mut by_cookie, mut by_time) = (BTreeMap::new(), BTreeMap::new());
    let mut seen = HashSet::new();
    for sample in &compared.recording.samples {
        let tid = compared.recording.threads[sample.thread.index()].tid;
        let leaf = compared.leaf(sample);
        let here = leaf.is_some_and(|(module, _)| module.path == program);
        if sample.event != 0 || !here {
            continue;
        }
        let (outcome, verdict) = match sample.kernel {
            KernelHalf::None => {
                let time = sample.time_ns - if forged { 5_000_000 } else { 0 };
                (&mut by_time, compared.by_time(sample, tid, time))
            }
            KernelHalf::Merged | KernelHalf::Reused if seen.insert((tid, sample.cookie)) => {
                let cookie = sample.cookie.wrapping_add(u64::from(forged) << 33);
                (&mut by_cookie, compared.by_cookie(sample, tid, cookie))
            }
            _ => continue,
        };
        *outcome.entry(verdict).or_insert(0u64) += 1;
        if verdict == Verdict::Different && !forged {
            compared.show(sample, tid);
        }
    }
    println!("kernel samples: {}", compared.recording.kernel_account());
    let good = [("cookie", by_cookie), ("time", by_time)].map(|(name, outcome)| {
        let count = |verdict| outcome.get(&verdict).copied().unwrap_or(0);
        let all: u64 = outcome.values().sum();
        let told = NAMES.map(|(verdict, name)| format!("{} {name}", count(verdict)));
        println!("by {name}: {all} compared: {}", told.join(", "));
        let bad = count(Verdict::Different) + count(Verdict::Missing);
        all >= ENOUGH && bad * 1000 <= all && count(Verdict::Equal) * 100 >= all * 95
    });
    Ok(good == [true; 2])
}

/// Both sides.
struct Compared<'a> {
    chains: Chains,
    recording: Recording,
    image: Vec<u8>,
    /// Path of the program.
    program: &'a str,
}

impl Compared<'_> {
    fn by_cookie(&self, sample: &RawSample, tid: u32, cookie: u64) -> Verdict {
        let chain = self.chains.by_cookie.get(&(tid, cookie));
        chain.map_or(Verdict::Missing, |chain| self.judge(sample, chain))
    }

    /// Chains that the kernel took of our handler, which is sampled, too, are passed over.
    fn by_time(&self, sample: &RawSample, tid: u32, time_ns: u64) -> Verdict {
        let chains = self.chains.by_time.get(&tid);
        let newest = chains
            .into_iter()
            .flat_map(|all| all.range(..time_ns).rev());
        let mut found = Verdict::Missing;
        for (_, chain) in newest {
            let verdict = self.judge(sample, chain);
            let different = verdict == Verdict::Different;
            if different && self.is_elsewhere(chain) {
                found = Verdict::InHandler;
            } else if different && found == Verdict::InHandler {
                break;
            } else {
                return verdict;
            }
        }
        found
    }

    fn judge(&self, sample: &RawSample, chain: &[u64]) -> Verdict {
        let stack = self.stack(sample);
        match (chain, &stack[..]) {
            _ if chain == stack => Verdict::Equal,
            ([a, callers @ ..], [b, _, others @ ..])
                if a == b && callers == others && self.leaf_has_no_frame(sample) =>
            {
                Verdict::WithoutCaller
            }
            ([_, callers @ ..], [_, others @ ..])
                if callers == others && self.is_elsewhere(chain) =>
            {
                Verdict::AtHandler
            }
            _ => Verdict::Different,
        }
    }

    /// Tells of a sample what the kernel found of its thread about then.
    fn show(&self, sample: &RawSample, tid: u32) {
        let stack = self.stack(sample);
        println!("different: {tid} at {}: {stack:x?}", sample.time_ns);
        let about = sample.time_ns.saturating_sub(SHOWN_NS)..sample.time_ns + SHOWN_NS;
        let chains = self.chains.by_time.get(&tid);
        for (time, chain) in chains.into_iter().flat_map(|all| all.range(about.clone())) {
            println!("    kernel at {time}: {chain:x?}");
        }
    }

    /// The user's part of a stack as plain addresses, from the leaf.
    fn stack(&self, sample: &RawSample) -> Vec<u64> {
        let frames = self.recording.walk(sample.stack);
        let code = frames.filter_map(|frame| match frame {
            RawFrame::Code { frame, .. } => Some(address(frame)),
            _ => None,
        });
        code.collect()
    }

    /// The leaf in user mode, with its module.
    fn leaf(&self, sample: &RawSample) -> Option<(&Module, u64)> {
        let mut frames = self.recording.walk(sample.stack);
        frames.find_map(|frame| match frame {
            RawFrame::Code { frame, module, .. } => {
                Some((&self.recording.modules[module?.index()], address(frame)))
            }
            _ => None,
        })
    }

    /// Whether a chain does not begin in the program, which calls nothing: it is of our handler,
    /// and what that calls.
    fn is_elsewhere(&self, chain: &[u64]) -> bool {
        let own = |module: &&Module| module.path == self.program;
        chain.first().is_some_and(|leaf| {
            let mut own = self.recording.modules.iter().filter(own);
            !own.any(|module| (module.start.0..module.end.0).contains(leaf))
        })
    }

    /// Whether the leaf stood before `push %rbp` or `mov %rsp,%rbp`, or at the `ret`.
    fn leaf_has_no_frame(&self, sample: &RawSample) -> bool {
        let code = self.leaf(sample).and_then(|(module, address)| {
            let file = object::File::parse(&self.image[..]).ok()?;
            let at = address.wrapping_sub(module.bias);
            let mut segments = file.segments();
            segments.find_map(|segment| segment.data_range(at, 4).ok().flatten())
        });
        let starts: [&[u8]; 3] = [&[0x55], &[0x48, 0x89, 0xe5], &[0xc3]];
        code.is_some_and(|code| starts.iter().any(|start| code.starts_with(start)))
    }
}

fn address(frame: CodeAddress) -> u64 {
    match frame {
        CodeAddress::Instruction(RuntimeAddress(address))
        | CodeAddress::Return(RuntimeAddress(address)) => address,
    }
}

/// Bits of `sample_type` with a word each at the end of every record, in their order there: TID,
/// TIME, ID, STREAM_ID, CPU, IDENTIFIER.
const TAIL: [u64; 6] = [1 << 1, 1 << 2, 1 << 6, 1 << 9, 1 << 7, 1 << 16];
const DEFERRED: u32 = 22;

impl Chains {
    /// Reads the deferred chains of a file, and nothing else of it. (`collector`'s own reader is
    /// what is being checked elsewhere.)
    fn read(file: &[u8]) -> Result<Self, Box<dyn Error>> {
        let long = |at: usize| {
            let bytes = file.get(at..at + 8).ok_or("the file ends early")?;
            Ok::<_, Box<dyn Error>>(u64::from_le_bytes(bytes.try_into()?))
        };
        if !file.starts_with(b"PERFILE2") {
            return Err("it is not a perf.data file".into());
        }
        let (attributes, data, length) = (long(24)? as usize, long(40)? as usize, long(48)?);
        let fields = long(attributes + 24)?;
        let tail: Vec<u64> = TAIL.into_iter().filter(|bit| fields & bit != 0).collect();
        let mut chains = Self::default();
        let mut at = data;
        while at < data + length as usize {
            let header = long(at)?;
            let (kind, size) = (header as u32, (header >> 48) as usize);
            if size < 8 {
                return Err(format!("a record of {size} bytes at {at:#x}").into());
            }
            if kind == DEFERRED {
                let (cookie, count) = (long(at + 8)?, long(at + 16)? as usize);
                let chain: Vec<u64> = (0..count)
                    .map(|index| long(at + 24 + 8 * index))
                    .collect::<Result<_, _>>()?;
                let of = |bit: u64| {
                    let place = tail.iter().position(|known| *known == bit);
                    let place = place.ok_or("its records have no thread or time")?;
                    long(at + size - 8 * (tail.len() - place))
                };
                let (tid, time) = ((of(TAIL[0])? >> 32) as u32, of(TAIL[1])?);
                let of_thread = chains.by_time.entry(tid).or_default();
                of_thread.insert(time, chain.clone());
                chains.by_cookie.insert((tid, cookie), chain);
            }
            at += size;
        }
        Ok(chains)
    }
}
