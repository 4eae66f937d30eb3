//! The machine code of functions, each instruction with what was spent in it; by objdump, if it is
//! there.
//!
//! Not here: their source (`annotate`).

use super::annotate::{Cost, Spent};
use super::look::{Look, without_end};
use crate::profile::{CallId, Frame, Names, Profile};
use crate::symbolize::{ImageId, Places};
use crate::visible::visible;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Code shown behind the last address that was seen, where no symbol says how long the function is.
const BEHIND: u64 = 64;
/// The longest function that is shown, bytes.
const LONGEST: u64 = 1 << 20;

/// A function as the linker sees it: what was inlined into it is in it.
struct Code<'a> {
    outer: &'a Frame,
    addresses: BTreeMap<u64, Cost>,
    total: u64,
}

/// Prints the code in which these functions are.
pub(super) fn print(
    out: &mut String,
    profile: &Profile,
    spent: &Spent<'_>,
    places: &Places,
    names: Names,
    look: Look,
) {
    let mut all: BTreeMap<(u32, u64), Code<'_>> = BTreeMap::new();
    for (frame, call, cost) in &spent.frames {
        let outer = outer(profile, *call);
        let function = profile.function(outer);
        let (Some(image), Some(start)) = (function.image, outer.function_start) else {
            continue;
        };
        let code = all.entry((image.number(), start)).or_insert_with(|| Code {
            outer,
            addresses: BTreeMap::new(),
            total: 0,
        });
        code.total = code.total.saturating_add(cost.total);
        let at = code.addresses.entry(frame.file_address).or_default();
        at.add(cost.own, cost.total);
    }
    let mut all: Vec<((u32, u64), Code<'_>)> = all.into_iter().collect();
    all.sort_by_key(|(_, code)| std::cmp::Reverse(code.total));
    for ((image, start), code) in &all {
        let image = &profile.symbols.images[ImageId::new(*image).index()];
        let name = profile.function(code.outer).called(names);
        let title = format!("{name}: {} at {start:#x}", image.path);
        let _ = writeln!(out, "\n{}", look.heading(&title));
        match places.code(image) {
            None => {
                let _ = writeln!(out, "that build of the file is not here");
            }
            Some(file) => {
                if let Err(error) = code.print(out, profile, &file, *start, look) {
                    let _ = writeln!(out, "objdump cannot be run ({error}): install binutils");
                    return;
                }
            }
        }
    }
}

/// The function into which what is at a place was inlined, or that itself.
fn outer(profile: &Profile, call: CallId) -> &Frame {
    let mut frames = profile.walk(call);
    let mut outer = frames.next();
    while let Some(frame) = outer.filter(|frame| frame.inlined()) {
        match frames.next() {
            Some(next) if next.file_address == frame.file_address => outer = Some(next),
            _ => break,
        }
    }
    outer.unwrap_or(&profile.frames[0])
}

impl Code<'_> {
    fn print(
        &self,
        out: &mut String,
        profile: &Profile,
        file: &Path,
        start: u64,
        look: Look,
    ) -> io::Result<()> {
        let last = self.addresses.keys().next_back().copied().unwrap_or(start);
        let end = last.max(start).min(start.saturating_add(LONGEST));
        let mut objdump = Command::new("objdump");
        objdump
            .args(["-d", "-C", "--no-show-raw-insn"])
            .arg(format!("--start-address={start:#x}"))
            .arg(format!("--stop-address={:#x}", end.saturating_add(4096)))
            .arg("--")
            .arg(file)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let text = objdump.output()?.stdout;
        let text = String::from_utf8_lossy(&text);
        let whole = profile.whole();
        let head = format!("{:>18}  {:>18}", "SELF", "TOTAL");
        let _ = writeln!(out, "{}", look.heading(&head));
        let lines = instructions(&text, end.saturating_add(BEHIND));
        let mut costs = vec![Cost::default(); lines.len()];
        for (address, cost) in &self.addresses {
            // What was called is recorded by an address in the call.
            let behind = lines.partition_point(|(at, _)| at <= address);
            if let Some(sum) = behind.checked_sub(1).and_then(|index| costs.get_mut(index)) {
                sum.add(cost.own, cost.total);
            }
        }
        for ((_, line), cost) in lines.iter().zip(costs) {
            let line = visible(&line.replace('\t', "  ")).into_owned();
            let line = match look.width {
                Some(width) => without_end(&line, width.saturating_sub(40)).into_owned(),
                None => line,
            };
            let _ = writeln!(out, "{}  {line}", cost.columns(profile, whole, look));
        }
        Ok(())
    }
}

/// The instructions of the first function in what objdump prints, by address; up to an address
/// where no symbol says where the next function begins.
fn instructions(text: &str, end: u64) -> Vec<(u64, &str)> {
    let mut lines = Vec::new();
    let mut headings = 0;
    for line in text.lines() {
        headings += usize::from(line.ends_with(">:"));
        if headings > 1 {
            break;
        }
        let address = line.split_once(":\t").map(|(address, _)| address.trim());
        let address = address.and_then(|address| u64::from_str_radix(address, 16).ok());
        let Some(address) = address else { continue };
        if headings == 0 && address > end {
            break;
        }
        lines.push((address, line));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::instructions;

    #[test]
    fn instructions_end_where_the_function_does() {
        let text = "
x:     file format elf64-x86-64

Disassembly of section .text:

0000000000001130 <busy>:
    1130:\tpush   %rbp
    1131:\tret

0000000000001132 <main>:
    1132:\tret
";
        let of = |text, end| -> Vec<u64> {
            let lines = instructions(text, end).into_iter();
            lines.map(|(address, _)| address).collect()
        };
        assert_eq!(of(text, 0), [0x1130, 0x1131]);
        let stripped = text.replace("<busy>:", ".text").replace("<main>:", ".text");
        assert_eq!(of(&stripped, 0x1131), [0x1130, 0x1131]);
    }
}
