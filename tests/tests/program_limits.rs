//! Programs with limits on their memory and their stack start as they do without us, at worst
//! unprofiled.

use rsunwind_tests::library;
use rsunwind_tests::run::Run;
use rsunwind_tests::victim;
use std::path::Path;

#[test]
fn programs_that_may_have_little_memory_run() {
    for limit in ["-d 500", "-d 2000", "-v 4000", "-v 6000"] {
        let script = format!("ulimit {limit} && exec sh -c 'echo ok'");
        let plain = Run::plain("sh").args(["-c", &script]).outcome();
        assert_eq!(plain.text(), "ok\n", "{limit}");
        let recorded = Run::profiled("", "sh").args(["-c", &script]).outcome();
        assert_eq!(recorded.text(), "ok\n", "{limit}: {}", recorded.errors());
        let said = recorded.errors();
        let is_said = said.starts_with("rsunwind: not profiled: no memory: ");
        assert!(
            said.is_empty() || is_said && said.lines().count() == 1,
            "{said}"
        );
    }
}

/// How many bytes of environment a shell with a main stack of 16 KB can have, with a library in
/// front of it; `None` if the system does not let its stack be at the same place in each run.
fn most_environment(library: &Path) -> Option<usize> {
    let starts = |bytes: usize| {
        let directory = tempfile::tempdir().unwrap();
        let run = Run::plain("/usr/bin/setarch")
            .args(["-R", "/bin/sh", "-c"])
            .arg("ulimit -s 16 && LD_PRELOAD=$LIBRARY exec /bin/sh -c 'echo ok'")
            .env("LIBRARY", library)
            .env(
                "RSUNWIND",
                format!("rate=1,output={}/%p.rsu", directory.path().display()),
            )
            .env("FILLER", "x".repeat(bytes))
            .with(|command| {
                let kept = ["LIBRARY", "RSUNWIND", "FILLER"];
                let given: Vec<_> = command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                    .filter(|(name, _)| kept.iter().any(|kept| name == kept))
                    .collect();
                command.env_clear().envs(given);
            });
        run.outcome().text() == "ok\n"
    };
    if !starts(0) {
        return None;
    }
    let (mut least, mut most) = (0, 16 << 10);
    while most - least > 64 {
        let middle = usize::midpoint(least, most);
        match starts(middle) {
            true => least = middle,
            false => most = middle,
        }
    }
    Some(least)
}

#[test]
fn a_start_takes_no_more_of_a_small_main_stack_than_the_loader() {
    let nothing = most_environment(&victim::shared("nothing.c"));
    let ours = most_environment(library::path());
    let (Some(nothing), Some(ours)) = (nothing, ours) else {
        assert!(
            nothing.is_none(),
            "it does not start at all with our library"
        );
        eprintln!("LEFT OUT: no fixed addresses, or plain shells do not start either");
        return;
    };
    // The names of the libraries are of different length.
    assert!(ours + 384 >= nothing, "{ours} bytes are left, of {nothing}");
}
