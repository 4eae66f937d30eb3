//! Any rows: refused, or encoded so that decoding gives them back.
#![no_main]

use std::num::NonZeroU8;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sframe::{
    Abi, Address, Base, Cfa, Encoder, FunctionRows, PacKey, Register, Row, Rule, Section, Version,
};

const ADDRESS: Address = Address(0x40_0000);

fuzz_target!(|bytes: &[u8]| {
    let _ = check(&mut Unstructured::new(bytes));
});

fn check(input: &mut Unstructured<'_>) -> Result<()> {
    let abi = *input.choose(&[Abi::Amd64, Abi::Aarch64Little, Abi::Aarch64Big, Abi::S390x])?;
    let version = *input.choose(&[Version::V2, Version::V3])?;
    let mut encoder = Encoder::new(version, abi).expect("an encoder").unsorted();
    if input.arbitrary()? {
        encoder = encoder.sharing_rows();
    }
    if input.arbitrary()? {
        encoder = encoder.starts_from_section();
    }
    let mut pushed = Vec::new();
    for _ in 0..input.int_in_range(0..=8)? {
        let function = function(input, abi)?;
        if encoder.push(&function).is_ok() {
            pushed.push(function);
        }
    }
    let Ok(bytes) = encoder.finish(ADDRESS) else {
        return Ok(());
    };
    let section = Section::new(&bytes, ADDRESS).expect("a section");
    let again: Vec<FunctionRows> = section
        .functions()
        .map(|function| FunctionRows::try_from(&function.expect("a function")).expect("rows"))
        .collect();
    assert_eq!(again, pushed);
    Ok(())
}

fn function(input: &mut Unstructured<'_>, abi: Abi) -> Result<FunctionRows> {
    let mut function = FunctionRows::new(
        Address(input.arbitrary::<u32>()?.into()),
        input.arbitrary()?,
        Vec::new(),
    );
    let is_aarch64 = matches!(abi, Abi::Aarch64Big | Abi::Aarch64Little);
    function.rep_size = NonZeroU8::new(input.arbitrary()?);
    function.signal_frame = input.arbitrary()?;
    function.pac_key = if is_aarch64 && input.arbitrary()? {
        PacKey::B
    } else {
        PacKey::A
    };
    let mut start = 0_u32;
    for _ in 0..input.int_in_range(0..=6)? {
        let mut row = row(input, abi)?;
        row.mangled_ra = is_aarch64 && input.arbitrary()?;
        (row.pac_key, row.signal_frame) = (function.pac_key, function.signal_frame);
        function.rows.push((start, row));
        let step = input.int_in_range(1..=0x2_0000)?;
        start = start.saturating_add(step);
    }
    Ok(function)
}

fn row(input: &mut Unstructured<'_>, abi: Abi) -> Result<Row> {
    if input.ratio(1, 8)? {
        return Ok(Row::outermost());
    }
    let base = match input.int_in_range(0..=2)? {
        0 => Base::StackPointer,
        1 => Base::FramePointer,
        _ => match Register(input.arbitrary()?) {
            register if register == abi.stack_pointer() => Base::StackPointer,
            register if register == abi.frame_pointer() => Base::FramePointer,
            register => Base::Register(register),
        },
    };
    let cfa = Cfa {
        base,
        offset: input.arbitrary()?,
        deref: input.arbitrary()?,
    };
    let ra = if input.arbitrary()? {
        Rule::AtCfa(abi.fixed_return_address_offset().into())
    } else {
        rule(input)?
    };
    let fp = rule(input)?;
    // A row without return address is Row::outermost.
    Ok(Row::new(
        cfa,
        if ra == Rule::Undefined {
            Rule::Unchanged
        } else {
            ra
        },
        fp,
    ))
}

fn rule(input: &mut Unstructured<'_>) -> Result<Rule> {
    let register = Register(input.arbitrary()?);
    let offset = input.arbitrary()?;
    Ok(match input.int_in_range(0..=4)? {
        0 => Rule::Unchanged,
        1 => Rule::AtCfa(offset),
        2 => Rule::Register { register, offset },
        3 => Rule::AtRegister { register, offset },
        _ => Rule::Undefined,
    })
}
