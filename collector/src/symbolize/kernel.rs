//! Names of kernel addresses, from `/proc/kallsyms` of the machine that made the recording while it
//! still runs the same boot: addresses differ from boot to boot.

use super::{Effort, Named};
use crate::recording::Recording;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::sync::{Arc, Mutex, PoisonError};

/// Two boots of one machine are further apart than this, ns; clock adjustments during one boot are
/// smaller.
const SAME_BOOT_NS: u64 = 5_000_000_000;

const SYMBOLS: &str = "/proc/kallsyms";
const MODULES: &str = "/proc/modules";

/// The kernel's symbols, kept from one use to the next: the kernel takes some 50 ms to write them.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols(Arc<Mutex<Option<Table>>>);

/// The symbols of this boot.
#[derive(Debug, Default)]
struct Table {
    /// Which modules were loaded.
    modules: Vec<u8>,
    /// By address: that, and where the name ends in `names`.
    symbols: Vec<(u64, u32)>,
    names: String,
}

impl Table {
    /// Reads lines of an address, a letter and a name each, in any order. What is no such line is
    /// left out.
    fn read(mut from: impl BufRead) -> io::Result<Self> {
        let (mut unsorted, mut text, mut line) = (Vec::new(), String::new(), Vec::new());
        while from.read_until(b'\n', &mut line)? > 0 {
            if let Some((address, name)) = symbol(&line) {
                let start = text.len();
                text.push_str(name);
                unsorted.push((address, start..text.len()));
            }
            line.clear();
        }
        // Of those at one address the first holds: the order of equals stays.
        unsorted.sort_by_key(|(address, _)| *address);
        unsorted.dedup_by_key(|(address, _)| *address);
        let mut table = Self::default();
        for (address, name) in unsorted {
            table.names.push_str(&text[name]);
            let end = u32::try_from(table.names.len()).map_err(io::Error::other)?;
            table.symbols.push((address, end));
        }
        Ok(table)
    }

    /// Where the function begins that an address is in, and what it is called.
    fn find(&self, address: u64) -> Option<(u64, &str)> {
        let behind = self.symbols.partition_point(|(start, _)| *start <= address);
        let index = behind.checked_sub(1)?;
        let (start, end) = self.symbols[index];
        let begin = index.checked_sub(1).map_or(0, |last| self.symbols[last].1);
        Some((start, &self.names[begin as usize..end as usize]))
    }
}

fn symbol(line: &[u8]) -> Option<(u64, &str)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.nth(1)?;
    // Whom it does not trust the kernel shows nothing but zeros.
    (address != 0).then_some((address, name))
}

impl KernelSymbols {
    /// The functions at each address; none where it has no symbol. With little effort those are
    /// used that were read before, unless modules have come or gone since.
    fn find(&self, addresses: &[u64], effort: Effort) -> io::Result<Vec<Vec<Named>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let modules = fs::read(MODULES).unwrap_or_default();
        let is_of_use = |table: &Table| effort == Effort::Little && table.modules == modules;
        let table = match kept.take().filter(is_of_use) {
            Some(table) => table,
            None => Table {
                modules,
                ..Table::read(BufReader::new(File::open(SYMBOLS)?))?
            },
        };
        let found = addresses.iter().map(|address| {
            let found = table.find(*address).map(|(start, name)| Named {
                start: Some(start),
                ..Named::only(name)
            });
            found.into_iter().collect()
        });
        let found = found.collect();
        *kept = Some(table);
        Ok(found)
    }
}

/// The functions at each kernel address; none where it has no symbol.
///
/// # Errors
/// A sentence, if there are no symbols to be had.
pub(super) fn names(
    recording: &Recording,
    addresses: &[u64],
    symbols: &KernelSymbols,
    effort: Effort,
) -> Result<Vec<Vec<Named>>, String> {
    if !is_this_boot(recording) {
        return Err("kernel functions have no names here: the recording is from another machine or boot; export it there".to_owned());
    }
    symbols.find(addresses, effort).map_err(|error| {
        format!("kernel functions have no names: {SYMBOLS}: {error}; let it be read (kernel.kptr_restrict=0, or as root)")
    })
}

/// Where the kernel's own code begins in this boot, if the recording is of it and that may be
/// known.
pub(crate) fn text_start(recording: &Recording) -> Option<u64> {
    if !is_this_boot(recording) {
        return None;
    }
    let lines = BufReader::new(File::open(SYMBOLS).ok()?).split(b'\n');
    lines.map_while(Result::ok).find_map(|line| {
        let (address, name) = symbol(&line)?;
        (name == "_text").then_some(address)
    })
}

/// Whether a recording, with all that was read together, was made since this machine started.
pub(crate) fn is_this_boot(recording: &Recording) -> bool {
    let clock = |id| {
        nix::time::clock_gettime(id)
            .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
    };
    let (Ok(realtime), Ok(monotonic)) = (
        clock(nix::time::ClockId::CLOCK_REALTIME),
        clock(nix::time::ClockId::CLOCK_MONOTONIC),
    ) else {
        return false;
    };
    let here = realtime.saturating_sub(monotonic);
    let offsets = recording.processes.iter();
    let mut there = offsets
        .map(|process| process.realtime_offset_ns)
        .filter(|offset| *offset > 0)
        .peekable();
    there.peek().is_some() && there.all(|there| there.abs_diff(here) < SAME_BOOT_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"0000000000000000 T hidden
ffffffff81000200 t late_part\t[a_module]
ffffffff81000100 T first
ffffffff81000100 T its_other_name
what is this
ffffffff81000180 W \xff\xfe
ffffffff81000140 t second";

    #[test]
    fn an_address_is_in_the_function_that_begins_last_before_it() {
        let table = Table::read(LINES).unwrap();
        let start = 0xffff_ffff_8100_0000;
        let find = |offset: u64| {
            let found = table.find(start + offset);
            found.map(|(at, name)| (at - start, name))
        };
        assert_eq!(find(0xff), None);
        assert_eq!(find(0x100), Some((0x100, "first")));
        assert_eq!(find(0x13f), Some((0x100, "first")));
        assert_eq!(find(0x1ff), Some((0x140, "second")));
        assert_eq!(find(0xffff), Some((0x200, "late_part")));
        assert!(Table::read(&b""[..]).unwrap().find(1).is_none());
    }

    #[test]
    fn symbols_that_were_read_are_used_again_with_little_effort_alone() {
        let symbols = KernelSymbols::default();
        let mut table = Table::read(LINES).unwrap();
        table.modules = fs::read(MODULES).unwrap_or_default();
        *symbols.0.lock().unwrap() = Some(table);
        let name = |effort| {
            let found = symbols.find(&[0xffff_ffff_8100_0150], effort);
            let found = found.unwrap().remove(0);
            found.first().map(|named| named.function.to_string())
        };
        assert_eq!(name(Effort::Little).as_deref(), Some("second"));
        assert_ne!(name(Effort::Again).as_deref(), Some("second"));
        let read_since = name(Effort::Little);
        assert_ne!(read_since.as_deref(), Some("second"));
    }
}
