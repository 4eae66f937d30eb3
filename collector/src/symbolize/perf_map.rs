//! `/tmp/perf-PID.map`: the names that a JIT compiler gives to its code, one `START SIZE name` a
//! line, addresses in hexadecimal.
//!
//! Code is thrown away and its place used again, so entries overlap: of two entries for an address
//! the later line wins. Lines that do not parse are passed over. However often a range is split,
//! its name is held once.

use engine::address::RuntimeAddress;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A JIT's symbols.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// By start: end and name. Ranges do not overlap.
    ranges: BTreeMap<u64, (u64, Arc<str>)>,
}

impl PerfMap {
    /// Takes in the text of a map file.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut map = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((start, end, name)) = parse_line(line) {
                map.insert(start, end, name);
            }
        }
        map
    }

    fn insert(&mut self, start: u64, end: u64, name: Arc<str>) {
        let before = self.ranges.range(..start).next_back();
        if let Some((&lower, (upper, old))) = before.filter(|(_, (upper, _))| *upper > start) {
            let (upper, old) = (*upper, old.clone());
            if upper > end {
                self.ranges.insert(end, (upper, old.clone()));
            }
            self.ranges.insert(lower, (start, old));
        }
        while let Some((&inner, _)) = self.ranges.range(start..end).next() {
            let Some((upper, old)) = self.ranges.remove(&inner) else {
                break;
            };
            if upper > end {
                self.ranges.insert(end, (upper, old));
            }
        }
        self.ranges.insert(start, (end, name));
    }

    /// The name of the code at an address.
    pub(super) fn find(&self, address: RuntimeAddress) -> Option<&str> {
        let (_, (end, name)) = self.ranges.range(..=address.0).next_back()?;
        (address.0 < *end).then_some(name)
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, Arc<str>)> {
    let line = String::from_utf8_lossy(line);
    let mut parts = line.trim_end().splitn(3, ' ');
    let mut number = || {
        let text = parts.next()?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = parts.next()?.trim();
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then(|| (start, end, Arc::from(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(map: &PerfMap, address: u64) -> &str {
        map.find(RuntimeAddress(address)).unwrap_or("-")
    }

    #[test]
    fn names_may_have_spaces_and_bad_lines_are_passed_over() {
        let map = PerfMap::parse(
            b"1000 10 JS:*fib /tmp/a b.js:1:9\nnonsense\nffffffffffffffff 2 past the end\n2000 0 empty\n0x3000 0x8 prefixed\n4000 1",
        );
        assert_eq!(find(&map, 0x1000), "JS:*fib /tmp/a b.js:1:9");
        assert_eq!(find(&map, 0x100f), "JS:*fib /tmp/a b.js:1:9");
        assert_eq!(find(&map, 0x1010), "-");
        assert_eq!(find(&map, 0x2000), "-");
        assert_eq!(find(&map, 0x3007), "prefixed");
        assert_eq!(map.ranges.len(), 2);
    }

    #[test]
    fn the_newest_entry_wins_however_they_overlap() {
        let map = PerfMap::parse(
            b"1000 100 old\n1040 20 inside\n10f0 20 over the end\nff0 20 over the start\n",
        );
        let names: Vec<_> = [
            0xff0, 0x1010, 0x103f, 0x1040, 0x105f, 0x1060, 0x10f0, 0x110f, 0x1110,
        ]
        .map(|address| find(&map, address))
        .into();
        assert_eq!(
            names,
            [
                "over the start",
                "old",
                "old",
                "inside",
                "inside",
                "old",
                "over the end",
                "over the end",
                "-"
            ]
        );
        let covering = PerfMap::parse(b"1000 10 a\n1010 10 b\n1008 4 c\n0ff0 30 all\n");
        assert_eq!(covering.ranges.len(), 1);
        assert_eq!(find(&covering, 0x101f), "all");
    }
}
