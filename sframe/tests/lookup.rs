//! Look-ups at the edges: between functions, at empty ones, with an auxiliary header, with hints,
//! in sections cut short or spoilt byte by byte; and every error with the offset of what is wrong.

#[expect(dead_code, reason = "the tests use different sections of a fixture")]
mod fixture;

use sframe_unwind::{
    Abi, Address, Base, Cfa, Encoder, Error, FunctionRows, Header, IndexedSection, Row, Rule,
    Section, Version,
};

const ADDRESS: Address = Address(0x8000);

fn row(offset: i32) -> Row {
    let cfa = Cfa {
        base: Base::StackPointer,
        offset,
        deref: false,
    };
    Row::new(cfa, Rule::AtCfa(-8), Rule::Unchanged)
}

fn encode(encoder: Encoder, functions: &[(u64, u32, i32)]) -> Vec<u8> {
    let mut encoder = encoder;
    for (start, size, offset) in functions {
        let rows = vec![(0, row(*offset)), (4, row(offset + 8))];
        encoder
            .push(&FunctionRows::new(Address(*start), *size, rows))
            .expect("a function");
    }
    encoder.finish(ADDRESS).expect("a section")
}

fn encoder(version: Version) -> Encoder {
    Encoder::new(version, Abi::Amd64).expect("an encoder")
}

fn section(bytes: &[u8]) -> Section<'_> {
    Section::new(bytes, ADDRESS).expect("a section")
}

#[test]
fn between_and_around_functions_there_is_nothing() {
    let bytes = encode(
        encoder(Version::V2),
        &[(0x1000, 16, 8), (0x1010, 16, 24), (0x9000, 8, 40)],
    );
    let section = section(&bytes);
    let offset = |pc| {
        section
            .lookup(Address(pc))
            .expect("no error")
            .map(|row| row.cfa.offset)
    };
    let expected = [
        (0, None),
        (0xfff, None),
        (0x1000, Some(8)),
        (0x1003, Some(8)),
        (0x1004, Some(16)),
        (0x100f, Some(16)),
        (0x1010, Some(24)),
        (0x101f, Some(32)),
        (0x1020, None),
        (0x8fff, None),
        (0x9007, Some(48)),
        (0x9008, None),
        (u64::MAX, None),
    ];
    for (pc, expected) in expected {
        assert_eq!(offset(pc), expected, "{pc:#x}");
    }
}

#[test]
fn no_function_reaches_around_the_address_space() {
    let far = ADDRESS.0 + (i64::MAX as u64) - 8;
    let function = [(far, 512, 8)];
    for encoder in [
        encoder(Version::V3).starts_from_section(),
        encoder(Version::V3).starts_from_section().unsorted(),
    ] {
        let bytes = encode(encoder, &function);
        let found = |pc: u64| section(&bytes).lookup(Address(pc)).expect("no error");
        assert_eq!(found(far + 1), Some(row(8)));
        assert_eq!(found(far + 8), Some(row(16)));
        assert_eq!(found(far + 9), None);
        assert_eq!(found(far + 100), None);
    }
}

#[test]
fn hints_reach_as_far_as_the_address_space() {
    let far = ADDRESS.0 + (i64::MAX as u64) - 64;
    let functions = [(0x100, 8, 8), (0x200, 8, 24), (far, 8, 40)];
    let bytes = encode(encoder(Version::V3).starts_from_section(), &functions);
    let section = section(&bytes);
    for len in 0..9 {
        let mut memory = vec![0; len];
        let indexed = IndexedSection::new(section, &mut memory);
        for (start, _, offset) in functions {
            assert_eq!(
                indexed.lookup(Address(start)),
                Ok(Some(row(offset))),
                "{len} hints"
            );
            assert_eq!(indexed.lookup(Address(start + 8)), Ok(None));
        }
    }
}

#[test]
fn empty_functions_hide_nothing() {
    for empty_first in [true, false] {
        let mut functions = vec![(0x1000, 0, 80), (0x1000, 0, 88), (0x1000, 16, 8)];
        if !empty_first {
            functions.reverse();
        }
        let bytes = encode(encoder(Version::V3), &functions);
        assert_eq!(section(&bytes).lookup(Address(0x1000)), Ok(Some(row(8))));
        assert_eq!(section(&bytes).lookup(Address(0x1010)), Ok(None));
    }
}

#[test]
fn the_auxiliary_header_moves_what_follows() {
    let plain = encode(
        encoder(Version::V3).starts_from_section(),
        &[(0x1000, 16, 8), (0x2000, 16, 24)],
    );
    let (header, rest) = plain.split_at(Header::LEN);
    let mut bytes = [header, b"auxiliary", rest].concat();
    bytes[7] = 9;
    let section = section(&bytes);
    assert_eq!(section.auxiliary(), b"auxiliary");
    assert_eq!(section.header().section_len(), bytes.len() as u64);
    assert_eq!(section.lookup(Address(0x2004)), Ok(Some(row(32))));
    section.verify().expect("in order");
}

#[test]
fn bytes_behind_the_section_do_not_count() {
    let mut bytes = encode(encoder(Version::V2), &[(0x1000, 16, 8)]);
    let len = bytes.len();
    bytes.extend([0xff; 100]);
    assert_eq!(
        Section::len_from_header(&bytes[..Header::LEN]),
        Ok(len as u64)
    );
    assert_eq!(section(&bytes).lookup(Address(0x1000)), Ok(Some(row(8))));
}

#[test]
fn hints_change_no_result() {
    for fixture in fixture::all() {
        let section = fixture.section();
        for len in [
            0,
            1,
            2,
            3,
            4,
            7,
            16,
            1000,
            IndexedSection::recommended_len(&section),
        ] {
            let mut memory = vec![0; len];
            let indexed = IndexedSection::new(section, &mut memory);
            for function in section
                .functions()
                .map(|function| function.expect("a function"))
            {
                for offset in
                    (-2..80).chain(i64::from(function.size()) - 2..i64::from(function.size()) + 2)
                {
                    let pc = function.start().wrapping_offset(offset);
                    assert_eq!(
                        indexed.lookup(pc),
                        section.lookup(pc),
                        "{}: {pc}, {len} hints",
                        fixture.name
                    );
                }
            }
            assert_eq!(indexed.lookup(Address(0)), Ok(None));
            assert_eq!(indexed.lookup(Address(u64::MAX)), Ok(None));
        }
    }
}

/// Every fixture cut short at every length, and with every byte replaced by several others:
/// whatever comes out, it is no panic, and what comes out of the untouched one is right.
#[test]
fn spoilt_sections_do_no_harm() {
    let mut refused = 0;
    for fixture in fixture::all() {
        let whole = &fixture.sframe.bytes;
        let pcs: Vec<Address> = fixture
            .section()
            .functions()
            .map(|function| function.expect("a function"))
            .flat_map(|function| {
                [
                    function.start(),
                    function.start().wrapping_offset(9),
                    function.end(),
                ]
            })
            .collect();
        let mut look = |bytes: &[u8]| {
            let Ok(section) = Section::new(bytes, Address(fixture.sframe.address)) else {
                return refused += 1;
            };
            refused += u32::from(section.verify().is_err());
            for pc in &pcs {
                let _ = section.lookup(*pc);
            }
        };
        (0..whole.len()).for_each(|len| look(&whole[..len]));
        for at in 0..whole.len() {
            for value in [
                0x00,
                0x01,
                0x7f,
                0x80,
                0xff,
                whole[at] ^ 0x10,
                whole[at].wrapping_add(1),
            ] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                look(&bytes);
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let whole = encode(encoder(Version::V3), &[(0x1000, 16, 8)]);
    let (attribute, rows) = (Header::LEN + 16, Header::LEN + 16 + 5);
    let spoilt = |changes: &[(usize, u8)]| {
        let mut bytes = whole.clone();
        changes.iter().for_each(|(at, value)| bytes[*at] = *value);
        let lookup =
            Section::new(&bytes, ADDRESS).and_then(|section| section.lookup(Address(0x1005)));
        let verify = Section::new(&bytes, ADDRESS).and_then(|section| section.verify());
        (lookup.err(), verify.err())
    };
    let both = |error| (Some(error), Some(error));
    let len = |at: usize| at as u64;
    assert_eq!(spoilt(&[]), (None, None));
    assert_eq!(
        spoilt(&[(0, 0)]),
        both(Error::BadMagic {
            offset: 0,
            magic: 0xde00
        })
    );
    assert_eq!(
        spoilt(&[(0, 0xde), (1, 0xe2)]),
        both(Error::ByteOrderMismatch { offset: 4, abi: 3 })
    );
    assert_eq!(
        spoilt(&[(2, 4)]),
        both(Error::UnknownVersion {
            offset: 2,
            version: 4
        })
    );
    assert_eq!(
        spoilt(&[(3, 0x07)]),
        both(Error::UnknownFlags {
            offset: 3,
            flags: 7
        })
    );
    assert_eq!(
        spoilt(&[(4, 9)]),
        both(Error::UnknownAbi { offset: 4, abi: 9 })
    );
    assert_eq!(
        spoilt(&[(8, 9)]),
        both(Error::FdesOutOfBounds {
            offset: 28,
            len: 144
        })
    );
    assert_eq!(
        spoilt(&[(18, 1)]),
        both(Error::FresOutOfBounds {
            offset: 44,
            len: 0x1_000b
        })
    );
    assert_eq!(spoilt(&[(24, 8)]), both(Error::Overlap { offset: 36 }));
    let end = len(whole.len());
    assert_eq!(
        spoilt(&[(Header::LEN + 12, 200)]),
        both(Error::RowsOutOfBounds { offset: end })
    );
    assert_eq!(
        spoilt(&[(attribute, 9)]),
        both(Error::RowsOutOfBounds { offset: end })
    );
    assert_eq!(
        spoilt(&[(attribute + 2, 5)]),
        both(Error::BadFreType {
            offset: len(attribute + 2),
            info: 5
        })
    );
    assert_eq!(
        spoilt(&[(attribute + 3, 7)]),
        both(Error::BadFdeType {
            offset: len(attribute + 3),
            info2: 7
        })
    );
    assert_eq!(
        spoilt(&[(attribute + 2, 0x10)]),
        both(Error::ZeroRepSize {
            offset: len(attribute + 4)
        })
    );
    assert_eq!(
        spoilt(&[(rows + 4, 0x63)]),
        both(Error::BadWordSize {
            offset: len(rows + 4),
            info: 0x63
        })
    );
    assert_eq!(
        spoilt(&[(rows + 1, 7)]),
        both(Error::BadWordCount {
            offset: len(rows + 1),
            info: 7
        })
    );
    // As FLEX, the only word of each row is a control word without a base.
    let flex = [(rows + 4, 16), (rows + 1, 8)].map(|(at, control)| Error::BadControl {
        offset: len(at),
        control,
    });
    assert_eq!(
        spoilt(&[(attribute + 3, 1)]),
        (Some(flex[0]), Some(flex[1]))
    );
    assert_eq!(
        spoilt(&[(rows + 3, 0)]),
        (
            None,
            Some(Error::BadRowStart {
                offset: len(rows + 3),
                start: 0
            })
        )
    );
    assert_eq!(
        spoilt(&[(12, 3)]),
        (
            None,
            Some(Error::BadRowTotal {
                offset: 12,
                count: 3
            })
        )
    );
    assert_eq!(
        Section::new(&whole[..20], ADDRESS).err(),
        Some(Error::HeaderTooShort { offset: 20 }),
    );
    let unsorted = encode(
        encoder(Version::V3).unsorted(),
        &[(0x2000, 16, 8), (0x1000, 16, 8)],
    );
    let mut claims = unsorted.clone();
    claims[3] |= 1;
    assert_eq!(
        section(&claims).verify(),
        Err(Error::NotSorted { offset: 44 })
    );
    section(&unsorted).verify().expect("unsorted, as it says");
    let error = Error::BadFdeType {
        offset: 0x2f,
        info2: 7,
    };
    assert_eq!(
        error.to_string(),
        "undefined function type in function info 0x07 (section offset 0x2f)"
    );
}
