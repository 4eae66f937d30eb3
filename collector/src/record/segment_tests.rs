//! Tests of [`super`]: segments made byte by byte, sound and damaged.

use super::*;
use engine::wire::codec::Encoder;

/// A segment of this process, with one chunk per state given, each with one event of that kind.
fn segment(chunks: &[(ChunkState, EventKind)]) -> (tempfile::TempDir, PathBuf) {
    let info = FileInfo {
        kind: FileKind::Segment,
        machine: 62,
        pid: std::process::id(),
        process_key: 5,
        homeless_samples: 0,
        homeless_weight: 0,
        unarmed_threads: 0,
        start_ticks: start_ticks(std::process::id()).unwrap(),
        length: 0,
    };
    let mut bytes = info.to_bytes().to_vec();
    for (sequence, (state, kind)) in chunks.iter().enumerate() {
        let mut chunk = vec![0; SEGMENT_STRIDE];
        let event = Event {
            kind: *kind,
            time_ns: 1,
            value: 2,
            text: b"text",
        };
        let mut out = Encoder::new(&mut chunk[HEADER_SIZE + record::HEADER_SIZE..]);
        event.encode(&mut out);
        let payload = out.finish().unwrap();
        let length = record::seal(&mut chunk[HEADER_SIZE..], RecordKind::Event, payload);
        let header = ChunkInfo {
            state: *state as u32,
            stride: SEGMENT_STRIDE as u32,
            committed: length.unwrap() as u32,
            sequence: sequence as u64,
            ..ChunkInfo::default()
        };
        chunk[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
        bytes.extend_from_slice(&chunk);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.5.seg");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// The sequence numbers and lengths of what is taken.
fn taken(segment: &mut Segment, take: Take) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    let mut sink = |info: ChunkInfo, records: &[u8]| {
        assert_eq!(info.committed as usize, records.len());
        found.push((info.sequence, records.len()));
        Ok(())
    };
    segment.take(take, &mut sink).unwrap();
    found
}

use ChunkState::{Free, Owned, Sealed};
const NOTE: EventKind = EventKind::Note;
/// Of the one record in each chunk.
const LENGTH: usize = 16;

#[test]
fn sealed_chunks_are_taken_once_and_freed_and_owned_ones_at_the_end() {
    let (_directory, path) = segment(&[(Owned, NOTE), (Sealed, NOTE), (Free, NOTE)]);
    for stays_open in [true, false] {
        let (_directory, path) = segment(&[(Owned, NOTE), (Sealed, NOTE), (Free, NOTE)]);
        let mut segment = Segment::open(path, stays_open).unwrap();
        assert_eq!(taken(&mut segment, Take::Sealed), [(1, LENGTH)]);
        assert_eq!(taken(&mut segment, Take::Sealed), []);
        assert_eq!(taken(&mut segment, Take::Everything), [(0, LENGTH)]);
    }
    let mut whole = Segment::open(path.clone(), true).unwrap();
    taken(&mut whole, Take::Sealed);
    let bytes = fs::read(path).unwrap();
    let freed = ChunkInfo::parse(&bytes[file::HEADER_SIZE + SEGMENT_STRIDE..]).unwrap();
    assert_eq!((freed.state, freed.committed), (Free as u32, 0));
}

#[test]
fn a_chunk_that_cannot_be_stored_is_kept() {
    let (_directory, path) = segment(&[(Sealed, NOTE)]);
    let mut segment = Segment::open(path, true).unwrap();
    let full = &mut |_, _: &[u8]| Err(io::ErrorKind::StorageFull.into());
    assert!(segment.take(Take::Sealed, full).is_err());
    assert_eq!(taken(&mut segment, Take::Sealed), [(0, LENGTH)]);
}

#[test]
fn what_does_not_check_is_left_out_and_counted() {
    let (_directory, path) = segment(&[(Sealed, NOTE), (Sealed, NOTE), (Sealed, NOTE)]);
    let mut bytes = fs::read(&path).unwrap();
    let chunk = |index: usize| file::HEADER_SIZE + index * SEGMENT_STRIDE;
    bytes[chunk(0) + HEADER_SIZE + 12] ^= 1; // in a record
    bytes[chunk(1) + 15] = 0x7f; // a committed length far beyond the chunk
    fs::write(&path, bytes).unwrap();
    let mut segment = Segment::open(path.clone(), true).unwrap();
    assert_eq!(taken(&mut segment, Take::Sealed), [(0, 0), (2, LENGTH)]);
    assert_eq!(segment.damaged, LENGTH as u64);

    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(chunk(2) as u64 + 100).unwrap(); // cut short inside the last chunk
    assert_eq!(taken(&mut segment, Take::Everything), []);
    assert_eq!(segment.damaged, (LENGTH + SEGMENT_STRIDE) as u64);
    file.set_len(0).unwrap();
    assert_eq!(taken(&mut segment, Take::Everything), []);
    assert_eq!(segment.totals(), segment.info, "the header as it was");
}

#[test]
fn a_process_is_over_when_it_is_gone_or_said_so() {
    let (_directory, path) = segment(&[(Sealed, EventKind::Exit)]);
    let mut own = Segment::open(path.clone(), true).unwrap();
    assert!(
        own.known && own.may_live() && !own.is_over(),
        "this process lives"
    );
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    own.info.pid = child.id();
    assert!(own.is_over());
    own.known = false;
    assert!(!own.is_over(), "perhaps a process of another PID namespace");
    taken(&mut own, Take::Sealed);
    assert!(own.is_over(), "it has said farewell");
}

#[test]
fn only_regular_files_with_a_whole_header_are_segments() {
    let (directory, path) = segment(&[]);
    let link = directory.path().join("2.5.seg");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Segment::open(link, true).is_none());
    let pipe = directory.path().join("3.5.seg");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(Segment::open(pipe, true).is_none());
    fs::write(&path, [0; 4096]).unwrap();
    assert!(Segment::open(path, true).is_none(), "still being made");
}
