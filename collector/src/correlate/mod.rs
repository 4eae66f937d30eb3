//! Correlates what threads recorded of themselves with what the kernel recorded of them: takes in
//! the samples, and joins the kernel's stacks with the user stack of their entry.
//!
//! Start at [`read`]. `samples` takes in the records chunk by chunk, `kernel_samples` keeps the
//! kernel's until their user stack comes, `join` puts them together, with `held` and `interrupted`
//! for those that were not taken where the user stack was; `kernel_account` says what became of
//! all, `window` which are wanted.
//!
//! Not here: what is in a file ([`crate::recording`]), and names (`symbolize`).

mod held;
mod interrupted;
mod join;
mod kernel_account;
mod kernel_samples;
mod samples;
#[cfg(test)]
mod tests;
mod window;

pub use kernel_account::KernelAccount;
pub use window::{Sent, ThreadName, Window};

use crate::recording::{Contents, FrameId, OpenError, Recording};
use samples::{ChunkSamples, Stacks};
use std::path::{Path, PathBuf};

/// Reads recordings, segments and session directories as one recording, with its samples.
///
/// # Errors
/// [`OpenError`] for the first path of which nothing could be read. In a directory, files that are
/// no recordings are reported as damages if another one is.
pub fn read(paths: &[impl AsRef<Path>]) -> Result<Recording, OpenError> {
    read_window(paths, Window::WHOLE, &mut Sent::new())
}

/// The same, with the samples of a window only. `sent` is what windows before it had without a user
/// stack, and then what the next one has to know of that.
///
/// # Errors
/// As [`read`].
pub fn read_window(
    paths: &[impl AsRef<Path>],
    window: Window,
    sent: &mut Sent,
) -> Result<Recording, OpenError> {
    correlate(Contents::open(paths)?, window, sent)
}

/// Reads a recording from memory; `name` stands for its path in reports.
///
/// # Errors
/// [`OpenError`] if it is none at all.
pub fn read_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Recording, OpenError> {
    let contents = Contents::of_bytes(name, bytes)?;
    correlate(contents, Window::WHOLE, &mut Sent::new())
}

fn correlate(
    mut contents: Contents,
    window: Window,
    sent: &mut Sent,
) -> Result<Recording, OpenError> {
    let mut recording = std::mem::take(&mut contents.recording);
    let mut stacks = Stacks::of(window, std::mem::take(sent));
    while let Some(chunk) = contents.next()? {
        let mut samples = ChunkSamples::new(&mut recording, &mut stacks, chunk.thread);
        chunk.walk(|step, damages| samples.step(&step, damages));
    }
    *sent = stacks.finish(&mut recording);
    if !window.is_whole() {
        keep_frames_on_stacks(&mut recording);
    }
    recording.files = contents.reports();
    Ok(recording)
}

/// Drops frames that only samples outside of a window had: nobody needs their names.
fn keep_frames_on_stacks(recording: &mut Recording) {
    let mut places = vec![None; recording.frames.len()];
    let mut kept = Vec::new();
    for node in &mut recording.stacks {
        let place = &mut places[node.frame.index()];
        node.frame = *place.get_or_insert_with(|| {
            kept.push(recording.frames[node.frame.index()]);
            FrameId::next_of(kept.len() - 1)
        });
    }
    recording.frames = kept;
}
