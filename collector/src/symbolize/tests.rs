//! Names of real binaries, compiled for the test with `cc` and taken apart with `objcopy`.

use super::*;
use crate::correlate::read_bytes;
use crate::recording::example::{Chunk, head, recording};
use engine::wire::code::LineFormat;
use engine::wire::module::Module as WireModule;
use engine::wire::record::RecordKind;
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "\
static volatile int sink;
namespace ns { inline __attribute__((always_inline)) int inner(int x) { sink = x; sink = x / 3; return sink; }
  __attribute__((noinline)) int outer(int x) {
    return inner(x) + 1;
  }
}
int main(int argc, char **) {
  return ns::outer(argc);
}
";

struct Built {
    directory: tempfile::TempDir,
    program: PathBuf,
    build_id: Vec<u8>,
    outer: u64,
    outer_size: u64,
    entry: u64,
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

fn build() -> Built {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("prog.cc");
    let program = directory.path().join("prog");
    std::fs::write(&source, SOURCE).unwrap();
    let options = ["-O1", "-g", "-fPIE", "-pie", "-Wl,--build-id", "-o"];
    run(Command::new("c++").args(options).args([&program, &source]));
    let bytes = std::fs::read(&program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let outer = elf
        .symbols()
        .find(|symbol| symbol.name() == Ok("_ZN2ns5outerEi"));
    let outer = outer.unwrap();
    Built {
        build_id: elf.build_id().unwrap().unwrap().to_vec(),
        outer: outer.address(),
        outer_size: outer.size(),
        entry: elf.entry(),
        program,
        directory,
    }
}

const BIAS: u64 = 0x5555_0000_0000;

/// A recording with one sample: all addresses of `outer`, then one in `_start`.
fn recorded(built: &Built, path: &Path, build_id: &[u8]) -> Recording {
    let module = WireModule {
        time_ns: 1,
        start: BIAS,
        end: BIAS + 0x10_0000,
        bias: BIAS,
        build_id,
        path: path.to_str().unwrap().as_bytes(),
        ours: false,
    };
    // Callers' addresses are looked up one byte before.
    let inside = (0..built.outer_size).map(|offset| BIAS + built.outer + offset + 1);
    let pcs: Vec<u64> = [BIAS + built.outer]
        .into_iter()
        .chain(inside)
        .chain([BIAS + built.entry + 0x10])
        .collect();
    let chunk = Chunk::new(1, 1, 0).record(RecordKind::Module, |out| module.encode(out));
    let chunk = chunk.sample(head(2, 1), &pcs);
    read_bytes("test.rsu", recording(&[chunk])).unwrap()
}

/// Of each address the functions with their lines, innermost first, without repetitions.
fn names(recording: &Recording, places: &Places) -> (Vec<String>, Vec<String>) {
    let symbols = symbolize(recording, places);
    let words = |named: &Named| match &named.file {
        Some(file) => {
            let file = Path::new(&**file)
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            format!("{}@{file}:{}", named.function, named.line)
        }
        None => named.function.to_string(),
    };
    let places = symbols.places.iter();
    let lines = places.map(|place| {
        place
            .functions
            .iter()
            .map(words)
            .collect::<Vec<_>>()
            .join(" < ")
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines.dedup();
    (lines, symbols.notes)
}

fn assert_has(lines: &[String], wanted: &str) {
    assert!(
        lines.iter().any(|line| line == wanted),
        "{wanted} is not in {lines:?}"
    );
}

#[test]
fn inlined_functions_with_file_and_line() {
    let built = build();
    let recording = recorded(&built, &built.program, &built.build_id);
    let (lines, notes) = names(&recording, &Places::default());
    assert_has(
        &lines,
        "ns::inner(int)@prog.cc:2 < ns::outer(int)@prog.cc:4",
    );
    assert_has(&lines, "_start");
    assert!(
        lines
            .iter()
            .all(|line| line == "_start" || line.contains("ns::outer(int)@prog.cc")),
        "{lines:?}"
    );
    assert_eq!(notes, Vec::<String>::new());
}

fn strip(built: &Built, link: bool) -> (PathBuf, PathBuf) {
    let debug = built.directory.path().join("prog.debug");
    let stripped = built.directory.path().join("stripped");
    let keep = ["--only-keep-debug"];
    run(Command::new("objcopy")
        .args(keep)
        .args([&built.program, &debug]));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .args([&built.program, &stripped]));
    if link {
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run(Command::new("objcopy").arg(link).arg(&stripped));
    }
    (stripped, debug)
}

#[test]
fn separate_debug_files_by_link_and_by_build_id() {
    let built = build();
    let inlined = "ns::inner(int)@prog.cc:2 < ns::outer(int)@prog.cc:4";
    let (stripped, debug) = strip(&built, true);
    let recording = recorded(&built, &stripped, &built.build_id);
    assert_has(&names(&recording, &Places::default()).0, inlined);

    let (stripped, _) = strip(&built, false);
    let root = built.directory.path().join("debug");
    let text: String = built
        .build_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let indexed = root.join(".build-id").join(&text[..2]);
    std::fs::create_dir_all(&indexed).unwrap();
    std::fs::rename(debug, indexed.join(format!("{}.debug", &text[2..]))).unwrap();
    let places = Places {
        debug_directories: vec![root],
        debuginfod_caches: Vec::new(),
        ..Places::default()
    };
    assert_has(
        &names(&recorded(&built, &stripped, &built.build_id), &places).0,
        inlined,
    );
    // The program itself is not even needed.
    let gone = recorded(&built, Path::new("/nonexistent/prog"), &built.build_id);
    assert_has(&names(&gone, &places).0, inlined);
}

#[test]
fn a_debug_file_is_remembered_only_as_long_as_it_is_what_it_was() {
    let built = build();
    let (stripped, debug) = strip(&built, true);
    let recording = recorded(&built, &stripped, &built.build_id);
    let places = Places {
        effort: Effort::Little,
        ..Places::default()
    };
    let inlined = "ns::inner(int)@prog.cc:2 < ns::outer(int)@prog.cc:4";
    assert_has(&names(&recording, &places).0, inlined);
    let without = [
        format!("[stripped+{:#x}]", built.outer),
        "_start".to_owned(),
    ];
    let aside = debug.with_extension("aside");
    std::fs::rename(&debug, &aside).unwrap();
    assert_eq!(names(&recording, &places), (without.to_vec(), vec![]));
    // One that is there again is found when all is looked for.
    std::fs::rename(&aside, &debug).unwrap();
    let whole = Places {
        effort: Effort::Whole,
        ..places.clone()
    };
    assert_has(&names(&recording, &whole).0, inlined);
    assert_has(&names(&recording, &places).0, inlined);
    // The one of another build, in its place.
    let source = built.directory.path().join("prog.cc");
    let options = ["-O1", "-g", "-fPIE", "-pie", "-Wl,--build-id=0x0102", "-o"];
    run(Command::new("c++").args(options).args([&debug, &source]));
    assert_eq!(names(&recording, &places), (without.to_vec(), vec![]));
}

#[test]
fn without_symbols_functions_are_told_apart_by_the_unwind_table() {
    let built = build();
    let (stripped, _) = strip(&built, false);
    let recording = recorded(&built, &stripped, &built.build_id);
    let (lines, _) = names(&recording, &Places::default());
    let outer = format!("[stripped+{:#x}]", built.outer);
    assert_eq!(lines, [outer, "_start".to_owned()]);
}

#[test]
fn another_build_of_the_file_is_not_believed() {
    let built = build();
    let (lines, notes) = names(
        &recorded(&built, &built.program, &[1; 20]),
        &Places::default(),
    );
    assert_eq!(lines, ["[prog, no symbols]"]);
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].contains("another build of it is there now"),
        "{notes:?}"
    );
    assert!(notes[0].contains("0101010101"), "{notes:?}");
    let missing = recorded(&built, Path::new("/nonexistent/prog"), &built.build_id);
    let (_, notes) = names(&missing, &Places::default());
    assert!(notes[0].contains("is not on this machine"), "{notes:?}");
}

/// As the loader and the kernel call one library by two names.
#[test]
fn a_binary_is_one_however_it_was_found() {
    let built = build();
    let link = built.directory.path().join("link");
    std::os::unix::fs::symlink(&built.program, &link).unwrap();
    let two = |build_ids: [&[u8]; 2]| {
        let paths = [&built.program, &link];
        let mut chunk = Chunk::new(1, 1, 0);
        for (number, (path, build_id)) in (0..).zip(paths.into_iter().zip(build_ids)) {
            let bias = BIAS + number * 0x1000_0000;
            let module = WireModule {
                time_ns: 1,
                start: bias,
                end: bias + 0x10_0000,
                bias,
                build_id,
                path: path.to_str().unwrap().as_bytes(),
                ours: false,
            };
            chunk = chunk.record(RecordKind::Module, |out| module.encode(out));
        }
        let pcs = [0, 0x1000_0000].map(|distance| BIAS + distance + built.outer);
        let chunk = chunk.sample(head(2, 1), &[pcs[0], pcs[1] + 1]);
        let recording = read_bytes("test.rsu", recording(&[chunk])).unwrap();
        let symbols = symbolize(&recording, &Places::default());
        (symbols.images.len(), symbols.places.len())
    };
    let id = &*built.build_id;
    assert_eq!(two([id, id]), (1, 1));
    assert_eq!(two([&[], &[]]), (1, 1), "by device and inode");
    assert_eq!(two([id, &[1; 20]]), (2, 2), "another build");
}

#[test]
fn a_path_that_is_a_pipe_by_now_is_not_waited_for() {
    let built = build();
    let pipe = built.directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (_, notes) = names(
        &recorded(&built, &pipe, &built.build_id),
        &Places::default(),
    );
    assert!(notes[0].contains("cannot be read here"), "{notes:?}");
}

#[test]
fn rust_names_are_demangled() {
    // This test's own binary, at this very function.
    let own = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&own).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let mut symbols = elf.symbols();
    let wanted = |name: &str| name.contains("rust_names_are_demangled") && name.starts_with('_');
    let symbol = symbols.find(|symbol| symbol.name().is_ok_and(wanted) && symbol.size() > 0);
    let address = symbol.unwrap().address();
    let symbolizer = elf::symbolizer(&[]);
    let named = elf::names(&symbolizer, &own, &[address + 1], &mut elf::Met::of(true)).unwrap();
    let name = &named[0].last().unwrap().function;
    assert!(
        name.starts_with("rsunwind_collector::symbolize::tests::rust_names_are_demangled"),
        "{name}"
    );
}

#[test]
fn functions_without_names_are_told_apart() {
    let called = |name: &str, file: &str, first_line| {
        let code = CodeObject {
            language: LanguageId::new(0),
            name: name.into(),
            file: file.into(),
            first_line,
            format: LineFormat::None,
            lines: Vec::new(),
        };
        called(&code).to_string()
    };
    assert_eq!(called("(anonymous)", "/a/b.js", 7), "(anonymous) b.js:7");
    assert_eq!(
        called("f.<locals>.<lambda>", "c.py", 9),
        "f.<locals>.<lambda> c.py:9"
    );
    assert_eq!(called("(anonymous)", "", 7), "(anonymous)");
    assert_eq!(called("(anonymous)", "/a/b.js", 0), "(anonymous)");
    assert_eq!(called("named", "/a/b.js", 7), "named");
}
