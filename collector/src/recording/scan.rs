//! Finds the chunks of a file: by their strides as long as these lead from one to the next, behind
//! damage by their magic.
//!
//! Not here: what the records in a chunk say.

use super::chunk_records::{Budget, Step, plausible, walk};
use super::error::Damages;
use super::source::{AT_ONCE, Ahead, Source};
use engine::wire::chunk::{self, ChunkInfo, ChunkState};
use engine::wire::file::{self, FileKind};
use std::io;

/// A chunk with more records than this is taken for damage; our own writers stay far below.
const LARGEST: usize = 16 << 20;

/// A chunk that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Where it begins in its file.
    pub(super) offset: u64,
    /// Its header.
    pub(super) info: ChunkInfo,
    /// Bytes behind the header in which records are looked for.
    pub(super) length: usize,
    /// The committed length is damaged or contradicts the stride: records are read as far as they
    /// are sound.
    pub(super) open_end: bool,
}

/// A scan under way.
pub(super) struct Scan<'a> {
    pub(super) source: &'a Source,
    pub(super) ahead: Ahead<'a>,
    pub(super) kind: FileKind,
    pub(super) damages: &'a mut Damages,
    pub(super) budget: Budget,
}

enum Here {
    Chunk(Place),
    /// Nothing is wrong; go on at that offset.
    Skip(u64),
    /// Damage: look for the next magic from that offset on.
    Lost(u64),
    End,
}

impl Scan<'_> {
    /// Goes through the whole file, handing over each chunk, and with it the steps through its
    /// records.
    pub(super) fn run(
        &mut self,
        mut visit: impl FnMut(&Place, Option<Step<'_>>),
    ) -> io::Result<()> {
        let mut at = file::HEADER_SIZE as u64;
        while at < self.source.length() {
            match self.look(at)? {
                Here::Chunk(place) => {
                    let first = place.offset + chunk::HEADER_SIZE as u64;
                    let records = self.ahead.read(first, place.length)?;
                    let cut = records.len() < place.length;
                    visit(&place, None);
                    let sound = walk(
                        records,
                        first,
                        place.open_end || cut,
                        &mut self.budget,
                        self.damages,
                        |step| visit(&place, Some(step)),
                    );
                    at = self.behind(&place, sound, cut)?;
                }
                Here::Skip(next) => at = next,
                Here::Lost(from) => at = self.search(at, from)?,
                Here::End => break,
            }
        }
        Ok(())
    }

    fn look(&mut self, at: u64) -> io::Result<Here> {
        let header = self.ahead.read(at, chunk::HEADER_SIZE)?.to_vec();
        if header.iter().all(|byte| *byte == 0) {
            return Ok(self.unused(at));
        }
        if header.len() < chunk::HEADER_SIZE {
            let there = header.len() as u64;
            self.damages
                .add(at, there, "the file ends inside a chunk header");
            return Ok(Here::End);
        }
        let segment = self.kind == FileKind::Segment;
        match ChunkInfo::parse(&header) {
            Ok(info) if info.committed as usize <= LARGEST => {
                if segment && info.state == ChunkState::Free as u32 {
                    return Ok(Here::Skip(at + u64::from(info.stride).max(64)));
                }
                Ok(Here::Chunk(self.place(at, info)?))
            }
            Ok(_) => self.salvage(at, header, "a chunk is too long to be one"),
            Err(engine::wire::WireError::BadMagic(_)) => Ok(Here::Lost(at + 1)),
            Err(error) => self.salvage(at, header, &format!("a chunk header: {error}")),
        }
    }

    fn place(&mut self, offset: u64, info: ChunkInfo) -> io::Result<Place> {
        // All of it at once, with what it leads to.
        let stride = info.stride as usize;
        self.ahead
            .read(offset, stride.min(AT_ONCE) + chunk::HEADER_SIZE)?;
        let committed = info.committed as usize;
        let room = stride - chunk::HEADER_SIZE;
        let padded = room - committed >= chunk::ALIGNMENT;
        let open_end = self.kind == FileKind::Recording && padded && room <= LARGEST;
        if open_end {
            let what = "the committed length of a chunk contradicts its stride";
            self.damages.add(offset, 0, what);
        }
        // A chunk that leads nowhere may reach into others; those are their own.
        let next = offset + u64::from(info.stride);
        let end = self.source.length();
        let leads_on = next == end || (next < end && self.leads_on(next)?);
        let length = match open_end {
            true => room.min(self.until_next(offset)?),
            false if leads_on => committed,
            false => committed.min(self.until_next(offset)?),
        };
        Ok(Place {
            offset,
            info,
            length,
            open_end,
        })
    }

    /// Bytes from the first record of a chunk to the next thing that looks like a chunk.
    fn until_next(&mut self, offset: u64) -> io::Result<usize> {
        let first = offset + chunk::HEADER_SIZE as u64;
        let distance = self.find(first)?.saturating_sub(first);
        Ok(usize::try_from(distance).unwrap_or(usize::MAX))
    }

    /// A header whose lengths cannot be true: its records are read as far as they are sound.
    fn salvage(&mut self, at: u64, mut header: Vec<u8>, what: &str) -> io::Result<Here> {
        self.damages.add(at, 0, what);
        header[8..12].copy_from_slice(&(!63_u32).to_le_bytes());
        header[12..16].fill(0);
        let most = chunk::SEGMENT_STRIDE - chunk::HEADER_SIZE;
        Ok(match ChunkInfo::parse(&header) {
            Ok(info) => Here::Chunk(Place {
                offset: at,
                info,
                length: most.min(self.until_next(at)?),
                open_end: true,
            }),
            Err(_) => Here::Lost(at + 1),
        })
    }

    /// Zeros where a chunk could begin: room that a segment has not used, damage in a recording.
    fn unused(&mut self, at: u64) -> Here {
        let Some(data) = self.source.next_data(at) else {
            return Here::End;
        };
        if self.kind == FileKind::Recording {
            return Here::Lost(data.max(at + 1));
        }
        let stride = chunk::SEGMENT_STRIDE as u64;
        let next = at + stride;
        Here::Skip(next.max(at + data.saturating_sub(at) / stride * stride))
    }

    /// Where to go on behind a chunk: at its stride, if a chunk, unused room or the end is there.
    fn behind(&mut self, place: &Place, sound: usize, cut: bool) -> io::Result<u64> {
        let next = place.offset + u64::from(place.info.stride).max(64);
        let behind_sound = place.offset + (chunk::HEADER_SIZE + sound) as u64;
        let end = self.source.length();
        if next == end || (next < end && self.leads_on(next)?) {
            return Ok(next);
        }
        let found = self.find(behind_sound)?;
        if found == end {
            let missing = place.length.saturating_sub(sound) as u64;
            if cut && missing > 0 {
                self.damages.add(
                    behind_sound,
                    end - behind_sound,
                    "the file ends inside a chunk",
                );
            } else if next < end {
                self.damages
                    .add(next, end - next, "no chunk begins where one should");
            }
        } else {
            let what = "a chunk does not lead to the next one";
            self.damages.add(behind_sound, found - behind_sound, what);
        }
        Ok(found)
    }

    fn leads_on(&mut self, at: u64) -> io::Result<bool> {
        let word = self.ahead.read(at, 4)?;
        let unused = self.kind == FileKind::Segment && word.iter().all(|byte| *byte == 0);
        Ok(unused || word == chunk::MAGIC.to_le_bytes())
    }

    fn search(&mut self, damaged: u64, from: u64) -> io::Result<u64> {
        let found = self.find(from)?;
        self.damages
            .add(damaged, found - damaged, "no chunk begins where one should");
        Ok(found)
    }

    /// The offset of the next thing that looks like a chunk, or the end of the file.
    fn find(&mut self, from: u64) -> io::Result<u64> {
        let end = self.source.length();
        let enough = chunk::HEADER_SIZE + 8;
        let mut at = from;
        while let Some(data) = self.source.next_data(at).filter(|data| *data < end) {
            at = data.max(at);
            let window = self.ahead.read(at, AT_ONCE)?;
            if let Some(found) = first_chunk(window) {
                return Ok(at + found as u64);
            }
            if window.len() <= enough {
                break;
            }
            at += (window.len() - enough) as u64;
        }
        Ok(end)
    }
}

fn first_chunk(window: &[u8]) -> Option<usize> {
    let magic = chunk::MAGIC.to_le_bytes();
    let mut at = 0;
    loop {
        let rest = window.get(at..)?;
        at += rest.iter().position(|byte| *byte == magic[0])?;
        if window.get(at..).is_some_and(looks_like_a_chunk) {
            return Some(at);
        }
        at += 1;
    }
}

fn looks_like_a_chunk(bytes: &[u8]) -> bool {
    let Ok(info) = ChunkInfo::parse(bytes) else {
        return false;
    };
    let records = bytes.get(chunk::HEADER_SIZE..).unwrap_or_default();
    let committed = info.committed as usize;
    info.state <= ChunkState::Sealed as u32
        && committed <= LARGEST
        && (committed == 0 || plausible(records, committed))
}
