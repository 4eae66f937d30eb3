//! What ClickHouse answers to queries: rows in its format `RowBinaryWithNamesAndTypes`, and stacks,
//! which are most of all bytes, column by column in its format `Native`.
//! <https://clickhouse.com/docs/interfaces/formats/RowBinaryWithNamesAndTypes>
//! <https://clickhouse.com/docs/interfaces/formats/Native>

/// What answers are in.
pub(super) const FORMAT: &str = "RowBinaryWithNamesAndTypes";
/// What stacks are in: ClickHouse and we take the frames of all at once.
pub(super) const NATIVE: &str = "Native";
/// No answer of ours has more columns.
const MOST_COLUMNS: usize = 64;
/// Rows take no more memory, bytes: an empty text takes one byte of an answer, and 24 here.
const MOST_MEMORY: usize = 1 << 30;

/// A row of an answer.
pub(super) trait Row<'a>: Sized {
    /// The types of its columns. Strings may be of low cardinality, too.
    const TYPES: &'static [&'static str];

    /// Reads the next; `None` if it is cut short, or has text that is no UTF-8.
    fn read(from: &mut Cursor<'a>) -> Option<Self>;
}

/// What a service has of samples, or somewhat more.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) service: String,
    pub(super) samples: u64,
}

impl Row<'_> for Service {
    const TYPES: &'static [&'static str] = &["String", "UInt64"];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            service: from.text()?,
            samples: from.number()?,
        })
    }
}

/// What is known before anything is read.
#[derive(Debug)]
pub(super) struct Span {
    /// How many samples were seen in the first minutes that are asked for, and in the last.
    pub(super) seen: [u64; 2],
    /// When the first and the last of these were, ms since 1970.
    pub(super) ends_ms: [u64; 2],
    /// So many whole minutes are asked for.
    pub(super) minutes: u64,
    /// In how many threads ClickHouse does what it is asked for, if nobody says.
    pub(super) threads: u64,
}

impl Row<'_> for Span {
    const TYPES: &'static [&'static str] = &["UInt64"; 6];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            seen: [from.number()?, from.number()?],
            ends_ms: [from.number()?, from.number()?],
            minutes: from.number()?,
            threads: from.number()?,
        })
    }
}

/// The samples of a thread whose weights are of the same period.
#[derive(Debug)]
pub(super) struct Sums {
    /// That of the thread and the period.
    pub(super) key: u64,
    /// Hashes.
    pub(super) stacks: Vec<u64>,
    /// The sum of the weights of each stack.
    pub(super) weights: Vec<u64>,
}

impl Row<'_> for Sums {
    const TYPES: &'static [&'static str] = &["UInt64", "String", "String"];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        let sums = Self {
            key: from.number()?,
            stacks: from.numbers()?,
            weights: from.numbers()?,
        };
        (sums.stacks.len() == sums.weights.len()).then_some(sums)
    }
}

/// A thread, and a period of its samples.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) key: u64,
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) period_ns: u64,
}

impl Thread {
    /// What no other has.
    pub(super) fn name(&self) -> (&str, &str, u64) {
        (&self.process, &self.thread, self.period_ns)
    }
}

impl Row<'_> for Thread {
    const TYPES: &'static [&'static str] = &["UInt64", "String", "String", "UInt64"];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            key: from.number()?,
            process: from.text()?,
            thread: from.text()?,
            period_ns: from.number()?,
        })
    }
}

/// A row of the table of frames.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) hash: u64,
    pub(super) function: String,
    pub(super) short: String,
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) binary: String,
    pub(super) build_id: String,
    pub(super) language: String,
    pub(super) inlined: u32,
}

impl Row<'_> for Frame {
    const TYPES: &'static [&'static str] = &[
        "UInt64", "String", "String", "String", "UInt32", "String", "String", "String", "UInt32",
    ];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            hash: from.number()?,
            function: from.text()?,
            short: from.text()?,
            file: from.text()?,
            line: from.short_number()?,
            binary: from.text()?,
            build_id: from.text()?,
            language: from.text()?,
            inlined: from.short_number()?,
        })
    }
}

/// A row of the table of stacks.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    pub(super) hash: u64,
    /// Hashes of frames, from the innermost.
    pub(super) frames: &'a [[u8; 8]],
}

/// What is in the table of stacks.
#[derive(Debug)]
pub(super) struct Lying {
    pub(super) stacks: u64,
    /// That they have together.
    pub(super) frames: u64,
}

impl Row<'_> for Lying {
    const TYPES: &'static [&'static str] = &["UInt64", "UInt64"];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        Some(Self {
            stacks: from.number()?,
            frames: from.number()?,
        })
    }
}

impl Row<'_> for String {
    const TYPES: &'static [&'static str] = &["String"];

    fn read(from: &mut Cursor<'_>) -> Option<Self> {
        from.text()
    }
}

/// The rows of an answer.
///
/// # Errors
/// What is not as it must be.
pub(super) fn rows<'a, R: Row<'a>>(body: &'a [u8]) -> Result<Vec<R>, String> {
    rows_within(body, MOST_MEMORY)
}

fn rows_within<'a, R: Row<'a>>(body: &'a [u8], memory: usize) -> Result<Vec<R>, String> {
    let mut from = Cursor { rest: body };
    let types = from.types().ok_or("it does not begin with columns")?;
    if types != R::TYPES {
        return Err(format!("its columns are {types:?} and not {:?}", R::TYPES));
    }
    let most = memory / size_of::<R>();
    let mut rows = Vec::new();
    while !from.rest.is_empty() {
        if rows.len() == most {
            return Err(format!("it has more than {most} rows"));
        }
        let row = R::read(&mut from);
        rows.push(row.ok_or_else(|| format!("row {} is damaged", rows.len() + 1))?);
    }
    Ok(rows)
}

/// The stacks of an answer in [`NATIVE`], block by block.
///
/// # Errors
/// What is not as it must be.
pub(super) fn stacks(body: &[u8]) -> Result<Vec<Stack<'_>>, String> {
    let mut from = Cursor { rest: body };
    let mut all = Vec::new();
    let mut blocks = 0;
    while !from.rest.is_empty() {
        blocks += 1;
        let block = from.block_of_stacks(&mut all);
        block.ok_or_else(|| format!("block {blocks} has no stacks, or is damaged"))?;
    }
    Ok(all)
}

/// What is left of an answer.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// The types of the columns, behind their names.
    fn types(&mut self) -> Option<Vec<&'a str>> {
        let columns = self.length()?;
        if columns > MOST_COLUMNS {
            return None;
        }
        for _ in 0..columns {
            self.slice()?;
        }
        let plain = |kind: &'a str| {
            let inner = kind.strip_prefix("LowCardinality(");
            inner
                .and_then(|kind| kind.strip_suffix(')'))
                .unwrap_or(kind)
        };
        let types = (0..columns).map(|_| Some(plain(std::str::from_utf8(self.slice()?).ok()?)));
        types.collect()
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// Seven bits in each byte, the lowest first.
    fn length(&mut self) -> Option<usize> {
        let mut length = 0;
        for shift in (0..63).step_by(7) {
            let [byte] = *self.take(1)? else { return None };
            length |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(length);
            }
        }
        None
    }

    fn slice(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.slice()?).ok().map(str::to_owned)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn short_number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// The numbers of a list whose bytes are a text: ClickHouse writes it at once, a list number
    /// by number.
    fn numbers(&mut self) -> Option<Vec<u64>> {
        let (words, rest) = self.slice()?.as_chunks();
        let numbers = words.iter().map(|word| u64::from_le_bytes(*word));
        rest.is_empty().then(|| numbers.collect())
    }

    /// So many numbers of a column.
    fn words(&mut self, number: usize) -> Option<&'a [[u8; 8]]> {
        Some(self.take(number.checked_mul(8)?)?.as_chunks().0)
    }

    /// A block's rows of hashes and lists of frames.
    fn block_of_stacks(&mut self, all: &mut Vec<Stack<'a>>) -> Option<()> {
        let (columns, rows) = (self.length()?, self.length()?);
        if columns == 0 && rows == 0 {
            return Some(());
        }
        let column = |from: &mut Self, kind: &[u8]| {
            from.slice()?;
            (from.slice()? == kind).then_some(())
        };
        column(self, b"UInt64")?;
        let hashes = self.words(rows)?;
        column(self, b"Array(UInt64)")?;
        let ends = self.words(rows)?;
        let number = ends.last().map_or(0, |end| u64::from_le_bytes(*end));
        let frames = self.words(usize::try_from(number).ok()?)?;
        let mut begin = 0;
        for (hash, end) in hashes.iter().zip(ends) {
            let end = usize::try_from(u64::from_le_bytes(*end)).ok()?;
            let hash = u64::from_le_bytes(*hash);
            let frames = frames.get(begin..end)?;
            all.push(Stack { hash, frames });
            begin = end;
        }
        (columns == 2).then_some(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The beginning of an answer.
    pub(in super::super) fn head<'a, R: Row<'a>>() -> Vec<u8> {
        let mut head = vec![R::TYPES.len() as u8];
        for text in R::TYPES.iter().map(|_| &"x").chain(R::TYPES) {
            head.extend(self::text(text));
        }
        head
    }

    pub(in super::super) fn text(text: &str) -> Vec<u8> {
        [&[text.len() as u8], text.as_bytes()].concat()
    }

    pub(in super::super) fn numbers(numbers: &[u64]) -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        [8 * numbers.len() as u8].into_iter().chain(bytes).collect()
    }

    /// An answer with a block of them.
    pub(in super::super) fn block(stacks: &[(u64, &[u64])]) -> Vec<u8> {
        let mut ends = vec![0];
        for (_, frames) in stacks {
            ends.push(ends[ends.len() - 1] + frames.len() as u64);
        }
        let bytes = |numbers: &[u64]| {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            bytes.collect::<Vec<u8>>()
        };
        let [hashes, frames]: [Vec<u64>; 2] = [
            stacks.iter().map(|(hash, _)| *hash).collect(),
            stacks
                .iter()
                .flat_map(|(_, frames)| *frames)
                .copied()
                .collect(),
        ];
        [
            &[2, stacks.len() as u8][..],
            &["hash", "UInt64"].map(text).concat(),
            &bytes(&hashes),
            &["frames", "Array(UInt64)"].map(text).concat(),
            &bytes(&ends[1..]),
            &bytes(&frames),
        ]
        .concat()
    }

    #[test]
    fn stacks_are_read_and_what_is_none_is_named() {
        let read = |body: &[u8]| {
            let number = |word: &[u8; 8]| u64::from_le_bytes(*word);
            let numbers = |row: &Stack<'_>| (row.hash, row.frames.iter().map(number).collect());
            let stacks = super::stacks(body)?;
            Ok::<Vec<(u64, Vec<u64>)>, String>(stacks.iter().map(numbers).collect())
        };
        let one = block(&[(u64::MAX, &[1, 2]), (7, &[]), (8, &[3])]);
        let both = [&one[..], &[0, 0], &block(&[(9, &[4])])].concat();
        let first = [(u64::MAX, vec![1, 2]), (7, vec![]), (8, vec![3])];
        assert_eq!(read(&one).unwrap(), first);
        assert_eq!(read(&both).unwrap()[3..], [(9, vec![4])]);
        assert!(read(b"").unwrap().is_empty());
        let damaged = "block 1 has no stacks, or is damaged";
        for end in 1..one.len() {
            assert_eq!(read(&one[..end]).unwrap_err(), damaged, "{end}");
        }
        let end = one.len() - 3 * 8 - 3 * 8;
        let with_end = |at: usize, number: u64| {
            let mut other = one.clone();
            other[end + 8 * at..][..8].copy_from_slice(&number.to_le_bytes());
            read(&other)
        };
        assert_eq!(with_end(1, 2).unwrap(), first);
        for (at, number) in [(0, 3), (1, 1), (1, 4), (2, u64::MAX), (2, u64::MAX / 8)] {
            assert_eq!(with_end(at, number).unwrap_err(), damaged, "{at} {number}");
        }
        let cheap = b"\x02\x00\x01x\x06UInt32\x01y\x0dArray(UInt64)";
        for other in [&b"<html>"[..], b"\x02\xff", cheap] {
            assert_eq!(read(other).unwrap_err(), damaged);
        }
    }

    #[test]
    fn rows_are_read_and_what_is_none_is_named() {
        let read = |rows: &[u8]| {
            let rows = super::rows::<Sums>(&[&head::<Sums>(), rows].concat())?;
            let row = |row: Sums| (row.key, row.stacks);
            Ok::<Vec<_>, String>(rows.into_iter().map(row).collect())
        };
        let row = |key: u64, stacks: &[u64]| {
            [&key.to_le_bytes()[..], &numbers(stacks), &numbers(stacks)].concat()
        };
        let (one, other) = (row(u64::MAX, &[1, 2]), row(7, &[]));
        let both = [&one[..], &other].concat();
        assert_eq!(read(&both).unwrap(), [(u64::MAX, vec![1, 2]), (7, vec![])]);
        assert!(read(b"").unwrap().is_empty());
        for end in (1..other.len()).map(|end| one.len() + end) {
            assert_eq!(read(&both[..end]).unwrap_err(), "row 2 is damaged");
        }
        let endless = [&7_u64.to_le_bytes()[..], &[0xff; 9], &[0]].concat();
        let broken = [&7_u64.to_le_bytes()[..], &[7], &[0; 7]].concat();
        for one in [endless, broken] {
            assert_eq!(read(&one).unwrap_err(), "row 1 is damaged");
        }
    }

    #[test]
    fn rows_take_no_more_memory_than_they_may() {
        let body = |rows| [head::<String>(), vec![0; rows]].concat();
        let texts = |rows| rows_within::<String>(&body(rows), 3 * size_of::<String>());
        assert_eq!(texts(3), Ok(vec![String::new(); 3]));
        assert_eq!(texts(4).unwrap_err(), "it has more than 3 rows");
    }

    #[test]
    fn each_stack_has_a_weight() {
        let sums = |weights: &[u64]| {
            let row = [&[0; 8], &*numbers(&[1, 2]), &numbers(weights)].concat();
            rows::<Sums>(&[head::<Sums>(), row].concat()).map(|rows| rows.len())
        };
        assert_eq!(sums(&[3, 4]), Ok(1));
        for weights in [&[3][..], &[3, 4, 5]] {
            assert_eq!(sums(weights).unwrap_err(), "row 1 is damaged");
        }
    }

    #[test]
    fn columns_are_of_the_types_that_were_asked_for() {
        let cheap = b"\x01\x01x\x16LowCardinality(String)\x02ab";
        assert_eq!(rows::<String>(cheap).unwrap(), ["ab"]);
        let why = rows::<Thread>(cheap).unwrap_err();
        assert!(
            why.contains("are [\"String\"] and not [\"UInt64\", "),
            "{why}"
        );
        for other in [
            &b""[..],
            b"<html>",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            &[0x41; 999],
        ] {
            let why = rows::<Thread>(other).unwrap_err();
            assert_eq!(why, "it does not begin with columns");
        }
        assert_eq!(
            rows::<String>(b"\x01\x01x\x06String\x01\xff").unwrap_err(),
            "row 1 is damaged"
        );
    }
}
