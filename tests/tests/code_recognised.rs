//! Code is recognised however its file was made and wherever it is mapped.

use collector::profile::{Profile, Sample};
use collector::symbolize::Places;
use engine::wire::sample::StopReason;
use rsunwind_tests::assert_measured;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::far_headers::move_headers;
use rsunwind_tests::statistics::judge;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Records a program that exits with 0, and gives what was recorded and what it printed.
#[track_caller]
fn record(
    bench: &Bench,
    options: &[&str],
    program: &Path,
    arguments: &[&str],
) -> (Profile, String) {
    let ended = output(bench.record(options).arg(program).args(arguments));
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let profile = Profile::open(&[bench.path("profile.rsu")], &Places::default());
    (profile.unwrap(), text(&ended.stdout))
}

fn names<'a>(profile: &'a Profile, sample: &Sample) -> Vec<&'a str> {
    let frames = profile.walk(sample.stack);
    frames.map(|frame| &*profile.function(frame).name).collect()
}

/// Which part of the weight has stacks that are as wanted, in per cent. Samples whose signal came
/// late have none, as on guests whose interrupts wait, nor have those that were left out.
fn share(profile: &Profile, wanted: impl Fn(&Sample, &[&str]) -> bool) -> f64 {
    let weight = |keep: &dyn Fn(&Sample) -> bool| -> u64 {
        let walked = profile
            .samples
            .iter()
            .filter(|s| !matches!(s.stop, StopReason::Blocked | StopReason::LeftOut));
        let kept = walked.filter(|sample| keep(sample));
        kept.map(|sample| sample.weight).sum()
    };
    let all = weight(&|_| true);
    assert_measured!(all > 100, "{all} samples");
    100.0 * weight(&|sample| wanted(sample, &names(profile, sample))) as f64 / all as f64
}

fn build(compiler: &str, program: &Path, arguments: &[&str]) {
    let built = Command::new(compiler)
        .arg("-o")
        .arg(program)
        .args(arguments)
        .status();
    assert!(built.expect("tests/setup installs the compilers").success());
}

/// Whether functions stand in a stack in that order, the leaf first, with nothing between them.
fn in_a_row(names: &[&str], wanted: &[&str]) -> bool {
    names.windows(wanted.len()).any(|row| row == wanted)
}

/// `hot` takes as much CPU time on a fast processor as on a slow one.
const HOT: &str = "
#include <time.h>
static volatile unsigned long sink;
static long used_ms(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
__attribute__((noinline)) static void inner(void) { for (int i = 0; i < 3000000; i++) sink += i; }
__attribute__((noinline)) void hot(void) { long end = used_ms() + 200; do inner(); while (used_ms() < end); sink++; }
";

#[test]
fn program_headers_may_be_at_the_end_of_the_file() {
    judge(|| {
        let bench = Bench::new();
        let (library, program) = (bench.path("libhot.so"), bench.path("program"));
        let source = bench.path("hot.c");
        fs::write(&source, HOT).unwrap();
        let options = ["-O2", "-fPIC", "-shared", "-fomit-frame-pointer"];
        build(
            "gcc",
            &library,
            &[&options[..], &[source.to_str().unwrap()]].concat(),
        );
        let source = bench.path("main.c");
        let main = "void hot(void); __attribute__((noinline)) void own(void) { hot(); } int main(void) { own(); own(); return 0; }";
        fs::write(&source, main).unwrap();
        let options = ["-O1", "-fomit-frame-pointer", source.to_str().unwrap()];
        build(
            "gcc",
            &program,
            &[&options[..], &[library.to_str().unwrap()]].concat(),
        );
        for file in [&library, &program] {
            move_headers(file);
        }
        let (profile, _) = record(&bench, &[], &program, &[]);
        let whole = share(&profile, |sample, names| {
            sample.complete && in_a_row(names, &["inner", "hot", "own", "main"])
        });
        assert_measured!(whole > 97.0, "{whole} %");
        // Unwound from outside, too.
        let (profile, _) = record(&bench, &["--wall"], &program, &[]);
        let whole = share(&profile, |_, names| {
            in_a_row(names, &["inner", "hot", "own", "main"])
        });
        assert_measured!(whole > 90.0, "{whole} %");
    });
}

/// The second mapping of part of a program's file that V8 makes of its builtins.
const TWICE: &str = "
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
__attribute__((noinline, aligned(64))) void before(void) { __asm__ volatile(\"nop\"); }
__attribute__((noinline, aligned(64))) unsigned long hot(unsigned long n) {
    unsigned long x = n;
    while (n--) __asm__ volatile(\"add %1, %0\" : \"+r\"(x) : \"r\"(n));
    return x;
}
__attribute__((noinline, aligned(64))) void behind(void) { __asm__ volatile(\"nop\"); }
int main(void) {
    const Elf64_Phdr *header = (const Elf64_Phdr *)getauxval(AT_PHDR);
    uintptr_t at = (uintptr_t)hot;
    while (header->p_type != PT_LOAD || at < header->p_vaddr || at >= header->p_vaddr + header->p_filesz) header++;
    off_t first = header->p_offset & ~4095UL;
    size_t distance = at - header->p_vaddr + header->p_offset - first;
    int file = open(\"/proc/self/exe\", O_RDONLY);
    char *copy = mmap(0, distance + 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, first);
    if (copy == MAP_FAILED) return 1;
    volatile unsigned long sum = 0;
    while (clock() < CLOCKS_PER_SEC / 3) sum += ((unsigned long (*)(unsigned long))(copy + distance))(1000000);
    before(); behind();
    return 0;
}
";

#[test]
fn a_second_mapping_of_the_code_has_the_names_of_the_first() {
    judge(|| {
        let bench = Bench::new();
        // Addresses and offsets differ by 0x400000, so that the one is not taken for the other.
        let flags = ["-O0", "-no-pie"];
        let program = bench.compile("gcc", &flags, TWICE);
        let (profile, _) = record(&bench, &[], &program, &[]);
        let named = share(&profile, |sample, names| {
            sample.complete && in_a_row(names, &["hot", "main"])
        });
        assert_measured!(named > 97.0, "{named} %");
    });
}

/// A program whose linker writes no `.eh_frame_hdr`, in a C library without tables.
#[test]
fn programs_of_musl_are_unwound_without_an_index() {
    judge(|| {
        let source = format!(
            "#include <pthread.h>\n{HOT}\n
        __attribute__((noinline)) static void own(void) {{ hot(); sink++; }}
        static void *thread(void *nothing) {{ own(); sink++; return nothing; }}
        int main(void) {{
            pthread_t other;
            pthread_create(&other, 0, thread, 0);
            own();
            pthread_join(other, 0);
            return 0;
        }}"
        );
        for options in [&["-O2", "-pthread"][..], &["-O2", "-pthread", "-static"]] {
            let bench = Bench::new();
            let program = bench.compile("musl-gcc", options, &source);
            let headers = output(Command::new("readelf").arg("-lW").arg(&program));
            assert!(
                !text(&headers.stdout).contains("GNU_EH_FRAME"),
                "the control"
            );
            let (profile, _) = record(&bench, &[], &program, &[]);
            let of = |caller| {
                share(&profile, |_, names| {
                    in_a_row(names, &["inner", "hot", "own", caller])
                })
            };
            let (main, thread) = (of("main"), of("thread"));
            // The same work, but on processors that need not be equally fast.
            assert_measured!(
                main > 20.0 && thread > 20.0 && main + thread > 90.0,
                "{options:?}: {main} % and {thread} %"
            );
            let whole = share(&profile, |sample, _| sample.complete);
            assert_measured!(whole > 97.0, "{options:?}: {whole} %");
        }
    });
}

const GO: &str = "package main

// #include <time.h>
// static volatile unsigned long sink;
// static long used_ms(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return
// t.tv_sec * 1000 + t.tv_nsec / 1000000; } __attribute__((noinline)) static void leaf(void) { for
// (int i = 0; i < 3000000; i++) sink += i; } __attribute__((noinline)) static void work(void) {
// long end = used_ms() + 100; do leaf(); while (used_ms() < end); sink++; }
import \"C\"

//go:noinline
func caller() { C.work(); C.leaf() }

//go:noinline
func outer() { caller(); caller() }

func main() {
	done := make(chan bool)
	go func() { outer(); done <- true }()
	<-done
	outer()
}
";

#[test]
fn c_that_go_calls_has_its_go_callers() {
    judge(|| {
        for mode in ["exe", "pie"] {
            let bench = Bench::new();
            let (source, program) = (bench.path("calls.go"), bench.path("calls"));
            fs::write(&source, GO).unwrap();
            let built = Command::new("go")
                .args(["build", "-buildmode", mode, "-o"])
                .args([&program, &source])
                .env("CGO_ENABLED", "1")
                .env("GOFLAGS", "")
                .status();
            assert!(built.expect("tests/setup installs Go").success());
            let (profile, _) = record(&bench, &[], &program, &[]);
            let whole = share(&profile, |sample, names| {
                let after =
                    |name: &str| names.iter().position(|function| function.starts_with(name));
                // `leaf` is called by `work`, and by Go itself.
                let order = ["leaf", "runtime.asmcgocall", "main.caller", "main.outer"];
                let places = order.map(after);
                sample.complete && places.iter().all(Option::is_some) && places.is_sorted()
            });
            assert_measured!(whole > 95.0, "{mode}: {whole} %");
        }
    });
}

const GOROUTINES: &str = "package main

import \"syscall\"

// CPU time of the process, in milliseconds.
func used() int64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return (usage.Utime.Nano() + usage.Stime.Nano()) / 1000000
}

//go:noinline
func spin(end int64) (sum uint64) {
	for used() < end {
		for i := uint64(0); i < 1000000; i++ {
			sum += i * i
		}
	}
	return sum
}

// Each turn leaves a goroutine for the other one.
func alternate(end int64) {
	there, back := make(chan int), make(chan int)
	go func() {
		for turn := range there {
			back <- turn
		}
	}()
	for used() < end {
		for turn := 0; turn < 1000; turn++ {
			there <- turn
			<-back
		}
	}
}

func main() {
	spin(300)
	alternate(600)
}
";

#[test]
fn go_without_symbols_is_named_by_its_own_table_and_whole() {
    judge(|| {
        for (cgo, mode) in [("0", "exe"), ("1", "exe"), ("1", "pie")] {
            let bench = Bench::new();
            let (source, program) = (bench.path("goroutines.go"), bench.path("goroutines"));
            let source_of_cgo = GOROUTINES.replace("import", "import \"C\"\nimport");
            let text = if cgo == "1" {
                &source_of_cgo
            } else {
                GOROUTINES
            };
            fs::write(&source, text).unwrap();
            let built = Command::new("go")
                .args(["build", "-ldflags=-s -w", "-buildmode", mode, "-o"])
                .args([&program, &source])
                .env("CGO_ENABLED", cgo)
                .env("GOFLAGS", "")
                .status();
            assert!(built.expect("tests/setup installs Go").success());
            let (profile, _) = record(&bench, &["-F", "999"], &program, &[]);
            let order = ["main.spin", "main.main", "runtime.main", "runtime.goexit"];
            let spun = share(&profile, |_, names| in_a_row(names, &order));
            assert_measured!(spun > 20.0, "cgo {cgo} {mode}: {spun} %");
            let switched = share(&profile, |sample, names| {
                let has = |name| names.contains(&name);
                sample.complete && has("runtime.mcall") && !has("runtime.goexit")
            });
            assert_measured!(switched > 2.0, "cgo {cgo} {mode}: {switched} %");
            let whole = share(&profile, |sample, _| sample.complete);
            if cgo == "0" {
                // Copied stacks end where Go goes to the thread's stack.
                assert_measured!(whole > 80.0, "copied: {whole} %");
                continue;
            }
            assert_measured!(whole > 97.0, "{mode}: {whole} %");
            let through = share(&profile, |_, names| {
                let after =
                    |name: &str| names.iter().position(|function| function.starts_with(name));
                let places = ["runtime.systemstack", "main.alternate"].map(after);
                places.iter().all(Option::is_some) && places.is_sorted()
            });
            assert_measured!(through > 2.0, "{mode}: {through} %");
        }
    });
}

/// Hand-written assembly that keeps neither tables nor a frame pointer.
const BARE: &str = "
__asm__(\".text\\n.type bare_loop,@function\\nbare_loop:\\n push %rbp\\n push %rbx\\n xor %ebp,%ebp\\n mov %rdi,%rbx\\n\"
        \"1: call bare_leaf\\n dec %rbx\\n jnz 1b\\n pop %rbx\\n pop %rbp\\n ret\\n.size bare_loop,.-bare_loop\\n\"
        \".type bare_leaf,@function\\nbare_leaf:\\n mov $1000,%ecx\\n2: dec %ecx\\n jnz 2b\\n ret\\n.size bare_leaf,.-bare_leaf\\n\");
void bare_loop(unsigned long times);
int main(void) { bare_loop(800000); return 0; }
";

#[test]
fn assembly_without_tables_is_named_with_what_would_help() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O2"], BARE);
    let (profile, _) = record(&bench, &[], &program, &[]);
    let summary = collector::summary::text(&profile);
    let hint = summary.lines().find(|line| line.contains("hint"));
    let hint = hint.unwrap_or_else(|| panic!("no hint in\n{summary}"));
    assert!(
        hint.contains("bare_loop (program)") && hint.contains(".cfi"),
        "{hint}"
    );
}

const JAVA: &str = "
public class Busy {
    static long spin(int n) { long x = n; for (int i = 0; i < n; i++) x = x * 31 + (x >>> 7); return x; }
    static long work(int n) { long x = 0; for (int i = 0; i < 1000; i++) x += spin(n); return x; }
    public static void main(String[] a) { long x = 0; for (int i = 0; i < 60; i++) x += work(10000); System.exit(x == 1 ? 1 : 0); }
}
";

#[test]
fn java_is_told_its_two_options_and_they_are_right() {
    let bench = Bench::new();
    let source = bench.path("Busy.java");
    fs::write(&source, JAVA).unwrap();
    let run = |options: &[&str]| {
        let java = Path::new("java");
        let (profile, _) = record(&bench, options, java, &[source.to_str().unwrap()]);
        for process in &profile.recording.processes {
            let _ = fs::remove_file(format!("/tmp/perf-{}.map", process.pid));
        }
        collector::summary::text(&profile)
    };
    let hint = |summary: &str| {
        let mut lines = summary.lines().map(str::to_owned);
        lines.find(|line| line.contains("that the JVM compiled"))
    };
    let told = hint(&run(&[])).expect("a hint");
    let options = [
        "-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit",
        "--jit-names",
    ];
    for option in options {
        assert!(told.contains(option), "{option}: {told}");
    }
    assert_eq!(hint(&run(&["--jit-names"])), None, "nothing more to say");
}
