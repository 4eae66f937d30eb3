//! CPython's structures of any content: a walk along entries, frames and code objects ends, reads
//! nothing else, and gives texts that fit.
//!
//! Input: the version (1 byte; with the high bit a free-threaded build, if the version has one),
//! then memory, of which the beginning is the thread state.
#![no_main]

mod fuzzed;

use engine::interpreter::memory::Memory;
use engine::python::code::Part;
use engine::python::recent::Codes;
use engine::python::tasks::Awaiting;
use engine::python::{layout, names, threads};
use engine::wire::code::{LONGEST_FILE, LONGEST_NAME, LONGEST_TABLE};
use fuzzed::{BASE, Fuzzed};
use libfuzzer_sys::fuzz_target;

const TABLE: u64 = 0x20_0000;

struct Interpreter<'a> {
    memory: Fuzzed<'a>,
    minor: u64,
    is_free: bool,
}

impl Interpreter<'_> {
    /// What the interpreter says of itself: fields at the places of their numbers in the table,
    /// bytes, and so in everybody's reach.
    fn of_table(&self, index: u64) -> u64 {
        match index {
            0 => u64::from_le_bytes(*b"xdebugpy"),
            1 => 3 << 24 | self.minor << 16,
            2 => self.is_free.into(),
            index => index % 16 * 8,
        }
    }
}

impl Memory for Interpreter<'_> {
    fn load(&self, address: u64) -> Option<u64> {
        match (TABLE..TABLE + 1024).contains(&address) {
            true => Some(self.of_table((address - TABLE) / 8)),
            false => self.memory.load(address),
        }
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.memory.copy(address, to)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((version, bytes)) = data.split_first() else {
        return;
    };
    let memory = Interpreter {
        memory: Fuzzed::new(bytes),
        minor: u64::from(version % 128 % 7) + 9,
        is_free: version & 0x80 != 0,
    };
    let layout = layout::of(&memory, memory.minor, TABLE).expect("a table of that version");
    let _ = layout.has_lock(&memory, BASE);
    if let Some(lists) = layout::threads(&memory, memory.minor, TABLE) {
        let mut seen = 0;
        threads::find(&memory, BASE, &lists, 100, |_| {
            seen += 1;
            None::<()>
        });
        assert!(seen <= 100);
    }
    let mut kept = [0; 16];
    let mut codes = Codes::new(&mut kept);
    let mut place = u64::from(*version);
    let mut entry = layout.innermost(&memory, BASE);
    for _ in 0..100 {
        let Some(known) = entry else { break };
        if let Some(mut task) = Awaiting::of(&memory, &layout, &known, TABLE) {
            let frames = (0..).take_while(|_| task.next(&memory, &layout).is_some());
            assert!(frames.count() <= 64 * 32);
        }
        let native = BASE..BASE + known.frame % 0x1000;
        if let Some(placed) = layout.placed(&memory, &known, native, &mut place) {
            assert!(placed.frame == known.frame && placed.count <= 8);
        }
        let mut frame = known.frame;
        for _ in 0..known.count.min(100) {
            let mut room = [0; names::LONGEST];
            if let Some(name) = layout.thread_name(&memory, frame, &mut room) {
                assert!(!name.is_empty());
            }
            if let Some(place) = layout.place(&memory, frame) {
                let check = layout.check(&memory, place.code, BASE, &mut codes);
                assert_eq!(codes.find(place.code), Some(check));
                let start = layout.start_of(&memory, &place);
                let mut length = 0;
                let _ = layout.describe(&memory, place.code, |part| {
                    match part {
                        Part::Code(code, _) => {
                            let texts = [code.name.len(), code.file.len()];
                            assert!(texts[0] <= LONGEST_NAME && texts[1] <= LONGEST_FILE);
                            length = code.lines.len();
                            let _ = code.line(place.position(start));
                        }
                        Part::Lines(more, _) => {
                            assert_eq!(more.offset as usize, length);
                            length += more.lines.len();
                        }
                    }
                    assert!(length <= LONGEST_TABLE);
                    Some(())
                });
            }
            match layout.caller(&memory, frame) {
                Some(caller) => frame = caller,
                None => break,
            }
        }
        entry = layout.outer(&memory, &known);
    }
});
