//! `rsunwind sframe check`: does `.sframe` say what `.eh_frame` says? Both are brought to rows and
//! compared wherever one of them begins a new one.

use std::collections::BTreeSet;
use std::io::{self, Write};

use sframe::{Address, Converted, Function, FunctionRows, Row, Section};

use super::Error;
use super::dump::rules;
use super::program::{Program, Tables};

/// What was counted on the way.
#[derive(Default)]
struct Count {
    agreeing: u64,
    disagreeing: u64,
    incomparable: u64,
    strangers: u64,
    holes: u64,
    hole_bytes: u64,
}

/// Prints what disagrees and what is missing, then the sums. False if anything disagrees.
pub(super) fn check(program: &Program, out: &mut impl Write) -> Result<bool, Error> {
    let tables = program.tables()?;
    let section = tables.sframe()?;
    section
        .verify()
        .map_err(|source| tables.malformed(source))?;
    let mut converted = tables.eh_frame()?.convert().functions;
    converted.retain(|function| function.size > 0);
    converted.sort_by_key(|function| function.start);
    let mut comparison = Comparison {
        tables: &tables,
        section: &section,
        out,
        count: Count::default(),
    };
    for function in section.functions() {
        let function = function.map_err(|source| tables.malformed(source))?;
        comparison.function(&function, &converted)?;
    }
    comparison.holes(&converted)?;
    comparison.sums().map_err(Error::Output)?;
    Ok(comparison.count.disagreeing == 0 && comparison.count.strangers == 0)
}

struct Comparison<'a, W> {
    tables: &'a Tables<'a>,
    section: &'a Section<'a>,
    out: &'a mut W,
    count: Count,
}

/// What `.eh_frame` says of an address.
enum Said<'a> {
    Row(Row),
    Inexpressible(&'a Converted),
    Nothing,
}

impl<W: Write> Comparison<'_, W> {
    /// Compares at every place in the function where either side begins a row.
    fn function(&mut self, function: &Function<'_>, converted: &[Converted]) -> Result<(), Error> {
        let mut starts = BTreeSet::new();
        let mut repeat = |first: u32,
                          starts_in_block: &mut dyn Iterator<Item = u32>,
                          block: Option<u32>,
                          end: u32| {
            let in_block: Vec<u32> = starts_in_block.collect();
            let step = block.unwrap_or(u32::MAX);
            let mut origin = Some(first);
            while let Some(at) = origin.filter(|at| *at < end) {
                starts.extend(
                    in_block
                        .iter()
                        .filter_map(|start| at.checked_add(*start))
                        .filter(|start| *start < end),
                );
                origin = at.checked_add(step);
            }
        };
        let rows: Vec<(u32, Row)> = function
            .rows()
            .collect::<Result<_, _>>()
            .map_err(|source| self.tables.malformed(source))?;
        let block = function.rep_size().map(|size| size.get().into());
        repeat(
            0,
            &mut std::iter::once(0).chain(rows.iter().map(|(start, _)| *start)),
            block,
            function.size(),
        );
        for other in overlapping(converted, function) {
            let first = other.start.distance_from(function.start());
            let Ok(rows) = &other.rows else {
                starts.extend(u32::try_from(first.max(0)));
                continue;
            };
            for (start, _) in places(rows) {
                let start = first.saturating_add(start.into());
                starts.extend(
                    u32::try_from(start)
                        .ok()
                        .filter(|start| *start < function.size()),
                );
            }
        }
        for offset in starts {
            self.place(function, &rows, offset, converted)?;
        }
        Ok(())
    }

    /// Takes the row as written, which in `.plt.got` is not the one a look-up gives.
    fn place(
        &mut self,
        function: &Function<'_>,
        rows: &[(u32, Row)],
        offset: u32,
        converted: &[Converted],
    ) -> Result<(), Error> {
        let pc = function.start().wrapping_offset(offset.into());
        let in_block = function
            .rep_size()
            .map_or(offset, |size| offset % u32::from(size.get()));
        let row = match rows.partition_point(|(start, _)| *start <= in_block) {
            0 if function.is_outermost() => Some(Row::outermost()),
            0 => None,
            after => Some(rows[after - 1].1),
        };
        let place = self.tables.place(pc);
        let text = |row: Option<Row>| {
            row.map_or_else(|| "nothing".to_owned(), |row| said(self.section, &row))
        };
        match say(converted, pc) {
            Said::Row(expected) if row.is_some_and(|row| is_same(&row, &expected)) => {
                self.count.agreeing += 1
            }
            Said::Row(expected) => {
                self.count.disagreeing += 1;
                let (ours, theirs) = (text(row), text(Some(expected)));
                writeln!(
                    self.out,
                    "disagree  {place}: .sframe says {ours}, .eh_frame {theirs}"
                )
                .map_err(Error::Output)?;
            }
            Said::Inexpressible(Converted { rows, .. }) => {
                self.count.incomparable += 1;
                let reason = rows
                    .as_ref()
                    .err()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                writeln!(
                    self.out,
                    "unsure    {place}: .sframe says {}, but {reason}",
                    text(row)
                )
                .map_err(Error::Output)?;
            }
            Said::Nothing => {
                self.count.strangers += 1;
                writeln!(
                    self.out,
                    "stranger  {place}: .sframe says {}, .eh_frame nothing",
                    text(row)
                )
                .map_err(Error::Output)?;
            }
        }
        Ok(())
    }

    /// The functions of `.eh_frame` that `.sframe` does not have.
    fn holes(&mut self, converted: &[Converted]) -> Result<(), Error> {
        for function in converted {
            let found = self
                .section
                .function_at(function.start)
                .map_err(|source| self.tables.malformed(source))?;
            if found.is_some() {
                continue;
            }
            self.count.holes += 1;
            self.count.hole_bytes += function.size;
            let why = function
                .rows
                .as_ref()
                .err()
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            let place = self.tables.place(function.start);
            writeln!(self.out, "hole      {place}: {} bytes{why}", function.size)
                .map_err(Error::Output)?;
        }
        Ok(())
    }

    fn sums(&mut self) -> io::Result<()> {
        let Count {
            agreeing,
            disagreeing,
            incomparable,
            strangers,
            holes,
            hole_bytes,
        } = self.count;
        let header = self.section.header();
        let version = header.version.number();
        writeln!(
            self.out,
            "version {version}: {} functions, {} rows",
            header.functions, header.rows
        )?;
        writeln!(
            self.out,
            "{agreeing} places agree with .eh_frame, {disagreeing} disagree"
        )?;
        if incomparable + strangers > 0 {
            writeln!(
                self.out,
                "{incomparable} cannot be compared, {strangers} are not in .eh_frame"
            )?;
        }
        writeln!(
            self.out,
            "{holes} functions of .eh_frame are missing from .sframe, {hole_bytes} bytes of code"
        )
    }
}

/// Version 2 cannot mark signal frames, and who strips a signature does not ask for its key; so
/// neither counts.
fn is_same(row: &Row, expected: &Row) -> bool {
    if row.is_outermost() || expected.is_outermost() {
        return row.is_outermost() == expected.is_outermost();
    }
    (row.cfa, row.ra, row.fp, row.mangled_ra)
        == (expected.cfa, expected.ra, expected.fp, expected.mangled_ra)
}

fn said(section: &Section<'_>, row: &Row) -> String {
    rules(section, row)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The converted functions that share code with this one; they are sorted by their start.
fn overlapping<'c>(
    converted: &'c [Converted],
    function: &Function<'_>,
) -> impl Iterator<Item = &'c Converted> {
    let (start, end) = (function.start(), function.end());
    let first = converted
        .partition_point(|converted| converted.start <= start)
        .saturating_sub(1);
    converted[first..]
        .iter()
        .take_while(move |converted| converted.start < end)
}

/// The starts of all rows, those of a repeated block in every block.
fn places(function: &FunctionRows) -> Vec<(u32, Row)> {
    let Some(block) = function.rep_size.map(|size| u32::from(size.get())) else {
        return function.rows.clone();
    };
    let origins = (0..function.size).step_by(block as usize);
    origins
        .flat_map(|origin| {
            function
                .rows
                .iter()
                .map(move |(start, row)| (origin + start, *row))
        })
        .collect()
}

fn say(converted: &[Converted], pc: Address) -> Said<'_> {
    let after = converted.partition_point(|function| function.start <= pc);
    let Some(function) = converted[..after].last() else {
        return Said::Nothing;
    };
    let offset = pc.distance_from(function.start).cast_unsigned();
    if offset >= function.size {
        return Said::Nothing;
    }
    let Ok(rows) = &function.rows else {
        return Said::Inexpressible(function);
    };
    let offset = rows
        .rep_size
        .map_or(offset, |size| offset % u64::from(size.get()));
    let row = rows
        .rows
        .iter()
        .take_while(|(start, _)| u64::from(*start) <= offset)
        .last();
    row.map_or(Said::Nothing, |(_, row)| Said::Row(*row))
}
