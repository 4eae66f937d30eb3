//! [`Function`]: one function description entry, and its rows (specification 2.3).

use core::num::NonZeroU8;

use crate::bytes::Width;
use crate::fre::RawRows;
use crate::recovery::{Conventions, Kind};
use crate::{Abi, Address, Base, Cfa, Error, PacKey, Row, Version};

/// The range of one function, and the encoding of its rows.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    pub(crate) start: Address,
    pub(crate) size: u32,
    pub(crate) rep_size: Option<NonZeroU8>,
    pub(crate) rows: RawRows<'a>,
    pub(crate) conventions: Conventions,
    pub(crate) entry_offset: u64,
}

impl<'a> Function<'a> {
    /// The address of the first instruction.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> Address {
        self.start
    }

    /// Bytes of code.
    #[inline]
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The address behind the last instruction.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> Address {
        self.start.wrapping_offset(self.size as i64)
    }

    /// The size in bytes of the block of code the function repeats, where its rows describe one
    /// block (`SFRAME_FDE_PCTYPE_MASK`, specification 2.3.3.1): a procedure linkage table.
    #[inline]
    #[must_use]
    pub const fn rep_size(&self) -> Option<NonZeroU8> {
        self.rep_size
    }

    /// Whether the rows have the flexible encoding (`SFRAME_FDE_TYPE_FLEX`, specification 3.2).
    #[inline]
    #[must_use]
    pub const fn is_flexible(&self) -> bool {
        matches!(self.conventions.kind, Kind::Flex)
    }

    /// Whether the function is a signal trampoline (specification 2.3.3).
    #[inline]
    #[must_use]
    pub const fn is_signal_frame(&self) -> bool {
        self.conventions.signal_frame
    }

    /// aarch64: the key that signs the return addresses (specification 2.3.3).
    #[inline]
    #[must_use]
    pub const fn pac_key(&self) -> PacKey {
        self.conventions.pac_key
    }

    /// The number of rows.
    #[inline]
    #[must_use]
    pub const fn row_count(&self) -> u32 {
        self.rows.remaining
    }

    /// Where the function's entry begins in the section, in bytes.
    #[inline]
    #[must_use]
    pub const fn entry_offset(&self) -> u64 {
        self.entry_offset
    }

    /// Whether the function has no rows because it has no caller (a DEFAULT function of version 3,
    /// specification 1.2).
    #[inline]
    #[must_use]
    pub const fn is_outermost(&self) -> bool {
        self.rows.remaining == 0
            && matches!(
                (self.conventions.version, self.conventions.kind),
                (Version::V3, Kind::Default)
            )
    }

    /// The row for the instruction `offset` bytes into the function; none if no row begins at or
    /// before it.
    ///
    /// It is one of [`Function::rows`], except in `.plt.got` of amd64: there GNU ld (2.44 to 2.47
    /// at least) says that the CFA is rsp + 16, although the entries only jump, so that it is rsp +
    /// 8 as at the beginning of every function.
    ///
    /// # Errors
    /// What is wrong with the rows up to the one wanted and the one behind it.
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else.
    #[inline]
    pub fn row_at(&self, offset: u32) -> Result<Option<Row>, Error> {
        if self.is_outermost() {
            return Ok(Some(self.conventions.outermost()));
        }
        let offset = match self.rep_size {
            None => offset,
            Some(size) => offset.checked_rem(u32::from(size.get())).unwrap_or(0),
        };
        match self.rows.last_at_or_before(offset)? {
            Some(raw) if self.rep_size.is_some() => Ok(self
                .conventions
                .interpret(&raw)?
                .map(|row| self.entered(row))),
            Some(raw) => self.conventions.interpret(&raw),
            None => Ok(None),
        }
    }

    /// The row as it must be in a repeated block of one row, which pushes nothing: where the return
    /// address is on top of the stack.
    #[cold]
    fn entered(&self, mut row: Row) -> Row {
        const AS_LINKED: Cfa = Cfa {
            base: Base::StackPointer,
            offset: 16,
            deref: false,
        };
        if self.conventions.abi == Abi::Amd64 && self.rows.remaining == 1 && row.cfa == AS_LINKED {
            row.cfa.offset = 8;
        }
        row
    }

    /// All rows in order, as written.
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else.
    #[must_use]
    pub const fn rows(&self) -> Rows<'a> {
        Rows {
            raw: self.rows,
            conventions: self.conventions,
        }
    }
}

/// The rows of a function in order: each with the offset in bytes from the start of the function
/// (or of the repeated block) at which it begins. It holds up to the next row's. Ends after the
/// first error.
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    raw: RawRows<'a>,
    conventions: Conventions,
}

impl Rows<'_> {
    /// Where the next row begins in the section, in bytes.
    pub(crate) const fn offset(&self) -> u64 {
        self.raw.offset()
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<(u32, Row), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.raw.next().transpose()?;
        let row = next.and_then(|raw| Ok((raw.start, self.conventions.interpret(&raw)?)));
        let row = row
            .map(|(start, row)| row.map(|row| (start, row)))
            .transpose()?;
        if row.is_err() {
            self.raw.remaining = 0;
        }
        Some(row)
    }
}

/// The number of rows, and the info bytes (specification 2.3.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    pub(crate) rows: u32,
    pub(crate) info: u8,
    pub(crate) info2: u8,
    pub(crate) rep_size: u8,
}

/// Where an attribute's fields are, in bytes from the beginning of the section.
#[derive(Clone, Copy)]
pub(crate) struct AttributeOffsets {
    pub(crate) info: u64,
    pub(crate) rep_size: u64,
}

impl Attribute {
    #[inline]
    pub(crate) fn start_width(&self, offsets: AttributeOffsets) -> Result<Width, Error> {
        let undefined = || Error::BadFreType {
            offset: offsets.info,
            info: self.info,
        };
        Width::from_field(self.info & 0xf).ok_or_else(undefined)
    }

    #[inline]
    pub(crate) fn kind(&self, offsets: AttributeOffsets) -> Result<Kind, Error> {
        match self.info2 {
            0 => Ok(Kind::Default),
            1 => Ok(Kind::Flex),
            info2 => Err(Error::BadFdeType {
                offset: offsets.info.wrapping_add(1),
                info2,
            }),
        }
    }

    #[inline]
    pub(crate) fn rep_size(&self, offsets: AttributeOffsets) -> Result<Option<NonZeroU8>, Error> {
        if self.info & 0x10 == 0 {
            return Ok(None);
        }
        match NonZeroU8::new(self.rep_size) {
            None => Err(Error::ZeroRepSize {
                offset: offsets.rep_size,
            }),
            size => Ok(size),
        }
    }
}
