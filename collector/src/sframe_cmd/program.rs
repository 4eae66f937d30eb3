//! [`Program`]: an ELF file, its two tables, and the names of its functions.

use std::path::{Path, PathBuf};

use object::{Architecture, Object, ObjectKind, ObjectSection, SymbolMap, SymbolMapName};
use sframe::{Abi, Address, EhFrame, Section};

use super::Error;
use crate::regular_file;
use crate::visible::visible;

/// An ELF file, read.
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// The tables of a [`Program`].
pub(super) struct Tables<'a> {
    program: &'a Program,
    file: object::File<'a>,
    symbols: SymbolMap<SymbolMapName<'a>>,
}

impl Program {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let bytes = regular_file::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    pub(super) fn tables(&self) -> Result<Tables<'_>, Error> {
        let file = object::File::parse(&*self.bytes).map_err(|source| self.elf(source))?;
        if file.kind() == ObjectKind::Relocatable {
            return Err(self.unsuitable("not linked yet, so its tables hold no addresses"));
        }
        let symbols = file.symbol_map();
        Ok(Tables {
            program: self,
            file,
            symbols,
        })
    }

    pub(super) fn elf(&self, source: object::Error) -> Error {
        Error::Elf {
            path: self.path.clone(),
            source,
        }
    }

    pub(super) fn unsuitable(&self, why: &'static str) -> Error {
        Error::Unsuitable {
            path: self.path.clone(),
            why,
        }
    }
}

impl Tables<'_> {
    fn bytes(&self, name: &'static str) -> Result<(&[u8], Address), Error> {
        let missing = || Error::NoSection {
            path: self.program.path.clone(),
            section: name,
        };
        let section = self.file.section_by_name(name).ok_or_else(missing)?;
        let bytes = section.data().map_err(|source| self.program.elf(source))?;
        Ok((bytes, Address(section.address())))
    }

    pub(super) fn abi(&self) -> Result<Abi, Error> {
        match (self.file.architecture(), self.file.is_little_endian()) {
            (Architecture::X86_64, true) => Ok(Abi::Amd64),
            (Architecture::Aarch64, true) => Ok(Abi::Aarch64Little),
            (Architecture::Aarch64, false) => Ok(Abi::Aarch64Big),
            (Architecture::S390x, false) => Ok(Abi::S390x),
            _ => Err(self
                .program
                .unsuitable("for a processor SFrame is not defined for")),
        }
    }

    pub(super) fn has_sframe(&self) -> bool {
        self.file.section_by_name(".sframe").is_some()
    }

    pub(super) fn sframe(&self) -> Result<Section<'_>, Error> {
        let (bytes, address) = self.bytes(".sframe")?;
        Section::new(bytes, address).map_err(|source| self.malformed(source))
    }

    pub(super) fn malformed(&self, source: sframe::Error) -> Error {
        let address = self
            .bytes(".sframe")
            .map_or(Address(0), |(_, address)| address);
        Error::Malformed {
            path: self.program.path.clone(),
            address,
            source,
        }
    }

    pub(super) fn eh_frame(&self) -> Result<EhFrame<'_>, Error> {
        let (bytes, address) = self.bytes(".eh_frame")?;
        let mut eh_frame = EhFrame::new(bytes, address, self.abi()?);
        if let Ok((_, address)) = self.bytes(".text") {
            eh_frame = eh_frame.text(address);
        }
        if let Ok((_, address)) = self.bytes(".got") {
            eh_frame = eh_frame.data(address);
        }
        Ok(eh_frame)
    }

    /// The address, with the name of the function it is in if that is known.
    pub(super) fn place(&self, address: Address) -> String {
        match self.symbols.before(address.0) {
            Some(symbol) => {
                let offset = address.0.wrapping_sub(symbol.address());
                format!("{address} {}+{offset:#x}", visible(symbol.name()))
            }
            None => address.to_string(),
        }
    }
}
