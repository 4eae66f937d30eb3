//! A dump for people, and for programs.

use super::names::{Frame, Kind};
use super::{Dump, Thread};
use crate::numbers::plural;
use crate::visible::visible;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;

/// For people: the process, what is wrong, each thread with its stack, innermost frame first.
pub(super) fn text(dump: &Dump) -> String {
    let mut out = String::new();
    let threads = plural(dump.threads.len() as u64, "thread", "threads");
    let _ = writeln!(out, "process {}: {}, {threads}", dump.pid, command(dump));
    for problem in &dump.problems {
        let _ = writeln!(out, "! {problem}");
    }
    for thread in &dump.threads {
        one(&mut out, thread);
    }
    for note in &dump.notes {
        let _ = writeln!(out, "\nnote: {}", visible(note));
    }
    out
}

fn command(dump: &Dump) -> String {
    seen(&dump.command).join(" ")
}

fn seen(texts: &[String]) -> Vec<Cow<'_, str>> {
    texts.iter().map(|text| visible(text)).collect()
}

fn one(out: &mut String, thread: &Thread) {
    let Thread {
        task,
        stack,
        frames,
    } = thread;
    let _ = write!(
        out,
        "\nthread {} \"{}\": {}",
        task.tid,
        task.name,
        task.state.words()
    );
    if let Some(call) = &stack.call {
        let _ = write!(out, " in {}", call.text);
        if let Some(waits_for) = &call.waits_for {
            let _ = write!(out, ": {waits_for}");
        }
    } else if !task.wchan.is_empty() && !task.state.has_ended() {
        let _ = write!(out, " in the kernel's {}", visible(&task.wchan));
    }
    if stack.has_lock == Some(true) {
        out.push_str("; has Python's GIL");
    }
    out.push('\n');
    for frame in frames {
        let _ = writeln!(out, "    {}", line(frame));
    }
    for note in &stack.notes {
        let _ = writeln!(out, "    ({note})");
    }
}

fn line(frame: &Frame) -> String {
    let mut line = frame.short.clone();
    let source = frame.file.rsplit('/').next().unwrap_or_default();
    let place = match (frame.kind, source, frame.line) {
        (Kind::Kernel, ..) => " [kernel]".to_owned(),
        (Kind::Language(_), "", _) => String::new(),
        (Kind::Language(_), _, 0) => format!(" ({})", frame.file),
        (Kind::Language(_), _, line) => format!(" ({}:{line})", frame.file),
        (Kind::Native, "", _) if frame.module.is_empty() || line.starts_with('[') => String::new(),
        (Kind::Native, "", _) => format!(" [{}]", frame.module.trim_matches(['[', ']'])),
        (Kind::Native, source, 0) => format!(" ({source})"),
        (Kind::Native, source, line) => format!(" ({source}:{line})"),
    };
    line.push_str(&place);
    if frame.inlined {
        line.push_str(" inlined");
    }
    line
}

/// For programs.
pub(super) fn json(dump: &Dump) -> Value {
    let threads = dump.threads.iter().map(|thread| {
        let Thread {
            task,
            stack,
            frames,
        } = thread;
        let call = stack.call.as_ref().map(|call| {
            json!({
                "name": call.name,
                "text": call.text,
                "waits_for": call.waits_for,
                "thread": call.owner,
            })
        });
        json!({
            "tid": task.tid,
            "namespace_tid": task.inner_tid,
            "name": task.name,
            "state": task.state.0.to_string(),
            "wchan": task.wchan,
            "call": call,
            "has_gil": stack.has_lock,
            "frames": frames.iter().map(frame).collect::<Vec<_>>(),
            "notes": stack.notes,
        })
    });
    json!({
        "pid": dump.pid,
        "command": seen(&dump.command),
        "problems": dump.problems,
        "threads": threads.collect::<Vec<_>>(),
        "notes": seen(&dump.notes),
    })
}

fn frame(frame: &Frame) -> Value {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "kind": frame.kind.word(),
        "function": frame.function,
        "module": some(&frame.module),
        "file": some(&frame.file),
        "line": (frame.line != 0).then_some(frame.line),
        "inlined": frame.inlined,
        "address": frame.address.map(|address| format!("{address:#x}")),
    })
}
