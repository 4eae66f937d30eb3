//! Mapped code, so that a recording symbolizes after the process is gone and on another machine.

use super::WireError;
use super::codec::{Decoder, Encoder};

/// A module: an executable, a shared library, or the vDSO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'a> {
    /// When it was noticed (`CLOCK_MONOTONIC`, ns). It may have been mapped earlier.
    pub time_ns: u64,
    /// First runtime address of its code and data.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Runtime address minus file address (SVMA).
    pub bias: u64,
    /// `NT_GNU_BUILD_ID`; empty if it has none.
    pub build_id: &'a [u8],
    /// As the process sees it; `[vdso]` for the vDSO; empty if unknown.
    pub path: &'a [u8],
    /// It is the library that unwinds, and nothing else: its frames are not the program's. Version
    /// 2 does not say.
    pub ours: bool,
}

impl<'a> Module<'a> {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.number(self.start);
        out.number(self.end.wrapping_sub(self.start));
        out.difference(self.start, self.bias);
        out.bytes(self.build_id);
        out.bytes(self.path);
        out.byte(u8::from(self.ours));
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        let time_ns = from.number()?;
        let start = from.number()?;
        let end = start
            .checked_add(from.number()?)
            .ok_or(WireError::BadValue("module end", start))?;
        let bias = from.difference(start)?;
        Ok(Self {
            time_ns,
            start,
            end,
            bias,
            build_id: from.bytes()?,
            path: from.bytes()?,
            ours: !from.is_at_end() && from.byte()? != 0,
        })
    }
}

/// A module that was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleGone {
    /// When (`CLOCK_MONOTONIC`, ns).
    pub time_ns: u64,
    /// [`Module::start`] of the module.
    pub start: u64,
}

impl ModuleGone {
    /// Writes the payload.
    ///
    /// # Signal safety
    /// Writes into the caller's buffer only.
    pub fn encode(&self, out: &mut Encoder<'_>) {
        out.number(self.time_ns);
        out.number(self.start);
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Any [`WireError`] of the fields.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut from = Decoder::new(payload);
        Ok(Self {
            time_ns: from.number()?,
            start: from.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_round_trip() {
        let module = Module {
            time_ns: 5,
            start: 0x5555_0000_0000,
            end: 0x5555_0001_0000,
            bias: 0x5555_0000_0000,
            build_id: &[1, 2, 3],
            path: b"/usr/bin/true",
            ours: true,
        };
        let mut buffer = [0; 128];
        let mut out = Encoder::new(&mut buffer);
        module.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(Module::decode(&buffer[..length]), Ok(module));
        let before = Module {
            ours: false,
            ..module
        };
        assert_eq!(Module::decode(&buffer[..length - 1]), Ok(before));
        assert!(Module::decode(&buffer[..length - 2]).is_err());
        let gone = ModuleGone {
            time_ns: 6,
            start: module.start,
        };
        let mut out = Encoder::new(&mut buffer);
        gone.encode(&mut out);
        let length = out.finish().unwrap();
        assert_eq!(ModuleGone::decode(&buffer[..length]), Ok(gone));
    }
}
