//! Puts together what was made of the parts of a recording, each of which has other processes. What
//! they can have in common is the kernel's, and stacks of that alone; of all else each frame and
//! each stack is new.

use super::samples::Made;
use crate::recording::{RawFrame, RawSample, Recording, StackId};

/// What was made of all parts; never of none.
pub(super) fn together(parts: Vec<Made>, recording: &mut Recording) {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().unwrap_or_default();
    for part in parts {
        add(&mut whole, part);
    }
    whole.samples.sort_by_key(|sample| sample.thread);
    for (thread, ns) in whole.late_cpu_ns {
        let late_ns = &mut recording.threads[thread.index()].late_cpu_ns;
        *late_ns = late_ns.saturating_add(ns);
    }
    recording.frames = whole.frames;
    recording.stacks = whole.stacks;
    recording.samples = whole.samples;
}

/// Where a frame or a stack can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Anybodys,
    /// In no other part: it is not looked for.
    OfPart,
}

fn add(whole: &mut Made, part: Made) {
    whole.frames.reserve(part.frames.len());
    let frames = part.frames.into_iter().map(|frame| match frame {
        RawFrame::Code { .. } => (whole.new_frame(frame), Whose::OfPart),
        _ => (whole.frame(frame), Whose::Anybodys),
    });
    let frames: Vec<_> = frames.collect();
    whole.stacks.reserve(part.stacks.len());
    let mut stacks: Vec<(StackId, Whose)> = Vec::with_capacity(part.stacks.len());
    for node in part.stacks {
        let parent = node.parent.map(|parent| stacks[parent.index()]);
        let (frame, whose) = frames[node.frame.index()];
        let whose = parent.map_or(whose, |(_, of_parent)| of_parent.max(whose));
        let parent = parent.map(|(parent, _)| parent);
        let stack = match whose {
            Whose::OfPart => whole.new_call(parent, frame),
            Whose::Anybodys => whole.call(parent, frame),
        };
        stacks.push((stack, whose));
    }
    let samples = part.samples.into_iter();
    whole.samples.extend(samples.map(|sample| RawSample {
        stack: sample.stack.map(|stack| stacks[stack.index()].0),
        ..sample
    }));
    whole.late_cpu_ns.extend(part.late_cpu_ns);
}
