//! Recordings that are packed ([`engine::wire::packed`]): how blocks are made, and how a packed
//! file is read as if it were the recording, at any offset.
//!
//! Not here: when recordings are packed (`record`), and what is in them.

use super::source::Source;
use engine::wire::chunk::{self, ChunkInfo};
use engine::wire::file::{self, FileInfo};
use engine::wire::packed::{BlockInfo, FIRST_BLOCK, Form, HEADER_SIZE, MAGIC, MOST_TIMES};
use engine::wire::record;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Unpacked bytes that are kept: chunks are asked for thread by thread, and those of several
/// threads are in one block.
const KEPT: usize = 64 << 20;
/// Likewise blocks.
const MOST_KEPT: usize = 2048;
/// How much is read at once when looking for the next block.
const WINDOW: usize = 256 << 10;

/// A packed file.
#[derive(Debug)]
pub(super) struct Packed {
    file: Box<Source>,
    /// Where each block begins: in the recording, and in the file; there `None` where something is
    /// missing.
    blocks: Vec<(u64, Option<u64>)>,
    length: u64,
    /// Blocks that were unpacked, the last one used in front.
    kept: Mutex<VecDeque<Block>>,
}

/// The number of a block, and what it unpacks to.
type Block = (usize, Arc<[u8]>);

impl Packed {
    /// Finds the blocks.
    pub(super) fn open(file: Source) -> io::Result<Self> {
        let (mut blocks, mut length) = (Vec::new(), 0);
        let mut at = FIRST_BLOCK as u64;
        while let Some((found, info)) = next_block(&file, at)? {
            let behind = found + HEADER_SIZE as u64 + u64::from(info.packed);
            if found > at {
                // As much as the reader of a recording takes for damage.
                blocks.push((length, None));
                length += chunk::ALIGNMENT as u64;
            }
            blocks.push((length, Some(found)));
            length += match behind > file.length() {
                true => unpacked(&file, found)?.len() as u64, // it is cut
                false => u64::from(info.plain),
            };
            at = behind;
        }
        Ok(Self {
            file: Box::new(file),
            blocks,
            length,
            kept: Mutex::default(),
        })
    }

    /// Bytes of the recording.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Appends bytes of the recording, as [`Source::read`] does. Where a block is damaged there are
    /// zeros.
    pub(super) fn read(&self, offset: u64, length: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
        let end = self.length.min(offset.saturating_add(length as u64));
        let mut at = offset;
        while at < end {
            let index = self.blocks.partition_point(|block| block.0 <= at) - 1;
            let plain = self.block(index)?;
            let from = usize::try_from(at - self.blocks[index].0).unwrap_or(usize::MAX);
            let there = plain.get(from..).unwrap_or_default();
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
            let there = &there[..there.len().min(wanted)];
            if there.is_empty() {
                break;
            }
            buffer.extend_from_slice(there);
            at += there.len() as u64;
        }
        Ok(())
    }

    /// What a block unpacks to.
    fn block(&self, index: usize) -> io::Result<Arc<[u8]>> {
        // Nothing can be half done in it.
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = lock();
        if let Some(place) = kept.iter().position(|kept| kept.0 == index) {
            kept.swap(0, place);
            return Ok(kept[0].1.clone());
        }
        drop(kept);
        let next = self
            .blocks
            .get(index + 1)
            .map_or(self.length, |next| next.0);
        let length = usize::try_from(next - self.blocks[index].0).unwrap_or(0);
        let mut plain = match self.blocks[index].1 {
            Some(at) => unpacked(&self.file, at)?,
            None => Vec::new(),
        };
        plain.resize(length, 0);
        let plain: Arc<[u8]> = plain.into();
        let mut kept = lock();
        kept.push_front((index, plain.clone()));
        let sums = kept.iter().scan(0, |sum, block| {
            *sum += block.1.len();
            Some(*sum)
        });
        let count = sums.take_while(|sum| *sum <= KEPT).count();
        kept.truncate(count.clamp(1, MOST_KEPT));
        Ok(plain)
    }
}

/// What the block there unpacks to. Where it is cut or damaged it is less: what comes before that,
/// and records whose checks do not match.
fn unpacked(file: &Source, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read(at, HEADER_SIZE, &mut bytes)?;
    let Ok(info) = BlockInfo::parse(&bytes) else {
        return Ok(Vec::new());
    };
    file.read(at + HEADER_SIZE as u64, info.packed as usize, &mut bytes)?;
    if info.form == Form::Stored {
        return Ok(bytes);
    }
    let mut plain = Vec::with_capacity(info.plain as usize);
    let _ = ZlibDecoder::new(&*bytes)
        .take(info.plain.into())
        .read_to_end(&mut plain);
    if info.form == Form::ZlibMergedChecks {
        each_chunk(&mut plain, record::part_checks);
    }
    Ok(plain)
}

/// Gives the records of each chunk in a block.
fn each_chunk(plain: &mut [u8], change: impl Fn(&mut [u8])) {
    let begins = FileInfo::parse(plain).map_or(0, |_| file::HEADER_SIZE);
    let mut rest = plain.get_mut(begins..).unwrap_or_default();
    while let Ok(info) = ChunkInfo::parse(rest) {
        let stride = rest.len().min(info.stride as usize);
        let (chunk, behind) = rest.split_at_mut(stride);
        let end = chunk
            .len()
            .min(chunk::HEADER_SIZE + info.committed as usize);
        change(chunk.get_mut(chunk::HEADER_SIZE..end).unwrap_or_default());
        rest = behind;
    }
}

/// The first block from there on; where it is looked for, one that is whole.
fn next_block(file: &Source, at: u64) -> io::Result<Option<(u64, BlockInfo)>> {
    let end = file.length();
    let info_at = |at: u64| -> io::Result<Option<BlockInfo>> {
        let mut header = Vec::new();
        file.read(at, HEADER_SIZE, &mut header)?;
        Ok(BlockInfo::parse(&header).ok())
    };
    let is_whole =
        |at: u64, info: &BlockInfo| at + (HEADER_SIZE as u64) + u64::from(info.packed) <= end;
    let (mut at, mut window) = (at, Vec::new());
    if let Some(info) = info_at(at)? {
        return Ok(Some((at, info)));
    }
    while at + (HEADER_SIZE as u64) <= end {
        file.read(at, WINDOW, &mut window)?;
        let mut words = window.windows(4).enumerate().skip(1);
        let found = words.find(|(_, word)| *word == MAGIC.to_le_bytes());
        match found {
            Some((place, _)) => at += place as u64,
            None => at += window.len().saturating_sub(3).max(1) as u64,
        }
        if let Some(info) = info_at(at)?.filter(|info| is_whole(at, info)) {
            return Ok(Some((at, info)));
        }
    }
    Ok(None)
}

/// A block with that part of a recording.
pub(super) fn block(plain: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput);
    let length_plain = length(&plain)?;
    let mut short = plain.clone();
    each_chunk(&mut short, record::merge_checks);
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&short)?;
    let (mut form, mut packed) = (Form::ZlibMergedChecks, packer.finish()?);
    if packed.len() >= plain.len() || packed.len() * MOST_TIMES < plain.len() {
        (form, packed) = (Form::Stored, plain);
    }
    let info = BlockInfo {
        form,
        packed: length(&packed)?,
        plain: length_plain,
    };
    packed.splice(..0, info.to_bytes());
    Ok(packed)
}
