//! Adds to a recording that has ended what its addresses are called, so that it reads the same after
//! a rebuild and on another machine.

use crate::profile::Profile;
use crate::recording::write::{OwnChunks, Writer};
use crate::symbolize::names_to_store;
use engine::wire::chunk::ChunkInfo;
use engine::wire::file::{FileInfo, HEADER_SIZE};
use engine::wire::record::RecordKind;
use engine::wire::session::Names;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::Path;

/// The number of the first chunk with names: no other chunk of the collector's has it.
const FIRST: u64 = 1 << 62;

/// Appends the names of `profile`, which was made of the recording at `path`. All is made before
/// anything is written, and what cannot be written whole is cut off again.
///
/// # Errors
/// Those of the file, which is then as it was.
pub(super) fn append(path: &Path, profile: &Profile) -> io::Result<()> {
    let mut chunks = OwnChunks::new(ChunkInfo {
        sequence: FIRST,
        ..ChunkInfo::default()
    });
    for document in names_to_store(&profile.recording, &profile.symbols) {
        let names = Names {
            deflated: &document,
        };
        if !chunks.push(RecordKind::Names, |out| names.encode(out)) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut header = [0; HEADER_SIZE];
    file.read_exact(&mut header)?;
    let header = FileInfo::parse(&header).map_err(io::Error::other)?;
    let before = file.metadata()?.len();
    let mut writer = Writer::resume(file.try_clone()?, header)?;
    let written = writer.append_own(chunks).and_then(|()| writer.finish());
    if written.is_err() {
        file.set_len(before)?;
    }
    written
}
