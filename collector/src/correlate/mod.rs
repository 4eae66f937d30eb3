//! Correlates what threads recorded of themselves with what the kernel recorded of them: takes in
//! the samples, and joins the kernel's stacks with the user stack of their entry.
//!
//! Start at [`read`]. `samples` takes in the records chunk by chunk, `kernel_samples` keeps the
//! kernel's until their user stack comes, `join` puts them together, with `held` and `interrupted`
//! for those that were not taken where the user stack was; `kernel_account` says what became of
//! all, `window` which are wanted.
//!
//! Not here: what is in a file ([`crate::recording`]), and names (`symbolize`).

mod before;
mod began;
mod beside;
mod held;
mod interrupted;
mod join;
mod kernel_account;
mod kernel_samples;
mod parts;
mod samples;
#[cfg(test)]
mod tests;
mod window;

pub use kernel_account::KernelAccount;
pub use window::{Sent, Window, follow_names};

use crate::recording::{Contents, Damages, FrameId, OpenError, Part, Recording};
use samples::{ChunkSamples, Made, Stacks};
use std::path::{Path, PathBuf};

/// Reads recordings, segments and session directories as one recording, with its samples.
///
/// # Errors
/// [`OpenError`] for the first path of which nothing could be read. In a directory, files that are
/// no recordings are reported as damages if another one is.
pub fn read(paths: &[impl AsRef<Path>]) -> Result<Recording, OpenError> {
    read_window(paths, Window::WHOLE, &mut Sent::default())
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
    correlate(contents, Window::WHOLE, &mut Sent::default())
}

fn correlate(contents: Contents, window: Window, sent: &mut Sent) -> Result<Recording, OpenError> {
    // What windows know of each other is of all processes together.
    let most = match window.is_whole() {
        true => std::thread::available_parallelism().map_or(1, usize::from),
        false => 1,
    };
    correlate_in(contents, window, sent, most)
}

/// In at most so many parts, at once.
fn correlate_in(
    mut contents: Contents,
    window: Window,
    sent: &mut Sent,
    most: usize,
) -> Result<Recording, OpenError> {
    let mut recording = std::mem::take(&mut contents.recording);
    for of_threads in [&mut sent.late, &mut sent.beside] {
        follow_names(of_threads, &recording);
    }
    let parts = contents.parts(&recording.threads, most);
    let read = |part, sent| read_part(&recording, part, window, sent);
    let found = std::thread::scope(|scope| {
        let (read, mut parts) = (&read, parts.into_iter());
        let first = parts.next();
        let others = parts.map(|part| scope.spawn(|| read(part, Sent::default())));
        let others: Vec<_> = others.collect();
        let first = first.map(|first| read(first, std::mem::take(sent)));
        let others = others.into_iter().map(|other| match other.join() {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first
            .into_iter()
            .chain(others)
            .collect::<Result<Vec<_>, _>>()
    })?;
    let (mut made, mut damages) = (Vec::new(), Vec::new());
    for (of_part, sent_of_part, of_files) in found {
        made.push(of_part);
        sent.late.extend(sent_of_part.late);
        sent.beside.extend(sent_of_part.beside);
        damages.push(of_files);
    }
    parts::together(made, &mut recording);
    began::find(&mut recording);
    if !window.is_whole() {
        keep_frames_on_stacks(&mut recording);
    }
    recording.files = contents.reports(damages);
    Ok(recording)
}

/// Reads the samples of a part of the processes.
fn read_part(
    recording: &Recording,
    mut part: Part<'_>,
    window: Window,
    sent: Sent,
) -> Result<(Made, Sent, Vec<Damages>), OpenError> {
    let mut stacks = Stacks::of(recording, window, sent);
    while let Some(chunk) = part.next()? {
        let mut samples = ChunkSamples::new(recording, &mut stacks, &chunk);
        chunk.walk(|step, damages| samples.step(&step, damages));
    }
    let (made, sent) = stacks.finish(recording);
    Ok((made, sent, part.damages()))
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
