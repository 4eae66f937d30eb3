//! Every fixture decoded, encoded anew and decoded again: the same functions and rows, whichever
//! version, order and way of counting starts it is written in.

#[expect(dead_code, reason = "the tests use different sections of a fixture")]
mod fixture;

use sframe_unwind::{
    Abi, Address, Base, Cfa, EncodeError, Encoder, FunctionRows, Register, Row, Rule, Section,
    Version,
};

fn functions(section: &Section<'_>) -> Vec<FunctionRows> {
    section
        .functions()
        .map(|function| FunctionRows::try_from(&function.expect("a function")).expect("rows"))
        .collect()
}

fn encoders(version: Version, abi: Abi) -> [Encoder; 4] {
    let new = || Encoder::new(version, abi).expect("an encoder");
    [
        new(),
        new().unsorted(),
        new().starts_from_section(),
        new().sharing_rows(),
    ]
}

#[test]
fn fixtures_survive() {
    for fixture in fixture::all() {
        let section = fixture.section();
        let header = *section.header();
        let mut original = functions(&section);
        for (version, address) in [
            (Version::V2, 0x12_3456),
            (Version::V3, 0x9876_5432_1000_u64),
        ] {
            for mut encoder in encoders(version, header.abi) {
                let pushed: Vec<_> = original
                    .iter()
                    .filter(|function| encoder.push(function).is_ok())
                    .cloned()
                    .collect();
                if version == Version::V3 || header.version != Version::V3 {
                    assert_eq!(
                        pushed.len(),
                        original.len(),
                        "{}: {version:?} expresses less",
                        fixture.name
                    );
                }
                let address = if version == Version::V2 {
                    fixture.sframe.address + 4096
                } else {
                    address
                };
                let len = encoder.section_len();
                let bytes = encoder.finish(Address(address)).expect("a section");
                assert_eq!(bytes.len(), len);
                let encoded = Section::new(&bytes, Address(address)).expect("a section");
                assert_eq!(encoded.header().section_len(), bytes.len() as u64);
                encoded
                    .verify()
                    .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
                assert_eq!(functions(&encoded), pushed, "{}", fixture.name);
            }
        }
        // Unsorted the other way round: look-ups find the same.
        original.reverse();
        let mut encoder = Encoder::new(Version::V3, header.abi)
            .expect("an encoder")
            .unsorted();
        original
            .iter()
            .for_each(|function| encoder.push(function).expect("a function"));
        let bytes = encoder.finish(section.address()).expect("a section");
        let reversed = Section::new(&bytes, section.address()).expect("a section");
        assert!(!reversed.header().is_sorted());
        for function in &original {
            for offset in (0..function.size).filter(|offset| offset % 64 < 16) {
                let pc = function.start.wrapping_offset(offset.into());
                assert_eq!(
                    reversed.lookup(pc),
                    section.lookup(pc),
                    "{}: {pc}",
                    fixture.name
                );
            }
        }
    }
}

fn one(row: Row) -> FunctionRows {
    FunctionRows::new(Address(0), 16, vec![(0, row)])
}

fn cfa(base: Base, offset: i32) -> Cfa {
    Cfa {
        base,
        offset,
        deref: false,
    }
}

/// Every combination of rules either survives or is refused for the rule that has no words.
#[test]
fn rules_survive_or_are_refused() {
    let bases = [
        Base::StackPointer,
        Base::FramePointer,
        Base::Register(Register(10)),
        Base::Register(Register(9999)),
    ];
    let offsets = [
        0,
        8,
        -8,
        127,
        128,
        -129,
        40_000,
        i32::MAX,
        i32::MIN,
        160,
        168,
        -40,
    ];
    let rules = offsets.iter().flat_map(|&offset| {
        let register = Register(17);
        [
            Rule::AtCfa(offset),
            Rule::Register { register, offset },
            Rule::AtRegister { register, offset },
        ]
    });
    let rules: Vec<Rule> = rules.chain([Rule::Unchanged, Rule::Undefined]).collect();
    let (mut survived, mut refused) = (0, 0);
    for abi in [Abi::Amd64, Abi::Aarch64Big, Abi::Aarch64Little, Abi::S390x] {
        for version in [Version::V2, Version::V3] {
            for (base, deref) in bases
                .iter()
                .flat_map(|base| [(*base, false), (*base, true)])
            {
                for &offset in &offsets {
                    for (&ra, &fp) in rules
                        .iter()
                        .zip(rules.iter().rev())
                        .chain(rules.iter().map(|ra| (ra, &Rule::Unchanged)))
                    {
                        let row = Row::new(
                            Cfa {
                                base,
                                offset,
                                deref,
                            },
                            ra,
                            fp,
                        );
                        let mut encoder = Encoder::new(version, abi).expect("an encoder");
                        if encoder.push(&one(row)).is_err() {
                            refused += 1;
                            continue;
                        }
                        let bytes = encoder.finish(Address(64)).expect("a section");
                        let section = Section::new(&bytes, Address(64)).expect("a section");
                        let found = section.lookup(Address(15)).expect("a row").expect("a row");
                        let same = found == row || (found.is_outermost() && row.is_outermost());
                        assert!(same, "{abi:?} {version:?}: {row:?} became {found:?}");
                        survived += 1;
                    }
                }
            }
        }
    }
    assert!(
        survived > 1000 && refused > 1000,
        "{survived} survived, {refused} were refused"
    );
}

#[test]
fn version_2_refuses_what_only_version_3_can_say() {
    let mut encoder = Encoder::new(Version::V2, Abi::Amd64).expect("an encoder");
    let usual = Row::new(cfa(Base::StackPointer, 8), Rule::AtCfa(-8), Rule::Unchanged);
    let mut signal = one(usual);
    signal.signal_frame = true;
    assert_eq!(encoder.push(&signal), Err(EncodeError::SignalFrame));
    let drap = Row::new(
        cfa(Base::Register(Register(10)), 0),
        Rule::AtCfa(-8),
        Rule::Unchanged,
    );
    assert_eq!(encoder.push(&one(drap)), Err(EncodeError::Cfa { start: 0 }));
    let moved = Row::new(
        usual.cfa,
        Rule::Register {
            register: Register(2),
            offset: 0,
        },
        Rule::Unchanged,
    );
    assert_eq!(
        encoder.push(&one(moved)),
        Err(EncodeError::ReturnAddress { start: 0 })
    );
    assert_eq!(
        encoder.push(&FunctionRows::new(Address(0), 1, vec![])),
        Err(EncodeError::NoRows)
    );
    let twice = FunctionRows::new(Address(0), 8, vec![(4, usual), (4, usual)]);
    assert_eq!(
        encoder.push(&twice),
        Err(EncodeError::RowOrder { start: 4 })
    );
    encoder
        .push(&FunctionRows::new(Address(1 << 40), 8, vec![(0, usual)]))
        .expect("a function");
    assert_eq!(
        encoder.finish(Address(0)),
        Err(EncodeError::OutOfReach {
            start: Address(1 << 40)
        })
    );
    assert_eq!(
        Encoder::new(Version::V1, Abi::Amd64).err(),
        Some(EncodeError::UnsupportedVersion)
    );
}
