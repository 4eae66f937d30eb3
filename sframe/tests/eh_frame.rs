//! Every instruction of every fixture: the row found for it comes to the same CFA, return address and frame pointer as
//! `.eh_frame`, which the compiler wrote beside it. Where a producer is known to be wrong, exactly there.

#[expect(dead_code, reason = "the tests use different sections of a fixture")]
mod fixture;
mod machine;

use fixture::Fixture;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, RegisterRule, RunTimeEndian, UnwindSection,
};
use machine::{Caller, Machine};
use sframe::{Abi, Address, ByteOrder, Register};

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// Producers that are wrong about a function, as (fixture, offset of its first instruction in the program's code): what
/// they wrote cannot be told from what is right, so it is `.eh_frame` that says.
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
];

#[test]
fn every_instruction_comes_to_what_eh_frame_says() {
    let mut wrong = Vec::new();
    for fixture in fixture::all() {
        let section = fixture.section();
        let oracle = Oracle::new(&fixture);
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

/// `.eh_frame`, interpreted by gimli.
struct Oracle {
    bytes: Vec<u8>,
    address: u64,
    endian: RunTimeEndian,
    abi: Abi,
}

impl Oracle {
    fn new(fixture: &Fixture) -> Self {
        let mut bytes = fixture.eh_frame.bytes.clone();
        // gimli does not know the augmentation that names the key of return addresses, which changes none of the rules.
        while let Some(at) = bytes.windows(4).position(|window| window == b"zRB\0") {
            bytes[at + 2] = b'S';
        }
        let header = *fixture.section().header();
        let endian = match header.byte_order {
            ByteOrder::Little => RunTimeEndian::Little,
            ByteOrder::Big => RunTimeEndian::Big,
        };
        Self {
            bytes,
            address: fixture.eh_frame.address,
            endian,
            abi: header.abi,
        }
    }

    /// What the rules for the machines' one pc come to.
    fn callers(&self, machines: &[Machine; 2]) -> [Caller; 2] {
        let mut eh_frame = EhFrame::new(&self.bytes, self.endian);
        eh_frame.set_address_size(8);
        if self.abi == Abi::Aarch64Little {
            eh_frame.set_vendor(gimli::Vendor::AArch64);
        }
        let pc = machines[0].pc.0;
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        let fde = eh_frame
            .fde_for_address(&bases, pc, EhFrame::cie_from_offset)
            .expect("an FDE");
        let mut context = gimli::UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&eh_frame, &bases, &mut context, pc)
            .expect("a row")
            .clone();
        machines.map(|machine| self.caller(&machine, &row, &eh_frame, fde.cie().encoding()))
    }

    fn caller(
        &self,
        machine: &Machine,
        row: &gimli::UnwindTableRow<usize>,
        eh_frame: &EhFrame<Reader<'_>>,
        encoding: gimli::Encoding,
    ) -> Caller {
        let evaluate = |expression: &gimli::UnwindExpression<usize>, initial: Option<u64>| {
            evaluate(
                machine,
                expression.get(eh_frame).expect("an expression"),
                encoding,
                initial,
            )
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => machine
                .register(Register(register.0))
                .wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => evaluate(expression, None),
        };
        let value = |register: Register| match row.register(gimli::Register(register.0)) {
            None | Some(RegisterRule::SameValue) => Some(machine.register(register)),
            Some(RegisterRule::Undefined) => None,
            Some(RegisterRule::Offset(offset)) => {
                Some(machine.memory(cfa.wrapping_add_signed(offset)))
            }
            Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(register)) => Some(machine.register(Register(register.0))),
            Some(RegisterRule::Expression(expression)) => {
                Some(machine.memory(evaluate(&expression, Some(cfa))))
            }
            Some(RegisterRule::ValExpression(expression)) => Some(evaluate(&expression, Some(cfa))),
            Some(rule) => panic!("{rule:?}"),
        };
        let Some(ra) = value(self.abi.return_address()) else {
            return Caller::None;
        };
        Caller::Frame {
            cfa,
            ra,
            fp: value(self.abi.frame_pointer()).expect("a frame pointer"),
        }
    }
}

/// The value of a DWARF expression on the machine.
fn evaluate(
    machine: &Machine,
    expression: gimli::Expression<Reader<'_>>,
    encoding: gimli::Encoding,
    initial: Option<u64>,
) -> u64 {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate().expect("an expression");
    loop {
        state = match state {
            gimli::EvaluationResult::Complete => break,
            gimli::EvaluationResult::RequiresRegister { register, .. } => {
                let value = machine.register(Register(register.0));
                evaluation.resume_with_register(gimli::Value::Generic(value))
            }
            gimli::EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(machine.memory(address)))
            }
            state => panic!("{state:?}"),
        }
        .expect("a value");
    }
    match evaluation.result().as_slice() {
        [
            gimli::Piece {
                location: gimli::Location::Address { address },
                ..
            },
        ] => *address,
        result => panic!("{result:?}"),
    }
}

/// The machine tells rules apart, or the test above could not fail.
#[test]
fn the_machine_tells_rules_apart() {
    let machine = Machine {
        seed: 1,
        abi: Abi::Amd64,
        pc: Address(0),
    };
    let cfa = |offset| sframe::Cfa {
        base: sframe::Base::StackPointer,
        offset,
        deref: false,
    };
    let row = |offset, ra, fp| machine.caller(&sframe::Row::new(cfa(offset), ra, fp));
    let usual = row(16, sframe::Rule::AtCfa(-8), sframe::Rule::AtCfa(-16));
    assert_eq!(
        usual,
        row(16, sframe::Rule::AtCfa(-8), sframe::Rule::AtCfa(-16))
    );
    assert_ne!(
        usual,
        row(8, sframe::Rule::AtCfa(-8), sframe::Rule::AtCfa(-16))
    );
    assert_ne!(
        usual,
        row(16, sframe::Rule::AtCfa(-16), sframe::Rule::AtCfa(-16))
    );
    assert_ne!(
        usual,
        row(16, sframe::Rule::AtCfa(-8), sframe::Rule::Unchanged)
    );
    assert_ne!(usual, machine.caller(&sframe::Row::outermost()));
}
