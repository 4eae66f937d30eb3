//! Reads rows that are column by column, in ClickHouse's format `Native`.
//! <https://clickhouse.com/docs/interfaces/formats/Native>

use serde_json::{Map, Value, json};

/// The rows of one block, each an object.
///
/// # Panics
/// If it is none of those types that an agent sends, or not whole.
#[must_use]
pub fn rows(block: &[u8]) -> Vec<Value> {
    let mut left = Bytes(block);
    let (columns, count) = (left.number(), left.number());
    let mut rows = vec![Map::new(); count];
    for _ in 0..columns {
        let (name, kind) = (left.text(), left.text());
        for (row, value) in rows.iter_mut().zip(left.column(&kind, count)) {
            row.insert(name.clone(), value);
        }
    }
    assert!(left.0.is_empty(), "{} bytes are left", left.0.len());
    rows.into_iter().map(Value::Object).collect()
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn column(&mut self, kind: &str, count: usize) -> Vec<Value> {
        let text = |left: &mut Self| left.text().into();
        let short = |left: &mut Self| u32::from_le_bytes(left.take()).into();
        let long = |left: &mut Self| left.u64().into();
        match kind {
            "UInt32" => self.values(count, short),
            "UInt64" => self.values(count, long),
            "DateTime64(3, 'UTC')" => self.values(count, long),
            "String" => self.values(count, text),
            "LowCardinality(String)" => self.few(count, text),
            "LowCardinality(UInt32)" => self.few(count, short),
            "LowCardinality(UInt64)" => self.few(count, long),
            "Array(LowCardinality(UInt64))" => {
                self.in_this_block();
                let ends = self.ends(count);
                let all = self.by_keys(*ends.last().unwrap_or(&0), long);
                apart(&ends, |from, to| json!(all[from..to]))
            }
            "Map(String, String)" => {
                let ends = self.ends(count);
                let all = *ends.last().unwrap_or(&0);
                let keys: Vec<_> = (0..all).map(|_| self.text()).collect();
                let values = self.values(all, text);
                apart(&ends, |from, to| {
                    let pairs = keys[from..to]
                        .iter()
                        .cloned()
                        .zip(values[from..to].to_vec());
                    pairs.collect::<Map<_, _>>().into()
                })
            }
            other => panic!("{other} is not known"),
        }
    }

    /// Elements of which few differ.
    fn few(&mut self, count: usize, key: impl Fn(&mut Self) -> Value) -> Vec<Value> {
        self.in_this_block();
        self.by_keys(count, key)
    }

    fn in_this_block(&mut self) {
        assert_eq!(self.u64(), 1, "keys in this block");
    }

    /// Keys, and which of them each element is.
    fn by_keys(&mut self, count: usize, key: impl Fn(&mut Self) -> Value) -> Vec<Value> {
        let form = self.u64();
        let keys = self.u64() as usize;
        let keys = self.values(keys, key);
        assert_eq!(self.u64() as usize, count);
        let place = |left: &mut Self| match form {
            0x600 => usize::from(u8::from_le_bytes(left.take())),
            0x601 => usize::from(u16::from_le_bytes(left.take())),
            other => panic!("{other:x} is no form of few keys"),
        };
        self.values(count, |left| keys[place(left)].clone())
    }

    fn values(&mut self, count: usize, one: impl Fn(&mut Self) -> Value) -> Vec<Value> {
        (0..count).map(|_| one(self)).collect()
    }

    /// Where the elements of each row end.
    fn ends(&mut self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.u64() as usize).collect()
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn text(&mut self) -> String {
        let length = self.number();
        let (text, behind) = self.0.split_at(length);
        self.0 = behind;
        String::from_utf8(text.to_vec()).expect("it is text")
    }

    /// Seven bits in each byte, the lowest first.
    fn number(&mut self) -> usize {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let [byte] = self.take();
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, behind) = self.0.split_first_chunk().expect("it is whole");
        self.0 = behind;
        *bytes
    }
}

/// What each row has of what lies in a row.
fn apart(ends: &[usize], one: impl Fn(usize, usize) -> Value) -> Vec<Value> {
    let begins = std::iter::once(&0).chain(ends);
    begins.zip(ends).map(|(from, to)| one(*from, *to)).collect()
}
