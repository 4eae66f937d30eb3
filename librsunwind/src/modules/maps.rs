//! `/proc/self/maps`: what is mapped where, for code that the loader does not know.
//!
//! # Safety
//! None needed: text in, addresses out.

use crate::sys::File;
use crate::text::copy;
use engine::address::RuntimeAddress;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping<'a> {
    start: u64,
    end: u64,
    executable: bool,
    offset: u64,
    device: u64,
    inode: u64,
    path: &'a [u8],
}

/// Where the file that is mapped at `base` from its beginning has that offset mapped, behind
/// `base`.
pub fn mapped_at(base: RuntimeAddress, offset: u64) -> Option<u64> {
    let (mut file, mut found) = (None, None);
    each(|mapping| {
        if mapping.start == base.0 {
            file = Some((mapping.device, mapping.inode));
        }
        let distance = offset.wrapping_sub(mapping.offset);
        if file == Some((mapping.device, mapping.inode))
            && distance < mapping.end.wrapping_sub(mapping.start)
        {
            found = mapping.start.checked_add(distance);
        }
        found.is_none()
    });
    found
}

/// The file of the mapping at an address; empty if unknown.
pub fn path_at(address: RuntimeAddress, buffer: &mut [u8; 1024]) -> &[u8] {
    let length = locate(address, buffer).map_or(0, |(_, length)| length);
    buffer.get(..length).unwrap_or(&[])
}

/// The mapping that holds an address.
pub fn find_range(address: RuntimeAddress) -> Option<(u64, u64)> {
    let mut found = None;
    each(|mapping| {
        if (mapping.start..mapping.end).contains(&address.0) {
            found = Some((mapping.start, mapping.end));
        }
        found.is_none()
    });
    found
}

/// What is at an address.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// What of the file is there.
    pub offset: u64,
    /// The file's device.
    pub device: u64,
    /// The file on it; 0 if there is none.
    pub inode: u64,
}

/// The executable mapping at an address; its path goes to the buffer, its length with it.
pub fn locate(pc: RuntimeAddress, buffer: &mut [u8; 1024]) -> Option<(Range, usize)> {
    let mut found = None;
    each(|mapping| {
        if (mapping.start..mapping.end).contains(&pc.0)
            && mapping.executable | !mapping.path.is_empty()
        {
            let length = copy(buffer, mapping.path).len();
            let Mapping {
                start,
                end,
                offset,
                device,
                inode,
                ..
            } = *mapping;
            found = Some((
                Range {
                    start,
                    end,
                    offset,
                    device,
                    inode,
                },
                length,
            ));
        }
        mapping.start <= pc.0
    });
    found
}

/// Where that file has its first byte mapped.
pub fn image_start(device: u64, inode: u64) -> Option<u64> {
    let mut start = None;
    each(|mapping| {
        if (mapping.device, mapping.inode) == (device, inode) && mapping.offset == 0 {
            start = Some(mapping.start);
        }
        start.is_none()
    });
    start
}

/// Calls `visit` with each mapping, in order of address, until it gives `false`.
fn each(mut visit: impl FnMut(&Mapping<'_>) -> bool) {
    let Ok(file) = File::open(b"/proc/self/maps\0", libc::O_RDONLY, 0) else {
        return;
    };
    let mut window = [0u8; 4096];
    let mut held = 0usize;
    loop {
        let Some(free) = window.get_mut(held..) else {
            return;
        };
        let read = file.read_some(free);
        if read == 0 {
            return;
        }
        let filled = held.saturating_add(read);
        let text = window.get(..filled).unwrap_or(&[]);
        let mut used = 0usize;
        while let Some(line) = text
            .get(used..)
            .and_then(|rest| rest.split(|byte| *byte == b'\n').next())
        {
            let next = used.saturating_add(line.len()).saturating_add(1);
            if next > filled {
                break; // the line goes on in the next piece
            }
            used = next;
            if parse(line).is_some_and(|mapping| !visit(&mapping)) {
                return;
            }
        }
        held = filled.saturating_sub(used);
        if held == window.len() {
            return; // a line longer than any path allows
        }
        for index in 0..held {
            let byte = window.get(used.saturating_add(index)).copied().unwrap_or(0);
            if let Some(slot) = window.get_mut(index) {
                *slot = byte;
            }
        }
    }
}

/// `start-end rwxp offset dev inode   path`.
fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let mut words = line
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let mut range = words.next()?.split(|byte| *byte == b'-');
    let (start, end) = (hexadecimal(range.next()?)?, hexadecimal(range.next()?)?);
    let permissions = words.next()?;
    let offset = hexadecimal(words.next()?)?;
    let mut device = words.next()?.split(|byte| *byte == b':');
    let (major, minor) = (hexadecimal(device.next()?)?, hexadecimal(device.next()?)?);
    let inode = crate::text::parse_decimal(words.next()?)?;
    let path = line
        .iter()
        .position(|byte| *byte == b'/')
        .and_then(|at| line.get(at..))
        .unwrap_or(&[]);
    Some(Mapping {
        start,
        end,
        executable: permissions.get(2) == Some(&b'x'),
        offset,
        device: major.checked_shl(32)? | minor,
        inode,
        path,
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, byte| {
        let digit = (*byte as char).to_digit(16)?;
        value.checked_mul(16)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line =
            b"7f00a000-7f00b000 r-xp 00001000 fe:00 4711                       /usr/lib/a b.so";
        let mapping = parse(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset, mapping.inode),
            (0x7f00_a000, 0x7f00_b000, 0x1000, 4711)
        );
        assert_eq!(mapping.device, 0xfe << 32);
        assert!(mapping.executable);
        assert_eq!(mapping.path, b"/usr/lib/a b.so");
        assert_eq!(
            parse(b"7f00a000-7f00b000 rw-p 00000000 00:00 0 ")
                .unwrap()
                .path,
            b""
        );
        assert_eq!(parse(b"nonsense"), None);
    }

    #[test]
    fn mapped_data_is_in_a_range() {
        let data: &'static [u8; 3] = b"abc";
        assert!(find_range(RuntimeAddress(data.as_ptr() as u64)).is_some());
        assert!(find_range(RuntimeAddress(8)).is_none());
    }
}
