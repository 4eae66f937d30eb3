//! `RSUNWIND_PLUGINS`: a plug-in adds the frames of a toy interpreter that knows nothing of it; one
//! that cannot be trusted or used is left out, and the program runs on.

use collector::profile::{Profile, Show};
use collector::symbolize::Places;
use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::language::{assert_stacks, stacks};
use rsunwind_tests::paranoid::NOBODY;
use rsunwind_tests::run::Run;
use rsunwind_tests::statistics::judge;
use rsunwind_tests::victim::{self, Compiler};
use rsunwind_tests::{assert_measured, library, repository};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The interpreter's program.
fn toy(arguments: &[&str]) -> PathBuf {
    victim::compile(Compiler::C, "toy.c", arguments)
}

/// The toy's plug-in, compiled with another argument.
fn plugin(argument: &str) -> (TempDir, PathBuf) {
    plugin_of("toy_plugin.c", argument)
}

/// A plug-in in a directory that is ours alone.
fn plugin_of(source: &str, argument: &str) -> (TempDir, PathBuf) {
    let include = repository().join("librsunwind/include");
    let include = format!("-I{}", include.display());
    let compiled = victim::compile(
        Compiler::C,
        source,
        &["-shared", "-fPIC", &include, argument],
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugin.so");
    fs::copy(compiled, &path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    (directory, path)
}

const GOOD: &str = "-DGOOD";

const WHOLE: [&str; 4] = [
    "main",
    "toy outer a.toy:10",
    "between",
    "toy inner b.toy:33",
];

/// Records the program with plug-ins; gives what it said on standard error before the summary, and
/// the profile.
fn record(command: &[&str], plugins: &str) -> (String, Profile) {
    let bench = Bench::new();
    let mut record = bench.record(&["-F", "2000"]);
    let result = output(record.args(command).env("RSUNWIND_PLUGINS", plugins));
    assert_eq!(text(&result.stdout), "done\n");
    let profile = Profile::with(bench.recording(), &Places::default(), Show::default());
    let said = text(&result.stderr);
    let lines = said.lines().filter(|line| line.contains("plug-in"));
    (lines.map(|line| format!("{line}\n")).collect(), profile)
}

#[test]
fn a_plug_in_gives_the_frames_of_a_program_that_knows_nothing_of_it() {
    let (_directory, plugin) = plugin(GOOD);
    let toy = toy(&["-rdynamic"]);
    // With a fresh environment, too; env has no use for it, and says nothing.
    let toy = toy.to_str().unwrap();
    for command in [&[toy][..], &["env", "-i", toy]] {
        let (said, profile) = record(command, plugin.to_str().unwrap());
        assert_eq!(said, "");
        assert_stacks(&profile, &WHOLE);
    }
}

/// The stacks of `stacks.lua` at work: frames of Lua's, and a native one that must be between them.
const LUA: [&[&str]; 3] = [
    &["main chunk :31", "of_all :14", "middle :9", "leaf"],
    &[
        "main chunk :32",
        "sorted :26",
        "lua_callk",
        "function :20",
        "leaf",
    ],
    &[
        "main chunk :33",
        "lua_resume",
        "function :34",
        "middle :9",
        "leaf",
    ],
];

/// Debian's interpreter as it is, stripped, with the plug-in of the examples. Where the
/// interpreter's loop is just being entered or left, a frame may be missing, which is seldom.
#[test]
fn lua_functions_are_shown_in_their_place() {
    let (_directory, plugin) = plugin_of("../../examples/plugins/lua.c", GOOD);
    let program = repository().join("tests/victims/stacks.lua");
    let program = program.to_str().unwrap();
    judge(|| {
        let (said, profile) = record(&["lua5.4", program], plugin.to_str().unwrap());
        assert_eq!(said, "");
        let of_lua = format!(" {program}:");
        let mut kinds = [0; LUA.len()];
        let mut others = Vec::new();
        for (names, weight) in stacks(&profile) {
            let names: Vec<_> = names
                .iter()
                .filter_map(|name| match name.strip_prefix("lua ") {
                    Some(frame) if frame.starts_with("leaf ") => Some("leaf".to_owned()),
                    Some(frame) => Some(frame.replace(&of_lua, " :")),
                    None => ["lua_resume", "lua_callk"]
                        .contains(&name.as_str())
                        .then(|| name.clone()),
                })
                .collect();
            if names.last().is_none_or(|last| last != "leaf") {
                continue;
            }
            match LUA.iter().position(|kind| names == *kind) {
                Some(kind) => kinds[kind] += weight,
                None => others.push((names, weight)),
            }
        }
        let off: u64 = others.iter().map(|(_, weight)| weight).sum();
        let all = kinds.iter().sum::<u64>() + off;
        assert!(
            kinds.iter().all(|weight| *weight > 10),
            "{kinds:?} {others:?}"
        );
        assert_measured!(off * 20 < all, "{off} of {all}: {others:?}");
    });
}

/// What is said of a list of plug-ins in a program that is not recorded.
#[track_caller]
fn assert_said(plugins: &str, wanted: &[&str]) {
    let run = Run::plain(toy(&["-rdynamic"]))
        .env("LD_PRELOAD", library::path())
        .env("RSUNWIND_PLUGINS", plugins);
    let outcome = run.outcome();
    assert!(outcome.status.success());
    assert_eq!(outcome.text(), "done\n");
    let said = outcome.errors();
    assert_eq!(said.lines().count(), wanted.len(), "{said}");
    for (line, wanted) in said.lines().zip(wanted) {
        assert!(
            line.starts_with("rsunwind: plug-in ") && line.contains(wanted),
            "{line}: {wanted}"
        );
    }
}

#[test]
fn one_that_cannot_be_used_is_left_out_with_a_line() {
    let (_first, good) = plugin(GOOD);
    let (_second, version) = plugin("-DVERSION=999");
    let (_third, fails) = plugin("-DFAILS");
    let no_library = good.with_file_name("text.so");
    fs::write(&no_library, "text").unwrap();
    let list = [
        "relative.so",
        "/nowhere/at/all.so",
        no_library.to_str().unwrap(),
        version.to_str().unwrap(),
        fails.to_str().unwrap(),
    ];
    let wanted = [
        "not an absolute path",
        "no such file",
        "file too short",
        "version 999",
        "16 languages",
    ];
    assert_said(&list.join(":"), &wanted);
    // The others are loaded all the same.
    let list = format!(":/nowhere:{}:", good.display());
    let (said, profile) = record(&[toy(&["-rdynamic"]).to_str().unwrap()], &list);
    assert_eq!(
        said,
        "rsunwind: plug-in /nowhere left out: no such file; see RSUNWIND_PLUGINS\n"
    );
    assert_stacks(&profile, &WHOLE);
}

/// As root, who alone can give files away.
#[test]
fn one_that_others_could_have_put_there_is_left_out() {
    let why = "belongs to another user, or others may write to it";
    let assert_untrusted = |plugin: &Path, part: &Path| {
        assert_said(
            plugin.to_str().unwrap(),
            &[&format!("{} {why}", part.display())],
        );
    };
    let (directory, plugin) = plugin(GOOD);
    assert_said(plugin.to_str().unwrap(), &[]);
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(&plugin, 0o775);
    assert_untrusted(&plugin, &plugin);
    mode(&plugin, 0o757);
    assert_untrusted(&plugin, &plugin);
    mode(&plugin, 0o755);
    mode(directory.path(), 0o777);
    assert_untrusted(&plugin, directory.path());
    mode(directory.path(), 0o1777);
    assert_said(plugin.to_str().unwrap(), &[]);
    mode(directory.path(), 0o755);
    chown(&plugin, Some(NOBODY), None).unwrap();
    assert_untrusted(&plugin, &plugin);
    chown(&plugin, Some(0), None).unwrap();
    chown(directory.path(), Some(NOBODY), None).unwrap();
    assert_untrusted(&plugin, directory.path());
}

/// The loader drops what is preloaded to such a program; one that is linked with the library has it
/// all the same.
#[test]
fn a_program_with_rights_of_its_own_loads_none() {
    let library = library::path();
    let rpath = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
    let toy = toy(&["-Wl,--no-as-needed", library.to_str().unwrap(), &rpath]);
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("toy");
    fs::copy(toy, &own).unwrap();
    let run = || {
        Run::plain(&own)
            .env("RSUNWIND_PLUGINS", "/nowhere")
            .outcome()
    };
    let outcome = run();
    assert_eq!(outcome.text(), "done\n");
    assert!(outcome.errors().contains("/nowhere left out"));
    chown(&own, None, Some(NOBODY)).unwrap();
    fs::set_permissions(&own, PermissionsExt::from_mode(0o2755)).unwrap();
    assert_eq!(run().quiet().text(), "done, with rights of its own\n");
}
