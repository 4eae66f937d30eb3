//! Of a whole machine what only some processes did.

use crate::charge::Row;
use crate::recording::{FrameId, Process, ProcessId, RawSample, Recording, StackId, StackNode};

/// Takes out what is of processes of other names, and what nobody needs to know then.
pub(super) fn leave_only(names: &[String], recording: &mut Recording, rows: &mut Vec<Row>) {
    let is_wanted = |process: &Process| names.iter().any(|name| name == process.name());
    let wanted: Vec<bool> = recording.processes.iter().map(is_wanted).collect();
    let is_one = |id: ProcessId| wanted.get(id.index()) == Some(&true);
    let threads = &recording.threads;
    let of_one = |sample: &RawSample| is_one(threads[sample.thread.index()].process);
    recording.samples.retain(of_one);
    rows.retain(|row| row.process.is_some_and(is_one));
    forget_unused(recording);
}

/// Frames that no sample has would be looked up like others.
fn forget_unused(recording: &mut Recording) {
    let mut stacks: Vec<Option<StackId>> = vec![None; recording.stacks.len()];
    let mut frames: Vec<Option<FrameId>> = vec![None; recording.frames.len()];
    let (mut kept_stacks, mut kept_frames) = (Vec::new(), Vec::new());
    for sample in &mut recording.samples {
        let mut path = Vec::new();
        let mut next = sample.stack;
        while let Some(id) = next.filter(|id| stacks[id.index()].is_none()) {
            path.push(id);
            next = recording.stacks[id.index()].parent;
        }
        for id in path.into_iter().rev() {
            let node = recording.stacks[id.index()];
            let frame = frames[node.frame.index()].get_or_insert_with(|| {
                kept_frames.push(recording.frames[node.frame.index()]);
                FrameId::next_of(kept_frames.len() - 1)
            });
            kept_stacks.push(StackNode {
                parent: node.parent.and_then(|parent| stacks[parent.index()]),
                frame: *frame,
            });
            stacks[id.index()] = Some(StackId::next_of(kept_stacks.len() - 1));
        }
        sample.stack = sample.stack.and_then(|id| stacks[id.index()]);
    }
    recording.stacks = kept_stacks;
    recording.frames = kept_frames;
    // Stacks that no sample has; of a whole machine no thread says where it began.
    recording.began.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Reason;
    use crate::correlate;
    use std::path::Path;

    #[test]
    fn of_others_nothing_is_left() {
        let file = "../tests/recordings/version-5.rsu";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let read = || {
            let mut recording = correlate::read(&[&path]).unwrap();
            // As if every second thread were of another process.
            let own = recording.processes[0].pid;
            recording.processes.push(Process {
                pid: own + 1,
                executable: "/bin/other".to_owned(),
                ..Process::default()
            });
            let other = ProcessId::next_of(recording.processes.len() - 1);
            let threads = recording.threads.iter_mut();
            threads.step_by(2).for_each(|thread| thread.process = other);
            recording
        };
        let (before, mut after) = (read(), read());
        let row = |process: usize| Row {
            reason: Reason::End,
            process: Some(ProcessId::next_of(process)),
            thread: None,
            ns: 1,
        };
        let other = before.processes.len() - 1;
        let mut rows = vec![
            row(0),
            row(other),
            Row {
                process: None,
                ..row(0)
            },
        ];
        leave_only(&["other".to_owned()], &mut after, &mut rows);
        let of_other =
            |sample: &&RawSample| before.threads[sample.thread.index()].process.index() == other;
        let samples: Vec<_> = before.samples.iter().filter(of_other).collect();
        assert!(!samples.is_empty() && samples.len() == after.samples.len());
        for (one, left) in samples.into_iter().zip(&after.samples) {
            assert_eq!(one.time_ns, left.time_ns);
            let stacks = [
                before.walk(one.stack).collect::<Vec<_>>(),
                after.walk(left.stack).collect(),
            ];
            assert!(!stacks[0].is_empty());
            assert_eq!(stacks[0], stacks[1]);
        }
        let is_used = |frame| {
            after
                .samples
                .iter()
                .any(|one| after.walk(one.stack).any(|it| it == frame))
        };
        assert!(after.frames.iter().all(|frame| is_used(*frame)));
        assert_eq!((rows.len(), rows[0].process), (1, row(other).process));
        leave_only(&["nobody".to_owned()], &mut after, &mut rows);
        assert!(after.samples.is_empty() && after.frames.is_empty() && rows.is_empty());
    }
}
