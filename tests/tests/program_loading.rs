//! What the library is to the loader, and to programs that the loader, or another library, treats
//! in unusual ways.

use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Object, ObjectSymbol, elf};
use rsunwind_tests::library;
use rsunwind_tests::run::Run;
use rsunwind_tests::victim::{self, Compiler};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SETTINGS: &str = "rate=1000";

/// What the library takes from the program, if the program has it.
const TAKEN: &[&str] = &[
    "__errno_location",
    "__register_atfork",
    "_dl_find_object",
    "_r_debug",
    "dlsym",
    "dlopen", // of what is loaded already
    "environ",
    "getauxval",
    "gnu_get_libc_version", // its presence only
    "pthread_atfork",
    "pthread_key_create",
    "pthread_getspecific",
    "pthread_setspecific",
];

fn with_library<T>(act: impl FnOnce(&ElfFile64<'_>) -> T) -> T {
    let bytes = std::fs::read(library::path()).unwrap();
    act(&ElfFile64::parse(&*bytes).unwrap())
}

#[test]
fn the_library_takes_only_what_it_can_do_without() {
    with_library(|file| {
        let undefined = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined());
        for symbol in undefined {
            let name = symbol.name().unwrap();
            assert!(symbol.is_weak(), "{name} is a strong undefined symbol");
            assert!(TAKEN.contains(&name), "{name} is not on the list");
        }
    });
}

#[test]
fn the_library_needs_no_other_and_is_bound_at_once() {
    with_library(|file| {
        let (endian, data) = (file.endian(), file.data());
        let sections = file.elf_header().sections(endian, data).unwrap();
        let (entries, _) = sections.dynamic(endian, data).unwrap().unwrap();
        let value = |tag: i64| {
            let entry = entries.iter().find(|entry| entry.d_tag(endian) == tag);
            entry.map(|entry| entry.d_val(endian))
        };
        assert_eq!(value(elf::DT_NEEDED), None);
        assert_eq!(value(elf::DT_TEXTREL), None);
        let flags = value(elf::DT_FLAGS_1).unwrap_or(0);
        let has = |flag: u64| flags & flag != 0;
        assert!(
            has(elf::DF_1_NOW.into()),
            "lazy binding in a handler takes the loader's locks"
        );
        assert!(
            has(elf::DF_1_NODELETE.into()),
            "its handler stays installed"
        );
    });
}

#[test]
fn the_program_finds_libcs_state_as_the_loader_left_it() {
    // Errors that are kept for `dlerror`, and what was taken of its heap.
    let program = victim::c("untouched.c");
    let plain = Run::plain(&program).outcome().quiet();
    let profiled = Run::profiled(SETTINGS, &program).outcome().quiet();
    assert_eq!(profiled.text(), plain.text());
}

#[test]
fn the_library_replaces_nothing_that_it_must_not() {
    with_library(|file| {
        let exports: Vec<&str> = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .map(|symbol| symbol.name().unwrap())
            .collect();
        for name in [
            "memcpy",
            "memmove",
            "memset",
            "memcmp",
            "bcmp",
            "strlen",
            "dlopen",
            "dlmopen",
            "dlsym",
            "dlvsym",
            "malloc",
            "calloc",
            "realloc",
            "free",
            "rust_eh_personality",
            "_Unwind_Resume",
            "dl_iterate_phdr",
        ] {
            assert!(!exports.contains(&name), "{name} is exported");
        }
        for name in ["execl", "execlp", "execle", "pthread_create", "sigaction"] {
            assert!(exports.contains(&name), "{name} is not exported");
        }
    });
}

/// A program with a plug-in in `lib` beside it.
fn with_plugin() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let host = victim::compile(
        Compiler::C,
        "plugin_host.c",
        &["-Wl,-rpath,$ORIGIN/lib", "-ldl"],
    );
    std::fs::create_dir(directory.path().join("lib")).unwrap();
    std::fs::copy(
        victim::shared("plugin.c"),
        directory.path().join("lib/libplugin.so"),
    )
    .unwrap();
    std::fs::copy(host, directory.path().join("host")).unwrap();
    let program = directory.path().join("host");
    (directory, program)
}

#[test]
fn a_plugin_is_found_beside_the_program_and_sampled() {
    let (_directory, program) = with_plugin();
    let outcome = Run::profiled(SETTINGS, &program).outcome().quiet();
    assert_eq!(outcome.text(), "42\n");
    let recording = outcome.recording();
    let plugin = recording
        .modules
        .iter()
        .find(|module| module.path.ends_with("/lib/libplugin.so"));
    let plugin = plugin.expect("the plug-in is a module");
    let inside = |pc: u64| (plugin.start..plugin.end).contains(&pc);
    let samples = recording
        .samples()
        .filter(|sample| sample.frames.iter().any(|frame| inside(frame.pc.0)));
    let weight: u64 = samples.map(|sample| sample.head.weight).sum();
    assert!(weight >= 150, "{weight} of 200 ms in it");
    // The control: any library that wraps dlopen breaks the program.
    let wrapper = victim::shared("wrapped_dlopen.c");
    let broken = Run::plain(&program).env("LD_PRELOAD", &wrapper).outcome();
    assert_eq!(broken.status.code(), Some(3), "{}", broken.text());
}

#[test]
fn another_library_may_come_first() {
    let early = victim::shared("early.c");
    let program = victim::c("burn.c");
    let plain = Run::plain(&program)
        .env("LD_PRELOAD", &early)
        .outcome()
        .quiet();
    assert_eq!(plain.text(), "early 1 1 5 6\n");
    for before in [true, false] {
        let run = Run::profiled(SETTINGS, &program)
            .arg("200")
            .preload(&early, before);
        let outcome = run.outcome().quiet();
        assert_eq!(outcome.text(), plain.text());
        let recordings = outcome.recordings();
        let delivered = recordings
            .iter()
            .map(|recording| recording.main_thread().delivered())
            .max();
        assert!(delivered >= Some(150), "{delivered:?}");
    }
}

#[test]
fn programs_of_musl_run_and_are_sampled() {
    let burn = victim::compile(Compiler::MuslC, "burn.c", &[]);
    let outcome = Run::profiled(SETTINGS, &burn)
        .args(["200", "2"])
        .outcome()
        .quiet();
    let recording = outcome.recording();
    assert_eq!(
        recording
            .threads
            .values()
            .filter(|thread| thread.delivered() >= 150)
            .count(),
        3
    );
    let threads = victim::compile(Compiler::MuslC, "threads.c", &[]);
    for way in [
        "returns",
        "leaves",
        "cancelled",
        "c11",
        "small-stacks",
        "thousand",
    ] {
        let plain = Run::plain(&threads).arg(way).outcome().quiet();
        let profiled = Run::profiled("rate=5000,cost=1", &threads)
            .arg(way)
            .outcome()
            .quiet();
        assert_eq!(profiled.text(), plain.text(), "{way}");
    }
    let signals = victim::compile(Compiler::MuslC, "own_sigprof.c", &[]);
    for how in [
        "readback", "reset", "mask", "jump", "blocked", "waited", "nested",
    ] {
        let plain = Run::plain(&signals).arg(how).outcome();
        let profiled = Run::profiled(SETTINGS, &signals).arg(how).outcome();
        assert_eq!(
            (profiled.status, profiled.text()),
            (plain.status, plain.text()),
            "{how}"
        );
    }
}

#[test]
fn a_static_program_runs_unprofiled() {
    let program = victim::compile(Compiler::C, "burn.c", &["-static"]);
    let outcome = Run::profiled(SETTINGS, &program)
        .arg("50")
        .outcome()
        .quiet();
    assert_eq!(outcome.files(), Vec::<PathBuf>::new());
}

#[test]
fn a_32_bit_program_is_given_nothing_of_ours() {
    let program = victim::compile(
        Compiler::C,
        "environment32.S",
        &["-m32", "-nostdlib", "-static", "-no-pie"],
    );
    let run = Run::profiled(SETTINGS, "sh")
        .env("KEPT", "yes")
        .args(["-c", "exec \"$0\""])
        .arg(&program);
    let outcome = run.outcome();
    assert_eq!(
        (outcome.status.code(), outcome.errors().as_str()),
        (Some(7), "")
    );
    let text = outcome.text();
    assert!(
        text.contains("KEPT=yes\n") && !text.contains("LD_PRELOAD="),
        "{text}"
    );
}

fn variable(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix('=')
            .map(str::to_owned)
    })
}

#[test]
fn the_users_own_preload_keeps_its_place() {
    let other = victim::shared("plugin.c");
    let ours = library::path().display().to_string();
    let lists = [
        format!("{ours}:{}", other.display()),
        format!("{}:{ours}", other.display()),
    ];
    for list in lists {
        let run = Run::profiled(SETTINGS, "sh").env("LD_PRELOAD", &list);
        let outcome = run.args(["-c", "env; exec env"]).outcome().quiet();
        for line in outcome
            .text()
            .lines()
            .filter(|line| line.starts_with("LD_PRELOAD="))
        {
            assert_eq!(line, format!("LD_PRELOAD={list}"));
        }
    }
    // A fresh environment that has a preload list of its own: ours comes first, the other keeps its
    // place.
    let run = Run::profiled(SETTINGS, "sh")
        .args(["-c", "exec env -i LD_PRELOAD=\"$0\" A=b env"])
        .arg(&other);
    let text = run.outcome().quiet().text();
    assert_eq!(
        variable(&text, "LD_PRELOAD"),
        Some(format!("{ours}:{}", other.display()))
    );
    assert_eq!(variable(&text, "A").as_deref(), Some("b"));
}

#[test]
fn a_fresh_environment_is_followed_unless_forbidden() {
    let burn = victim::c("burn.c");
    let command = |settings: &str| {
        let run = Run::profiled(settings, "sh")
            .args(["-c", "env -i \"$0\" 100; \"$0\" 10"])
            .arg(&burn);
        let outcome = run.outcome().quiet();
        let recordings = outcome.recordings();
        let processes = recordings
            .iter()
            .flat_map(|recording| recording.processes.clone());
        processes
            .filter(|process| Path::new(&process.executable) == burn)
            .count()
    };
    assert_eq!(command("rate=1000"), 2);
    assert_eq!(
        command("rate=1000,follow=no"),
        1,
        "only the one that inherits its environment"
    );
}

#[test]
fn a_preload_list_that_was_kept_is_not_given_twice() {
    let run = Run::profiled(SETTINGS, "sh").args(["-c", "exec env -u RSUNWIND env"]);
    let text = run.outcome().quiet().text();
    let lists = text.lines().filter(|line| line.starts_with("LD_PRELOAD="));
    assert_eq!(lists.count(), 1, "{text}");
    assert!(variable(&text, "RSUNWIND").is_some(), "{text}");
}

#[test]
fn a_library_out_of_reach_makes_no_noise() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("librsunwind_preload.so");
    std::fs::copy(library::path(), &copy).unwrap();
    let run = Run::profiled(SETTINGS, "sh").env("LD_PRELOAD", &copy);
    let outcome = run
        .args(["-c", "rm \"$0\"; exec env"])
        .arg(&copy)
        .outcome()
        .quiet();
    assert_eq!(variable(&outcome.text(), "LD_PRELOAD"), None);
}

#[test]
fn a_constructor_may_wait_for_a_thread_and_a_child() {
    // Under the loader's lock, which looking a function up must not wait for.
    let library = victim::shared("waits_in_constructor.c");
    let outcome = Run::profiled(SETTINGS, victim::c("opens_library.c"))
        .arg(&library)
        .outcome()
        .quiet();
    assert_eq!(outcome.text(), "right\n");
}
