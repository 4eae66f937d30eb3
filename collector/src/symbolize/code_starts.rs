//! Where functions begin in code of which neither symbols nor unwind tables say so: where the calls
//! lead to that are on the recorded stacks, and where a frame pointer is set up. Of what was met by
//! neither it cannot be told that it is a function of its own: it counts to the one before.
//!
//! ```text
//! e8 <distance>      call                           before an address that is returned to
//! 55 48 89 e5        push %rbp; mov %rsp,%rbp       where functions with a frame pointer begin
//! ```

use super::{Named, nameless};
use object::{Object, ObjectSegment, SegmentFlags};
use std::sync::Arc;

const CALL: u8 = 0xe8;
/// Bytes of a call.
const CALL_LENGTH: u64 = 5;
const SET_UP: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// What may come before that.
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// How far before an address its function begins at most, bytes.
const REACH: u64 = 16 << 10;
/// How much is read at once, beside that.
const WINDOW: u64 = 64 << 10;

/// Names `unnamed`, addresses without a symbol, by where their functions seem to begin. `all`: the
/// addresses of the binary on recorded stacks, sorted; callers' are those of the last byte of the
/// call. `read` fills its second argument with what is in the file from an offset on, and says how
/// many bytes that were.
pub(super) fn name<'a, 'e>(
    elf: &impl Object<'e>,
    read: impl FnMut(u64, &mut [u8]) -> usize,
    image: &str,
    all: &[u64],
    unnamed: impl Iterator<Item = (&'a u64, &'a mut Vec<Named>)>,
) {
    let mut unnamed = unnamed.peekable();
    if unnamed.peek().is_none() || elf.architecture() != object::Architecture::X86_64 {
        return;
    }
    let mut code = Code::new(segments(elf), read);
    let called = called(&mut code, all);
    let mut unnamed: Vec<_> = unnamed.collect();
    unnamed.sort_unstable_by_key(|(address, _)| **address);
    let mut last: Option<(u64, Arc<str>)> = None;
    for (address, names) in unnamed {
        let Some(start) = start(&mut code, &called, *address) else {
            continue;
        };
        let known = last.take().filter(|(known, _)| *known == start);
        let (_, name) =
            last.insert(known.unwrap_or_else(|| (start, nameless(image, start).into())));
        // Of one name there are often a hundred thousand: no room for more.
        *names = vec![Named {
            start: Some(start),
            ..Named::only(name.clone())
        }];
    }
}

/// Code that lies in a row in a file.
#[derive(Clone, Copy)]
struct Segment {
    address: u64,
    end: u64,
    offset: u64,
}

fn segments<'e>(elf: &impl Object<'e>) -> Vec<Segment> {
    let is_code = |flags| {
        let executable = u64::from(object::elf::PF_X);
        matches!(flags, SegmentFlags::Elf { p_flags } if u64::from(p_flags) & executable != 0)
    };
    let code = elf.segments().filter(|segment| is_code(segment.flags()));
    code.map(|segment| {
        let (offset, length) = segment.file_range();
        let address = segment.address();
        Segment {
            address,
            end: address.saturating_add(length),
            offset,
        }
    })
    .collect()
}

/// The code of a binary, read piece by piece: addresses come in order.
struct Code<R> {
    segments: Vec<Segment>,
    read: R,
    /// What is read, and where it begins.
    bytes: Vec<u8>,
    first: u64,
}

impl<R: FnMut(u64, &mut [u8]) -> usize> Code<R> {
    const fn new(segments: Vec<Segment>, read: R) -> Self {
        Self {
            segments,
            read,
            bytes: Vec::new(),
            first: 0,
        }
    }

    fn has(&self, address: u64) -> bool {
        self.segment(address).is_some()
    }

    fn segment(&self, address: u64) -> Option<Segment> {
        let mut segments = self.segments.iter();
        let found = segments.find(|it| (it.address..it.end).contains(&address));
        found.copied()
    }

    /// The code up to an address and a little beyond, from so far before it on or further, and how
    /// many bytes of it lie before.
    fn around(&mut self, address: u64, before: u64) -> Option<(&[u8], usize)> {
        let segment = self.segment(address)?;
        let from = address.saturating_sub(before).max(segment.address);
        let beyond = SET_UP.len() as u64;
        let to = address.saturating_add(beyond).min(segment.end);
        let end = self.first.saturating_add(self.bytes.len() as u64);
        if from < self.first || to > end {
            let until = to.saturating_add(WINDOW).min(segment.end);
            let length = usize::try_from(until - from).ok()?;
            self.bytes.resize(length, 0);
            let offset = segment.offset.saturating_add(from - segment.address);
            let read = (self.read)(offset, &mut self.bytes);
            self.bytes.truncate(read);
            self.first = from;
        }
        let place = |address: u64| usize::try_from(address - self.first).ok();
        let bytes = self.bytes.get(..place(to)?)?;
        Some((bytes, place(address)?))
    }
}

/// Where the calls lead to that stand before addresses, sorted.
fn called<R: FnMut(u64, &mut [u8]) -> usize>(code: &mut Code<R>, addresses: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    for address in addresses {
        let Some((bytes, at)) = code.around(*address, CALL_LENGTH) else {
            continue;
        };
        let call = at.checked_sub(4).and_then(|first| bytes.get(first..=at));
        if let Some(&[CALL, a, b, c, d]) = call {
            let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
            let target = address.wrapping_add(1).wrapping_add_signed(distance);
            found.push(target);
        }
    }
    found.retain(|target| code.has(*target));
    found.sort_unstable();
    found.dedup();
    found
}

/// Where the function of an address begins, as far as can be told.
fn start<R: FnMut(u64, &mut [u8]) -> usize>(
    code: &mut Code<R>,
    called: &[u64],
    address: u64,
) -> Option<u64> {
    let behind = called.partition_point(|target| *target <= address);
    let called = behind.checked_sub(1).map(|last| called[last]);
    let called = called.filter(|target| address - target <= REACH);
    let (bytes, at) = code.around(address, REACH)?;
    let reach = usize::try_from(called.map_or(REACH, |target| address - target)).ok()?;
    let first = at.saturating_sub(reach);
    let searched = bytes.get(first..)?;
    let found = searched.windows(SET_UP.len()).rposition(|it| it == SET_UP);
    let set_up = found.map(|place| {
        let place = first + place;
        let before = place.checked_sub(LANDING_PAD.len());
        let pad = before.filter(|before| bytes[*before..place] == LANDING_PAD);
        address - (at - pad.unwrap_or(place)) as u64
    });
    set_up.max(called)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x10_0000;

    fn code(bytes: &[u8]) -> Code<impl FnMut(u64, &mut [u8]) -> usize> {
        let segment = Segment {
            address: BASE,
            end: BASE + bytes.len() as u64,
            offset: 0x40,
        };
        Code::new(vec![segment], move |offset, out: &mut [u8]| {
            let from = usize::try_from(offset - 0x40).unwrap();
            let there = &bytes[from..(from + out.len()).min(bytes.len())];
            out[..there.len()].copy_from_slice(there);
            there.len()
        })
    }

    fn functions(length: usize) -> Vec<u8> {
        let mut bytes = vec![0x90; length];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        put(0x100, &SET_UP);
        put(0x1fc, &LANDING_PAD);
        put(0x200, &SET_UP);
        // A call at 0x150, of 0x300, and one that leads out of the code.
        put(0x150, &[CALL, 0xab, 0x01, 0, 0]);
        put(0x160, &[CALL, 0, 0, 0, 0x70]);
        bytes
    }

    #[test]
    fn functions_begin_where_calls_lead_to_and_frame_pointers_are_set_up() {
        let mut bytes = functions(0x4_0000);
        // It calls itself.
        bytes[0x3_8000..0x3_8005].copy_from_slice(&[CALL, 0xfb, 0xff, 0xff, 0xff]);
        let mut code = code(&bytes);
        let callers = [0x154, 0x164, 0x3_8004].map(|at| BASE + at);
        let called = called(&mut code, &callers);
        assert_eq!(called, [BASE + 0x300, BASE + 0x3_8000]);
        let mut start = |at| start(&mut code, &called, BASE + at).map(|start| start - BASE);
        let places = [0x50, 0x100, 0x103, 0x1f0, 0x210, 0x2ff, 0x310];
        let begin = [None, Some(0x100), Some(0x100), Some(0x100)];
        let then = [Some(0x1fc), Some(0x1fc), Some(0x300)];
        assert_eq!(
            places.map(&mut start).to_vec(),
            [&begin[..], &then].concat()
        );
        assert_eq!(start(0x300 + REACH), Some(0x300));
        assert_eq!(start(0x301 + REACH), None, "too far away to be believed");
        assert_eq!(start(0x3_8010), Some(0x3_8000));
        assert_eq!(start(0x4_0000), None, "outside of all code");
    }

    /// A binary with that code, which begins behind its headers.
    fn program(code: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
        let headers: u64 = 64 + 56;
        let length = code.len() as u64;
        let long = |value: u64| value.to_le_bytes();
        bytes.extend([0, 64, 0].map(long).concat()); // entry, program headers, sections
        bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]); // loaded, readable and executable
        bytes.extend([headers, BASE, BASE, length, length, 1].map(long).concat());
        assert_eq!(bytes.len() as u64, headers);
        bytes.extend(code);
        bytes
    }

    #[test]
    fn the_seed_of_the_fuzzer_is_a_program() {
        let file = program(&functions(0x400));
        let addresses = [0x50, 0x103, 0x154, 0x164, 0x1f0, 0x210, 0x310, 0x500].map(|at| BASE + at);
        let elf = object::File::parse(&*file).unwrap();
        let mut named = [const { Vec::new() }; 8];
        let read = |offset: u64, out: &mut [u8]| {
            let there = &file[usize::try_from(offset).unwrap()..];
            let length = there.len().min(out.len());
            out[..length].copy_from_slice(&there[..length]);
            length
        };
        name(
            &elf,
            read,
            "a",
            &addresses,
            addresses.iter().zip(&mut named),
        );
        let starts = named.map(|named| named.first().and_then(|one| one.start));
        let starts = starts.map(|start| start.map(|start| start - BASE));
        let first = Some(0x100);
        let begin = [None, first, first, first, first];
        assert_eq!(
            starts.to_vec(),
            [&begin[..], &[Some(0x1fc), Some(0x300), None]].concat()
        );
        let words = addresses.map(u64::to_le_bytes).concat();
        crate::seeds::check("code_starts", "program", &[words, file].concat());
    }
}
