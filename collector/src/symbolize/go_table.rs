//! Reads `.gopclntab`, in which Go's runtime finds the functions of a program. `strip` leaves it,
//! because Go cannot do without it.
//!
//! ```text
//!   header  magic, 0, 0, quantum, pointer size; words: number of functions, …, places of the parts
//!   functions, by address  begins, record   begins, record   …   end of the last
//!   record                 begins, where its name is, …
//! ```
//!
//! Known are the forms of Go 1.2, 1.16, 1.18, and 1.20, of 64-bit little-endian machines. Since
//! 1.18 addresses count from the beginning of Go's code. Source: `debug/gosym/pclntab.go` of Go.

/// Bytes of the header before its words.
const HEADER: usize = 8;
/// Bytes of an address and of a word.
const WORD: usize = 8;

/// Every table begins with these behind the first byte.
pub(super) const BEGINNING: [u8; 5] = [0xff, 0xff, 0xff, 0, 0];

/// The functions of a program.
#[derive(Clone, Copy, Debug)]
pub struct GoTable<'a> {
    names: &'a [u8],
    /// Records, and before them what follows.
    functions: &'a [u8],
    /// Pairs of where a function begins and where its record is, and the end of the last.
    pairs: &'a [u8],
    count: usize,
    /// Bytes of a part of a pair.
    size: usize,
    /// What is added to where a function begins.
    base: u64,
}

/// A function of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoFunction<'a> {
    /// Address of its first instruction, as in the file.
    pub start: u64,
    /// With its package.
    pub name: &'a str,
}

impl<'a> GoTable<'a> {
    /// The table in a section's bytes, if it is of a known form. `text` is where Go's code begins,
    /// for tables that do not say it.
    #[must_use]
    pub fn parse(section: &'a [u8], text: Option<u64>) -> Option<Self> {
        let (header, words) = section.split_at_checked(HEADER)?;
        let word = |number: usize| number_at(words, number.checked_mul(WORD)?, WORD);
        let part = |number: usize| section.get(usize::try_from(word(number)?).ok()?..);
        let (names, functions, pairs, size, base) = match header {
            [0xf0 | 0xf1, 0xff, 0xff, 0xff, 0, 0, 1 | 2 | 4, 8] => {
                let base = Some(word(2)?).filter(|text| *text != 0).or(text)?;
                (part(3)?, part(7)?, part(7)?, 4, base)
            }
            [0xfa, 0xff, 0xff, 0xff, 0, 0, 1 | 2 | 4, 8] => (part(2)?, part(6)?, part(6)?, 8, 0),
            [0xfb, 0xff, 0xff, 0xff, 0, 0, 1 | 2 | 4, 8] => {
                (section, section, words.get(WORD..)?, 8, 0)
            }
            _ => return None,
        };
        let count = usize::try_from(word(0)?).ok()?;
        let length = count.checked_mul(2)?.checked_add(1)?.checked_mul(size)?;
        Some(Self {
            names,
            functions,
            pairs: pairs.get(..length)?,
            count,
            size,
            base,
        })
    }

    /// The function that an address lies in.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<GoFunction<'a>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.start(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let start = self.start(index)?;
        if !(start..self.start(index + 1)?).contains(&address) {
            return None;
        }
        let record = number_at(self.pairs, (2 * index + 1) * self.size, self.size)?;
        let record = self.functions.get(usize::try_from(record).ok()?..)?;
        if number_at(record, 0, self.size)?.wrapping_add(self.base) != start {
            return None;
        }
        let name = usize::try_from(number_at(record, self.size, 4)?).ok()?;
        let name = self.names.get(name..)?.split(|byte| *byte == 0).next()?;
        let name = std::str::from_utf8(name).ok()?;
        (!name.is_empty()).then_some(GoFunction { start, name })
    }

    /// Where a function begins; of the number of functions, the end of the last.
    fn start(&self, index: usize) -> Option<u64> {
        let start = number_at(self.pairs, 2 * index * self.size, self.size)?;
        Some(start.wrapping_add(self.base))
    }
}

/// A number of 4 or 8 bytes.
fn number_at(bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.get(..size)?;
    let mut number = [0; WORD];
    number.get_mut(..size)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions, of 0x1000..0x1020 and 0x1020..0x1030, in the form of a version.
    fn section(magic: u8, text: u64) -> Vec<u8> {
        const NAMES: &[u8; 32] = b"main.main\0runtime.mcall\0\0\0\0\0\0\0\0\0";
        let (words, size, base) = match magic {
            0xfb => (1, 8, 0),
            0xfa => (7, 8, 0),
            _ => (8, 4, 0x1000),
        };
        let names = if magic == 0xfb {
            152
        } else {
            HEADER + WORD * words
        };
        let pairs = if magic == 0xfb {
            0
        } else {
            names + NAMES.len()
        };
        let mut all = vec![0; words];
        all[0] = 2;
        match magic {
            0xfb => {}
            0xfa => (all[2], all[6]) = (names as u64, pairs as u64),
            _ => (all[2], all[3], all[7]) = (text, names as u64, pairs as u64),
        }
        let mut bytes = vec![magic, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        bytes.extend(all.iter().flat_map(|word| word.to_le_bytes()));
        if magic != 0xfb {
            bytes.extend(NAMES);
        }
        let first_record = if magic == 0xfb {
            bytes.len() as u64 + 40
        } else {
            5 * size as u64
        };
        let push = |bytes: &mut Vec<u8>, number: u64, size: usize| {
            bytes.extend(&number.to_le_bytes()[..size]);
        };
        let [first, second, end] = [0x1000, 0x1020, 0x1030].map(|address| address - base);
        let record_size = size as u64 + 4;
        for number in [first, first_record, second, first_record + record_size, end] {
            push(&mut bytes, number, size);
        }
        let origin = if magic == 0xfb { names as u64 } else { 0 };
        for (start, name) in [(first, 0), (second, 10)] {
            push(&mut bytes, start, size);
            push(&mut bytes, origin + name, 4);
        }
        if magic == 0xfb {
            bytes.resize(names, 0);
            bytes.extend(NAMES);
        }
        bytes
    }

    #[test]
    fn functions_are_found_in_all_forms() {
        for magic in [0xfb, 0xfa, 0xf0, 0xf1] {
            let bytes = section(magic, 0x1000);
            let table = GoTable::parse(&bytes, None).unwrap();
            let name = |address| table.find(address).map(|found| (found.start, found.name));
            assert_eq!(name(0xfff), None, "{magic:x}");
            assert_eq!(name(0x1000), Some((0x1000, "main.main")), "{magic:x}");
            assert_eq!(name(0x101f), Some((0x1000, "main.main")));
            assert_eq!(name(0x102f), Some((0x1020, "runtime.mcall")));
            assert_eq!(name(0x1030), None);
        }
    }

    #[test]
    fn the_seeds_of_the_fuzzer_are_tables() {
        for (name, magic) in [("go_1_2", 0xfb), ("go_1_16", 0xfa), ("go_1_20", 0xf1)] {
            crate::seeds::check("go_table", name, &section(magic, 0x1000));
        }
    }

    #[test]
    fn a_table_that_does_not_say_where_code_begins_is_told() {
        let bytes = section(0xf1, 0);
        assert!(GoTable::parse(&bytes, None).is_none());
        let table = GoTable::parse(&bytes, Some(0x1000)).unwrap();
        assert_eq!(table.find(0x1020).unwrap().name, "runtime.mcall");
    }

    #[test]
    fn no_damage_is_more_than_a_missing_name() {
        for magic in [0xfb, 0xfa, 0xf0] {
            let whole = section(magic, 0x1000);
            for length in 0..whole.len() {
                let _ = GoTable::parse(&whole[..length], None).map(|table| table.find(0x1020));
            }
            for place in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[place] = 0xff;
                let _ = GoTable::parse(&damaged, None).map(|table| table.find(0x1020));
            }
            let mut other = whole;
            other[0] = 0xf7;
            assert!(GoTable::parse(&other, None).is_none());
        }
    }
}
