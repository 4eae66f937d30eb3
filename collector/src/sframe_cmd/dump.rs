//! `rsunwind sframe dump`: a `.sframe` section as text, in the layout of `objdump --sframe`.

use std::fmt::Write as _;
use std::io::Write;

use sframe::{Base, Function, Header, PacKey, Register, Row, Rule, Section};

use super::Error;
use super::program::Program;

/// Prints the header, then each function with its rows.
pub(super) fn dump(program: &Program, out: &mut impl Write) -> Result<(), Error> {
    let tables = program.tables()?;
    let section = tables.sframe()?;
    print_header(&section, out).map_err(Error::Output)?;
    for (position, function) in section.functions().enumerate() {
        let function = function.map_err(|source| tables.malformed(source))?;
        print_function(&section, position, &function, out).map_err(Error::Output)?;
        for row in function.rows() {
            let (start, row) = row.map_err(|source| tables.malformed(source))?;
            let first = if function.rep_size().is_some() {
                0
            } else {
                function.start().0
            };
            let address = first.wrapping_add(start.into());
            writeln!(out, "    {address:016x}  {}", rules(&section, &row))
                .map_err(Error::Output)?;
        }
    }
    Ok(())
}

fn print_header(section: &Section<'_>, out: &mut impl Write) -> std::io::Result<()> {
    let header = section.header();
    writeln!(
        out,
        "  Header :\n\n    Version: SFRAME_VERSION_{}",
        header.version.number()
    )?;
    writeln!(out, "    Flags: {}", flags(header))?;
    writeln!(out, "    ABI: {:?}", header.abi)?;
    if header.fixed_fp_offset != 0 {
        writeln!(out, "    CFA fixed FP offset: {}", header.fixed_fp_offset)?;
    }
    if header.fixed_ra_offset != 0 {
        writeln!(out, "    CFA fixed RA offset: {}", header.fixed_ra_offset)?;
    }
    if !section.auxiliary().is_empty() {
        writeln!(
            out,
            "    Auxiliary header: {} bytes",
            section.auxiliary().len()
        )?;
    }
    writeln!(
        out,
        "    Num FDEs: {}\n    Num FREs: {}\n\n  Function Index :",
        header.functions, header.rows
    )
}

fn flags(header: &Header) -> String {
    let flags = [
        (header.is_sorted(), "SFRAME_F_FDE_SORTED"),
        (header.keeps_frame_pointer(), "SFRAME_F_FRAME_POINTER"),
        (
            header.starts_are_field_relative(),
            "SFRAME_F_FDE_FUNC_START_PCREL",
        ),
    ];
    let names: Vec<&str> = flags
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, name)| *name)
        .collect();
    if names.is_empty() {
        "NONE".to_owned()
    } else {
        names.join(",\n           ")
    }
}

fn print_function(
    section: &Section<'_>,
    position: usize,
    function: &Function<'_>,
    out: &mut impl Write,
) -> std::io::Result<()> {
    write!(
        out,
        "\n    func idx [{position}]: pc = {}, size = {} bytes",
        function.start(),
        function.size()
    )?;
    let attributes = [
        (function.is_signal_frame(), 'S'),
        (function.is_flexible(), 'F'),
    ];
    if attributes.iter().any(|(is_set, _)| *is_set) {
        let letters: String = attributes
            .iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, letter)| *letter)
            .collect();
        write!(out, ", attr = \"{letters}\"")?;
    }
    if function.pac_key() == PacKey::B {
        write!(out, ", pauth = B key")?;
    }
    if let Some(size) = function.rep_size() {
        write!(out, ", block = {size} bytes")?;
    }
    let marker = if function.rep_size().is_some() {
        "[m]"
    } else {
        "   "
    };
    writeln!(
        out,
        "\n    {:<7}{marker:<8} {:<10}{:<10}RA",
        "STARTPC", "CFA", "FP"
    )?;
    if function.is_outermost() {
        let width = section.function_count().min(1) * 16;
        writeln!(out, "    {:width$}  RA undefined", "")?;
    }
    Ok(())
}

/// The three rules of a row, in columns.
pub(super) fn rules(section: &Section<'_>, row: &Row) -> String {
    if row.is_outermost() {
        return "RA undefined".to_owned();
    }
    let abi = section.header().abi;
    let name = |register: Register| match register {
        register if register == abi.stack_pointer() => "sp".to_owned(),
        register if register == abi.frame_pointer() => "fp".to_owned(),
        Register(number) => format!("r{number}"),
    };
    let base = match row.cfa.base {
        Base::StackPointer => "sp".to_owned(),
        Base::FramePointer => "fp".to_owned(),
        Base::Register(register) => name(register),
    };
    let rule = |rule: Rule| match rule {
        Rule::AtCfa(offset) => sum("c", offset, false),
        Rule::Register { register, offset } => sum(&name(register), offset, false),
        Rule::AtRegister { register, offset } => sum(&name(register), offset, true),
        _ => "u".to_owned(),
    };
    let mut columns = format!(
        "{:<10}{:<10}{}",
        sum(&base, row.cfa.offset, row.cfa.deref),
        rule(row.fp),
        rule(row.ra)
    );
    if row.mangled_ra {
        columns.push_str("[s]");
    }
    columns
}

fn sum(base: &str, offset: i32, deref: bool) -> String {
    let mut text = String::new();
    let (open, close) = if deref { ("(", ")") } else { ("", "") };
    // Writing to a string does not fail.
    let _ = write!(text, "{open}{base}{offset:+}{close}");
    text
}
