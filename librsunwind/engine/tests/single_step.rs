//! The walk is right at every instruction: programs run one instruction at a time, and at each the
//! walk is compared with a shadow stack of the return addresses that calls really pushed.
#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    missing_docs,
    clippy::undocumented_unsafe_blocks,
    clippy::deref_addrof
)]

mod support;

use rsunwind_engine::memory::StackMemory;
use rsunwind_engine::registers::Registers;
use rsunwind_engine::wire::sample::{Frame, Method, StopReason};
use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use support::{Process, own_stack, suites, symbol};

const MOST_COMPLAINTS: usize = 40;

/// What the trap handler works on. It allocates nothing.
struct Stepper {
    process: Process,
    memory: StackMemory,
    frames: Vec<Frame>,
    /// Slots and return addresses of the calls in flight since stepping began.
    shadow: Vec<(u64, u64)>,
    /// Frames by method.
    methods: [u64; 9],
    /// The callers of the stepped code, from the walk at its first instruction.
    outer: Vec<u64>,
    last: (u64, u64),
    first_pc: u64,
    /// The program's variable that points to the context of its signal handler.
    signal_context: u64,
    handlers: u32,
    /// Where `jmp *%rdx` went: `longjmp` ends in one.
    landings: Vec<u64>,
    steps: u64,
    wrong: u64,
    complaints: Vec<Complaint>,
}

struct Complaint {
    pc: u64,
    stop: StopReason,
    found: [u64; 6],
    expected: [u64; 6],
}

static mut STEPPER: Option<Stepper> = None;
/// Held by the one thread that works with it.
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    let stepper = unsafe { (*(&raw mut STEPPER)).as_mut().unwrap() };
    let registers = unsafe { Registers::from_ucontext(context) };
    stepper.step(&registers);
}

impl Stepper {
    fn step(&mut self, registers: &Registers) {
        self.follow(registers);
        let (outcome, kept) = self
            .process
            .walk_into(registers, &mut self.memory, &mut self.frames);
        self.steps += 1;
        let frames = &self.frames[..kept];
        for frame in frames {
            self.methods[frame.method as usize] += 1;
        }
        if self.steps == 1 {
            // Without the return of `trap_on`, which the shadow has.
            self.outer.extend(frames[2..].iter().map(|f| f.pc.0));
        }
        let expected = || {
            let calls = self.shadow.iter().rev().map(|(_, to)| *to);
            [registers.pc]
                .into_iter()
                .chain(calls)
                .chain(self.outer.iter().copied())
        };
        let is_right =
            outcome.stop == StopReason::Root && frames.iter().map(|f| f.pc.0).eq(expected());
        if !is_right {
            self.wrong += 1;
            if self.complaints.len() < MOST_COMPLAINTS {
                let mut complaint = Complaint {
                    pc: registers.pc,
                    stop: outcome.stop,
                    found: [0; 6],
                    expected: [0; 6],
                };
                for (place, frame) in complaint.found.iter_mut().zip(frames) {
                    *place = frame.pc.0;
                }
                for (place, pc) in complaint.expected.iter_mut().zip(expected()) {
                    *place = pc;
                }
                self.complaints.push(complaint);
            }
        }
    }

    /// Brings the shadow stack up to date.
    fn follow(&mut self, registers: &Registers) {
        let (pc, sp) = (registers.pc, registers.sp());
        while self.shadow.last().is_some_and(|(slot, _)| *slot < sp) {
            self.shadow.pop();
        }
        let (last_pc, last_sp) = self.last;
        self.last = (pc, sp);
        if last_pc != 0 && word(last_pc) as u16 == 0xe2ff && self.landings.len() < 1024 {
            self.landings.push(pc);
        }
        if self.steps == 0 {
            self.first_pc = pc;
        }
        if pc == self.first_pc {
            self.begin_stepping(registers);
            return;
        }
        let top = word(sp);
        let pushed = sp == last_sp.wrapping_sub(8) && (last_pc + 2..=last_pc + 8).contains(&top);
        if pushed && pc != top {
            self.shadow.push((sp, top));
        }
    }

    /// At the first instruction after `trap_on` set the flag, in the program or in its signal
    /// handler.
    fn begin_stepping(&mut self, registers: &Registers) {
        if self.steps > 0 {
            let context = word(self.signal_context);
            let (pc, sp) = (word(context + 40 + 8 * 16), word(context + 40 + 8 * 15));
            self.shadow.push((sp - 1, pc));
            self.shadow.push((context - 8, word(context - 8)));
            self.handlers += 1;
        }
        let rbp = registers.general[6];
        self.shadow.push((rbp + 8, word(rbp + 8)));
    }
}

fn word(address: u64) -> u64 {
    unsafe { (address as *const u64).read_unaligned() }
}

fn build(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let out = std::env::temp_dir().join(format!("rsunwind-{name}-{}.so", std::process::id()));
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/victims")
        .join(source);
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-g", "-w", "-o"])
        .arg(&out)
        .args(flags)
        .arg(&source)
        .status()
        .expect("gcc runs");
    assert!(status.success());
    out
}

/// Loads a library, runs its `run_stepped` and reports.
fn run(name: &str, source: &str, flags: &[&str]) -> [u64; 9] {
    run_prepared(name, source, flags, |_| ())
}

/// The same after a change to the loaded library.
fn run_prepared(name: &str, source: &str, flags: &[&str], prepare: fn(&Process)) -> [u64; 9] {
    let library = build(name, source, flags);
    let _turn = TURN.lock();
    std::thread::spawn(move || unsafe {
        let path = CString::new(library.to_str().unwrap()).unwrap();
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
        assert!(!handle.is_null());
        std::fs::remove_file(&library).unwrap();
        let entry = libc::dlsym(handle, c"run_stepped".as_ptr());
        let entry: extern "C" fn() -> u64 = std::mem::transmute(entry);
        STEPPER = Some(Stepper {
            process: Process::new(),
            memory: own_stack(),
            frames: vec![Frame::default(); 256],
            shadow: Vec::with_capacity(256),
            methods: [0; 9],
            outer: Vec::with_capacity(256),
            last: (0, 0),
            first_pc: 0,
            signal_context: libc::dlsym(handle, c"signal_context".as_ptr()) as u64,
            handlers: 0,
            landings: Vec::with_capacity(1024),
            steps: 0,
            wrong: 0,
            complaints: Vec::with_capacity(MOST_COMPLAINTS),
        });
        prepare(&(*(&raw const STEPPER)).as_ref().unwrap().process);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        entry();
        let stepper = (*(&raw mut STEPPER)).take().unwrap();
        let mut methods = stepper.methods;
        methods[Method::Language as usize] =
            stepper.process.distrusted.load(Ordering::Relaxed).into();
        report(stepper);
        methods
    })
    .join()
    .unwrap()
}

fn report(mut stepper: Stepper) {
    // glibc describes the last instructions of longjmp as if they were the place they go to.
    let is_jump =
        |c: &Complaint| stepper.landings.contains(&c.found[1]) && c.stop == StopReason::Root;
    let jumps = stepper.complaints.iter().filter(|c| is_jump(c)).count() as u64;
    assert!(jumps < 16);
    stepper.wrong -= jumps;
    stepper.complaints.retain(|c| !is_jump(c));
    for complaint in &stepper.complaints {
        eprintln!(
            "at {:#x} {}: {:?}",
            complaint.pc,
            symbol(complaint.pc + 1),
            complaint.stop
        );
        for (found, expected) in complaint.found.iter().zip(complaint.expected) {
            let mark = if *found == expected { ' ' } else { '*' };
            eprintln!(
                "  {mark} {found:#x} {}   expected {expected:#x} {}",
                symbol(*found),
                symbol(expected)
            );
        }
    }
    assert_eq!(stepper.handlers, 1);
    assert!(stepper.steps > 3000, "only {} steps", stepper.steps);
    assert_eq!(stepper.wrong, 0, "of {} steps", stepper.steps);
}

#[test]
fn every_instruction_at_o0() {
    run("O0", "shapes.c", &["-O0"]);
}

#[test]
fn every_instruction_at_o2() {
    run(
        "O2",
        "shapes.c",
        &["-O2", "-fomit-frame-pointer", "-Wl,-z,lazy"],
    );
}

#[test]
fn every_instruction_at_o3_with_avx() {
    run("O3", "shapes.c", &["-O3", "-march=haswell", "-Wl,-z,now"]);
}

#[test]
fn every_instruction_at_os_with_frame_pointers_and_cet() {
    run(
        "Os",
        "shapes.c",
        &[
            "-Os",
            "-fno-omit-frame-pointer",
            "-fcf-protection=full",
            "-Wl,-z,lazy",
        ],
    );
}

/// With SFrame in the stepped library and its linkage tables, and `.eh_frame` alone in those around
/// it.
fn every_instruction_with_sframe(name: &str, flags: &[&str]) {
    let methods = run(
        name,
        "shapes.c",
        &[&["-O2", "-Wa,--gsframe", "-Wl,-z,lazy"], flags].concat(),
    );
    let by = |method: Method| methods[method as usize];
    assert!(
        by(Method::Sframe) > 1000 && by(Method::EhFrame) > 1000,
        "{methods:?}"
    );
    // No table was found to be damaged.
    assert_eq!(by(Method::Language), 0, "{methods:?}");
}

#[test]
fn every_instruction_with_sframe_of_the_system() {
    every_instruction_with_sframe("sframe", &[]);
}

#[test]
fn every_instruction_with_sframe_version_2() {
    if let Some(bin) = suites::tools("trixie") {
        every_instruction_with_sframe("sframe-v2", &["-B", &bin]);
    }
}

#[test]
fn every_instruction_with_sframe_version_2_and_cet() {
    if let Some(bin) = suites::tools("trixie") {
        let flags = ["-B", &bin, "-fcf-protection=full", "-Wl,-z,ibtplt"];
        every_instruction_with_sframe("sframe-v2-cet", &flags);
    }
}

#[test]
fn every_instruction_with_sframe_version_3() {
    if let Some(bin) = suites::tools("sid") {
        every_instruction_with_sframe("sframe-v3", &["-B", &bin]);
    }
}

#[test]
fn every_instruction_with_sframe_version_3_and_cet() {
    if let Some(bin) = suites::tools("sid") {
        let flags = ["-B", &bin, "-fcf-protection=full", "-Wl,-z,ibtplt"];
        every_instruction_with_sframe("sframe-v3-cet", &flags);
    }
}

/// Damages the rows of the library's `.sframe`, behind its header and function index.
fn damage(process: &Process) {
    let module = process
        .map
        .iter()
        .find(|m| m.sframe.is_present())
        .expect("no .sframe");
    let start = module.sframe.start.0;
    unsafe {
        let page = start & !4095;
        let length = (start - page + 8192) as usize;
        assert_eq!(
            libc::mprotect(page as *mut _, length, libc::PROT_READ | libc::PROT_WRITE),
            0
        );
        let bytes = start as *mut u8;
        let rows = bytes.add(24).cast::<u32>().read_unaligned() as usize + 28;
        let length = bytes.add(16).cast::<u32>().read_unaligned() as usize;
        // Rows that begin at 0 and have 15 words of a size that does not exist.
        for at in 0..length {
            *bytes.add(rows + at) = if at % 2 == 0 { 0 } else { 0xff };
        }
    }
}

#[test]
fn a_damaged_sframe_section_costs_no_frame() {
    let flags = ["-O2", "-Wa,--gsframe", "-Wl,-z,lazy"];
    let methods = run_prepared("damaged", "shapes.c", &flags, damage);
    assert_eq!(methods[Method::Sframe as usize], 0);
    // Reported once: counted in a place that no frame of these has.
    assert_eq!(methods[Method::Language as usize], 1);
}
