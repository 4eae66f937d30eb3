//! The preamble and header at the beginning of a section: [`Header`], [`Version`].

use crate::{Abi, ByteOrder, Error};

pub(crate) const MAGIC: u16 = 0xdee2;
pub(crate) const SORTED: u8 = 0x1;
const FRAME_POINTER: u8 = 0x2;
pub(crate) const FUNC_START_PCREL: u8 = 0x4;

/// The version of the format (specification 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// `SFRAME_VERSION_1`: binutils 2.40.
    V1,
    /// `SFRAME_VERSION_2`: binutils 2.41 to 2.45, and clang.
    V2,
    /// `SFRAME_VERSION_3`: binutils 2.46.
    V3,
}

impl Version {
    /// The number in `sfp_version`.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    const fn known_flags(self) -> u8 {
        match self {
            Self::V1 => SORTED | FRAME_POINTER,
            Self::V2 => SORTED | FRAME_POINTER | FUNC_START_PCREL,
            Self::V3 => SORTED | FUNC_START_PCREL,
        }
    }

    /// Bytes of one entry of the function index (2.3.1).
    #[inline]
    pub(crate) const fn fde_len(self) -> u64 {
        match self {
            Self::V1 => 17,
            Self::V2 => 20,
            Self::V3 => 16,
        }
    }
}

/// The header of a section (specification 2.1 and 2.2).
///
/// ```text
///  0  magic u16, version u8, flags u8
///  4  abi u8, fixed FP offset i8, fixed RA offset i8, auxiliary header length u8
///  8  functions u32, rows u32, bytes of rows u32
/// 20  offset of the function index u32, offset of the rows u32
///     (both from the end of the (auxiliary) header)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Header {
    /// `sfp_version`.
    pub version: Version,
    /// From the magic number.
    pub byte_order: ByteOrder,
    /// `sfp_flags`.
    pub flags: u8,
    /// `sfh_abi_arch`.
    pub abi: Abi,
    /// `sfh_cfa_fixed_fp_offset`, in bytes from the CFA; 0 for none.
    pub fixed_fp_offset: i8,
    /// `sfh_cfa_fixed_ra_offset`, in bytes from the CFA; 0 for none.
    pub fixed_ra_offset: i8,
    /// `sfh_auxhdr_len`, in bytes.
    pub auxiliary_len: u8,
    /// `sfh_num_fdes`.
    pub functions: u32,
    /// `sfh_num_fres`.
    pub rows: u32,
    /// `sfh_fre_len`, in bytes.
    pub rows_len: u32,
    /// `sfh_fdeoff`, in bytes from the end of the header.
    pub functions_offset: u32,
    /// `sfh_freoff`, in bytes from the end of the header.
    pub rows_offset: u32,
}

impl Header {
    /// Bytes of a header without auxiliary header, in every version.
    pub const LEN: usize = 28;

    /// Reads the first [`Header::LEN`] of `bytes`; more may follow.
    ///
    /// # Errors
    /// [`Error::HeaderTooShort`], [`Error::BadMagic`], [`Error::UnknownVersion`],
    /// [`Error::UnknownFlags`], [`Error::UnknownAbi`], [`Error::ByteOrderMismatch`].
    ///
    /// # Signal safety
    /// Reads `bytes`, nothing else.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let too_short = Error::HeaderTooShort {
            offset: bytes.len() as u64,
        };
        let (preamble, rest) = bytes.split_first_chunk::<4>().ok_or(too_short)?;
        let (byte_order, version, flags) = parse_preamble(*preamble)?;
        let ([abi, fp, ra, auxiliary_len], rest) =
            rest.split_first_chunk::<4>().ok_or(too_short)?;
        let (words, _) = rest.split_first_chunk::<20>().ok_or(too_short)?;
        let identifier = *abi;
        let abi = Abi::from_identifier(identifier).ok_or(Error::UnknownAbi {
            offset: 4,
            abi: identifier,
        })?;
        if abi.byte_order() != byte_order {
            return Err(Error::ByteOrderMismatch {
                offset: 4,
                abi: identifier,
            });
        }
        let (words, _) = words.as_chunks::<4>();
        let mut words = words.iter().map(|word| byte_order.u32(*word));
        let mut word = || words.next().ok_or(too_short);
        Ok(Self {
            version,
            byte_order,
            flags,
            abi,
            fixed_fp_offset: fp.cast_signed(),
            fixed_ra_offset: ra.cast_signed(),
            auxiliary_len: *auxiliary_len,
            functions: word()?,
            rows: word()?,
            rows_len: word()?,
            functions_offset: word()?,
            rows_offset: word()?,
        })
    }

    /// `SFRAME_F_FDE_SORTED`: the function index is in the order of the addresses.
    #[inline]
    #[must_use]
    pub const fn is_sorted(&self) -> bool {
        self.flags & SORTED != 0
    }

    /// `SFRAME_F_FRAME_POINTER`: every function keeps the frame pointer. Versions 1 and 2 only.
    #[inline]
    #[must_use]
    pub const fn keeps_frame_pointer(&self) -> bool {
        self.flags & FRAME_POINTER != 0
    }

    /// `SFRAME_F_FDE_FUNC_START_PCREL`: a function's start is counted from the field that holds it,
    /// not from the beginning of the section.
    #[inline]
    #[must_use]
    pub const fn starts_are_field_relative(&self) -> bool {
        self.flags & FUNC_START_PCREL != 0
    }

    /// Where the header, with its auxiliary header, ends: bytes from the beginning of the section.
    #[inline]
    #[must_use]
    pub const fn end(&self) -> u64 {
        28_u64.saturating_add(self.auxiliary_len as u64)
    }

    /// Where the function index begins: bytes from the beginning of the section.
    #[inline]
    #[must_use]
    pub const fn functions_start(&self) -> u64 {
        self.end().saturating_add(self.functions_offset as u64)
    }

    /// Bytes of the function index.
    #[inline]
    #[must_use]
    pub const fn functions_len(&self) -> u64 {
        (self.functions as u64).saturating_mul(self.version.fde_len())
    }

    /// Where the rows begin: bytes from the beginning of the section.
    #[inline]
    #[must_use]
    pub const fn rows_start(&self) -> u64 {
        self.end().saturating_add(self.rows_offset as u64)
    }

    /// Bytes of the whole section, up to the end of whichever part comes last.
    ///
    /// This is the length to trust: linkers have written a `p_filesz` for `PT_GNU_SFRAME` that is
    /// larger than the section.
    #[inline]
    #[must_use]
    pub const fn section_len(&self) -> u64 {
        let functions_end = self.functions_start().saturating_add(self.functions_len());
        let rows_end = self.rows_start().saturating_add(self.rows_len as u64);
        if functions_end > rows_end {
            functions_end
        } else {
            rows_end
        }
    }
}

fn parse_preamble([m0, m1, version, flags]: [u8; 4]) -> Result<(ByteOrder, Version, u8), Error> {
    let magic = u16::from_le_bytes([m0, m1]);
    let byte_order = if magic == MAGIC {
        ByteOrder::Little
    } else if magic == MAGIC.swap_bytes() {
        ByteOrder::Big
    } else {
        return Err(Error::BadMagic { offset: 0, magic });
    };
    let version = match version {
        1 => Version::V1,
        2 => Version::V2,
        3 => Version::V3,
        _ => return Err(Error::UnknownVersion { offset: 2, version }),
    };
    if flags & !version.known_flags() != 0 {
        return Err(Error::UnknownFlags { offset: 3, flags });
    }
    Ok((byte_order, version, flags))
}
