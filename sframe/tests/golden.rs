//! Every row of every fixture against what the producer's own objdump prints of it.

#[expect(dead_code, reason = "the tests use different sections of a fixture")]
mod fixture;

use fixture::Fixture;
use sframe_unwind::{Abi, Base, Cfa, PacKey, Register, Row, Rule, Section, Version};

/// A function as objdump prints it: its first address, size and key, and per row the start and the
/// rules.
#[derive(Debug, PartialEq)]
struct Printed {
    start: u64,
    size: u32,
    rows: Vec<(u64, Row)>,
}

#[test]
fn rows_are_those_objdump_prints() {
    for fixture in fixture::all() {
        let section = fixture.section();
        let printed = parse(&fixture);
        let decoded: Vec<Printed> = section
            .functions()
            .map(|function| decode(function.expect("a function")))
            .collect();
        assert_eq!(decoded.len(), printed.len(), "{}: functions", fixture.name);
        for (decoded, printed) in decoded.iter().zip(&printed) {
            assert_eq!(decoded, printed, "{}", fixture.name);
        }
        section
            .verify()
            .unwrap_or_else(|error| panic!("{}: {error}", fixture.name));
    }
}

/// objdump prints the rows of repeated blocks from 0, those of functions from their address.
fn decode(function: sframe_unwind::Function<'_>) -> Printed {
    let first = if function.rep_size().is_some() {
        0
    } else {
        function.start().0
    };
    let row = |row: Result<(u32, Row), sframe_unwind::Error>| {
        row.map(|(start, row)| (first + u64::from(start), row))
    };
    Printed {
        start: function.start().0,
        size: function.size(),
        rows: function
            .rows()
            .map(row)
            .collect::<Result<_, _>>()
            .expect("rows"),
    }
}

fn parse(fixture: &Fixture) -> Vec<Printed> {
    let section = fixture.section();
    let (mut functions, mut key, mut signal) = (Vec::<Printed>::new(), PacKey::A, false);
    for line in fixture.golden.lines() {
        if let Some((_, rest)) = line.split_once("]: pc = 0x") {
            let (start, rest) = rest.split_once(", size = ").expect("a size");
            let (size, _) = rest.split_once(" bytes").expect("bytes");
            key = if rest.contains("pauth = B key") {
                PacKey::B
            } else {
                PacKey::A
            };
            signal = rest.contains("attr = \"S");
            functions.push(Printed {
                start: hex(start),
                size: size.parse().expect("a size"),
                rows: Vec::new(),
            });
        } else if line.len() > 20 && line.trim_start().starts_with('0') {
            let (start, rules) = line.trim_start().split_once("  ").expect("rules");
            let mut row = parse_rules(rules, &section);
            (row.pac_key, row.signal_frame) = (key, signal);
            functions
                .last_mut()
                .expect("a function")
                .rows
                .push((hex(start), row));
        }
    }
    functions
}

fn parse_rules(rules: &str, section: &Section<'_>) -> Row {
    if rules.contains("RA undefined") {
        return Row::outermost();
    }
    let abi = section.header().abi;
    let cells: Vec<&str> = rules.split_whitespace().collect();
    let &[cfa, fp, ra] = cells.as_slice() else {
        panic!("{rules:?}")
    };
    let (register, offset, deref) = parse_sum(cfa, abi).expect("a CFA");
    let base = match register.expect("a register") {
        register if register == abi.stack_pointer() => Base::StackPointer,
        register if register == abi.frame_pointer() => Base::FramePointer,
        register => Base::Register(register),
    };
    let (ra, mangled) = ra.strip_suffix("[s]").map_or((ra, false), |ra| (ra, true));
    let mut row = Row::new(
        Cfa {
            base,
            offset,
            deref,
        },
        parse_ra(ra, section),
        parse_rule(fp, abi),
    );
    row.mangled_ra = mangled;
    row
}

/// objdump says `f` where the offset is fixed, `U` where a word stands in for it, and, the one of
/// version 1, `u`.
fn parse_ra(cell: &str, section: &Section<'_>) -> Rule {
    let fixed = section.header().fixed_ra_offset;
    let is_usual =
        matches!(cell, "f" | "U") || (cell == "u" && section.header().version == Version::V1);
    if is_usual && fixed != 0 {
        Rule::AtCfa(fixed.into())
    } else {
        parse_rule(cell, section.header().abi)
    }
}

fn parse_rule(cell: &str, abi: Abi) -> Rule {
    match parse_sum(cell, abi) {
        None => Rule::Unchanged,
        Some((None, offset, _)) => Rule::AtCfa(offset),
        Some((Some(register), offset, false)) => Rule::Register { register, offset },
        Some((Some(register), offset, true)) => Rule::AtRegister { register, offset },
    }
}

/// `sp+16`, `(fp-8)`, `c-16`, `r17+0`, `r17`, or nothing known: `u`, `U`.
fn parse_sum(cell: &str, abi: Abi) -> Option<(Option<Register>, i32, bool)> {
    let inner = cell
        .strip_prefix('(')
        .and_then(|cell| cell.strip_suffix(')'));
    let deref = inner.is_some();
    let cell = inner.unwrap_or(cell);
    if matches!(cell, "u" | "U") {
        return None;
    }
    let (name, offset) = cell.split_at(cell.find(['+', '-']).unwrap_or(cell.len()));
    let offset = if offset.is_empty() {
        0
    } else {
        offset.parse().expect("an offset")
    };
    let register = match name {
        "c" => None,
        "sp" => Some(abi.stack_pointer()),
        "fp" => Some(abi.frame_pointer()),
        _ => Some(Register(
            name.strip_prefix('r')
                .expect("a register")
                .parse()
                .expect("its number"),
        )),
    };
    Some((register, offset, deref))
}

fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).expect("hexadecimal digits")
}
