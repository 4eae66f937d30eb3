//! The stack of the sample before, which the next one of a chunk leans on.
//!
//! Of samples that are not wanted frames are read only if one that is takes them over.

use crate::recording::{FrameId, StackId};
use engine::wire::WireError;
use engine::wire::sample::{Frame, Sample, SampleHead};

/// Deeper stacks than this are taken for damage; walks have a limit far below.
pub(super) const DEEPEST: usize = 1 << 16;

/// The stack, from root to leaf.
#[derive(Debug, Default)]
pub(super) struct Before<'a> {
    pub(super) head: SampleHead,
    /// How many outermost frames are not known.
    pub(super) unknown: usize,
    pub(super) frames: Vec<FrameId>,
    /// Those inside of them, if only samples that are not wanted had them.
    pub(super) unwanted: Vec<Frame>,
    /// Of those inside of them, which were not read, the samples that had them first, and how many
    /// of each are left: the outer ones.
    unread: Vec<(Sample<'a>, usize)>,
    unread_frames: usize,
    /// The stack at each frame, if no gap lies below it.
    pub(super) nodes: Vec<StackId>,
}

impl<'a> Before<'a> {
    /// How many frames there are.
    pub(super) const fn depth(&self) -> usize {
        self.unknown + self.frames.len() + self.unwanted.len() + self.unread_frames
    }

    /// What it was is not known.
    pub(super) fn lose(&mut self) {
        self.take_over(0);
        self.unknown = DEEPEST;
    }

    /// Keeps the `reused` outermost frames, which are there.
    pub(super) fn take_over(&mut self, reused: usize) {
        let unknown = self.unknown.min(reused);
        if unknown < self.unknown {
            self.nodes.clear();
        }
        self.unknown = unknown;
        let known = reused - unknown;
        let unwanted = known.saturating_sub(self.frames.len());
        let unread = unwanted.saturating_sub(self.unwanted.len());
        while let Some((_, outer)) = self.unread.last_mut()
            && self.unread_frames > unread
        {
            let gone = (*outer).min(self.unread_frames - unread);
            self.unread_frames -= gone;
            *outer -= gone;
            if *outer == 0 {
                self.unread.pop();
            }
        }
        self.unwanted.truncate(unwanted);
        self.frames.truncate(known);
        self.nodes.truncate(known);
    }

    /// Leaves the frames of a sample unread that are not those of the sample before; so many.
    pub(super) fn leave(&mut self, sample: &Sample<'a>, new: usize) {
        if new > 0 {
            self.unread.push((*sample, new));
            self.unread_frames += new;
        }
    }

    /// Reads what was left unread. `frames` is room for that.
    ///
    /// # Errors
    /// As [`Sample::new_frames`].
    pub(super) fn read_unread(&mut self, frames: &mut Vec<Frame>) -> Result<(), WireError> {
        self.unread_frames = 0;
        for (sample, outer) in self.unread.drain(..) {
            read_new(&sample, frames)?;
            let inner = frames.len().saturating_sub(outer);
            self.unwanted.extend(frames.drain(inner..).rev());
        }
        Ok(())
    }
}

/// The frames of a sample that are not those of the sample before, from the leaf.
///
/// # Errors
/// As [`Sample::new_frames`].
pub(super) fn read_new(sample: &Sample<'_>, frames: &mut Vec<Frame>) -> Result<(), WireError> {
    frames.clear();
    sample.new_frames().try_for_each(|frame| {
        frames.push(frame?);
        Ok(())
    })
}
