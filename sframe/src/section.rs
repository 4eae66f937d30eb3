//! [`Section`]: a whole `.sframe` section, and the look-up. **Start here.**

use crate::fre::RawRows;
use crate::function::{Attribute, AttributeOffsets, Function};
use crate::index::{Entry, Found, Index};
use crate::recovery::Conventions;
use crate::{Address, Error, Header, Row};

/// A `.sframe` section in memory (specification 2).
///
/// A `Section` is a view of borrowed bytes: cheap to make, cheap to copy. The bytes may change or
/// be corrupt at any time; every method bears it, though what it says then is worth nothing.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub(crate) header: Header,
    address: Address,
    auxiliary: &'a [u8],
    pub(crate) index: Index<'a>,
    /// Those of all functions.
    pub(crate) rows: &'a [u8],
}

impl<'a> Section<'a> {
    /// Reads the header and checks that the function index and the rows lie within `bytes`; the
    /// cost does not depend on the size of the section. Bytes behind the section's end are left
    /// out, so that a whole segment may be given.
    ///
    /// `address` is where the first byte lies, see [`Address`].
    ///
    /// # Errors
    /// Those of [`Header::parse`], [`Error::FdesOutOfBounds`], [`Error::FresOutOfBounds`],
    /// [`Error::Overlap`].
    ///
    /// # Signal safety
    /// Reads `bytes`, nothing else.
    pub fn new(bytes: &'a [u8], address: Address) -> Result<Self, Error> {
        let header = Header::parse(bytes)?;
        let too_short = Error::HeaderTooShort {
            offset: bytes.len() as u64,
        };
        let auxiliary =
            slice(bytes, Header::LEN as u64, u64::from(header.auxiliary_len)).ok_or(too_short)?;
        let (offset, len) = (header.functions_start(), header.functions_len());
        let functions = slice(bytes, offset, len).ok_or(Error::FdesOutOfBounds { offset, len })?;
        let (rows_offset, rows_len) = (header.rows_start(), u64::from(header.rows_len));
        let rows = slice(bytes, rows_offset, rows_len).ok_or(Error::FresOutOfBounds {
            offset: rows_offset,
            len: rows_len,
        })?;
        if offset < rows_offset.saturating_add(rows_len) && rows_offset < offset.saturating_add(len)
        {
            return Err(Error::Overlap {
                offset: offset.max(rows_offset),
            });
        }
        Ok(Self {
            header,
            address,
            auxiliary,
            index: Index::new(&header, functions),
            rows,
        })
    }

    /// The number of bytes a section has, from its first [`Header::LEN`] bytes.
    ///
    /// For a section found through a `PT_GNU_SFRAME` program header, whose size is not to be relied
    /// on: linkers have written one larger than the section.
    ///
    /// # Errors
    /// Those of [`Header::parse`].
    ///
    /// # Signal safety
    /// Reads `bytes`, nothing else.
    pub fn len_from_header(bytes: &[u8]) -> Result<u64, Error> {
        Ok(Header::parse(bytes)?.section_len())
    }

    /// The header.
    #[inline]
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Where the first byte lies, as given to [`Section::new`].
    #[inline]
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// The bytes of the auxiliary header; no ABI gives them a meaning yet (specification 2.2).
    #[inline]
    #[must_use]
    pub const fn auxiliary(&self) -> &'a [u8] {
        self.auxiliary
    }

    /// How to get from a frame at `pc` to its caller; none where the section has no row for `pc`.
    ///
    /// `pc` is the address of the instruction being executed. For a return address, that is the
    /// call before it: give the return address less one, see [`Row`].
    ///
    /// Takes a binary search over the functions (a linear one if the section is not sorted) and a
    /// walk over the rows of one of them.
    ///
    /// # Errors
    /// What is wrong with the entries on the way to the row; the others are not looked at.
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else. Never panics, and takes a bounded time on any
    /// bytes.
    #[inline]
    pub fn lookup(&self, pc: Address) -> Result<Option<Row>, Error> {
        let target = pc.distance_from(self.address);
        self.row(self.index.find(target), target)
    }

    /// The row for `target`, in bytes from the beginning of the section, in the function found to
    /// contain it.
    #[inline]
    pub(crate) fn row(&self, found: Option<Found>, target: i64) -> Result<Option<Row>, Error> {
        let Some((position, entry)) = found else {
            return Ok(None);
        };
        // The function contains the target, so the distance is less than its size.
        let offset = target.wrapping_sub(entry.start) as u32;
        match self.usual_row(&entry, offset) {
            Some(row) => Ok(Some(row)),
            None => self.any_row(position, entry, offset),
        }
    }

    #[inline(never)]
    fn any_row(&self, position: usize, entry: Entry, offset: u32) -> Result<Option<Row>, Error> {
        self.decode(position, entry)?.row_at(offset)
    }

    /// The function that contains `pc`.
    ///
    /// # Errors
    /// What is wrong with the function's entry.
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else.
    #[inline]
    pub fn function_at(&self, pc: Address) -> Result<Option<Function<'a>>, Error> {
        match self.index.find(pc.distance_from(self.address)) {
            Some((position, entry)) => self.decode(position, entry).map(Some),
            None => Ok(None),
        }
    }

    /// The number of functions.
    #[inline]
    #[must_use]
    pub const fn function_count(&self) -> usize {
        self.index.len()
    }

    /// The function at this position in the index, from 0; none behind the last.
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else.
    #[inline]
    #[must_use]
    pub fn function(&self, position: usize) -> Option<Result<Function<'a>, Error>> {
        let entry = self.index.entry(position)?;
        Some(self.decode(position, entry))
    }

    /// All functions in the order of the index.
    ///
    /// # Signal safety
    /// Reads the section's bytes, nothing else.
    #[must_use]
    pub const fn functions(&self) -> Functions<'a> {
        Functions {
            section: *self,
            position: 0,
        }
    }

    #[inline]
    pub(crate) fn decode(&self, position: usize, entry: Entry) -> Result<Function<'a>, Error> {
        let entry_offset = self.entry_offset(position);
        let end = self
            .header
            .rows_start()
            .wrapping_add(u64::from(self.header.rows_len));
        let out_of_bounds = || Error::RowsOutOfBounds { offset: end };
        let bytes = self
            .rows
            .get(entry.rows as usize..)
            .ok_or_else(out_of_bounds)?;
        let (attribute, offsets, bytes) = match entry.attribute {
            Some(attribute) => {
                let offsets = AttributeOffsets {
                    info: entry_offset.wrapping_add(16),
                    rep_size: entry_offset.wrapping_add(17),
                };
                (attribute, offsets, bytes)
            }
            None => self.attribute_in_front(bytes).ok_or_else(out_of_bounds)?,
        };
        Ok(Function {
            start: self.address.wrapping_offset(entry.start),
            size: entry.size,
            rep_size: attribute.rep_size(offsets)?,
            rows: RawRows {
                bytes,
                end,
                remaining: attribute.rows,
                start_width: attribute.start_width(offsets)?,
                order: self.header.byte_order,
            },
            conventions: Conventions::new(&self.header, attribute.kind(offsets)?, attribute.info),
            entry_offset,
        })
    }

    /// Version 3: the function's attribute, from in front of its rows; where it is, and the rows.
    #[inline]
    fn attribute_in_front(
        &self,
        bytes: &'a [u8],
    ) -> Option<(Attribute, AttributeOffsets, &'a [u8])> {
        let (&[c0, c1, info, info2, rep_size], rows) = bytes.split_first_chunk()?;
        let end = self
            .header
            .rows_start()
            .wrapping_add(u64::from(self.header.rows_len));
        let offset = end.wrapping_sub(bytes.len() as u64);
        let attribute = Attribute {
            rows: u32::from(self.header.byte_order.u16([c0, c1])),
            info,
            info2,
            rep_size,
        };
        let offsets = AttributeOffsets {
            info: offset.wrapping_add(2),
            rep_size: offset.wrapping_add(4),
        };
        Some((attribute, offsets, rows))
    }

    #[inline]
    fn entry_offset(&self, position: usize) -> u64 {
        let before = (position as u64).wrapping_mul(self.header.version.fde_len());
        self.header.functions_start().wrapping_add(before)
    }
}

/// All functions of a section, in the order of its index.
#[derive(Clone, Debug)]
pub struct Functions<'a> {
    section: Section<'a>,
    position: usize,
}

impl<'a> Iterator for Functions<'a> {
    type Item = Result<Function<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let function = self.section.function(self.position)?;
        self.position = self.position.wrapping_add(1);
        Some(function)
    }
}

/// `len` bytes from `offset`.
fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let offset = usize::try_from(offset).ok()?;
    bytes.get(offset..)?.get(..usize::try_from(len).ok()?)
}
