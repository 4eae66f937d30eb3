//! What comes last: the names of what was seen are looked up and appended to the recording, so that
//! it can be read without the programs. That may take a while where there is much debug
//! information; the recording is whole before, and stays so if nobody wants to wait.

use super::signals::Signals;
use crate::profile::Profile;
use crate::recording::names;
use crate::recording::write::{OwnChunks, Writer};
use crate::symbolize::Places;
use engine::wire::chunk::ChunkInfo;
use engine::wire::names::{FIRST_SEQUENCE, NamesPart};
use engine::wire::record::RecordKind;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often is looked whether somebody has lost patience.
const GLANCE: Duration = Duration::from_millis(50);
/// Bytes of names in a record.
const PART: usize = 256 << 10;

/// Why a recording has no names.
#[derive(Debug, thiserror::Error)]
pub enum NoNames {
    #[error("looking them up was stopped")]
    Stopped,
    #[error("looking them up takes more than {} s (--names TIME allows more)", .0.as_secs_f64())]
    TooLong(Duration),
    #[error("{0}")]
    Failed(String),
}

/// Names a recording that is done, and gives it with its names. A signal that would end rsunwind
/// ends the wait.
///
/// # Errors
/// [`NoNames`]; the recording is as it was.
pub fn append(path: &Path, limit: Duration, signals: &Signals) -> Result<Profile, NoNames> {
    let (sender, receiver) = channel();
    let recording = path.to_owned();
    // It cannot be called off: nobody listens to it any more, and it ends with the process.
    let spawned = thread::Builder::new().spawn(move || {
        let _ = sender.send(named(&recording));
    });
    spawned.map_err(|error| NoNames::Failed(error.to_string()))?;
    let named = wait(&receiver, limit, || is_told_to_end(signals))?;
    let (profile, bytes) = named.map_err(NoNames::Failed)?;
    // Signals are held back meanwhile.
    write(path, &bytes).map_err(|error| NoNames::Failed(error.to_string()))?;
    Ok(profile)
}

fn wait<T>(
    receiver: &Receiver<T>,
    limit: Duration,
    mut is_told_to_end: impl FnMut() -> bool,
) -> Result<T, NoNames> {
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        match receiver.recv_timeout(GLANCE.min(left)) {
            Ok(named) => return Ok(named),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(NoNames::Failed("they could not be looked up".into()));
            }
            Err(RecvTimeoutError::Timeout) if is_told_to_end() => return Err(NoNames::Stopped),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                return Err(NoNames::TooLong(limit));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn is_told_to_end(signals: &Signals) -> bool {
    let ending = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ];
    std::iter::from_fn(|| signals.next()).any(|arrival| ending.contains(&arrival.signal))
}

fn named(recording: &PathBuf) -> Result<(Profile, Vec<u8>), String> {
    let profile = Profile::open(&[recording], &Places::default());
    let profile = profile.map_err(|error| error.to_string())?;
    let names = profile.symbols.to_be_stored(&profile.recording);
    Ok((profile, names::encode(&names)))
}

/// Appends the names; where that cannot be done the recording is cut back to what it was.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let before = file.metadata()?.len();
    let mut writer = Writer::reopen(&file)?;
    let parts = bytes.len().div_ceil(PART) as u64;
    let mut chunks = OwnChunks::new(ChunkInfo {
        sequence: FIRST_SEQUENCE,
        ..ChunkInfo::default()
    });
    for (bytes, part) in bytes.chunks(PART).zip(0..) {
        let part = NamesPart { part, parts, bytes };
        let _ = chunks.push(RecordKind::Names, |out| part.encode(out));
    }
    let written = writer.append_own(chunks).and_then(|()| writer.finish());
    if written.is_err() {
        file.set_len(before)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_ends_with_the_names_the_limit_or_a_signal() {
        let (sender, receiver) = channel::<u32>();
        let long = Duration::from_secs(1000);
        let short = Duration::from_millis(1);
        assert!(
            matches!(wait(&receiver, short, || false), Err(NoNames::TooLong(limit)) if limit == short)
        );
        assert!(matches!(
            wait(&receiver, long, || true),
            Err(NoNames::Stopped)
        ));
        sender.send(7).unwrap();
        assert!(matches!(wait(&receiver, long, || false), Ok(7)));
        drop(sender);
        assert!(matches!(
            wait(&receiver, long, || false),
            Err(NoNames::Failed(_))
        ));
    }
}
