//! The line tables of CPython's code objects, which the reader of a recording looks lines up in.
//! Positions are bytes.

use super::LONGEST_LINES;

/// The line of a position by a table of 3.9: pairs of bytes, how many bytes of code are of the line
/// so far, and what is added to it then, signed. Where its last line ends it does not say; 0 there,
/// and thus unknown, if the table was cut, which happens between its parts.
#[must_use]
pub fn of_3_9(table: &[u8], first_line: u32, position: u32) -> u32 {
    let (pairs, _) = table.as_chunks::<2>();
    let (mut line, mut end) = (i64::from(first_line), 0u64);
    for &[size, step] in pairs {
        end = end.saturating_add(u64::from(size));
        if u64::from(position) < end {
            return known(line);
        }
        line = line.saturating_add(i64::from(step.cast_signed()));
    }
    match !table.is_empty() && table.len().is_multiple_of(LONGEST_LINES) {
        true => 0,
        false => known(line),
    }
}

/// The line of a position by a table of 3.10 (PEP 626): pairs of bytes, how many bytes of code, and
/// what is added to the line before, signed; -128 where there is none. 0 if unknown.
#[must_use]
pub fn of_3_10(table: &[u8], first_line: u32, position: u32) -> u32 {
    let (pairs, _) = table.as_chunks::<2>();
    let (mut line, mut end) = (i64::from(first_line), 0u64);
    for &[size, step] in pairs {
        let step = step.cast_signed();
        let has_line = step != i8::MIN;
        if has_line {
            line = line.saturating_add(i64::from(step));
        }
        end = end.saturating_add(u64::from(size));
        if u64::from(position) < end {
            return if has_line { known(line) } else { 0 };
        }
    }
    0
}

/// The same by a table of 3.11 and later (PEP 657). Each entry begins with a byte whose highest bit
/// is set: a kind, and how many units of two bytes of code it is for; other bytes follow, by kind.
/// 0 if unknown, as what a table that was cut does not reach.
#[must_use]
pub fn of_3_11(table: &[u8], first_line: u32, position: u32) -> u32 {
    /// Of an entry for code without a line.
    const NO_LINE: u8 = 15;
    let (mut line, mut end) = (i64::from(first_line), 0u64);
    let mut rest = table;
    while let [head, behind @ ..] = rest {
        let kind = head >> 3 & 15;
        let step = match kind {
            13 | 14 => signed(behind),
            11 => Some(1),
            12 => Some(2),
            _ => Some(0),
        };
        let Some(step) = step else { return 0 };
        line = line.saturating_add(step);
        let units = u64::from(head & 7).saturating_add(1);
        end = end.saturating_add(units.saturating_mul(2));
        if u64::from(position) < end {
            return if kind == NO_LINE { 0 } else { known(line) };
        }
        let next = behind.iter().position(|byte| byte & 0x80 != 0);
        rest = next.and_then(|next| behind.get(next..)).unwrap_or(&[]);
    }
    0
}

/// Six bits a byte, the lowest first, of which all but the last have bit 6 set; the lowest of the
/// number is its sign. `None` where it is cut.
fn signed(bytes: &[u8]) -> Option<i64> {
    let (mut number, mut shift) = (0u64, 0u32);
    for byte in bytes {
        let bits = u64::from(byte & 0x3f);
        number |= bits.checked_shl(shift).unwrap_or(0);
        shift = shift.saturating_add(6);
        if byte & 0x40 == 0 {
            let size = (number >> 1).cast_signed();
            return Some(match number & 1 {
                0 => size,
                _ => size.wrapping_neg(),
            });
        }
    }
    None
}

fn known(line: i64) -> u32 {
    u32::try_from(line).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lines = fn(&[u8], u32, u32) -> u32;

    /// Tables that CPython made, and what its `co_lines` says: where each line ends. 0 stands for
    /// none.
    #[track_caller]
    fn assert_lines(lines: Lines, table: &[u8], ends: &[(u32, u32)]) {
        let mut start = 0;
        for &(end, line) in ends {
            for position in start..end {
                assert_eq!(lines(table, 2, position), line, "at {position}");
            }
            start = end;
        }
        assert_eq!(lines(table, 2, start), 0, "beyond the code");
        assert_eq!(lines(table, 2, u32::MAX), 0);
        for cut in 0..table.len() {
            let line = lines(&table[..cut], 2, start - 1);
            assert!(line == 0 || line == ends[ends.len() - 1].1, "cut at {cut}");
        }
    }

    /// Made by CPython 3.9, with the lines that its `dis.findlinestarts` has.
    #[test]
    fn tables_of_3_9_are_read() {
        let table = [
            0, 2, 2, 1, 2, 1, 2, 254, 4, 3, 12, 1, 6, 1, 2, 1, 2, 255, 6, 2, 2, 1, 6, 2, 12, 127,
            0, 25, 2, 1, 2, 255, 4, 2, 2, 1, 2, 255,
        ];
        for [start, end, line] in [
            [0, 2, 4],
            [2, 4, 5],
            [4, 6, 6],
            [6, 10, 4],
            [10, 22, 7],
            [22, 28, 8],
            [28, 30, 9],
            [30, 32, 10],
            [32, 38, 9],
            [38, 40, 11],
            [40, 46, 12],
            [46, 58, 14],
            [58, 60, 166],
            [60, 62, 167],
            [62, 66, 166],
            [66, 68, 168],
            [68, 70, 169],
            [70, 74, 168],
        ] {
            for position in start..end {
                assert_eq!(of_3_9(&table, 2, position), line, "at {position}");
            }
        }
        assert_eq!(of_3_9(&[], 7, 300), 7, "all on one line");
        let cut = [2, 1].repeat(LONGEST_LINES / 2);
        assert_eq!(of_3_9(&cut, 7, 8191), 7 + 4095);
        assert_eq!(
            of_3_9(&cut, 7, 8192),
            0,
            "perhaps of lines that are not there"
        );
        let longer = [&cut[..], &[2, 1]].concat();
        assert_eq!(of_3_9(&longer, 7, 300_000), 7 + 4097, "one of two parts");
        assert_eq!(of_3_9(&[2, 0x80, 3], 7, 300), 0, "before the first line");
    }

    #[test]
    fn tables_of_3_10_are_read() {
        let table = [
            2, 1, 2, 1, 2, 1, 8, 254, 2, 4, 4, 1, 2, 1, 6, 255, 16, 3, 0, 127, 6, 75, 6, 1, 2, 1,
            4, 255, 36, 255,
        ];
        let ends = [
            (2, 3),
            (4, 4),
            (6, 5),
            (14, 3),
            (16, 7),
            (20, 8),
            (22, 9),
            (28, 8),
            (44, 11),
            (50, 213),
            (56, 214),
            (58, 215),
            (62, 214),
            (98, 213),
        ];
        assert_lines(of_3_10, &table, &ends);
        assert_eq!(of_3_10(&[4, 0x80, 4, 1], 7, 2), 0, "code without a line");
        assert_eq!(of_3_10(&[4, 0x80, 4, 1], 7, 4), 8);
    }

    #[test]
    fn tables_of_3_11_are_read() {
        let table = [
            128, 0, 221, 13, 18, 216, 8, 9, 216, 8, 9, 241, 5, 3, 14, 6, 244, 0, 3, 14, 6, 240, 0,
            8, 5, 16, 240, 0, 8, 5, 16, 136, 1, 240, 8, 4, 9, 16, 221, 12, 13, 136, 97, 216, 14,
            15, 241, 3, 1, 13, 17, 244, 0, 1, 13, 17, 240, 0, 1, 13, 17, 245, 6, 0, 13, 14, 137,
            67, 140, 67, 136, 67, 136, 67, 248, 141, 65, 137, 67, 140, 67, 136, 67, 136, 67, 248,
            248, 248, 240, 84, 6, 0, 10, 11, 240, 0, 2, 5, 24, 136, 97, 240, 2, 1, 16, 24, 240, 0,
            1, 16, 24, 216, 21, 22, 240, 3, 1, 16, 24, 241, 0, 1, 16, 24, 244, 0, 1, 16, 24, 240,
            3, 2, 5, 24,
        ];
        let ends = [
            (2, 2),
            (14, 3),
            (16, 4),
            (18, 5),
            (38, 3),
            (40, 7),
            (54, 8),
            (56, 9),
            (72, 8),
            (102, 11),
            (104, 0),
            (134, 11),
            (140, 0),
            (146, 213),
            (150, 214),
            (152, 215),
            (168, 214),
            (170, 213),
        ];
        assert_lines(of_3_11, &table, &ends);
        // Numbers that do not end, one of more bits than there can be, and a line before the first.
        assert_eq!(of_3_11(&[0xf0, 0x7f], 7, 0), 0);
        let mut long = [0x7f; 40];
        (long[0], long[39]) = (0xf0, 0x3f);
        assert_eq!(of_3_11(&long, 7, 0), 0);
        assert_eq!(of_3_11(&[0xe8, 0x13], 7, 0), 0, "minus nine");
    }
}
