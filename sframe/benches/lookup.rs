//! How long it takes to find the row for an address: in `.sframe` with this crate and with
//! simple-frame-rs, and in `.eh_frame` with gimli, whose binary-search table and interpreter are
//! those in-process unwinders use.
//!
//! `cargo bench -p sframe-unwind [-- FILE]`. FILE is a program with `.eh_frame` and
//! `.eh_frame_hdr`, without argument the compiler's own library, which has far more than the 50,000
//! functions asked for; `.sframe` is made from it.
//!
//! Four situations, all without any cache of rules. *Repeated*: two thousand addresses over and
//! over, which the processor's caches come to hold the tables of; it is the work itself that is
//! measured. *Random*: an address anywhere in the program, each looked up once; of the tables, the
//! processor's caches hold what they hold. *Cold*: the frames of the first ten stacks of a process,
//! on average over them, with the processor's caches emptied before the first. *Evicted*: the
//! caches emptied before every single look-up, so that of the code, too, nothing is left in them.
//!
//! The last line is what no look-up can be faster than that reads a hint, an entry and a row, each
//! where the one before says: those three reads, and nothing else. They wait for those of the
//! look-up before, as in an unwinder, which learns the next address from the row.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gimli::{BaseAddresses, EhFrameHdr, EndianSlice, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection};
use sframe_unwind::{Abi, Address, Conversion, EhFrame, Encoder, IndexedSection, Section, Version};

const REPEATED: usize = 2_000;
const RANDOM: usize = 100_000;
/// Frames of the first ten stacks of a process, at 60 frames a stack.
const FIRST: usize = 600;
const EVICTED: usize = 150;
const PASSES: usize = 5;
/// More than any cache of the last level.
const EVICTION_BYTES: usize = 64 << 20;

fn main() {
    // cargo passes --bench to every benchmark, and --test where it wants to know only whether it
    // runs.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"))
        .map(PathBuf::from);
    let path = file.unwrap_or_else(compiler_library);
    let program = Program::read(&path);
    let conversion =
        EhFrame::new(&program.eh_frame.0, Address(program.eh_frame.1), Abi::Amd64).convert();
    // Those that every version can say, so that all look up the same.
    let mut probe = Encoder::new(Version::V2, Abi::Amd64).expect("an encoder");
    let mut can_say = |rows| probe.push(rows).is_ok();
    let rows = conversion
        .functions
        .iter()
        .filter_map(|function| function.rows.as_ref().ok());
    let functions: Vec<(u64, u64)> = rows
        .filter(|f| f.size > 0 && can_say(f))
        .map(|f| (f.start.0, f.size.into()))
        .collect();
    assert!(
        functions.len() >= 50_000,
        "{} has only {} functions",
        path.display(),
        functions.len()
    );
    let sections = [
        ("version 2", encode(&conversion, Version::V2, false)),
        (
            "version 2, rows shared",
            encode(&conversion, Version::V2, true),
        ),
        ("version 3", encode(&conversion, Version::V3, false)),
        (
            "version 3, rows shared",
            encode(&conversion, Version::V3, true),
        ),
    ];
    println!(
        "{}: {} functions, of {}\n",
        path.display(),
        functions.len(),
        conversion.functions.len()
    );
    print_sizes(&program, &sections);
    let pcs = addresses(&functions);
    println!(
        "
{:<46}{:>11}{:>6}{:>11}{:>6}{:>11}{:>6}{:>11}{:>6}",
        "a look-up", "repeated", "ratio", "random", "ratio", "cold", "ratio", "evicted", "ratio"
    );
    let gimli = program.measure_gimli(&pcs);
    print_times(".eh_frame, gimli", gimli, gimli);
    for (name, (bytes, address)) in &sections {
        let section = Section::new(bytes, *address).expect("a section");
        let times = measure(&pcs, |pc| {
            section.lookup(Address(pc)).expect("a row").expect("a row")
        });
        print_times(&format!(".sframe {name}, this crate"), times, gimli);
        let mut hints = vec![0; IndexedSection::recommended_len(&section)];
        let indexed = IndexedSection::new(section, &mut hints);
        let times = measure(&pcs, |pc| {
            indexed.lookup(Address(pc)).expect("a row").expect("a row")
        });
        print_times(&format!(".sframe {name}, with hints"), times, gimli);
    }
    for (name, (bytes, address)) in &sections {
        let section = simple_frame_rs::SFrameSection::from(bytes, address.0).expect("a section");
        let times = measure(&pcs, |pc| {
            let fde = section.find_fde(pc).expect("a function")?;
            let fre = fde.find_fre(&section, pc).expect("rows")?;
            let offset = fre.get_cfa_offset(&section);
            Some((
                fre.get_cfa_base_reg_id(),
                offset.ok(),
                fre.get_fp_offset(&section).ok(),
            ))
        });
        print_times(&format!(".sframe {name}, simple-frame-rs"), times, gimli);
    }
    let (name, (bytes, address)) = &sections[sections.len() - 1];
    let times = measure_bound(&pcs, bytes, *address);
    print_times(&format!("three reads of {name}"), times, gimli);
}

/// Reads a hint, an entry and the beginning of the rows for each address, one after the other, and
/// does nothing with them.
fn measure_bound(pcs: &[u64], bytes: &[u8], address: Address) -> Times {
    let section = Section::new(bytes, address).expect("a section");
    let hints = vec![0_u32; IndexedSection::recommended_len(&section)];
    let start = |position| {
        let function = section.function(position).expect("a function");
        function.expect("its entry").start().0
    };
    let (first, last) = (start(0), start(section.function_count() - 1));
    let places = |pc: &u64| {
        let hint = (pc - first).min(last - first) as usize * (hints.len() - 1);
        let function = section.function_at(Address(*pc)).expect("an entry");
        let entry = function.expect("a function").entry_offset() as usize;
        let rows = u32::from_le_bytes(bytes[entry + 12..entry + 16].try_into().expect("a word"));
        let rows = section.header().rows_start() as usize + rows as usize;
        [hint / (last - first) as usize, entry, rows]
    };
    let places: Vec<[usize; 3]> = pcs.iter().map(places).collect();
    // The compiler cannot know that what is read adds nothing to the next place.
    let nothing = black_box(0);
    let mut before = 0;
    measure(&places, |[hint, entry, rows]| {
        let hint = hint + (usize::from(before) & nothing);
        let entry = entry + (hints[hint] as usize & nothing);
        let rows = rows + (usize::from(bytes[entry]) & nothing);
        before = bytes[rows];
        before
    })
}

fn compiler_library() -> PathBuf {
    let output = std::process::Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .expect("rustc");
    let directory =
        PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim()).join("lib");
    let entries = std::fs::read_dir(&directory).expect("the compiler's libraries");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let is_driver = |path: &PathBuf| path.to_string_lossy().contains("librustc_driver");
    paths.find(is_driver).expect("librustc_driver")
}

/// A section and where it lies.
type Table = (Vec<u8>, u64);

struct Program {
    eh_frame: Table,
    eh_frame_hdr: Table,
}

impl Program {
    fn read(path: &std::path::Path) -> Self {
        let bytes = std::fs::read(path).expect("a program");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        assert_eq!(file.architecture(), object::Architecture::X86_64);
        let table = |name| {
            let section = file
                .section_by_name(name)
                .unwrap_or_else(|| panic!("no {name}"));
            (
                section.data().expect("its bytes").to_vec(),
                section.address(),
            )
        };
        Self {
            eh_frame: table(".eh_frame"),
            eh_frame_hdr: table(".eh_frame_hdr"),
        }
    }

    fn measure_gimli(&self, pcs: &[u64]) -> Times {
        let bases = BaseAddresses::default()
            .set_eh_frame(self.eh_frame.1)
            .set_eh_frame_hdr(self.eh_frame_hdr.1);
        let eh_frame = gimli::EhFrame::new(&self.eh_frame.0, LittleEndian);
        let header = EhFrameHdr::new(&self.eh_frame_hdr.0, LittleEndian)
            .parse(&bases, 8)
            .expect("a table");
        let table = header.table().expect("a table");
        let mut context: UnwindContext<usize> = UnwindContext::new();
        type Frame<'a> = gimli::EhFrame<EndianSlice<'a, LittleEndian>>;
        measure(pcs, |pc| {
            let row = table.unwind_info_for_address(
                &eh_frame,
                &bases,
                &mut context,
                pc,
                Frame::cie_from_offset,
            );
            let row = row.expect("a row");
            (
                row.cfa().clone(),
                row.register(gimli::X86_64::RA),
                row.register(gimli::X86_64::RBP),
            )
        })
    }
}

fn encode(conversion: &Conversion, version: Version, sharing: bool) -> (Vec<u8>, Address) {
    let address = Address(
        conversion
            .functions
            .iter()
            .map(|function| function.start.0)
            .max()
            .unwrap_or(0)
            + (1 << 20),
    );
    let mut encoder = Encoder::new(version, Abi::Amd64).expect("an encoder");
    if sharing {
        encoder = encoder.sharing_rows();
    }
    let rows = conversion
        .functions
        .iter()
        .filter(|function| function.size > 0)
        .filter_map(|f| f.rows.as_ref().ok());
    let refused = rows.filter(|rows| encoder.push(rows).is_err()).count();
    if !sharing {
        println!("{refused} functions cannot be said in {version:?}");
    }
    (encoder.finish(address).expect("a section"), address)
}

fn print_sizes(program: &Program, sections: &[(&str, (Vec<u8>, Address))]) {
    let eh_frame = program.eh_frame.0.len() + program.eh_frame_hdr.0.len();
    println!("{:<46}{:>12}{:>8}", "a section", "bytes", "ratio");
    println!(
        "{:<46}{eh_frame:>12}{:>8.2}",
        ".eh_frame and .eh_frame_hdr", 1.0
    );
    for (name, (bytes, _)) in sections {
        println!(
            "{:<46}{:>12}{:>8.2}",
            format!(".sframe {name}"),
            bytes.len(),
            bytes.len() as f64 / eh_frame as f64
        );
    }
}

/// Addresses all over the program, in no order: the same in every run.
fn addresses(functions: &[(u64, u64)]) -> Vec<u64> {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        // Knuth's multiplier; the high half is the good one.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut address = || {
        let (start, size) = functions[random(functions.len() as u64) as usize];
        start + random(size)
    };
    (0..RANDOM + EVICTED).map(|_| address()).collect()
}

/// Per look-up: on average over all, in the best of several passes; and the median of those with
/// cold caches, less what reading the clock takes.
#[derive(Clone, Copy)]
struct Times {
    repeated: Duration,
    random: Duration,
    cold: Duration,
    evicted: Duration,
}

fn measure<P: Copy, T>(pcs: &[P], mut look_up: impl FnMut(P) -> T) -> Times {
    let (anywhere, evicted) = pcs.split_at(RANDOM);
    let pass = |pcs: &[P], look_up: &mut dyn FnMut(P)| {
        let start = Instant::now();
        pcs.iter().for_each(|pc| look_up(*pc));
        start.elapsed() / pcs.len() as u32
    };
    let mut one = |pc: P| {
        black_box(look_up(black_box(pc)));
    };
    let best = |one: &mut dyn FnMut(P), pcs: &[P], passes: usize| {
        (0..passes).map(|_| pass(pcs, one)).min().expect("a pass")
    };
    let (repeated, random) = (
        best(&mut one, &anywhere[..REPEATED], 100 * PASSES),
        best(&mut one, anywhere, PASSES),
    );
    let clock = median_evicted(evicted, &mut |pc| {
        black_box(pc);
    });
    let mut eviction = vec![1_u8; EVICTION_BYTES];
    let mut colds: Vec<Duration> = anywhere
        .chunks_exact(FIRST)
        .take(21)
        .map(|pcs| {
            evict(&mut eviction);
            pass(pcs, &mut one)
        })
        .collect();
    colds.sort();
    let cold = colds[colds.len() / 2];
    Times {
        repeated,
        random,
        cold,
        evicted: median_evicted(evicted, &mut one).saturating_sub(clock),
    }
}

fn median_evicted<P: Copy>(pcs: &[P], look_up: &mut dyn FnMut(P)) -> Duration {
    let mut eviction = vec![1_u8; EVICTION_BYTES];
    let time = |pc: &P| {
        evict(&mut eviction);
        let start = Instant::now();
        look_up(*pc);
        start.elapsed()
    };
    let mut times: Vec<Duration> = pcs.iter().map(time).collect();
    times.sort();
    times[times.len() / 2]
}

/// Writes to every cache line, so that the caches hold these lines alone.
fn evict(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().step_by(64) {
        *byte = byte.wrapping_add(1);
    }
    black_box(bytes);
}

fn print_times(name: &str, times: Times, against: Times) {
    let column = |time: Duration, against: Duration| {
        let ratio = against.as_nanos() as f64 / time.as_nanos() as f64;
        format!("{:>8} ns{ratio:>6.1}", time.as_nanos())
    };
    let repeated = column(times.repeated, against.repeated);
    let random = column(times.random, against.random);
    println!(
        "{name:<46}{repeated}{random}{}{}",
        column(times.cold, against.cold),
        column(times.evicted, against.evicted)
    );
}
