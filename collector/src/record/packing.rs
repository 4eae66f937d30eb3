//! A recording that is done is packed before it takes its name, so that under that name there is
//! always a whole one. Where that cannot be done it stays as it is, longer and as good.
//!
//! Not here: how a recording is packed ([`crate::recording::write`]).

use crate::kept::Begun;
use crate::recording::write::Writer;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest that whoever waits for the recording should wait for this.
const LIMIT: Duration = Duration::from_secs(20);
/// After that can be told how long all of it takes.
const TRIAL: Duration = Duration::from_secs(1);

/// The recording that is to have that name, packed if that can be done before long, and `go_on`
/// says so all the time.
pub fn pack(recording: Begun, name: &Path, mut go_on: impl FnMut() -> bool) -> Begun {
    let begun = Instant::now();
    let go_on = |done, all| is_in_time(begun.elapsed(), done, all) && go_on();
    match packed(&recording, name, go_on) {
        Ok(Some(packed)) => {
            recording.goes();
            packed
        }
        _ => recording,
    }
}

fn is_in_time(elapsed: Duration, done: u64, all: u64) -> bool {
    elapsed < TRIAL || elapsed.as_secs_f64() * all as f64 <= LIMIT.as_secs_f64() * done as f64
}

fn packed(
    recording: &Begun,
    name: &Path,
    go_on: impl FnMut(u64, u64) -> bool,
) -> io::Result<Option<Begun>> {
    let mut long = io::BufReader::new(File::open(recording.path())?);
    let (mut packed, file) = recording.once_more(name)?;
    let done = Writer::pack(&mut long, &file, go_on)?;
    if !done || file.metadata()?.len() >= long.get_ref().metadata()?.len() {
        return Ok(None);
    }
    packed.stays();
    Ok(Some(packed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate;
    use crate::kept;
    use crate::recording::example::{Chunk, head, recording};
    use std::fs;
    use std::io::Write;

    #[test]
    fn a_recording_is_packed_or_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.rsu");
        let chunk = (0..500).fold(Chunk::new(1, 2, 0), |chunk, at| {
            chunk.sample(head(1000 * at, 1), &[0x1000 + at, 0x9000])
        });
        let long = recording(&[&chunk; 9].map(Chunk::clone));
        let bytes = recording(&[chunk]);
        let packed = |bytes: &[u8], go_on| {
            let (mut begun, mut file) = kept::begin(&name).unwrap();
            begun.stays();
            file.write_all(bytes).unwrap();
            let packed = pack(begun, &name, || go_on);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            let content = fs::read(packed.path()).unwrap();
            packed.goes();
            content
        };
        let short = packed(&bytes, true);
        assert!(
            short.len() < bytes.len() / 2,
            "{} of {}",
            short.len(),
            bytes.len()
        );
        let read = |bytes: &[u8]| correlate::read_bytes("a.rsu", bytes.to_vec()).unwrap();
        let (plain, again) = (read(&bytes), read(&short));
        assert_eq!(again.damage_count(), 0);
        assert_eq!(again.samples.len(), 500);
        assert_eq!(
            format!("{:?}", plain.samples),
            format!("{:?}", again.samples)
        );

        assert!(packed(&long, false) == long, "somebody had no patience");
        let cut = &bytes[..bytes.len() - 64];
        assert_eq!(packed(cut, true), cut);
    }

    #[test]
    fn who_waits_waits_no_longer_than_the_limit() {
        let all = 1 << 40;
        assert!(is_in_time(TRIAL / 2, 1, all), "nobody knows yet");
        assert!(!is_in_time(TRIAL, 1, all));
        assert!(is_in_time(TRIAL, all / 10, all));
        assert!(is_in_time(LIMIT, all, all));
        assert!(!is_in_time(LIMIT * 2, all, all));
    }
}
