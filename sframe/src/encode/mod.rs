//! [`Encoder`]: writes a section of version 2 or 3 from rows. Feature `encode`; needs `alloc`. The
//! bytes a row takes are
//! `words.rs`.

mod error;
mod words;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU8;

pub use error::EncodeError;
use words::Conventions;

use crate::header::{FUNC_START_PCREL, MAGIC, SORTED};
use crate::{Abi, Address, ByteOrder, Error, Function, Header, PacKey, Row, Version};

/// A function and its rows, apart from any section.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionRows {
    /// The address of the first instruction.
    pub start: Address,
    /// Bytes of code.
    pub size: u32,
    /// The size in bytes of the block of code the function repeats, if its rows describe one block.
    pub rep_size: Option<NonZeroU8>,
    /// Whether the function is a signal trampoline. Version 3 only. Decides, whatever the rows say.
    pub signal_frame: bool,
    /// aarch64: the key that signs the return addresses. Decides, whatever the rows say.
    pub pac_key: PacKey,
    /// Each row with the offset in bytes at which it begins, ascending. None at all, in version 3,
    /// says that the function has no caller.
    pub rows: Vec<(u32, Row)>,
}

impl FunctionRows {
    /// An ordinary function.
    #[must_use]
    pub const fn new(start: Address, size: u32, rows: Vec<(u32, Row)>) -> Self {
        Self {
            start,
            size,
            rep_size: None,
            signal_frame: false,
            pac_key: PacKey::A,
            rows,
        }
    }
}

impl TryFrom<&Function<'_>> for FunctionRows {
    type Error = Error;

    fn try_from(function: &Function<'_>) -> Result<Self, Error> {
        Ok(Self {
            start: function.start(),
            size: function.size(),
            rep_size: function.rep_size(),
            signal_frame: function.is_signal_frame(),
            pac_key: function.pac_key(),
            rows: function.rows().collect::<Result<_, _>>()?,
        })
    }
}

/// Collects functions and writes them as a section.
///
/// ```
/// use sframe_unwind::{Abi, Address, Base, Cfa, Row, Rule, Section, Version};
/// use sframe_unwind::{Encoder, FunctionRows};
///
/// let cfa = Cfa { base: Base::StackPointer, offset: 8, deref: false };
/// let entry = Row::new(cfa, Rule::AtCfa(-8), Rule::Unchanged);
/// let mut encoder = Encoder::new(Version::V3, Abi::Amd64)?;
/// encoder.push(&FunctionRows::new(Address(0x1000), 0x20, vec![(0, entry)]))?;
/// let bytes = encoder.finish(Address(0x4000))?;
///
/// let section = Section::new(&bytes, Address(0x4000))?;
/// assert_eq!(section.lookup(Address(0x101f))?, Some(entry));
/// assert_eq!(section.lookup(Address(0x1020))?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Encoder {
    conventions: Conventions,
    sorted: bool,
    field_relative: bool,
    shared: Option<BTreeMap<Vec<u8>, u32>>,
    functions: Vec<Encoded>,
    rows: Vec<u8>,
    row_count: u64,
}

/// A function whose rows are encoded.
#[derive(Clone, Debug)]
struct Encoded {
    start: Address,
    size: u32,
    /// Bytes from the beginning of all rows.
    rows: u32,
    count: u32,
    info: u8,
    rep_size: u8,
}

impl Encoder {
    /// Will write functions sorted, with starts relative to their fields, as current producers do.
    ///
    /// # Errors
    /// [`EncodeError::UnsupportedVersion`] for version 1, which is obsolete.
    pub fn new(version: Version, abi: Abi) -> Result<Self, EncodeError> {
        if version == Version::V1 {
            return Err(EncodeError::UnsupportedVersion);
        }
        Ok(Self {
            conventions: Conventions { version, abi },
            sorted: true,
            field_relative: true,
            shared: None,
            functions: Vec::new(),
            rows: Vec::new(),
            row_count: 0,
        })
    }

    /// Leaves the functions in the order in which they were given, and does not claim more
    /// (specification 2.1.3).
    #[must_use]
    pub fn unsorted(mut self) -> Self {
        self.sorted = false;
        self
    }

    /// Counts the functions' starts from the beginning of the section, as binutils 2.41 to 2.44 did
    /// (specification 2.1.3).
    #[must_use]
    pub fn starts_from_section(mut self) -> Self {
        self.field_relative = false;
        self
    }

    /// Lets functions with the same rows have them once. That makes the section much smaller; it is
    /// nothing a reader by the specification would notice, but no other producer does it.
    #[must_use]
    pub fn sharing_rows(mut self) -> Self {
        self.shared = Some(BTreeMap::new());
        self
    }

    /// Adds a function.
    ///
    /// # Errors
    /// What in it the version cannot express; the encoder is then as it was.
    pub fn push(&mut self, function: &FunctionRows) -> Result<(), EncodeError> {
        let block = self.conventions.encode(function)?;
        let count = u32::try_from(function.rows.len()).map_err(|_| EncodeError::TooManyRows)?;
        let rows = self.place(block.bytes)?;
        self.row_count = self.row_count.saturating_add(u64::from(count));
        self.functions.push(Encoded {
            start: function.start,
            size: function.size,
            rows,
            count,
            info: block.info,
            rep_size: function.rep_size.map_or(0, NonZeroU8::get),
        });
        Ok(())
    }

    /// Where the rows of a function are among all rows, in bytes.
    fn place(&mut self, block: Vec<u8>) -> Result<u32, EncodeError> {
        if let Some(at) = self.shared.as_ref().and_then(|shared| shared.get(&block)) {
            return Ok(*at);
        }
        let at = u32::try_from(self.rows.len()).map_err(|_| EncodeError::TooLarge)?;
        self.rows.extend_from_slice(&block);
        if let Some(shared) = &mut self.shared {
            shared.insert(block, at);
        }
        Ok(at)
    }

    /// The number of functions so far.
    #[must_use]
    pub const fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// The number of bytes the section would have now.
    #[must_use]
    pub const fn section_len(&self) -> usize {
        let entries = self
            .functions
            .len()
            .saturating_mul(self.conventions.version.fde_len() as usize);
        Header::LEN
            .saturating_add(entries)
            .saturating_add(self.rows.len())
    }

    /// Writes the section, to be placed at `address`.
    ///
    /// # Errors
    /// [`EncodeError::OutOfReach`] if a function is too far from there, [`EncodeError::TooLarge`].
    pub fn finish(mut self, address: Address) -> Result<Vec<u8>, EncodeError> {
        if self.sorted {
            self.functions
                .sort_by_key(|function| function.start.distance_from(address));
        }
        let mut out = Writer {
            order: self.conventions.abi.byte_order(),
            bytes: Vec::with_capacity(self.section_len()),
        };
        self.write_header(&mut out)?;
        for function in &self.functions {
            let origin = if self.field_relative {
                out.bytes.len() as i64
            } else {
                0
            };
            let distance = function.start.distance_from(address).wrapping_sub(origin);
            self.write_entry(&mut out, function, distance)?;
        }
        out.bytes.extend_from_slice(&self.rows);
        Ok(out.bytes)
    }

    fn write_header(&self, out: &mut Writer) -> Result<(), EncodeError> {
        let narrow = |value: usize| u32::try_from(value).map_err(|_| EncodeError::TooLarge);
        let entries = self
            .functions
            .len()
            .saturating_mul(self.conventions.version.fde_len() as usize);
        let sorted = if self.sorted { SORTED } else { 0 };
        let field_relative = if self.field_relative {
            FUNC_START_PCREL
        } else {
            0
        };
        out.u16(MAGIC);
        out.u8(self.conventions.version.number());
        out.u8(sorted | field_relative);
        out.u8(self.conventions.abi.identifier());
        out.u8(0);
        out.u8(self.conventions.fixed_ra().cast_unsigned());
        out.u8(0);
        out.u32(narrow(self.functions.len())?);
        out.u32(u32::try_from(self.row_count).map_err(|_| EncodeError::TooLarge)?);
        out.u32(narrow(self.rows.len())?);
        out.u32(0);
        out.u32(narrow(entries)?);
        Ok(())
    }

    fn write_entry(
        &self,
        out: &mut Writer,
        function: &Encoded,
        distance: i64,
    ) -> Result<(), EncodeError> {
        if self.conventions.version == Version::V3 {
            out.u64(distance.cast_unsigned());
            out.u32(function.size);
            out.u32(function.rows);
            return Ok(());
        }
        let out_of_reach = EncodeError::OutOfReach {
            start: function.start,
        };
        let distance = i32::try_from(distance).map_err(|_| out_of_reach)?;
        out.u32(distance.cast_unsigned());
        out.u32(function.size);
        out.u32(function.rows);
        out.u32(function.count);
        out.u8(function.info);
        out.u8(function.rep_size);
        out.u16(0);
        Ok(())
    }
}

/// Bytes, and the order of those in a number.
struct Writer {
    order: ByteOrder,
    bytes: Vec<u8>,
}

impl Writer {
    fn put<const N: usize>(&mut self, little_endian: [u8; N]) {
        match self.order {
            ByteOrder::Little => self.bytes.extend(little_endian),
            ByteOrder::Big => self.bytes.extend(little_endian.iter().rev()),
        }
    }

    fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.put(value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(value.to_le_bytes());
    }
}
