//! Reports of a recording made for the test.

use super::*;
use crate::profile::Mode;
use crate::profile::tests::example;

fn shown(profile: &Profile, args: &Args) -> String {
    text(profile, args, Look::default()).unwrap()
}

fn report(by: By, sort: Sort) -> String {
    let args = Args {
        by: Some(by.into()),
        sort,
        ..Args::default()
    };
    shown(&example(), &args)
}

#[test]
fn functions_by_self_time_with_recursion_counted_once() {
    assert_eq!(
        report(By::Function, Sort::Own),
        "prog --fast
7.00 ms of CPU time in 4 samples, 1 process and 2 threads

              SELF               TOTAL  MODULE       FUNCTION
  4.00 ms   57.1 %    4.00 ms   57.1 %  [anonymous]  leaf
  3.00 ms   42.9 %    5.00 ms   71.4 %  [anonymous]  work; more
        0    0.0 %    4.00 ms   57.1 %  [anonymous]  _start
        0    0.0 %    4.00 ms   57.1 %  [anonymous]  main
        0    0.0 %    3.00 ms   42.9 %  -            [truncated: no unwind information]
        0    0.0 %    1.00 ms   14.3 %  -            [5 frames elided]
"
    );
}

#[test]
fn samples_that_are_summed_count_and_threads_that_are_not_told_of_do_not() {
    let mut profile = example();
    profile.are_sums = true;
    for thread in &mut profile.recording.threads {
        (thread.tid, thread.name) = (0, String::new());
    }
    let text = shown(&profile, &Args::default());
    assert!(text.contains("in 7 samples of 1 process\n"), "{text}");
}

#[test]
fn other_orders_and_groups() {
    let names = |by, sort| {
        let text = report(by, sort);
        let rows = text.lines().skip(4).map(|row| row[40..].trim().to_owned());
        rows.collect::<Vec<_>>().join("|")
    };
    let total = names(By::Function, Sort::Total);
    assert!(total.starts_with("[anonymous]  work; more|"), "{total}");
    let name = names(By::Function, Sort::Name);
    assert!(
        name.starts_with("-            [5 frames elided]|"),
        "{name}"
    );
    let threads = report(By::Thread, Sort::Own);
    assert!(
        threads.contains("  4.00 ms   57.1 %  prog (10)    prog (10)\n"),
        "{threads}"
    );
    assert!(
        threads.contains("  3.00 ms   42.9 %  worker (11)  prog (10)\n"),
        "{threads}"
    );
    let processes = report(By::Process, Sort::Own);
    assert!(
        processes.contains("7.00 ms  100.0 %  prog (10)  prog --fast\n"),
        "{processes}"
    );
    let modules = report(By::Module, Sort::Own);
    assert!(
        modules.contains("7.00 ms  100.0 %    7.00 ms  100.0 %  [anonymous]"),
        "{modules}"
    );
}

#[test]
fn an_empty_selection_says_so() {
    let mut profile = example();
    profile.samples.clear();
    let args = Args::default();
    assert!(shown(&profile, &args).contains("No samples of the processes and threads"));
}

fn regex(text: &str) -> Option<Regex> {
    Some(Regex::new(text).unwrap())
}

#[test]
fn trees_go_down_from_the_root_and_both_ways_from_a_function() {
    let tree = |args: Args| {
        let text = shown(&example(), &args);
        let rows = text.lines().skip(4).map(|row| row[21..].to_owned());
        rows.collect::<Vec<_>>()
    };
    let whole = tree(Args {
        tree: true,
        ..Args::default()
    });
    assert_eq!(
        whole,
        [
            "       0    0.0 %  _start",
            "       0    0.0 %    main",
            "       0    0.0 %      work; more",
            " 2.00 ms   28.6 %        leaf",
            "       0    0.0 %      [5 frames elided]",
            " 1.00 ms   14.3 %        leaf",
            "       0    0.0 %      leaf",
            " 1.00 ms   14.3 %        leaf",
            "       0    0.0 %  [truncated: no unwind information]",
            " 3.00 ms   42.9 %    work; more",
        ]
    );
    let callees = tree(Args {
        callees: regex("^work"),
        ..Args::default()
    });
    assert_eq!(
        callees,
        [" 3.00 ms   42.9 %  work; more", " 2.00 ms   28.6 %  leaf"]
    );
    let text = shown(
        &example(),
        &Args {
            callers: regex("^leaf$"),
            ..Args::default()
        },
    );
    let rows: Vec<&str> = text.lines().skip(4).collect();
    assert_eq!(
        rows,
        [
            "  4.00 ms   57.1 %  leaf",
            "  2.00 ms   28.6 %    ← work; more",
            "  2.00 ms   28.6 %      ← main",
            "  2.00 ms   28.6 %      ← _start",
            "  1.00 ms   14.3 %    ← [5 frames elided]",
            "  1.00 ms   14.3 %      ← main",
            "  1.00 ms   14.3 %      ← _start",
            "  1.00 ms   14.3 %    ← leaf",
            "  1.00 ms   14.3 %      ← main",
            "  1.00 ms   14.3 %      ← _start",
        ],
        "a function that calls itself counts once"
    );
    let nobody = Args {
        callers: regex("nobody"),
        ..Args::default()
    };
    let error = text_of(&nobody).unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    assert_eq!(error.exit_status(), 2);
}

fn text_of(args: &Args) -> Result<String, Error> {
    text(&example(), args, Look::default())
}

#[test]
fn the_heaviest_of_a_tree_are_shown_with_those_that_called_them() {
    let text = shown(
        &example(),
        &Args {
            tree: true,
            limit: Some(4),
            ..Args::default()
        },
    );
    let names = ["_start", "main", "[truncated", "work; more", "… and"];
    assert_eq!(text.lines().skip(4).count(), names.len(), "{text}");
    for (line, name) in text.lines().skip(4).zip(names) {
        assert!(line.contains(name), "{text}");
    }
}

#[test]
fn sums_are_of_what_is_shown() {
    let mut profile = example();
    let selection = Selection {
        focus: regex("_start").into_iter().collect(),
        ..Selection::default()
    };
    selection.filter(&mut profile).unwrap();
    let text = shown(&profile, &Args::default());
    let heading =
        "4.00 ms of CPU time in 3 samples, 1 process and 1 thread: 57.1 % of the 7.00 ms recorded";
    assert_eq!(text.lines().nth(1), Some(heading));
    assert!(text.contains("  4.00 ms  100.0 %    4.00 ms  100.0 %  [anonymous]  leaf"));
}

/// The kernel's and a standard library's are nobody's own; and what nobody chose comes last,
/// whatever it took.
#[test]
fn by_own_functions_and_what_they_called() {
    let mut profile = example();
    for function in &mut profile.functions {
        match &*function.name {
            "leaf" => function.mode = Mode::Kernel,
            "work; more" => function.name = "std::work".into(),
            _ => {}
        }
    }
    let shown_by = |profile: &Profile| {
        let args = Args {
            by: Some(By::Own.into()),
            ..Args::default()
        };
        let text = shown(profile, &args);
        let rows = text.lines().skip(3).map(str::to_owned);
        rows.collect::<Vec<_>>()
    };
    let rows = shown_by(&profile);
    assert_eq!(
        rows,
        [
            "            AMOUNT  FUNCTION   CALLED",
            "  3.00 ms   42.9 %  std::work",
            "  2.00 ms   28.6 %  main       std::work ([anonymous])",
            "  1.00 ms   14.3 %  main       [5 frames elided]",
            "  1.00 ms   14.3 %  main       leaf ([kernel])",
        ]
    );
    let named = |name: &str| profile.functions.iter().position(|it| &*it.name == name);
    let leaf = named("leaf").expect("it is one of them");
    profile.functions[leaf].name = PREEMPTED.into();
    let rows = shown_by(&profile);
    assert_eq!(rows.last().unwrap(), "  4.00 ms   57.1 %  [preempted]");
    assert_eq!(rows.len(), 3, "{rows:?}");
}

#[test]
fn on_a_terminal_no_line_is_wider_than_it() {
    let mut profile = example();
    for function in &mut profile.functions {
        function.name = format!("{}::{}", &function.name, "very_long_".repeat(20)).into();
    }
    for (by, tree, width) in [
        (By::Function, false, 80),
        (By::Line, false, 100),
        (By::Process, false, 60),
        (By::Function, true, 80),
    ] {
        let args = Args {
            by: Some(by.into()),
            tree,
            ..Args::default()
        };
        let look = Look {
            width: Some(width),
            colour: true,
        };
        let text = text(&profile, &args, look).unwrap();
        assert!(text.contains("\u{1b}["), "{text}");
        let wide = |line: &&str| console::measure_text_width(line) > width;
        assert_eq!(text.lines().find(wide), None, "{by:?}");
    }
}

#[test]
fn other_programs_get_json_and_csv() {
    let machine = |by: By, format, tree| {
        let args = Args {
            by: Some(by.into()),
            format,
            tree,
            ..Args::default()
        };
        for_machines(&example(), &args).unwrap()
    };
    let csv = machine(By::Function, Format::Csv, false);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "self,self_share,total,total_share,function,module"
    );
    assert_eq!(
        lines[1],
        "4000000,0.571429,4000000,0.571429,leaf,[anonymous]"
    );
    let csv = machine(By::Function, Format::Csv, true);
    assert_eq!(
        csv.lines().nth(2),
        Some("1,0,0,4000000,0.571429,main,[anonymous]")
    );
    let json = |tree| -> serde_json::Value {
        serde_json::from_str(&machine(By::Thread, Format::Json, tree)).unwrap()
    };
    let table = json(false);
    assert_eq!(
        (&table["total"], &table["unit"]),
        (&7_000_000.into(), &"ns".into())
    );
    assert_eq!(table["rows"][0]["thread"], "prog (10)");
    let tree = json(true);
    let main = &tree["tree"][0]["children"][0];
    assert_eq!(
        (&main["function"], &main["total"]),
        (&"main".into(), &4_000_000.into())
    );
}

#[test]
fn lines_of_a_source_have_what_was_spent_in_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.c");
    std::fs::write(&path, "one\n\ttwo\u{1b}\nthree\n").unwrap();
    let mut profile = example();
    let leaf = profile
        .functions
        .iter()
        .position(|one| &*one.name == "leaf");
    let leaf = leaf.unwrap();
    for frame in &mut profile.frames {
        if frame.function.index() == leaf {
            (frame.file, frame.line) = (Some(path.to_str().unwrap().into()), 2);
        }
    }
    let args = Args {
        annotate: regex("^leaf$"),
        ..Args::default()
    };
    let text = shown(&profile, &args);
    let line = "  4.00 ms   57.1 %    4.00 ms   57.1 %       2      two\\u{1b}\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("       3  three\n"), "{text}");
}
