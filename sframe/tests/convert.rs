//! The rows made from `.eh_frame` come to what `.eh_frame` says, in the fixtures and in real
//! programs; and they are those the assembler made from the same source.

#[expect(dead_code, reason = "the tests use different sections of a fixture")]
mod fixture;
mod machine;
mod oracle;

use machine::Machine;
use object::{Object, ObjectSection};
use oracle::Oracle;
use sframe_unwind::{
    Abi, Address, Conversion, Converted, EhFrame, Encoder, FunctionRows, Reason, Section, Version,
};

/// Of the functions' instructions, those at which a row begins, and the last before it.
fn check(name: &str, bytes: &[u8], address: u64, abi: Abi, conversion: &Conversion) -> usize {
    let oracle = Oracle::new(bytes, address, abi);
    let mut encoder = Encoder::new(Version::V3, abi).expect("an encoder");
    let functions: Vec<&FunctionRows> = conversion
        .functions
        .iter()
        .filter_map(|f| f.rows.as_ref().ok())
        .collect();
    functions
        .iter()
        .for_each(|function| encoder.push(function).expect("what version 3 can say"));
    let section_address = Address(address.wrapping_add(0x1000_0000));
    let encoded = encoder.finish(section_address).expect("a section");
    let section = Section::new(&encoded, section_address).expect("a section");
    section.verify().expect("in order");
    let mut checked = 0;
    for function in functions {
        let repeated = function.rep_size.map_or(0, |size| u32::from(size.get()));
        let starts = function
            .rows
            .iter()
            .flat_map(|(start, _)| [start.wrapping_sub(1), *start, start + repeated]);
        for offset in starts
            .chain([function.size.wrapping_sub(1)])
            .filter(|offset| *offset < function.size)
        {
            let pc = function.start.wrapping_offset(offset.into());
            let machines = [7, 0x1234_5678].map(|seed| Machine { seed, abi, pc });
            let row = section.lookup(pc).expect("a row").expect("a row");
            assert_eq!(
                machines.map(|machine| machine.caller(&row)),
                oracle.callers(&machines),
                "{name}: {pc}: {row:?}"
            );
            checked += 1;
        }
    }
    checked
}

#[test]
fn fixtures() {
    for fixture in fixture::all() {
        let (table, abi) = (&fixture.eh_frame, fixture.section().header().abi);
        let conversion = EhFrame::new(&table.bytes, Address(table.address), abi).convert();
        assert_eq!(conversion.malformed, [], "{}", fixture.name);
        let refused: Vec<&Converted> = conversion
            .functions
            .iter()
            .filter(|f| f.rows.is_err())
            .collect();
        assert!(refused.is_empty(), "{}: {refused:?}", fixture.name);
        assert!(check(&fixture.name, &table.bytes, table.address, abi, &conversion) > 10);
    }
}

/// The assembler of binutils 2.46 and later knows all that version 3 can say; so its rows are the
/// conversion's.
#[test]
fn rows_are_those_of_the_assembler() {
    for fixture in fixture::all()
        .iter()
        .filter(|fixture| fixture.name.ends_with("v3"))
    {
        let section = fixture.section();
        let table = &fixture.eh_frame;
        let conversion =
            EhFrame::new(&table.bytes, Address(table.address), section.header().abi).convert();
        let mut compared = 0;
        for function in section
            .functions()
            .map(|function| function.expect("a function"))
        {
            if function.size() == 0 {
                continue;
            }
            let same_start =
                |converted: &&Converted| converted.start == function.start() && converted.size > 0;
            let converted = conversion
                .functions
                .iter()
                .find(same_start)
                .expect("the same function");
            let mut rows = FunctionRows::try_from(&function).expect("rows");
            rows.rows
                .dedup_by(|(_, later), (_, earlier)| later == earlier);
            // The linker marks every linkage table as repeating, also one whose block has a single
            // row; and then says what a look-up puts right.
            if let (Some(_), [(0, row)]) = (rows.rep_size, rows.rows.as_mut_slice()) {
                *row = function.row_at(0).expect("a row").expect("a row");
                rows.rep_size = None;
            }
            assert_eq!(converted.rows, Ok(rows), "{}", fixture.name);
            compared += 1;
        }
        assert!(compared > 2);
    }
}

/// This test itself, and the C library if it lies where it usually does.
#[test]
fn real_programs() {
    let this = std::env::current_exe().expect("this program");
    let libraries = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/aarch64-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
    ];
    let library = libraries
        .iter()
        .map(std::path::PathBuf::from)
        .find(|path| path.exists());
    for path in std::iter::once(this).chain(library) {
        let bytes = std::fs::read(&path).expect("a program");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let abi = match file.architecture() {
            object::Architecture::X86_64 => Abi::Amd64,
            object::Architecture::Aarch64 => Abi::Aarch64Little,
            object::Architecture::S390x => Abi::S390x,
            architecture => panic!("{architecture:?}"),
        };
        let section = file.section_by_name(".eh_frame").expect(".eh_frame");
        let data = section.data().expect("its bytes");
        let conversion = EhFrame::new(data, Address(section.address()), abi).convert();
        assert_eq!(conversion.malformed, []);
        let checked = check(
            &path.display().to_string(),
            data,
            section.address(),
            abi,
            &conversion,
        );
        let refused = conversion
            .functions
            .iter()
            .filter(|function| function.rows.is_err())
            .count();
        println!(
            "{}: {checked} rows, {refused} functions refused",
            path.display()
        );
        for function in &conversion.functions {
            if let Err(reason) = &function.rows {
                println!("  {}: {reason}", function.start);
            }
        }
        assert!(checked > 1000);
        assert!(
            refused * 50 < conversion.functions.len(),
            "{refused} refused of {}",
            conversion.functions.len()
        );
    }
}

/// `.eh_frame` built byte by byte: one function whose CFA goes through what SFrame has no words
/// for.
#[test]
fn what_cannot_be_said_is_refused_with_the_place() {
    let convert = |program: &[u8]| {
        let bytes = eh_frame(program);
        let conversion = EhFrame::new(&bytes, Address(0x1000), Abi::Amd64).convert();
        assert_eq!(conversion.malformed, []);
        let [function] = conversion.functions.as_slice() else {
            panic!("{conversion:?}")
        };
        assert_eq!((function.start, function.size), (Address(0x5000), 0x40));
        function.rows.clone().map(|_| ())
    };
    assert_eq!(convert(&[]), Ok(()));
    // advance 4; def_cfa_expression { breg7 8; lit1; plus }
    assert_eq!(
        convert(&[0x44, 0x0f, 4, 0x77, 8, 0x31, 0x22]),
        Err(Reason::Cfa { at: 4 })
    );
    // advance 2; val_offset rbp 2: the frame pointer is CFA - 16
    assert_eq!(
        convert(&[0x42, 0x14, 6, 2]),
        Err(Reason::FramePointer { at: 2 })
    );
    // advance 3; offset rsp 2: the stack pointer is in memory
    assert_eq!(
        convert(&[0x43, 0x87, 2]),
        Err(Reason::StackPointer { at: 3 })
    );
    // advance 6; def_cfa_expression { piece of 2^63 - 1 bytes }
    let piece = [
        0x46, 0x0f, 10, 0x93, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ];
    assert_eq!(convert(&piece), Err(Reason::Cfa { at: 6 }));
    // advance 5; expression rip { breg7 0; deref }
    assert_eq!(
        convert(&[0x45, 0x10, 16, 3, 0x77, 0, 0x06]),
        Err(Reason::ReturnAddress { at: 5 })
    );
    // The augmentation B is a key of aarch64 and nothing on amd64.
    let mut unknown = eh_frame(&[]);
    unknown[10] = b'B';
    let malformed = |abi| {
        EhFrame::new(&unknown, Address(0x1000), abi)
            .convert()
            .malformed
            .len()
    };
    assert_eq!(
        (malformed(Abi::Amd64), malformed(Abi::Aarch64Little)),
        (1, 0)
    );
    let truncated = &eh_frame(&[])[..20];
    assert_eq!(
        EhFrame::new(truncated, Address(0x1000), Abi::Amd64)
            .convert()
            .malformed
            .len(),
        1
    );
}

/// A common information entry with CFA = rsp + 8 and the return address at CFA - 8, and one
/// function of 0x40 bytes at 0x5000, absolute, with this program.
fn eh_frame(program: &[u8]) -> Vec<u8> {
    let entry = |contents: &[u8]| {
        let mut padded = contents.to_vec();
        padded.resize(contents.len().next_multiple_of(4), 0);
        [
            &u32::try_from(padded.len()).expect("short").to_le_bytes()[..],
            &padded,
        ]
        .concat()
    };
    let cie = entry(&[
        0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1,
    ]);
    let back = u32::try_from(cie.len() + 4).expect("short").to_le_bytes();
    let fde = [
        &back[..],
        &0x5000_u64.to_le_bytes(),
        &0x40_u64.to_le_bytes(),
        &[0],
        program,
    ]
    .concat();
    [cie, entry(&fde), vec![0; 4]].concat()
}
