//! Recordings of every version of the format are read: `tests/recordings/version-N.rsu`, made of
//! `program.c` there, each by the `rsunwind` that wrote version N.

use collector::correlate;
use collector::recording::{RawFrame, RawSample, Recording};
use engine::wire::file::VERSION;
use engine::wire::sample::StopReason;
use rsunwind_tests::repository;
use std::fs;
use std::path::PathBuf;

fn file(version: u32) -> PathBuf {
    repository().join(format!("tests/recordings/version-{version}.rsu"))
}

/// Names of the files that a stack's code is in, from the leaf on.
fn modules(recording: &Recording, sample: &RawSample) -> Vec<String> {
    let module = |frame: &RawFrame| match frame {
        RawFrame::Code { module, .. } => {
            let module = &recording.modules[(*module)?.index()];
            Some(module.path.rsplit('/').next()?.to_owned())
        }
        _ => None,
    };
    let frames = recording.walk(sample.stack);
    frames.filter_map(|frame| module(&frame)).collect()
}

#[test]
fn recordings_of_every_version_are_read() {
    for version in 1..=VERSION {
        let path = file(version);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[8..12], version.to_le_bytes(), "{}", path.display());
        let recording = correlate::read(&[path]).unwrap();
        // 300 ms of CPU time in each of two threads, 199 times a second.
        assert_eq!(recording.threads.len(), 2, "version {version}");
        let weight: u64 = recording.samples.iter().map(|sample| sample.weight).sum();
        assert!((118..=121).contains(&weight), "version {version}: {weight}");
        assert_eq!(recording.kernel_account().lost, 0, "version {version}");
        // One computes: _start, two functions of libc's, main, work, compute.
        let whole = |sample: &&RawSample| {
            sample.stop == StopReason::Root
                && modules(&recording, sample)
                    == [
                        "program",
                        "program",
                        "program",
                        "libc.so.6",
                        "libc.so.6",
                        "program",
                    ]
        };
        let computed: u64 = recording
            .samples
            .iter()
            .filter(whole)
            .map(|s| s.weight)
            .sum();
        assert!(computed >= 55, "version {version}: {computed}");
        // The other one is in the kernel, most of the time.
        let samples = recording.samples.iter();
        let in_kernel: u64 = samples
            .filter(|sample| {
                let mut frames = recording.walk(sample.stack);
                frames.any(|frame| matches!(frame, RawFrame::Kernel(_)))
            })
            .map(|sample| sample.weight)
            .sum();
        assert!(
            (45..=65).contains(&in_kernel),
            "version {version}: {in_kernel}"
        );
    }
}
