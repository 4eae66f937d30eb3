//! Every format, of one profile made for the test. That other programs read them is checked by
//! `tests/outputs/check`.

use super::*;
use crate::profile::tests::example;
use crate::profile::{Mode, Sample};
use engine::wire::source::{OFF_CPU, WALL};
use std::io::Read;

fn written(format: &str, options: &Options) -> Vec<u8> {
    let format = choose(Some(format), Path::new("-")).unwrap();
    let mut out = Vec::new();
    format.write(&example(), options, &mut out).unwrap();
    out
}

fn text(format: &str, roots: Roots) -> String {
    String::from_utf8(written(
        format,
        &Options {
            roots,
            ..Options::default()
        },
    ))
    .unwrap()
}

fn unzipped(format: &str) -> Vec<u8> {
    let bytes = written(format, &Options::default());
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_end(&mut out)
        .unwrap();
    out
}

#[test]
fn folded_stacks() {
    assert_eq!(
        text("folded", Roots::Auto),
        "[truncated: no unwind information];work: more 3
_start;main;[5 frames elided];leaf 1
_start;main;leaf;leaf 1
_start;main;work: more;leaf 2
"
    );
    let threads = text("folded", Roots::Thread);
    assert!(
        threads.contains("prog (10);worker (11);[truncated: no unwind information];work: more 3\n")
    );
    assert!(threads.contains("prog (10);prog (10);_start;main;leaf;leaf 1\n"));
    assert!(text("folded", Roots::Process).starts_with("prog (10);[truncated"));
}

#[test]
fn perf_script_text() {
    assert_eq!(
        text("perf-script", Roots::Auto),
        "prog 10/10 [000] 0.002000:    2000000 task-clock:u: 
\t            1310 leaf ([unknown])
\t            1251 work; more ([unknown])
\t            1151 main ([unknown])
\t            1051 _start ([unknown])

prog 10/10 [000] 0.003000:    1000000 task-clock:u: 
\t            1310 leaf ([unknown])
\t            1321 leaf ([unknown])
\t            1151 main ([unknown])
\t            1051 _start ([unknown])

prog 10/10 [000] 0.005000:    1000000 task-clock:u: 
\t            1310 leaf ([unknown])
\t               0 [5 frames elided] ([unknown])
\t            1151 main ([unknown])
\t            1051 _start ([unknown])

worker 10/11 [000] 0.004000:    3000000 task-clock:u: 
\t            1210 work; more ([unknown])
\t               0 [truncated: no unwind information] ([unknown])

"
    );
}

#[test]
fn a_flame_graph_has_every_function_with_its_weight() {
    let svg = text("svg", Roots::Auto);
    for title in [
        "<title>all (7 samples, 100%)</title>",
        "<title>_start (4 samples, 57.14%)</title>",
        "<title>leaf (2 samples, 28.57%)</title>",
        "<title>[truncated: no unwind information] (3 samples, 42.86%)</title>",
        "prog --fast",
        "7.00 ms of CPU time",
    ] {
        assert!(svg.contains(title), "{title} is not in\n{svg}");
    }
    assert_eq!(svg, text("svg", Roots::Auto), "the picture varies");
}

/// The colours of the page, by kind, and a legend of those that are there.
#[test]
fn a_flame_graph_has_a_colour_for_each_kind_and_a_legend() {
    let mut profile = example();
    let main = profile.functions.iter().position(|it| &*it.name == "main");
    profile.functions[main.unwrap()].mode = Mode::Kernel;
    let mut out = Vec::new();
    let format = choose(Some("svg"), Path::new("-")).unwrap();
    format
        .write(&profile, &Options::default(), &mut out)
        .unwrap();
    let svg = String::from_utf8(out).unwrap();
    let legend = svg.split_once(r#"<g id="legend">"#).unwrap().1;
    let legend = legend.split_once("</g>").unwrap().0;
    for (name, colour) in [("missing frames", "#c9c9c9"), ("kernel", "#ea8f88")] {
        assert!(legend.contains(&format!(">{name}</text>")), "{legend}");
        assert!(legend.contains(colour), "{legend}");
    }
    assert!(!legend.contains("waiting"), "{legend}");
    // One of three shades of the kernel's #ea8f88.
    let main = svg.split_once("<title>main (").unwrap().1;
    let shades = ["rgb(234,143,136)", "rgb(243,152,145)", "rgb(225,134,127)"];
    let fill = main.split_once("fill=\"").unwrap().1;
    assert!(shades.iter().any(|it| fill.starts_with(it)), "{fill}");
    let all = svg.split_once("<title>all (").unwrap().1;
    let fill = all.split_once("fill=\"").unwrap().1;
    assert!(fill.starts_with("rgb(227,227,227)"), "{fill}");
    assert!(svg.contains(r#"<svg id="frames" x="10" y="22""#), "{svg}");
    assert!(
        !svg.contains(|letter| u32::from(letter) >= 0xf_0000),
        "{svg}"
    );
    let mut reader = quick_xml::Reader::from_str(&svg);
    while reader.read_event().expect("it is well-formed") != quick_xml::events::Event::Eof {}
}

/// As it is without a shorter one, all on one line.
#[test]
fn frames_of_a_flame_graph_have_short_names_and_tooltips_whole_ones() {
    let mut profile = example();
    let main = profile
        .functions
        .iter_mut()
        .find(|function| &*function.name == "main");
    let main = main.unwrap();
    main.name = "int main<char const*>(A; B)".into();
    main.short = Some("main<…>".into());
    let written = |names| {
        let mut out = Vec::new();
        let options = Options {
            names,
            ..Options::default()
        };
        let format = choose(Some("svg"), Path::new("-")).unwrap();
        format.write(&profile, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let whole = "int main&lt;char const*&gt;(A: B)";
    let svg = written(Names::Short);
    assert!(
        svg.contains(&format!(
            "<title>main&lt;…&gt;\n{whole} (4 samples, 57.14%)</title>"
        )),
        "{svg}"
    );
    assert!(svg.contains(">main&lt;…&gt;</text>"), "{svg}");
    // What the script of the picture makes of a tooltip once it is zoomed.
    assert_eq!(
        svg.matches(r#"replace(/(\n[^]*|\([^(]*\))$/,"")"#).count(),
        2,
        "{svg}"
    );
    assert!(!svg.contains(r#"replace(/\([^(]*\)$/,"")"#), "{svg}");
    let svg = written(Names::Whole);
    assert!(
        svg.contains(&format!("<title>{whole} (4 samples, 57.14%)</title>")),
        "{svg}"
    );
    assert!(svg.contains(&format!(">{whole}</text>")), "{svg}");
}

#[test]
fn an_empty_profile_is_an_empty_file_of_its_format() {
    let mut profile = example();
    profile.samples.clear();
    for format in FORMATS {
        let mut out = Vec::new();
        format
            .write(&profile, &Options::default(), &mut out)
            .unwrap();
        let empty = matches!(format.name(), "folded" | "perf-script");
        assert_eq!(out.is_empty(), empty, "{}", format.name());
    }
}

/// What speedscope's schema asks for.
#[test]
fn the_speedscope_profile_has_a_profile_for_each_thread() {
    let json: serde_json::Value = serde_json::from_str(&text("speedscope", Roots::Auto)).unwrap();
    assert_eq!(
        json["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    let frames = json["shared"]["frames"].as_array().unwrap();
    assert!(frames.iter().all(|frame| frame["name"].is_string()));
    let called = |index: &serde_json::Value| {
        let index = usize::try_from(index.as_u64().unwrap()).unwrap();
        frames[index]["name"].as_str().unwrap()
    };
    let profiles = json["profiles"].as_array().unwrap();
    let names: Vec<_> = profiles
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["prog (10)", "worker (11) of prog (10)"]);
    let mut whole = 0;
    for profile in profiles {
        assert_eq!(
            (&profile["type"], &profile["unit"]),
            (&"sampled".into(), &"nanoseconds".into())
        );
        let samples = profile["samples"].as_array().unwrap();
        let weights = profile["weights"].as_array().unwrap();
        assert_eq!(samples.len(), weights.len());
        let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!(
            (&profile["startValue"], &profile["endValue"]),
            (&0.into(), &sum.into())
        );
        assert!(samples.iter().all(|stack| {
            stack
                .as_array()
                .unwrap()
                .iter()
                .all(|it| !called(it).is_empty())
        }));
        whole += sum;
    }
    assert_eq!(whole, example().whole());
    let first: Vec<_> = profiles[0]["samples"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(called)
        .collect();
    assert_eq!(first[0], "_start", "from the root: {first:?}");
}

#[test]
fn the_firefox_profile_has_times_weights_and_functions() {
    let json: serde_json::Value = serde_json::from_slice(&unzipped("firefox")).unwrap();
    let threads = json["threads"].as_array().unwrap();
    assert_eq!(json["meta"]["symbolicated"], true);
    assert_eq!(json["meta"]["interval"], 1.0);
    assert_eq!(json["meta"]["product"], "prog --fast");
    let named = |name: &str| {
        threads
            .iter()
            .find(|thread| thread["name"] == name)
            .unwrap()
    };
    let (main, worker) = (named("prog"), named("worker"));
    assert_eq!(main["isMainThread"], true);
    assert_eq!(main["samples"]["weight"], serde_json::json!([2, 1, 1]));
    assert_eq!(
        main["samples"]["threadCPUDelta"],
        serde_json::json!([2000, 1000, 1000])
    );
    assert_eq!(
        main["samples"]["timeDeltas"],
        serde_json::json!([1.0, 1.0, 2.0])
    );
    assert_eq!(worker["samples"]["weight"], serde_json::json!([3]));
    let index = |value: &serde_json::Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let mut stack = &main["samples"]["stack"][0];
    let mut names = Vec::new();
    while !stack.is_null() {
        let row = index(stack);
        let frame = index(&main["stackTable"]["frame"][row]);
        let func = index(&main["frameTable"]["func"][frame]);
        let name = index(&main["funcTable"]["name"][func]);
        names.push(main["stringArray"][name].as_str().unwrap());
        stack = &main["stackTable"]["prefix"][row];
    }
    assert_eq!(names, ["leaf", "work; more", "main", "_start"]);
}

/// What a format gives of time off the CPU and of wall-clock time is that, in a unit that it names.
#[test]
fn other_times_than_the_cpus_are_right_in_each_format_or_refused() {
    // It waited for longer than a number of 32 bits has microseconds.
    const WAITED: u64 = 3_000_000_500_000;
    let shown = |event: u32| {
        let mut profile = example();
        profile.aside.push(Sample {
            event: OFF_CPU,
            weight: WAITED,
            ..profile.samples[0]
        });
        profile.show(event);
        profile
    };
    let write = |profile: &Profile, format: &str| {
        let mut out = Vec::new();
        let format = choose(Some(format), Path::new("-")).unwrap();
        let written = format.write(profile, &Options::default(), &mut out);
        written.map(|()| out)
    };
    let plain = |bytes: &[u8]| {
        let mut out = Vec::new();
        let mut from = flate2::read::GzDecoder::new(bytes);
        from.read_to_end(&mut out).unwrap();
        out
    };
    for (event, name, whole) in [
        (OFF_CPU, "time off the CPU", WAITED),
        (WALL, "wall-clock time", WAITED + 7_000_000),
    ] {
        let profile = shown(event);
        let text = |format| String::from_utf8(write(&profile, format).unwrap()).unwrap();
        let lines = text("folded");
        let weights = lines.lines().map(|line| line.rsplit(' ').next().unwrap());
        let sum: u64 = weights.map(|it| it.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, whole, "{lines}");
        let svg = text("svg");
        assert!(svg.contains(&format!(" of {name}<")), "{svg}");
        assert!(svg.contains(">waiting</text>"), "{svg}");
        let json: serde_json::Value = serde_json::from_str(&text("speedscope")).unwrap();
        let profiles = json["profiles"].as_array().unwrap();
        let ends = profiles.iter().map(|it| it["endValue"].as_u64().unwrap());
        assert_eq!(ends.sum::<u64>(), whole);
        assert!(profiles.iter().all(|it| it["unit"] == "nanoseconds"));
        let json = plain(&write(&profile, "firefox").unwrap());
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let threads = json["threads"].as_array().unwrap();
        let weights = threads.iter().flat_map(|thread| {
            assert_eq!(thread["samples"]["weightType"], "tracing-ms");
            thread["samples"]["weight"].as_array().unwrap()
        });
        let sum: f64 = weights.map(|it| it.as_f64().unwrap()).sum();
        assert!((sum - whole as f64 / 1e6).abs() < 1e-6, "{sum} ms");
        let lines = text("perf-script");
        let event = profile.event_name(event);
        assert!(lines.contains(&format!("{WAITED} {event}: \n")), "{lines}");
        for format in ["perf-data", "perf-data-deferred"] {
            let refused = write(&profile, format).unwrap_err().to_string();
            assert!(refused.contains("of CPU time only"), "{refused}");
        }
        // All events are in it, each with its unit.
        let bytes = plain(&write(&profile, "pprof").unwrap());
        let has = |part: &str| bytes.windows(part.len()).any(|it| it == part.as_bytes());
        assert!(has("off-cpu") && has("nanoseconds"));
    }
}

#[test]
fn formats_are_chosen_by_name_or_extension() {
    let name = |format: Option<&str>, path: &str| choose(format, Path::new(path)).map(|f| f.name());
    assert_eq!(name(None, "a.svg").unwrap(), "svg");
    assert_eq!(name(None, "dir.svg/a.pb.gz").unwrap(), "pprof");
    assert_eq!(name(None, "a.json.gz").unwrap(), "firefox");
    assert_eq!(name(Some("folded"), "a.svg").unwrap(), "folded");
    assert_eq!(name(None, "a.speedscope.json").unwrap(), "speedscope");
    assert_eq!(name(Some("pb.gz"), "x").unwrap(), "pprof");
    for error in [
        name(None, "a.txt"),
        name(Some("nonsense"), "a.svg"),
        name(None, "svg"),
    ] {
        let error = error.unwrap_err().to_string();
        for format in FORMATS {
            assert!(error.contains(format.name()), "{error}");
        }
    }
}

/// The thread's period is another one, as where recordings of two rates are read as one.
fn of_two_rates() -> Profile {
    let mut profile = example();
    let worker = &mut profile.recording.threads[profile.samples[3].thread.index()];
    worker.armings[0].period_ns = 10_000_000;
    assert_eq!(profile.whole(), 34_000_000);
    profile
}

fn of(profile: &Profile, format: &str, roots: Roots) -> Vec<u8> {
    let options = Options {
        roots,
        ..Options::default()
    };
    let mut out = Vec::new();
    let format = choose(Some(format), Path::new("-")).unwrap();
    format.write(profile, &options, &mut out).unwrap();
    out
}

#[test]
fn samples_of_two_rates_weigh_what_they_stand_for() {
    let folded = String::from_utf8(of(&of_two_rates(), "folded", Roots::Auto)).unwrap();
    let cut = "[truncated: no unwind information];work: more 30\n";
    assert!(folded.starts_with(cut), "{folded}");
    assert!(folded.ends_with("_start;main;work: more;leaf 2\n"));
    let svg = String::from_utf8(of(&of_two_rates(), "svg", Roots::Auto)).unwrap();
    assert!(svg.contains("<title>_start (4 samples, 11.76%)</title>"));
    let zipped = of(&of_two_rates(), "firefox", Roots::Auto);
    let json = flate2::read::GzDecoder::new(&zipped[..]);
    let json: serde_json::Value = serde_json::from_reader(json).unwrap();
    let threads = json["threads"].as_array().unwrap().iter();
    let weights = threads.flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    let weights: u64 = weights.map(|weight| weight.as_u64().unwrap()).sum();
    assert_eq!((weights, &json["meta"]["interval"]), (34, &1.0.into()));
    // Not a multiple of it: the sum is right all the same.
    let mut odd = of_two_rates();
    let thread = odd.samples[3].thread.index();
    odd.recording.threads[thread].armings[0].period_ns = 1_400_000;
    odd.samples[3].weight = 1;
    odd.samples.extend([odd.samples[3]; 4]);
    let folded = String::from_utf8(of(&odd, "folded", Roots::Thread)).unwrap();
    let weights = folded.lines().map(|line| line.rsplit(' ').next().unwrap());
    let sum: u64 = weights.map(|weight| weight.parse::<u64>().unwrap()).sum();
    assert_eq!((sum, odd.whole()), (11, 11_000_000));
}

/// Threads that are each less than what is drawn.
#[test]
fn a_flame_graph_of_many_small_parts_has_them_all() {
    let mut profile = example();
    let one = profile.samples[0];
    profile.samples = vec![Sample { weight: 1, ..one }; 20_000];
    profile.samples[0].weight = 20_001;
    for index in 0..20_000u32 {
        let thread = crate::recording::Thread {
            process: crate::recording::ProcessId::next_of(index as usize),
            tid: index,
            key: 1,
            name: String::new(),
            armings: Vec::new(),
            end: None,
            totals: Default::default(),
            late_cpu_ns: 0,
        };
        let process = crate::recording::Process {
            pid: index,
            ..Default::default()
        };
        profile.recording.processes.push(process);
        profile.recording.threads.push(thread);
    }
    let (all, processes) = (
        profile.recording.threads.len() - 20_000,
        profile.recording.processes.len() - 20_000,
    );
    for (index, thread) in profile.recording.threads[all..].iter_mut().enumerate() {
        thread.process = crate::recording::ProcessId::next_of(processes + index);
    }
    for (index, sample) in profile.samples.iter_mut().enumerate() {
        sample.thread = ThreadId::next_of(all + index);
    }
    let svg = String::from_utf8(of(&profile, "svg", Roots::Auto)).unwrap();
    for title in [
        "<title>all (40,000 samples, 100%)</title>",
        "<title>_start (20,001 samples, 50.00%)</title>",
        "<title>[many, each too small to be shown] (19,999 samples, 50.00%)</title>",
    ] {
        assert!(svg.contains(title), "{title} is not in\n{svg}");
    }
}

#[test]
fn wall_clock_time_in_no_sample_is_the_same_in_all_formats() {
    let mut recording = example().recording;
    recording.session = Some(crate::recording::SessionInfo {
        pid: 10,
        charged_ns: 20_000_000,
        ..Default::default()
    });
    recording.sources.push(crate::recording::EventSource {
        event: WALL,
        name: "wall".to_owned(),
        period: 0,
        lost: 0,
        rest: 0,
    });
    let mut profile = Profile::new(recording, &Default::default());
    let mut wait = profile.samples[0];
    (wait.event, wait.weight) = (OFF_CPU, 9_000_000);
    profile.aside.push(wait);
    profile.show(WALL);
    assert_eq!(profile.whole(), 29_000_000);
    let folded = String::from_utf8(of(&profile, "folded", Roots::None)).unwrap();
    assert!(folded.contains("[end of the process] 13000000\n"));
    let speedscope = of(&profile, "speedscope", Roots::None);
    let json: serde_json::Value = serde_json::from_slice(&speedscope).unwrap();
    let profiles = json["profiles"].as_array().unwrap().iter();
    let sum: u64 = profiles.map(|it| it["endValue"].as_u64().unwrap()).sum();
    assert_eq!(sum, 29_000_000);
    assert_eq!(pprof::last_sum(&profile), 29_000_000);
}
