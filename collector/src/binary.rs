//! Binary files of programs: who made them may have had a reader in mind who runs as root. They are
//! regular files, mostly there, and no more of one is held in memory, or unpacked, than any that
//! was linked has.
//!
//! Not here: what stands in them.

use crate::regular_file;
use flate2::read::ZlibDecoder;
use memchr::memchr;
use object::read::CompressionFormat;
use object::{Object, ObjectSection, ReadCache, ReadRef};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Larger files are not read as a whole.
const LARGEST: u64 = 4 << 30;
/// A file that says to be so many times longer than what is stored of it is none that was linked,
/// however well file systems compress.
const MOST_SPARSE: u64 = 64;
/// What small files may be stored in without a block of their own.
const BLOCK: u64 = 4096;
/// What is held of a file, and made of one packed section, at most: bytes.
const MOST: u64 = 2 << 30;
/// Smaller pieces do not count.
const SMALL: u64 = 1 << 10;
/// Longer names are none: who looks for the end of each would look through all of them.
const LONGEST_NAME: usize = 64 << 10;
/// Debug information that is more when it is unpacked is left alone, bytes.
const MOST_UNPACKED: u64 = 4 << 30;
/// How many times longer a packed section can become.
const MOST_PACKED: u64 = 1032;

/// Opens one that is what it seems to be.
///
/// # Errors
/// As [`regular_file::open`]; `InvalidData` if nearly all of it is a hole.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let file = regular_file::open(path)?;
    let metadata = file.metadata()?;
    let stored = metadata.blocks().saturating_mul(512).max(BLOCK);
    if metadata.len() > stored.saturating_mul(MOST_SPARSE) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(file)
}

/// Reads one as a whole.
///
/// # Errors
/// As [`open`], and as read; `FileTooLarge` if it is.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if file.metadata()?.len() > LARGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One that is read piece by piece.
#[derive(Debug)]
pub(crate) struct Binary {
    pieces: ReadCache<File>,
    /// Those that are held, and how many bytes they are.
    held: RefCell<(Vec<(u64, u64)>, u64)>,
}

impl Binary {
    pub(crate) fn new(file: File) -> Self {
        Self {
            pieces: ReadCache::new(file),
            held: RefCell::default(),
        }
    }

    /// # Errors
    /// As [`open`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open(path).map(Self::new)
    }
}

impl<'a> ReadRef<'a> for &'a Binary {
    fn len(self) -> Result<u64, ()> {
        self.pieces.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > SMALL {
            let (pieces, sum) = &mut *self.held.borrow_mut();
            if !pieces.contains(&(offset, size)) {
                *sum = sum.checked_add(size).filter(|sum| *sum <= MOST).ok_or(())?;
                pieces.push((offset, size));
            }
        }
        self.pieces.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        match self.within_held(&range, delimiter) {
            Some(found) => Ok(found),
            None => self.pieces.read_bytes_at_until(range, delimiter),
        }
    }
}

impl Binary {
    /// The same of a piece that is held: that is no read.
    fn within_held(&self, range: &Range<u64>, delimiter: u8) -> Option<&[u8]> {
        let (pieces, _) = &*self.held.borrow();
        let ends = |(at, size): &(u64, u64)| at.saturating_add(*size);
        let mut pieces = pieces.iter();
        let (at, size) = pieces.find(|piece| (piece.0..ends(piece)).contains(&range.start))?;
        let piece = self.pieces.read_bytes_at(*at, *size).ok()?;
        let place = |offset: u64| usize::try_from(offset.saturating_sub(*at)).ok();
        let last = place(range.end)?.min(piece.len());
        let text = piece.get(place(range.start)?..last)?;
        let text = text.get(..LONGEST_NAME).unwrap_or(text);
        text.get(..memchr(delimiter, text)?)
    }
}

/// Reads the names of symbols as a whole, where many are asked for: else each is a read of its own.
pub(crate) fn hold_names<'a>(elf: &impl Object<'a>) {
    hold(elf, &[".strtab", ".dynstr"]);
}

/// Reads sections as a whole.
pub(crate) fn hold<'a>(elf: &impl Object<'a>, sections: &[&str]) {
    for section in sections {
        let _ = elf.section_by_name(section).map(|section| section.data());
    }
}

/// What is in a section; `None` if that cannot be said, or would be too much.
pub(crate) fn content<'a>(section: &impl ObjectSection<'a>) -> Option<Cow<'a, [u8]>> {
    let content = section.compressed_data().ok()?;
    match content.format {
        CompressionFormat::None => {}
        CompressionFormat::Zlib if content.uncompressed_size <= MOST => {}
        _ => return None,
    }
    content.decompress().ok()
}

/// Whether there is debug information, and it can be read without more memory than such takes: what
/// is packed must be unpacked whole, whatever its header says.
pub(crate) fn has_debug_information<'a>(elf: &impl Object<'a>, file: &'a Binary) -> bool {
    let names = [".debug_info", ".zdebug_info"];
    let mut found = names.iter().filter_map(|name| elf.section_by_name(name));
    found.any(|section| section.size() > 0) && fits(elf, file, MOST_UNPACKED).unwrap_or(false)
}

/// Whether what is packed in a file is less than so many bytes when it is unpacked.
fn fits<'a>(elf: &impl Object<'a>, file: &'a Binary, most: u64) -> object::Result<bool> {
    let mut packed = Vec::new();
    for section in elf.sections() {
        let range = section.compressed_file_range()?;
        if range.format == CompressionFormat::Zlib {
            packed.push(range);
        }
    }
    let size = packed.iter().map(|range| range.compressed_size);
    let size = size.fold(0, u64::saturating_add);
    if size.saturating_mul(MOST_PACKED) <= most {
        return Ok(true);
    }
    let mut left = most;
    for range in packed {
        let mut unpacked = ZlibDecoder::new(range.data(file)?.data).take(left);
        // Where it is damaged it ends for whoever reads it, too.
        let size = io::copy(&mut unpacked, &mut io::sink()).unwrap_or(left - unpacked.limit());
        left -= size;
    }
    Ok(left > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use object::elf::{ELFCOMPRESS_ZLIB, FileHeader64, SHF_COMPRESSED, SectionHeader64};
    use object::read::elf::FileHeader as _;
    use object::{LittleEndian as LE, ObjectSymbol as _, U32, U64, pod};
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    #[test]
    fn no_file_is_read_that_is_nearly_all_hole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"content").unwrap();
        assert_eq!(read(&path).unwrap(), b"content");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(LARGEST).unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn names_are_the_same_whether_they_are_held_or_not() {
        let own = std::env::current_exe().unwrap();
        let names = |hold: bool| {
            let binary = Binary::open(&own).unwrap();
            let elf = object::File::parse(&binary).unwrap();
            if hold {
                hold_names(&elf);
            }
            let symbols = elf.symbols().step_by(997).chain(elf.dynamic_symbols());
            let names = symbols.map(|symbol| symbol.name().unwrap().to_owned());
            (names.collect::<Vec<_>>(), binary.held.borrow().1)
        };
        let (read, held) = (names(false), names(true));
        assert_eq!(read.0, held.0);
        assert!(held.0.len() > 50 && held.1 > read.1);
    }

    /// A program with debug information in which the section of that name is another: at the end,
    /// so long, or packed.
    fn with_section(directory: &Path, name: &str, size: Option<u64>, packed: &[u8]) -> PathBuf {
        let path = directory.join("program");
        let mut compiler = Command::new("gcc");
        compiler.args(["-g", "-x", "c", "-", "-o"]).arg(&path);
        let mut compiler = compiler.stdin(Stdio::piped()).spawn().unwrap();
        let source = b"int main(void) { return 0; }";
        compiler.stdin.take().unwrap().write_all(source).unwrap();
        assert!(compiler.wait().unwrap().success());
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() as u64;
        let at = {
            let header = FileHeader64::<LE>::parse(&*bytes).unwrap();
            let sections = header.sections(LE, &*bytes).unwrap();
            let (index, _) = sections.section_by_name(LE, name.as_bytes()).unwrap();
            header.e_shoff(LE) as usize + index.0 * size_of::<SectionHeader64<LE>>()
        };
        let (header, _) = pod::from_bytes_mut::<SectionHeader64<LE>>(&mut bytes[at..]).unwrap();
        header.sh_offset = U64::new(LE, end);
        header.sh_size = U64::new(LE, size.unwrap_or(packed.len() as u64));
        if size.is_none() {
            let flags = header.sh_flags.get(LE) | u64::from(SHF_COMPRESSED);
            header.sh_flags = U64::new(LE, flags);
        }
        bytes.extend_from_slice(packed);
        fs::write(&path, bytes).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(end + size.unwrap_or(packed.len() as u64))
            .unwrap();
        path
    }

    /// Zeros, packed, under a header that says that they are so many.
    fn zeros(count: u64, said: u64) -> Vec<u8> {
        let header = object::elf::CompressionHeader64::<LE> {
            ch_type: U32::new(LE, ELFCOMPRESS_ZLIB),
            ch_reserved: U32::new(LE, 0),
            ch_size: U64::new(LE, said),
            ch_addralign: U64::new(LE, 1),
        };
        let packed = pod::bytes_of(&header).to_vec();
        let mut encoder = ZlibEncoder::new(packed, Compression::fast());
        io::copy(&mut io::repeat(0).take(count), &mut encoder).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_a_file_says_to_have_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let with = |size: Option<u64>, packed: &[u8]| {
            let name = if size.is_none() {
                ".debug_info"
            } else {
                ".symtab"
            };
            with_section(directory.path(), name, size, packed)
        };
        let symbols = |size| {
            let file = Binary::new(File::open(with(Some(size), &[])).unwrap());
            object::File::parse(&file).is_ok()
        };
        assert!(symbols(24 << 10) && !symbols(MOST + 24));

        let million = 1 << 20;
        for (count, said, read) in [
            (million, million, true),
            (million, 1 << 40, false),
            (4 * million, million, true),
        ] {
            let file = Binary::open(&with(None, &zeros(count, said))).unwrap();
            let elf = object::File::parse(&file).unwrap();
            let section = elf.section_by_name(".debug_info").unwrap();
            let content = content(&section).map(|content| content.len() as u64);
            assert_eq!(content, read.then_some(million), "{count} {said}");
            assert!(has_debug_information(&elf, &file));
        }
        // It says little, and is much.
        let file = Binary::open(&with(None, &zeros(4 * million, million))).unwrap();
        let elf = object::File::parse(&file).unwrap();
        assert!(fits(&elf, &file, 5 * million).unwrap());
        assert!(!fits(&elf, &file, 3 * million).unwrap());
    }
}
