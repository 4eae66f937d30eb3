//! [`EhFrame`]: rows from `.eh_frame`, for programs whose producer wrote no `.sframe`. Feature
//! `convert`; interprets the programs of `.eh_frame` with gimli. A function's rules are `rules.rs`,
//! expressions in them
//! `expression.rs`.

mod augmentation;
mod expression;
mod reason;
mod rules;

use alloc::vec::Vec;
use core::num::NonZeroU8;

use gimli::{
    CieOrFde, EndianSlice, FrameDescriptionEntry, RunTimeEndian, UnwindContext, UnwindSection,
};

use augmentation::Augmentations;
pub use reason::{MalformedEntry, Reason};

use crate::{Abi, Address, Base, ByteOrder, Cfa, FunctionRows, PacKey, Row, Rule};

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// An `.eh_frame` section, to be converted.
#[derive(Clone, Copy, Debug)]
pub struct EhFrame<'a> {
    bytes: &'a [u8],
    address: Address,
    abi: Abi,
    text: Option<Address>,
    data: Option<Address>,
}

/// A function found in `.eh_frame`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// The address of the first instruction.
    pub start: Address,
    /// Bytes of code.
    pub size: u64,
    /// Its rows, or why it has none.
    pub rows: Result<FunctionRows, Reason>,
}

/// What [`EhFrame::convert`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conversion {
    /// The functions, in the order of the section. One that ends in a repeated block, as a
    /// procedure linkage table does, is two.
    pub functions: Vec<Converted>,
    /// Entries that cannot be read, so that not even their function is known.
    pub malformed: Vec<MalformedEntry>,
}

impl<'a> EhFrame<'a> {
    /// The `bytes` of a section at `address`.
    #[must_use]
    pub const fn new(bytes: &'a [u8], address: Address, abi: Abi) -> Self {
        Self {
            bytes,
            address,
            abi,
            text: None,
            data: None,
        }
    }

    /// Where `.text` begins, for entries that count from there.
    #[must_use]
    pub const fn text(mut self, address: Address) -> Self {
        self.text = Some(address);
        self
    }

    /// Where `.got` begins, for entries that count from there.
    #[must_use]
    pub const fn data(mut self, address: Address) -> Self {
        self.data = Some(address);
        self
    }

    /// Converts every function.
    #[must_use]
    pub fn convert(&self) -> Conversion {
        let augmentations = Augmentations::new(self.bytes, self.abi);
        let endian = match self.abi.byte_order() {
            ByteOrder::Little => RunTimeEndian::Little,
            ByteOrder::Big => RunTimeEndian::Big,
        };
        let mut eh_frame = gimli::EhFrame::new(&augmentations.bytes, endian);
        eh_frame.set_address_size(8);
        if matches!(self.abi, Abi::Aarch64Big | Abi::Aarch64Little) {
            eh_frame.set_vendor(gimli::Vendor::AArch64);
        }
        let walk = Walk {
            source: *self,
            eh_frame,
            bases: self.bases(),
            augmentations: &augmentations,
        };
        walk.run()
    }

    fn bases(&self) -> gimli::BaseAddresses {
        let mut bases = gimli::BaseAddresses::default().set_eh_frame(self.address.0);
        if let Some(text) = self.text {
            bases = bases.set_text(text.0);
        }
        if let Some(data) = self.data {
            bases = bases.set_got(data.0);
        }
        bases
    }
}

/// A conversion under way.
struct Walk<'a> {
    source: EhFrame<'a>,
    eh_frame: gimli::EhFrame<Reader<'a>>,
    bases: gimli::BaseAddresses,
    augmentations: &'a Augmentations,
}

/// The rows of a function, and those of the repeated block that ends it.
struct Rows {
    plain: Vec<(u32, Row)>,
    repeated: Option<Repeated>,
}

/// A repeated block: where it begins in the function, and its rows.
struct Repeated {
    start: u32,
    rows: Vec<(u32, Row)>,
}

impl<'a> Walk<'a> {
    fn run(&self) -> Conversion {
        let (mut conversion, mut context) = (Conversion::default(), UnwindContext::new());
        let mut entries = self.eh_frame.entries(&self.bases);
        loop {
            let partial = match entries.next() {
                Ok(None) => return conversion,
                Ok(Some(CieOrFde::Cie(_))) => continue,
                Ok(Some(CieOrFde::Fde(partial))) => partial,
                Err(error) => {
                    conversion.malformed.push(MalformedEntry::new(error));
                    // Where an entry ends is not known unless it can be read, except that gimli
                    // goes on by itself.
                    continue;
                }
            };
            match partial.parse(gimli::EhFrame::cie_from_offset) {
                Ok(fde) => self.convert(&fde, &mut context, &mut conversion.functions),
                Err(error) => conversion.malformed.push(MalformedEntry::new(error)),
            }
        }
    }

    fn convert(
        &self,
        fde: &FrameDescriptionEntry<Reader<'a>>,
        context: &mut UnwindContext<usize>,
        converted: &mut Vec<Converted>,
    ) {
        let (start, size) = (Address(fde.initial_address()), fde.len());
        match self.rows(fde, context) {
            Err(reason) => converted.push(Converted {
                start,
                size,
                rows: Err(reason),
            }),
            Ok(Rows { plain, repeated }) => {
                let split = repeated
                    .as_ref()
                    .map_or(size, |repeated| repeated.start.into());
                if split > 0 || repeated.is_none() {
                    converted.push(self.function(fde, start, split, plain, None));
                }
                if let Some(Repeated {
                    start: offset,
                    rows,
                }) = repeated
                {
                    let start = start.wrapping_offset(offset.into());
                    let size = size.saturating_sub(offset.into());
                    converted.push(self.function(
                        fde,
                        start,
                        size,
                        rows,
                        NonZeroU8::new(expression::PLT_ENTRY_SIZE),
                    ));
                }
            }
        }
    }

    fn function(
        &self,
        fde: &FrameDescriptionEntry<Reader<'a>>,
        start: Address,
        size: u64,
        mut rows: Vec<(u32, Row)>,
        rep_size: Option<NonZeroU8>,
    ) -> Converted {
        let cie = fde.cie().offset();
        let signal_frame = fde.is_signal_trampoline() && !self.augmentations.is_key_b_alone(cie);
        let pac_key = if self.augmentations.is_key_b(cie) {
            PacKey::B
        } else {
            PacKey::A
        };
        for (_, row) in &mut rows {
            (row.pac_key, row.signal_frame) = (pac_key, signal_frame);
        }
        rows.dedup_by(|(_, later), (_, earlier)| later == earlier);
        let rows = u32::try_from(size)
            .map_err(|_| Reason::TooLarge)
            .map(|size| {
                let mut function = FunctionRows::new(start, size, rows);
                (function.rep_size, function.signal_frame, function.pac_key) =
                    (rep_size, signal_frame, pac_key);
                function
            });
        Converted { start, size, rows }
    }

    fn rows(
        &self,
        fde: &FrameDescriptionEntry<Reader<'a>>,
        context: &mut UnwindContext<usize>,
    ) -> Result<Rows, Reason> {
        let mut table = fde
            .rows(&self.eh_frame, &self.bases, context)
            .map_err(Reason::malformed)?;
        let rules = rules::Rules {
            abi: self.source.abi,
            return_address: fde.cie().return_address_register(),
            eh_frame: &self.eh_frame,
            encoding: fde.cie().encoding(),
        };
        let mut plain = Vec::new();
        while let Some(row) = table.next_row().map_err(Reason::malformed)? {
            let at = row.start_address().wrapping_sub(fde.initial_address());
            let at = u32::try_from(at).map_err(|_| Reason::TooLarge)?;
            if let Some(plt) = rules.plt(row) {
                let address = Address(row.start_address());
                let is_last = table.next_row().map_err(Reason::malformed)?.is_none();
                if !is_last || !address.0.is_multiple_of(expression::PLT_ENTRY_SIZE.into()) {
                    return Err(Reason::Cfa { at });
                }
                return Ok(Rows {
                    plain,
                    repeated: Some(Repeated {
                        start: at,
                        rows: plt_rows(plt),
                    }),
                });
            }
            plain.push((at, rules.row(row, at)?));
        }
        Ok(Rows {
            plain,
            repeated: None,
        })
    }
}

/// An entry of a procedure linkage table pushes one word on its way.
fn plt_rows(plt: expression::Plt) -> Vec<(u32, Row)> {
    let row = |offset| {
        let cfa = Cfa {
            base: Base::StackPointer,
            offset,
            deref: false,
        };
        Row::new(cfa, Rule::AtCfa(-8), Rule::Unchanged)
    };
    Vec::from([
        (0, row(plt.offset)),
        (plt.push_at.into(), row(plt.offset.saturating_add(8))),
    ])
}
