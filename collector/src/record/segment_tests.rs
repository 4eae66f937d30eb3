//! Tests of [`super`]: segments made byte by byte, sound and damaged.

use super::*;
use engine::wire::codec::Encoder;

/// A segment of this process, with one chunk per state given, each with one event of that kind.
fn segment(chunks: &[(ChunkState, EventKind)]) -> (tempfile::TempDir, PathBuf) {
    let encoded = |(state, kind): &(ChunkState, EventKind)| {
        let event = Event {
            kind: *kind,
            time_ns: 1,
            value: 2,
            text: b"text",
        };
        (*state, RecordKind::Event, encoded(|out| event.encode(out)))
    };
    segment_of(&chunks.iter().map(encoded).collect::<Vec<_>>())
}

fn encoded(encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut bytes = [0; 1024];
    let mut out = Encoder::new(&mut bytes);
    encode(&mut out);
    let length = out.finish().unwrap();
    bytes[..length].to_vec()
}

/// The same with any record in each chunk.
fn segment_of(chunks: &[(ChunkState, RecordKind, Vec<u8>)]) -> (tempfile::TempDir, PathBuf) {
    let info = FileInfo {
        kind: FileKind::Segment,
        machine: 62,
        pid: std::process::id(),
        process_key: 5,
        chunkless_samples: 0,
        chunkless_weight: 0,
        unarmed_threads: 0,
        start_ticks: start_ticks(std::process::id()).unwrap(),
        length: 0,
    };
    let mut bytes = info.to_bytes().to_vec();
    for (sequence, (state, kind, payload)) in chunks.iter().enumerate() {
        let mut chunk = vec![0; SEGMENT_STRIDE];
        let place = HEADER_SIZE + record::HEADER_SIZE;
        chunk[place..place + payload.len()].copy_from_slice(payload);
        let length = record::seal(&mut chunk[HEADER_SIZE..], *kind, payload.len());
        let header = ChunkInfo {
            state: *state as u32,
            stride: SEGMENT_STRIDE as u32,
            committed: length.unwrap() as u32,
            sequence: sequence as u64,
            pid: info.pid,
            process_key: info.process_key,
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

fn opened(path: PathBuf, stays_open: bool) -> Option<Segment> {
    match Segment::open(path, stays_open, &Owners::default()) {
        Opened::Segment(segment) => Some(*segment),
        Opened::NotYet | Opened::Foreign => None,
    }
}

/// The sequence numbers and lengths of what is taken.
fn taken(segment: &mut Segment, take: Take) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    let mut sink = |info: ChunkInfo, records: &[u8]| {
        assert_eq!(info.committed as usize, records.len());
        found.push((info.sequence, records.len()));
        Ok(())
    };
    let progress = segment.take(take, Turn::begin(), &mut sink).unwrap();
    assert_eq!(progress, Progress::Done);
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
        let mut segment = opened(path, stays_open).unwrap();
        assert_eq!(taken(&mut segment, Take::Sealed), [(1, LENGTH)]);
        assert_eq!(taken(&mut segment, Take::Sealed), []);
        assert_eq!(taken(&mut segment, Take::Everything), [(0, LENGTH)]);
    }
    let mut whole = opened(path.clone(), true).unwrap();
    taken(&mut whole, Take::Sealed);
    let bytes = fs::read(path).unwrap();
    let freed = ChunkInfo::parse(&bytes[file::HEADER_SIZE + SEGMENT_STRIDE..]).unwrap();
    assert_eq!((freed.state, freed.committed), (Free as u32, 0));
}

#[test]
fn a_chunk_that_cannot_be_stored_is_kept() {
    let (_directory, path) = segment(&[(Sealed, NOTE)]);
    let mut segment = opened(path, true).unwrap();
    let full = &mut |_, _: &[u8]| Err(io::ErrorKind::StorageFull.into());
    assert!(segment.take(Take::Sealed, Turn::begin(), full).is_err());
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
    let mut segment = opened(path.clone(), true).unwrap();
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
    let (_directory, path) = segment(&[(Sealed, EventKind::Exec)]);
    let mut own = opened(path.clone(), true).unwrap();
    assert!(own.known && !own.is_over(), "this process lives");
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    own.info.pid = child.id();
    assert!(own.is_over());
    own.known = false;
    assert!(!own.is_over(), "perhaps a process of another PID namespace");
    own.info.pid = std::process::id();
    taken(&mut own, Take::Sealed);
    own.info.pid = child.id();
    assert!(own.is_over(), "it has said farewell");
}

#[test]
fn a_process_that_was_gone_before_it_was_seen_is_over_if_its_pid_means_the_same_to_us() {
    let own = fs::metadata("/proc/self/ns/pid").unwrap().ino();
    for (pid_namespace, is_over) in [(own, true), (own + 1, false), (0, false)] {
        let process = Process {
            pid_namespace,
            ..Process::default()
        };
        let record = encoded(|out| process.encode(out));
        let (_directory, path) = segment_of(&[(Owned, RecordKind::Process, record)]);
        let mut segment = opened(path, true).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        taken(&mut segment, Take::Sealed);
        assert!(!segment.is_over(), "it lives");
        (segment.known, segment.info.pid) = (false, child.id());
        taken(&mut segment, Take::Sealed);
        assert_eq!(segment.is_over(), is_over);
        // Another process has its number by now.
        segment.gone = false;
        segment.info = FileInfo {
            pid: std::process::id(),
            start_ticks: 1,
            ..segment.info
        };
        taken(&mut segment, Take::Sealed);
        assert_eq!(segment.is_over(), is_over);
    }
}

#[test]
fn only_regular_files_with_a_whole_header_are_segments() {
    let (directory, path) = segment(&[]);
    let link = directory.path().join("2.5.seg");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(opened(link, true).is_none());
    let pipe = directory.path().join("3.5.seg");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(opened(pipe, true).is_none());
    fs::write(&path, [0; 4096]).unwrap();
    assert!(opened(path, true).is_none(), "still being made");
}

/// As `user`, gives a file to it.
fn give(path: &std::path::Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), None)
        .expect("this test gives files away, and must run as root");
}

#[test]
fn a_file_of_another_user_than_its_process_is_foreign() {
    let mut other = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::uid(&mut other, 65_533);
    let mut other = other.arg("60").spawn().unwrap();
    let of = |pid: u32, owner: u32| {
        let (_directory, path) = segment(&[]);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut info = header(&open(&path).unwrap()).unwrap();
        (info.pid, info.start_ticks) = (pid, start_ticks(pid).unwrap());
        file.write_all_at(&info.to_bytes(), 0).unwrap();
        give(&path, owner);
        Segment::open(path, true, &Owners::default())
    };
    assert!(matches!(of(other.id(), 65_534), Opened::Foreign));
    assert!(matches!(of(std::process::id(), 65_534), Opened::Foreign));
    let Opened::Segment(own) = of(other.id(), 65_533) else {
        panic!("the process's own")
    };
    assert_eq!(own.users, BTreeSet::from([65_533]));
    // Of a process that began as ours and became another user's since.
    assert!(matches!(of(other.id(), 0), Opened::Segment(_)));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn chunks_and_records_that_say_they_are_somebody_elses_are_not_taken() {
    let (_directory, path) = segment(&[(Sealed, NOTE), (Sealed, NOTE), (Sealed, NOTE)]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let chunk = |index: usize| (file::HEADER_SIZE + index * SEGMENT_STRIDE) as u64;
    let pid = chunk(0) + offset_of!(ChunkHeader, pid) as u64;
    file.write_all_at(&1u32.to_le_bytes(), pid).unwrap();
    let mut forged = [0; 16];
    let length = record::seal(&mut forged, RecordKind::Session, 8).unwrap();
    file.write_all_at(&forged[..length], chunk(1) + HEADER_SIZE as u64)
        .unwrap();
    let sequence = chunk(2) + offset_of!(ChunkHeader, sequence) as u64;
    file.write_all_at(&(FROM_SWITCHES | 2).to_le_bytes(), sequence)
        .unwrap();
    let mut segment = opened(path, true).unwrap();
    assert_eq!(taken(&mut segment, Take::Sealed), [(1, 0), (2, LENGTH)]);
    assert_eq!(segment.damaged, 2 * LENGTH as u64);
}

#[test]
fn a_huge_sparse_segment_is_looked_at_in_turns_and_not_in_its_holes() {
    let (_directory, path) = segment(&[(Sealed, NOTE), (Sealed, NOTE)]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let beyond = file::HEADER_SIZE as u64 + 60_000 * SEGMENT_STRIDE as u64;
    let chunk = &fs::read(&path).unwrap()[file::HEADER_SIZE..][..SEGMENT_STRIDE];
    file.write_all_at(chunk, beyond).unwrap();
    file.set_len(4 << 40).unwrap();
    let mut segment = opened(path, true).unwrap();
    let mut found = Vec::new();
    let mut turns = 0;
    let mut sink = |info: ChunkInfo, _: &[u8]| {
        found.push(info.sequence);
        Ok(())
    };
    while segment
        .take(Take::Everything, Turn::over(), &mut sink)
        .unwrap()
        == Progress::Begun
    {
        turns += 1;
        assert!(
            turns < 10,
            "one chunk a turn, and nothing where there is none"
        );
    }
    assert_eq!(found, [0, 1, 0]);
}
