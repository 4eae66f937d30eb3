//! Names of kernel addresses, from `/proc/kallsyms` of the machine that made the recording while it
//! still runs the same boot: addresses differ from boot to boot.

use super::Named;
use crate::recording::Recording;
use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use std::io::BufRead;

/// Two boots of one machine are further apart than this, ns; clock adjustments during one boot are
/// smaller.
const SAME_BOOT_NS: u64 = 5_000_000_000;

/// The functions at each kernel address; none where it has no symbol.
///
/// # Errors
/// A sentence, if there are no symbols to be had.
pub(super) fn names(recording: &Recording, addresses: &[u64]) -> Result<Vec<Vec<Named>>, String> {
    if !is_this_boot(recording) {
        return Err("kernel functions have no names here: the recording is from another machine or boot; export it there".to_owned());
    }
    let kernel = Kernel {
        vmlinux: MaybeDefault::None,
        ..Kernel::default()
    };
    let symbolizer = Symbolizer::new();
    let found = symbolizer.symbolize(&Source::Kernel(kernel), Input::AbsAddr(addresses));
    let found = found.map_err(|error| {
        format!("kernel functions have no names: {error}; let /proc/kallsyms be read (kernel.kptr_restrict=0, or as root)")
    })?;
    let name = |found: &Symbolized<'_>| match found {
        Symbolized::Sym(symbol) => vec![Named {
            start: Some(symbol.addr),
            ..Named::only(&*symbol.name)
        }],
        Symbolized::Unknown(_) => Vec::new(),
    };
    Ok(found.iter().map(name).collect())
}

/// Where the kernel's own code begins in this boot, if the recording is of it and that may be
/// known.
pub(crate) fn text_start(recording: &Recording) -> Option<u64> {
    if !is_this_boot(recording) {
        return None;
    }
    let symbols = std::fs::File::open("/proc/kallsyms").ok()?;
    let mut lines = std::io::BufReader::new(symbols).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.ends_with(" _text")))?;
    let address = u64::from_str_radix(line.split(' ').next()?, 16).ok()?;
    (address != 0).then_some(address)
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
