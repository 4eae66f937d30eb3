//! What comes last: the names of what was seen are looked up and appended to the recording, so that
//! it can be read without the programs. That may take a while where there is much debug
//! information; the recording is whole before, and stays so if nobody wants to wait.
//!
//! Meanwhile another recording may take the name that this one has: its file is asked for by name
//! only once, before it has any that others know.

use super::signals::Signals;
use crate::profile::Profile;
use crate::progress_bar::Working;
use crate::recording::names;
use crate::recording::write::{OwnChunks, Writer};
use crate::symbolize::Places;
use crate::visible::Shown;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often is looked whether somebody has lost patience.
const GLANCE: Duration = Duration::from_millis(50);

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

/// A recording that is done, whatever it is called by now.
#[derive(Clone, Debug)]
pub struct Done {
    file: Arc<File>,
    /// What it is called where it is spoken of.
    name: PathBuf,
}

impl Done {
    /// The recording that is at that place now, and is going to have that name.
    ///
    /// # Errors
    /// As open.
    pub fn at(path: &Path, name: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self {
            file: Arc::new(file),
            name: name.to_owned(),
        })
    }

    /// What is in it, with names. A signal that would end rsunwind ends the wait.
    ///
    /// # Errors
    /// [`NoNames`].
    pub fn read(&self, limit: Duration, signals: &Signals) -> Result<Profile, NoNames> {
        let done = self.clone();
        patiently(limit, signals, move || done.profile())
    }

    /// Stores names in it, and gives it with them. A signal that would end rsunwind ends the wait.
    ///
    /// # Errors
    /// [`NoNames`]; the recording is as it was.
    pub fn append(&self, limit: Duration, signals: &Signals) -> Result<Profile, NoNames> {
        let done = self.clone();
        let (profile, bytes) = patiently(limit, signals, move || done.named())?;
        // Signals are held back meanwhile.
        let written = self.write(&bytes);
        written.map_err(|error| NoNames::Failed(error.to_string()))?;
        Ok(profile)
    }

    fn profile(&self) -> Result<Profile, String> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let profile = Profile::open(&[&own], &Places::default());
        let name = || self.name.shown().to_string();
        let mut profile = profile.map_err(|error| error.to_string().replace(&own, &name()))?;
        for file in &mut profile.recording.files {
            file.path.clone_from(&self.name);
        }
        Ok(profile)
    }

    fn named(&self) -> Result<(Profile, Vec<u8>), String> {
        let profile = self.profile()?;
        let names = profile.symbols.to_be_stored(&profile.recording);
        Ok((profile, names::encode(&names)))
    }

    /// Appends the names; where that cannot be done the recording is cut back to what it was.
    /// Whoever looks for the newest recording passes it over meanwhile.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let file = &*self.file;
        let locked = file.try_lock();
        let before = file.metadata()?.len();
        let mut writer = Writer::reopen(file)?;
        let written = writer.append_own(OwnChunks::of_names(bytes));
        let written = written.and_then(|()| writer.finish());
        if written.is_err() {
            file.set_len(before)?;
        }
        if locked.is_ok() {
            file.unlock()?;
        }
        written
    }
}

/// Does what may take a while, until the limit, or a signal that would end rsunwind. What is not
/// waited for any more goes on until the process ends.
///
/// # Errors
/// [`NoNames`].
pub fn patiently<T: Send + 'static>(
    limit: Duration,
    signals: &Signals,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, NoNames> {
    let (sender, receiver) = channel();
    // It cannot be called off: nobody listens to it any more, and it ends with the process.
    let spawned = thread::Builder::new().spawn(move || {
        let _ = sender.send(work());
    });
    spawned.map_err(|error| NoNames::Failed(error.to_string()))?;
    let _working = Working::begin();
    let done = wait(&receiver, limit, || is_told_to_end(signals))?;
    done.map_err(NoNames::Failed)
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

/// Whether a signal has come that would end rsunwind.
pub fn is_told_to_end(signals: &Signals) -> bool {
    let ending = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ];
    std::iter::from_fn(|| signals.next()).any(|arrival| ending.contains(&arrival.signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept;
    use crate::recording::example::{Chunk, head, recording};
    use std::fs;
    use std::io::Write;

    #[test]
    fn names_go_into_their_own_recording_though_another_has_taken_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a.rsu");
        let begin = |pid| {
            let (mut begun, mut file) = kept::begin(&name).unwrap();
            begun.stays();
            let chunk = Chunk::new(pid, pid, 0).sample(head(10, 1), &[0x1000]);
            file.write_all(&recording(&[chunk])).unwrap();
            (Done::at(begun.path(), &name).unwrap(), begun)
        };
        let (both, places) = ([begin(1), begin(2)], ["a.rsu.old", "a.rsu"]);
        for (_, begun) in &both {
            begun.take_name(&name, true).unwrap();
        }
        let read = |file: &str| fs::read(directory.path().join(file)).unwrap();
        let before = places.map(read);
        for (index, (done, _)) in both.iter().enumerate() {
            let (profile, bytes) = done.named().unwrap();
            let pid = u32::try_from(index).unwrap() + 1;
            assert_eq!(profile.recording.processes[0].pid, pid);
            assert_eq!(profile.recording.files[0].path, name);
            done.write(&bytes).unwrap();
            let longer: Vec<_> = places.map(read).into_iter().zip(&before).collect();
            assert!(longer[index].0.len() > longer[index].1.len());
            assert_eq!(longer[1].0.len() > longer[1].1.len(), index == 1);
        }
        for place in places {
            let again = Profile::open(&[directory.path().join(place)], &Places::default());
            assert_eq!(again.unwrap().recording.damage_count(), 0, "{place}");
        }
    }

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
