//! Calls for whose length our library holds SIGPROF back: what was sampled in them is shown below their caller if cursor, ip and sp say that it
//! was the call's own doing, and stands alone if not.
//!
//! Not here: how many samples of such calls are joined (`kernel_share`), and that programs do not notice (`host_interrupted`).

use collector::profile::Profile;
use collector::recording::{KernelHalf, RawSample, Recording};
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::victim;
use std::process::Command;

fn recorded(bench: &Bench, command: &mut Command) -> Recording {
    let result = output(command);
    let summary = text(&result.stderr);
    assert!(result.status.success(), "{summary}");
    bench.recording()
}

/// The file in which a sample's user code was.
fn place<'a>(recording: &'a Recording, sample: &RawSample) -> &'a str {
    let address = sample.entry_ip;
    let mut modules = recording.modules.iter();
    let module = modules.find(|module| (module.start.0..module.end.0).contains(&address));
    module.map_or("", |module| &module.path)
}

#[test]
fn another_library_in_front_of_libc_is_part_of_the_call() {
    let bench = Bench::new();
    let between = victim::shared("wrapped_poll.c");
    let mut command = bench.record(&["-F", "1000"]);
    command.env("LD_PRELOAD", &between);
    command
        .arg(victim::c("kernel_share.c"))
        .args(["poll", "1500"]);
    let recording = recorded(&bench, &mut command);
    let account = recording.kernel_account();
    let possible = account.recorded() - account.exit - account.profiler;
    let apart = possible - account.joined();
    assert!(apart.saturating_sub(1) * 1000 <= possible, "{account}");
    let shielded = recording
        .samples
        .iter()
        .filter(|s| s.kernel == KernelHalf::Shielded);
    let (mut of_libc, mut of_other) = (0, 0);
    for sample in shielded {
        let path = place(&recording, sample);
        of_libc += u64::from(path.contains("/libc.so"));
        of_other += u64::from(path == between.to_str().unwrap_or_default());
    }
    assert_eq!(
        of_libc + of_other,
        account.shielded,
        "in no other file: {account}"
    );
    assert!(
        of_libc > 10 && of_other > 10,
        "{of_libc} and {of_other}: {account}"
    );
}

#[test]
fn calls_of_musl_are_joined_too() {
    // Its file is found by looking for what is called: walks have other addresses to look for first, and may do so in vain.
    let linux = [
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
    ];
    let program = victim::compile(victim::Compiler::MuslC, "kernel_share.c", &linux);
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "1000"]);
    let recording = recorded(&bench, command.arg(program).args(["poll", "1500"]));
    let account = recording.kernel_account();
    let possible = account.recorded() - account.exit - account.profiler;
    let apart = possible - account.joined();
    assert!(account.shielded > 50, "{account}");
    assert!(apart.saturating_sub(1) * 1000 <= possible, "{account}");
}

#[test]
fn what_a_handler_of_the_program_does_meanwhile_is_not_the_calls_doing() {
    let bench = Bench::new();
    let mut command = bench.record(&["-F", "1000"]);
    command.arg(victim::c("interrupted_wait.c")).arg("2000");
    let profile = Profile::new(recorded(&bench, &mut command), &Default::default());
    // The handler reads all the time; poll() enters the kernel and sleeps.
    let account = profile.recording.kernel_account();
    assert!(account.merged + account.reused > 200, "{account}");
    assert!(
        (account.shielded + account.late) * 20 < account.merged,
        "{account}"
    );
    let mut in_handler = 0;
    for sample in &profile.samples {
        let frames = profile.walk(sample.stack);
        let names: Vec<_> = frames.map(|frame| &*profile.function(frame).name).collect();
        if names.contains(&"tick") {
            assert!(sample.complete, "{names:?}");
            in_handler += sample.weight;
        }
    }
    let all: u64 = profile.samples.iter().map(|sample| sample.weight).sum();
    assert!(in_handler * 100 > all * 90, "{in_handler} of {all}");
}
