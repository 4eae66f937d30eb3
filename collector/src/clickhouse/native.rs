//! Rows column by column, in ClickHouse's format `Native`: what is alike lies together, which
//! halves what is left of it when it is compressed.
//! <https://clickhouse.com/docs/interfaces/formats/Native>

use crate::gzip::gzip;
use flate2::Compression;
use std::collections::HashMap;
use std::hash::Hash;
use std::io;

/// How elements of type `LowCardinality` are written: the version of that, ...
const KEYS_IN_BLOCK: u64 = 1;
/// ... and that each element's place among the keys follows, of so many bits.
const KEYS_THEN_PLACES: u64 = 0x600;
const PLACES_OF_8: u64 = 0;
const PLACES_OF_16: u64 = 1;
const PLACES_OF_32: u64 = 2;

/// So many are looked through sooner than one is hashed.
const FEW: usize = 8;

/// The rows of one insert, to which columns are added.
#[derive(Debug)]
pub(crate) struct Block {
    rows: usize,
    columns: usize,
    bytes: Vec<u8>,
    /// Where bytes begin that are compressed apart.
    apart: Vec<usize>,
}

impl Block {
    /// Every column gets so many values.
    pub(crate) const fn of(rows: usize) -> Self {
        Self {
            rows,
            columns: 0,
            bytes: Vec::new(),
            apart: Vec::new(),
        }
    }

    /// What comes next is of another kind than what was before. The code that is short for bytes
    /// that are frequent in one would be long for those of the other: times and hashes of stacks
    /// take 6 % less where each have their own.
    pub(crate) fn apart(&mut self) {
        self.apart.push(self.bytes.len());
    }

    pub(crate) fn u32s(&mut self, name: &str, values: impl Iterator<Item = u32>) {
        self.column(name, "UInt32");
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    pub(crate) fn u64s(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        self.column(name, "UInt64");
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
    }

    /// Times, ns since 1970.
    pub(crate) fn times(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        self.column(name, "DateTime64(3, 'UTC')");
        let ms = values.map(|ns| ns.saturating_add(500_000) / 1_000_000);
        ms.for_each(|ms| self.bytes.extend_from_slice(&ms.to_le_bytes()));
    }

    pub(crate) fn texts<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        self.column(name, "String");
        values.for_each(|value| put_text(&mut self.bytes, value));
    }

    /// Texts of which few differ: each is written once, and rows say which.
    pub(crate) fn labels<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        self.few(name, "LowCardinality(String)", values, put_text);
    }

    /// Numbers likewise: a row takes a byte where all of it take four or eight.
    pub(crate) fn few_u32s(&mut self, name: &str, values: impl Iterator<Item = u32>) {
        self.few(name, "LowCardinality(UInt32)", values, |bytes, value| {
            bytes.extend(value.to_le_bytes());
        });
    }

    /// The same of longer ones.
    pub(crate) fn few_u64s(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        self.few(name, "LowCardinality(UInt64)", values, |bytes, value| {
            bytes.extend(value.to_le_bytes());
        });
    }

    fn few<T: Copy + Eq + Hash>(
        &mut self,
        name: &str,
        kind: &str,
        values: impl Iterator<Item = T>,
        put: impl Fn(&mut Vec<u8>, T),
    ) {
        self.column(name, kind);
        self.bytes.extend(KEYS_IN_BLOCK.to_le_bytes());
        let mut keys = Vec::new();
        let mut known = HashMap::new();
        let mut last = 0;
        let places = values.map(|value| {
            // Mostly that of the row before.
            if keys.get(last) != Some(&value) {
                let place = match keys.len() {
                    0..=FEW => keys.iter().position(|key| *key == value),
                    _ => known.get(&value).copied(),
                };
                last = place.unwrap_or_else(|| {
                    known.insert(value, keys.len());
                    keys.push(value);
                    keys.len() - 1
                });
            }
            last
        });
        let places: Vec<usize> = places.collect();
        self.keys(keys.len());
        let count = keys.len();
        keys.into_iter().for_each(|key| put(&mut self.bytes, key));
        self.places(count, places.len(), places.into_iter());
    }

    /// Lists that have many elements in common: each is written once, and lists say where. None is
    /// empty. What is listed are places in `of`.
    pub(crate) fn lists(&mut self, name: &str, lists: &[&[u32]], of: &[u64]) {
        self.column(name, "Array(LowCardinality(UInt64))");
        self.bytes.extend(KEYS_IN_BLOCK.to_le_bytes());
        self.ends(lists.iter().map(|list| list.len()));
        self.apart();
        let value = |place: u32| of.get(place as usize).copied().unwrap_or(0);
        let all = || lists.iter().copied().flatten().copied();
        let mut is_listed = vec![false; of.len()];
        let mut listed = Vec::new();
        for place in all() {
            let known = is_listed.get_mut(place as usize);
            if known.is_some_and(|known| !std::mem::replace(known, true)) {
                listed.push(place);
            }
        }
        listed.sort_unstable_by_key(|place| value(*place));
        let mut keys = Vec::with_capacity(listed.len());
        let mut key_of = vec![0; of.len()];
        for place in listed {
            if keys.last() != Some(&value(place)) {
                keys.push(value(place));
            }
            key_of[place as usize] = keys.len() - 1;
        }
        self.keys(keys.len());
        keys.iter()
            .for_each(|key| self.bytes.extend(key.to_le_bytes()));
        self.apart();
        let key = |place: u32| key_of.get(place as usize).copied().unwrap_or(0);
        self.places(keys.len(), all().count(), all().map(key));
    }

    /// What stands before so many keys.
    fn keys(&mut self, number: usize) {
        let form = KEYS_THEN_PLACES | width(number);
        for word in [form, number as u64] {
            self.bytes.extend(word.to_le_bytes());
        }
    }

    /// Where each of so many values is among so many keys.
    fn places(&mut self, keys: usize, number: usize, places: impl Iterator<Item = usize>) {
        self.bytes.extend((number as u64).to_le_bytes());
        let mut put = |bytes: &[u8]| self.bytes.extend_from_slice(bytes);
        match width(keys) {
            PLACES_OF_8 => self.bytes.extend(places.map(|place| place as u8)),
            PLACES_OF_16 => places.for_each(|place| put(&(place as u16).to_le_bytes())),
            _ => places.for_each(|place| put(&(place as u32).to_le_bytes())),
        }
    }

    pub(crate) fn maps<'a, M>(&mut self, name: &str, values: impl Iterator<Item = M> + Clone)
    where
        M: Iterator<Item = (&'a str, &'a str)>,
    {
        self.column(name, "Map(String, String)");
        self.ends(values.clone().map(M::count));
        let bytes = &mut self.bytes;
        let keys = values.clone().flatten().map(|(key, _)| key);
        keys.for_each(|key| put_text(bytes, key));
        let values = values.flatten().map(|(_, value)| value);
        values.for_each(|value| put_text(bytes, value));
    }

    /// All of it, as the body of a request with `Content-Encoding: gzip`.
    ///
    /// # Errors
    /// Those of compression into memory: none.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.finish_at(Compression::default())
    }

    /// The same in two thirds of the time, with 2 % more bytes: hardly anything is in it twice.
    ///
    /// # Errors
    /// As [`Block::finish`].
    pub(crate) fn finish_soon(self) -> io::Result<Vec<u8>> {
        self.finish_at(Compression::new(2))
    }

    fn finish_at(mut self, level: Compression) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        put_number(&mut all, self.columns);
        put_number(&mut all, self.rows);
        let head = all.len();
        all.append(&mut self.bytes);
        let ends = self.apart.iter().map(|end| head + end);
        let (mut parts, mut begin) = (Vec::new(), 0);
        for end in ends.chain([all.len()]) {
            parts.push(&all[begin..end]);
            begin = end;
        }
        gzip(parts, level)
    }

    fn column(&mut self, name: &str, kind: &str) {
        self.columns += 1;
        put_text(&mut self.bytes, name);
        put_text(&mut self.bytes, kind);
    }

    /// Where the elements of each row end.
    fn ends(&mut self, lengths: impl Iterator<Item = usize>) {
        let mut end = 0;
        for length in lengths {
            end += length as u64;
            self.bytes.extend_from_slice(&end.to_le_bytes());
        }
    }
}

/// Of places among so many keys.
const fn width(keys: usize) -> u64 {
    match keys {
        0..=0x100 => PLACES_OF_8,
        0x101..=0x1_0000 => PLACES_OF_16,
        _ => PLACES_OF_32,
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// Seven bits in each byte, the lowest first.
fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read as _;

    #[test]
    fn columns_are_as_the_format_says() {
        let long = "x".repeat(130);
        let mut block = Block::of(2);
        block.texts("t", ["ä", &long].into_iter());
        block.labels("c", ["b", "ä"].into_iter());
        block.few_u32s("f", [7, 7].into_iter());
        block.few_u64s("g", [9, u64::MAX].into_iter());
        block.u32s("n", [1, u32::MAX].into_iter());
        block.times("d", [1_499_999, 1_500_000].into_iter());
        block.lists("l", &[&[2, 1, 0], &[0, 1]], &[7, 8, 7]);
        let maps = [&[][..], &[("k", "v")]];
        block.maps("m", maps.iter().map(|map| map.iter().copied()));
        let mut bytes = Vec::new();
        let packed = block.finish().unwrap();
        GzDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
        let expected = [
            &b"\x08\x02\x01t\x06String\x02\xc3\xa4\x82\x01"[..],
            long.as_bytes(),
            b"\x01c\x16LowCardinality(String)\x01\0\0\0\0\0\0\0",
            b"\0\x06\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01b\x02\xc3\xa4",
            b"\x02\0\0\0\0\0\0\0\0\x01",
            b"\x01f\x16LowCardinality(UInt32)\x01\0\0\0\0\0\0\0",
            b"\0\x06\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0",
            b"\x02\0\0\0\0\0\0\0\0\0",
            b"\x01g\x16LowCardinality(UInt64)\x01\0\0\0\0\0\0\0",
            b"\0\x06\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\0\0\0\0\x01",
            b"\x01n\x06UInt32\x01\0\0\0\xff\xff\xff\xff",
            b"\x01d\x14DateTime64(3, 'UTC')\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
            b"\x01l\x1dArray(LowCardinality(UInt64))\x01\0\0\0\0\0\0\0",
            b"\x03\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0",
            b"\0\x06\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0",
            b"\x05\0\0\0\0\0\0\0\0\x01\0\0\x01",
            b"\x01m\x13Map(String, String)\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01k\x01v",
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn many_keys_have_places_as_few_have() {
        for count in [1, 8, 9, 20] {
            let mut block = Block::of(2 * count);
            let values = (0..count as u32).chain(0..count as u32);
            block.few_u32s("f", values);
            let places = (0..count as u8).chain(0..count as u8);
            assert!(block.bytes.ends_with(&places.collect::<Vec<_>>()));
            let keys = (0..count as u32).flat_map(u32::to_le_bytes);
            let end = block.bytes.len() - 2 * count - 8;
            assert!(block.bytes[..end].ends_with(&keys.collect::<Vec<_>>()));
        }
    }
}
