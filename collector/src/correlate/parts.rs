//! Puts together what was made of the parts of a recording, each of which has other processes. What
//! they can have in common is the kernel's, and stacks of that alone; of all else each frame and
//! each stack is new.

use super::samples::Made;
use crate::recording::{RawSample, Recording};

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

fn add(whole: &mut Made, part: Made) {
    let frames = part.frames.into_iter();
    let frames: Vec<_> = frames.map(|frame| whole.frame(frame)).collect();
    let mut stacks = Vec::with_capacity(part.stacks.len());
    for node in part.stacks {
        let parent = node.parent.map(|parent| stacks[parent.index()]);
        stacks.push(whole.call(parent, frames[node.frame.index()]));
    }
    let samples = part.samples.into_iter();
    whole.samples.extend(samples.map(|sample| RawSample {
        stack: sample.stack.map(|stack| stacks[stack.index()]),
        ..sample
    }));
    whole.late_cpu_ns.extend(part.late_cpu_ns);
}
