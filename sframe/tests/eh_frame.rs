//! Every instruction of every fixture: the row found for it comes to the same CFA, return address
//! and frame pointer as `.eh_frame`, which the compiler wrote beside it. Where a producer is known
//! to be wrong, exactly there.

#[expect(dead_code, reason = "the tests use different sections of a fixture")]
mod fixture;
mod machine;
mod oracle;

use machine::Machine;
use oracle::Oracle;
use sframe_unwind::{Abi, Address};

/// Producers that are wrong about a function, as (fixture, offset of its first instruction in the
/// program's code): what they wrote cannot be told from what is right, so it is `.eh_frame` that
/// says.
const WRONG: &[(&str, u64, &str)] = &[
    (
        "rules-amd64-v1",
        0x0,
        "version 1 cannot say that a frame has no caller",
    ),
    (
        "rules-amd64-v2",
        0x0,
        "binutils 2.44 does not say that a frame has no caller",
    ),
    (
        "rules-amd64-v1",
        0x2b,
        "binutils 2.40 takes every register of a CFA but the frame pointer for the stack pointer",
    ),
    ("rules-amd64-v1", 0x3f, "the same"),
    (
        "rules-amd64-v2",
        0x3c,
        "binutils 2.44 does not notice that the return address is in a register",
    ),
    (
        "rules-aarch64-v1",
        0x54,
        "version 1 cannot say that a frame has no caller",
    ),
    (
        "rules-aarch64-v2",
        0x54,
        "binutils 2.44 does not say that a frame has no caller",
    ),
    ("rules-aarch64be-v1", 0x54, "as rules-aarch64-v1"),
    ("rules-aarch64be-v2", 0x54, "as rules-aarch64-v2"),
];

#[test]
fn every_instruction_comes_to_what_eh_frame_says() {
    let mut wrong = Vec::new();
    for fixture in fixture::all() {
        let section = fixture.section();
        let oracle = Oracle::new(
            &fixture.eh_frame.bytes,
            fixture.eh_frame.address,
            section.header().abi,
        );
        let (mut instructions, first) = (
            0,
            section
                .functions()
                .next()
                .expect("a function")
                .expect("its entry")
                .start(),
        );
        for function in section.functions() {
            let function = function.expect("a function");
            for offset in 0..function.size() {
                let pc = function.start().wrapping_offset(offset.into());
                let row = section.lookup(pc).expect("a row").expect("a row");
                instructions += 1;
                let machines = [1, 0x5555_5555].map(|seed| Machine {
                    seed,
                    abi: section.header().abi,
                    pc,
                });
                let agrees =
                    machines.map(|machine| machine.caller(&row)) == oracle.callers(&machines);
                let known = (
                    fixture.name.clone(),
                    function.start().distance_from(first) as u64,
                );
                if !agrees && !wrong.contains(&known) {
                    println!("{}: {pc}: {row:?}", fixture.name);
                    wrong.push(known);
                }
            }
        }
        println!("{}: {instructions} instruction bytes", fixture.name);
    }
    let known: Vec<_> = WRONG
        .iter()
        .map(|(name, start, _)| ((*name).to_owned(), *start))
        .collect();
    wrong.sort();
    let mut expected = known;
    expected.sort();
    assert_eq!(wrong, expected);
}

/// The machine tells rules apart, or the test above could not fail.
#[test]
fn the_machine_tells_rules_apart() {
    let machine = Machine {
        seed: 1,
        abi: Abi::Amd64,
        pc: Address(0),
    };
    let cfa = |offset| sframe_unwind::Cfa {
        base: sframe_unwind::Base::StackPointer,
        offset,
        deref: false,
    };
    let row = |offset, ra, fp| machine.caller(&sframe_unwind::Row::new(cfa(offset), ra, fp));
    let usual = row(
        16,
        sframe_unwind::Rule::AtCfa(-8),
        sframe_unwind::Rule::AtCfa(-16),
    );
    assert_eq!(
        usual,
        row(
            16,
            sframe_unwind::Rule::AtCfa(-8),
            sframe_unwind::Rule::AtCfa(-16)
        )
    );
    assert_ne!(
        usual,
        row(
            8,
            sframe_unwind::Rule::AtCfa(-8),
            sframe_unwind::Rule::AtCfa(-16)
        )
    );
    assert_ne!(
        usual,
        row(
            16,
            sframe_unwind::Rule::AtCfa(-16),
            sframe_unwind::Rule::AtCfa(-16)
        )
    );
    assert_ne!(
        usual,
        row(
            16,
            sframe_unwind::Rule::AtCfa(-8),
            sframe_unwind::Rule::Unchanged
        )
    );
    assert_ne!(usual, machine.caller(&sframe_unwind::Row::outermost()));
}
