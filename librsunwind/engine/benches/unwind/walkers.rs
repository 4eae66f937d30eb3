//! The unwinders compared, each behind one function: a signal's context in, the number of frames
//! out.

use crate::ours::{Ours, Way};
use crate::support::{Process, own_stack};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder as _};
use object::{Object as _, ObjectSection as _};
use rsunwind_engine::registers::Registers;
use rsunwind_engine::rule::wide::{Cfa, Saved};
use rsunwind_engine::table::eh_frame_of;
use std::ffi::{CStr, c_int, c_void};

pub trait Walk {
    /// Walks from the interrupted context, or from the call itself.
    fn walk(&mut self, context: *mut c_void) -> usize;

    /// What is not counted of it, for the next walk.
    fn remember(&mut self, _: *mut c_void) {}
}

pub struct Walker {
    pub name: &'static str,
    /// Whether it needs code with frame pointers.
    pub frame_pointers: bool,
    /// Whether its table is not counted as its own work, so that its cold walks say nothing.
    pub is_prefilled: bool,
    pub new: fn() -> Box<dyn Walk>,
}

/// Frames that each has room for.
pub const LONGEST: usize = 2048;

pub const WALKERS: &[Walker] = &[
    Walker {
        name: "rsunwind",
        frame_pointers: false,
        is_prefilled: false,
        new: || Box::new(Ours::new(Way::Reuse)),
    },
    Walker {
        name: "rsunwind, walk and record",
        frame_pointers: false,
        is_prefilled: false,
        new: || Box::new(Ours::new(Way::Record)),
    },
    Walker {
        name: "rsunwind, nothing remembered",
        frame_pointers: false,
        is_prefilled: false,
        new: || Box::new(Ours::new(Way::Full)),
    },
    Walker {
        name: "framehop 0.16, no-alloc mode",
        frame_pointers: false,
        is_prefilled: false,
        new: || Box::new(Framehop::new()),
    },
    Walker {
        name: "libunwind `unw_backtrace`",
        frame_pointers: false,
        is_prefilled: false,
        new: || Box::new(Library::new(libunwind())),
    },
    Walker {
        name: "glibc `backtrace`",
        frame_pointers: false,
        is_prefilled: false,
        new: || Box::new(Library::new(libc::backtrace)),
    },
    Walker {
        name: "*bound:* probe by pc + dependent loads",
        frame_pointers: false,
        is_prefilled: true,
        new: || Box::new(Bound::new()),
    },
    Walker {
        name: "*bound:* the same to the first unchanged frame, then independent loads",
        frame_pointers: false,
        is_prefilled: true,
        new: || Box::new(ReuseBound::new()),
    },
    Walker {
        name: "frame-pointer walk, on code with frame pointers",
        frame_pointers: true,
        is_prefilled: false,
        new: || {
            Box::new(FramePointers {
                pcs: [0; LONGEST],
                high: own_stack().verified().1,
            })
        },
    },
];

struct Framehop {
    unwinder: UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>,
    cache: CacheX86_64<MustNotAllocateDuringUnwind>,
    pcs: [u64; LONGEST],
}

impl Framehop {
    fn new() -> Self {
        let mut unwinder = UnwinderX86_64::new();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let process = Process::new();
        for module in process.map.iter() {
            let start = format!("{:x}-", module.start.0);
            let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
            let Some(path) = line
                .split_whitespace()
                .nth(5)
                .filter(|path| path.starts_with('/'))
            else {
                continue;
            };
            let bytes: &'static [u8] = std::fs::read(path).unwrap().leak();
            let file = object::File::parse(bytes).unwrap();
            let section = |name: &str| {
                let section = file.section_by_name(name)?;
                let data: &'static [u8] = section.data().ok()?;
                Some((section.address()..section.address() + section.size(), data))
            };
            let (text, eh_frame, hdr) = (
                section(".text"),
                section(".eh_frame"),
                section(".eh_frame_hdr"),
            );
            let info = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: text.as_ref().map(|s| s.0.clone()),
                text: text.map(|s| s.1),
                eh_frame_svma: eh_frame.as_ref().map(|s| s.0.clone()),
                eh_frame: eh_frame.map(|s| s.1),
                eh_frame_hdr_svma: hdr.as_ref().map(|s| s.0.clone()),
                eh_frame_hdr: hdr.map(|s| s.1),
                ..Default::default()
            };
            unwinder.add_module(Module::new(
                path.into(),
                module.start.0..module.end.0,
                module.start.0,
                info,
            ));
        }
        Self {
            unwinder,
            cache: CacheX86_64::new_in(),
            pcs: [0; LONGEST],
        }
    }
}

impl Walk for Framehop {
    fn walk(&mut self, context: *mut c_void) -> usize {
        let registers = unsafe { Registers::from_ucontext(context) };
        let mut read = |address: u64| unsafe { Ok((address as *const u64).read_unaligned()) };
        let regs = UnwindRegsX86_64::new(registers.pc, registers.sp(), registers.general[6]);
        let mut frames = self
            .unwinder
            .iter_frames(registers.pc, regs, &mut self.cache, &mut read);
        let mut count = 0;
        while let Ok(Some(frame)) = frames.next() {
            let Some(place) = self.pcs.get_mut(count) else {
                break;
            };
            *place = frame.address();
            count += 1;
        }
        count
    }
}

type Backtrace = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;

/// A library's function that walks from its caller.
struct Library {
    function: Backtrace,
    pcs: [*mut c_void; LONGEST],
}

impl Library {
    fn new(function: Backtrace) -> Self {
        Self {
            function,
            pcs: [std::ptr::null_mut(); LONGEST],
        }
    }
}

fn libunwind() -> Backtrace {
    let symbol = |name: &CStr| unsafe {
        let handle = libc::dlopen(
            c"libunwind.so.8".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_LOCAL,
        );
        assert!(
            !handle.is_null(),
            "libunwind.so.8 is not installed (Debian: libunwind8)"
        );
        libc::dlsym(handle, name.as_ptr())
    };
    unsafe { std::mem::transmute::<*mut c_void, Backtrace>(symbol(c"unw_backtrace")) }
}

impl Walk for Library {
    fn walk(&mut self, _: *mut c_void) -> usize {
        unsafe { (self.function)(self.pcs.as_mut_ptr(), LONGEST as c_int) as usize }
    }
}

/// What no table-driven walk can beat: a prefilled table, one probe and two dependent loads a
/// frame, no checks.
struct Bound {
    process: Process,
    table: Vec<[u64; 2]>,
    pcs: [u64; LONGEST],
}

const BOUND_SIZE: usize = 1 << 16;

impl Bound {
    fn new() -> Self {
        Self {
            process: Process::new(),
            table: vec![[0; 2]; BOUND_SIZE],
            pcs: [0; LONGEST],
        }
    }

    /// offset << 2 | has saved rbp << 1 | from rbp, and the distance of rbp in the upper half.
    #[cold]
    fn learn(&mut self, pc: u64, exact: bool) -> u64 {
        use rsunwind_engine::address::RuntimeAddress;
        let lookup = if exact { pc } else { pc - 1 };
        let word = self
            .process
            .map
            .find(RuntimeAddress(lookup))
            .and_then(|module| {
                let table = eh_frame_of(&module)?;
                let row = table.row(&table.find(lookup).ok()?, lookup)?;
                let Cfa::Offset { register, offset } = row.cfa else {
                    return None;
                };
                let (from_fp, saved) = (register.0 == 6, row.saved[0]);
                let distance = if let Saved::At(distance) = saved {
                    distance
                } else {
                    0
                };
                let is_known = row.return_address == Saved::At(-8) && matches!(register.0, 6 | 7);
                is_known.then_some(
                    (distance as u64) << 32
                        | (offset as u64) << 1 & 0xffff_fffe
                        | u64::from(from_fp),
                )
            });
        let word = word.unwrap_or(u64::MAX);
        let mut slot = hash(pc);
        while self.table[slot][0] != 0 {
            slot = (slot + 1) % BOUND_SIZE;
        }
        self.table[slot] = [pc, word];
        word
    }
}

fn hash(pc: u64) -> usize {
    (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// A frame, and where its caller's rbp stands, or else the return address.
#[derive(Clone, Copy, PartialEq)]
struct At {
    pc: u64,
    sp: u64,
    bp: u64,
    word_at: u64,
}

impl At {
    fn leaf(context: *mut c_void) -> Self {
        let registers = unsafe { Registers::from_ucontext(context) };
        Self {
            pc: registers.pc,
            sp: registers.sp(),
            bp: registers.general[6],
            word_at: 0,
        }
    }
}

fn load(address: u64) -> u64 {
    unsafe { *(address as *const u64) }
}

impl Bound {
    /// The caller.
    #[inline(always)]
    fn step(&mut self, at: At, is_leaf: bool) -> Option<At> {
        let mut slot = hash(at.pc);
        let word = loop {
            let [key, word] = self.table[slot];
            if key == at.pc {
                break word;
            }
            if key == 0 {
                break self.learn(at.pc, is_leaf);
            }
            slot = (slot + 1) % BOUND_SIZE;
        };
        if word == u64::MAX {
            return None;
        }
        let base = if word & 1 != 0 { at.bp } else { at.sp };
        let cfa = base.wrapping_add((word as u32 >> 1) as u64);
        let distance = (word as i64) >> 32;
        let (bp, word_at) = match distance {
            0 => (at.bp, cfa - 8),
            _ => {
                let place = cfa.wrapping_add_signed(distance);
                (load(place), place)
            }
        };
        Some(At {
            pc: load(cfa - 8),
            sp: cfa,
            bp,
            word_at,
        })
    }
}

impl Walk for Bound {
    fn walk(&mut self, context: *mut c_void) -> usize {
        let mut at = At::leaf(context);
        let mut count = 0;
        while let Some(place) = self.pcs.get_mut(count) {
            *place = at.pc;
            count += 1;
            match self.step(at, count == 1) {
                Some(caller) => at = caller,
                None => break,
            }
        }
        count
    }
}

/// What no walk can beat that compares what it remembers of the last one: the bound above for the
/// frames that are new, and for the others two loads each that wait for nothing. Remembering costs
/// it nothing, nor does it look at bounds or generations.
struct ReuseBound {
    bound: Bound,
    /// Of the last walk, outermost first.
    known: Vec<Remembered>,
}

struct Remembered {
    at: At,
    /// What stood there.
    word: u64,
}

impl ReuseBound {
    fn new() -> Self {
        Self {
            bound: Bound::new(),
            known: Vec::with_capacity(LONGEST),
        }
    }
}

impl Walk for ReuseBound {
    fn walk(&mut self, context: *mut c_void) -> usize {
        let mut at = At::leaf(context);
        let (mut count, mut ahead) = (0, self.known.len());
        while count < LONGEST {
            self.bound.pcs[count] = at.pc;
            count += 1;
            while ahead > 0 && self.known[ahead - 1].at.sp < at.sp {
                ahead -= 1;
            }
            let (unchanged, met) = self.known.split_at(ahead.saturating_sub(1));
            if met.first().is_some_and(|met| met.at == at) {
                let mut differences = 0;
                let pcs = self.bound.pcs[count..].iter_mut();
                for (known, place) in unchanged.iter().rev().zip(pcs) {
                    differences |= load(known.at.sp - 8) ^ known.at.pc;
                    differences |= load(known.at.word_at) ^ known.word;
                    *place = known.at.pc;
                }
                if differences == 0 {
                    return count + unchanged.len();
                }
            }
            match self.bound.step(at, count == 1) {
                Some(caller) => at = caller,
                None => break,
            }
        }
        count
    }

    fn remember(&mut self, context: *mut c_void) {
        self.known.clear();
        let mut next = Some(At::leaf(context));
        while let Some(at) = next.filter(|_| self.known.len() < LONGEST) {
            // What leads to the leaf are registers, which nobody compares.
            let word = if self.known.is_empty() {
                0
            } else {
                load(at.word_at)
            };
            self.known.push(Remembered { at, word });
            next = self.bound.step(at, self.known.len() == 1);
        }
        self.known.reverse();
    }
}

struct FramePointers {
    pcs: [u64; LONGEST],
    high: u64,
}

impl Walk for FramePointers {
    fn walk(&mut self, context: *mut c_void) -> usize {
        let registers = unsafe { Registers::from_ucontext(context) };
        let (mut pc, mut bp) = (registers.pc, registers.general[6]);
        let mut count = 0;
        while let Some(place) = self.pcs.get_mut(count) {
            *place = pc;
            count += 1;
            if bp & 7 != 0 || bp < registers.sp() || bp > self.high - 16 {
                break;
            }
            let frame = bp as *const u64;
            let next = unsafe { *frame };
            pc = unsafe { *frame.add(1) };
            if next <= bp {
                break;
            }
            bp = next;
        }
        count
    }
}
