//! The walk is whole through functions that sign their return addresses (aarch64's pointer
//! authentication), by SFrame of every version, from the registers of a trap inside them.
#![cfg(target_arch = "aarch64")]
#![allow(
    unsafe_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    clippy::deref_addrof
)]

mod support;

use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::{Registers, strip};
use rsunwind_engine::wire::sample::{Method, StopReason};
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use support::{Process, Stack, own_stack, suites};

/// The traps of `stops` in the victim.
const TRAPS: usize = 6;

struct Trapped {
    process: Process,
    memory: StackMemory,
    /// One walk for each trap, and the link register there.
    walks: Vec<(Stack, u64)>,
    /// The victim's `returns` and `stored`, and how many of them are in use, as they are at the
    /// traps.
    calls: [*const u64; 2],
    depth: *const i32,
    in_flight: Vec<(u64, u64)>,
}

static mut TRAPPED: Option<Trapped> = None;
/// Held by the one thread that works with it.
static TURN: Mutex<()> = Mutex::new(());

/// Synchronous, from code that holds no lock: it may allocate.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    let trapped = unsafe { (*(&raw mut TRAPPED)).as_mut().unwrap() };
    let registers = unsafe { Registers::from_ucontext(context) };
    let walk = trapped.process.walk(&registers, &mut trapped.memory);
    trapped.walks.push((walk, registers.general[30]));
    let depth = unsafe { *trapped.depth } as usize;
    let [returns, stored] = trapped
        .calls
        .map(|list| unsafe { std::slice::from_raw_parts(list, depth) });
    trapped.in_flight = returns
        .iter()
        .copied()
        .zip(stored.iter().copied())
        .collect();
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.pc += 4 };
}

/// The victim with tables by the assembler and linker in `tools`.
fn build(name: &str, tools: Option<&Path>) -> PathBuf {
    let out =
        std::env::temp_dir().join(format!("rsunwind-signed-{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims/signed.c");
    let mut command = Command::new("aarch64-linux-gnu-gcc");
    command.args(["-shared", "-fPIC", "-O2", "-fno-omit-frame-pointer", "-w"]);
    command.args(["-mbranch-protection=pac-ret+leaf", "-Wa,--gsframe", "-o"]);
    command.arg(&out).arg(source);
    if let Some(tools) = tools {
        command.arg("-B").arg(tools);
    }
    assert!(command.status().expect("gcc runs").success());
    out
}

/// A directory in which a suite's `as` and `ld` are those for aarch64, as gcc looks for them.
fn tools(suite: &str) -> Option<PathBuf> {
    let bin = PathBuf::from(suites::tools(suite)?);
    let directory = std::env::temp_dir().join(format!("rsunwind-{suite}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    for tool in ["as", "ld"] {
        let link = directory.join(tool);
        std::os::unix::fs::symlink(bin.join(format!("aarch64-{tool}")), link).expect("a link");
    }
    Some(directory)
}

/// Runs the victim to its traps and judges the walks.
fn walk_signed(name: &str, version: u8, tools: Option<PathBuf>) {
    let library = build(name, tools.as_deref());
    tools.map(std::fs::remove_dir_all);
    let turn = TURN.lock();
    let walk = move || unsafe {
        let path = CString::new(library.to_str().unwrap()).unwrap();
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null());
        std::fs::remove_file(&library).unwrap();
        let find = |name: &std::ffi::CStr| libc::dlsym(handle, name.as_ptr());
        let run: extern "C" fn() -> i32 = std::mem::transmute(find(c"run_signed"));
        let process = Process::new();
        let mut modules = process.map.iter();
        let victim = modules.find(|m| {
            m.contains(rsunwind_engine::address::RuntimeAddress(
                run as usize as u64,
            ))
        });
        let table = victim.expect("the victim").sframe;
        assert!(table.is_present(), "no .sframe");
        assert_eq!(*(table.start.0 as *const u8).add(2), version);
        let mut memory = own_stack();
        let outer = process.walk(&Registers::capture(), &mut memory);
        TRAPPED = Some(Trapped {
            process,
            memory,
            walks: Vec::new(),
            calls: [find(c"returns").cast(), find(c"stored").cast()],
            depth: find(c"depth").cast(),
            in_flight: Vec::new(),
        });
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        run();
        judge((*(&raw mut TRAPPED)).take().unwrap(), &outer.pcs()[1..]);
    };
    std::thread::spawn(walk).join().unwrap();
    drop(turn);
}

fn judge(trapped: Trapped, outer: &[u64]) {
    assert_eq!(trapped.walks.len(), TRAPS);
    let calls = &trapped.in_flight;
    assert_eq!(calls.len(), 12);
    // There must be something to strip. A code is seven bits long, so one in 128 is zero.
    let signed = calls.iter().filter(|(to, stored)| to != stored).count();
    assert!(signed * 2 > calls.len(), "the processor signs nothing");
    assert!(calls.iter().all(|(to, stored)| strip(*stored) == *to));
    // At the first trap, the first instruction of `stops`, the link register is what the call put
    // there.
    let (_, into_caller) = &trapped.walks[0];
    for (number, (walk, link)) in trapped.walks.iter().enumerate() {
        let callers = std::iter::once(*into_caller)
            .chain(calls.iter().rev().map(|(to, _)| *to))
            .chain(outer.iter().copied());
        let expected: Vec<u64> = callers.collect();
        assert_eq!(walk.pcs()[1..], expected, "at trap {}", number + 1);
        assert_eq!(walk.outcome.stop, StopReason::Root);
        if number != 3 {
            assert_eq!(strip(*link), *into_caller, "at trap {}", number + 1);
        }
        // `stops` and the calls in flight but the last, from which on it is .eh_frame again.
        let methods = walk.methods();
        assert!(
            methods[1..=calls.len() + 1]
                .iter()
                .all(|m| *m == Method::Sframe),
            "{methods:?}"
        );
        assert!(
            methods[calls.len() + 2..].contains(&Method::EhFrame),
            "{methods:?}"
        );
    }
}

#[test]
fn version_1_of_the_system() {
    walk_signed("v1", 1, None);
}

#[test]
fn version_2_of_trixie() {
    if let Some(tools) = tools("trixie") {
        walk_signed("v2", 2, Some(tools));
    }
}

#[test]
fn version_3_of_sid() {
    if let Some(tools) = tools("sid") {
        walk_signed("v3", 3, Some(tools));
    }
}
