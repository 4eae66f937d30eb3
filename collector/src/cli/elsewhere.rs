//! What is called so elsewhere: commands and options of perf and other profilers that are not ours,
//! and what does the same here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands, and what does that here.
const COMMANDS: [(&[&str], &str); 9] = [
    (
        &["stat", "time"],
        "rsunwind record -v -- COMMAND says what a program used",
    ),
    (
        &["script"],
        "rsunwind export -f perf-script -o - prints each sample",
    ),
    (
        &["annotate"],
        "rsunwind report --annotate FUNCTION shows its lines",
    ),
    (
        &["list"],
        "rsunwind record -e takes perf's names of events, which perf list prints",
    ),
    (
        &["flamegraph", "flame"],
        "rsunwind export -o flame.svg, or record -o flame.svg -- COMMAND",
    ),
    (
        &["load", "open", "ui", "gui"],
        "rsunwind view shows a recording in a browser",
    ),
    (&["attach"], "rsunwind record -p PID"),
    (&["run", "exec", "start"], "rsunwind record -- COMMAND"),
    (
        &["archive", "buildid-list", "buildid-cache"],
        "names are stored in the recording when it ends",
    ),
];

/// A file where a command belongs.
const FILES: &str =
    "rsunwind record -- PROGRAM records a program, rsunwind report FILE shows a recording";

/// Options of a command, and what does that here.
const OPTIONS: [(&str, &[&str], &str); 12] = [
    (
        "report",
        &["-g", "-G", "--call-graph"],
        "--tree shows who calls whom; --callers and --callees of one function",
    ),
    (
        "report",
        &["--children", "--no-children"],
        "-s total sorts by what a function and its callees took, -s self by itself alone",
    ),
    (
        "report",
        &["-i", "--input"],
        "give the recording's name alone: rsunwind report FILE",
    ),
    (
        "report",
        &["--stdio", "--tui", "--gtk"],
        "--no-pager prints the table and ends",
    ),
    (
        "record",
        &["--freq", "--frequency", "-r"],
        "-F 99 takes 99 samples a second of CPU time",
    ),
    (
        "record",
        &["--subprocesses", "--native", "--gil-only"],
        "children and native functions are always recorded",
    ),
    (
        "record",
        &["--idle", "--cputime"],
        "--wall has waiting as well as computing, --off-cpu keeps the two apart",
    ),
    (
        "record",
        &["--dwarf", "--fp"],
        "whole stacks are always recorded; --unwind chooses how",
    ),
    (
        "record",
        &["-t", "--tid"],
        "-p records all threads of a process; report --thread shows one of them",
    ),
    (
        "record",
        &["-s", "--save-only", "--no-open"],
        "record only writes its file; rsunwind view shows it in a browser",
    ),
    (
        "dump",
        &["-p", "--pid"],
        "give the process alone: rsunwind dump PID",
    ),
    (
        "doctor",
        &["-p", "--pid"],
        "give the process alone: rsunwind doctor PID",
    ),
];

/// What perf sorts by, and how that is asked for here.
const SORTS: [(&[&str], &str); 5] = [
    (&["dso", "dso_from", "dso_to"], "--by module"),
    (
        &["sym", "symbol", "overhead"],
        "--by function, as it is without an option",
    ),
    (&["comm", "pid"], "--by process"),
    (&["tid"], "--by thread"),
    (&["srcline", "srcfile"], "--by line"),
];

/// A word for who knows another profiler's command line; `command` is the one that was given.
#[must_use]
pub fn hint(error: &clap::Error, command: &str) -> Option<&'static str> {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(said)) => Some(&**said),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let wanted = said(ContextKind::InvalidSubcommand)?;
            let is_file = wanted.contains('/') || wanted.ends_with(".rsu");
            named(&COMMANDS, wanted).or(is_file.then_some(FILES))
        }
        ErrorKind::UnknownArgument => {
            let wanted = said(ContextKind::InvalidArg)?;
            let mut options = OPTIONS.iter();
            let found = options.find(|(of, names, _)| *of == command && names.contains(&wanted));
            found.map(|(_, _, here)| *here)
        }
        ErrorKind::InvalidValue => {
            let argument = said(ContextKind::InvalidArg)?;
            let value = said(ContextKind::InvalidValue)?;
            let mut keys = value.split(',').filter(|_| argument.contains("--sort"));
            keys.find_map(|key| named(&SORTS, key))
        }
        _ => None,
    }
}

/// Takes away what clap proposes and does not fit: to hand an unknown option on as the name of a
/// program or file; and, where we know what was meant, another option that is spelled alike.
pub fn without_guesses(error: &mut clap::Error, is_known: bool) {
    error.remove(ContextKind::Suggested);
    if is_known {
        error.remove(ContextKind::SuggestedArg);
        // Built around that option.
        error.remove(ContextKind::Usage);
    }
}

fn named(words: &[(&[&str], &'static str)], wanted: &str) -> Option<&'static str> {
    let mut words = words.iter();
    let found = words.find(|(names, _)| names.contains(&wanted));
    found.map(|(_, here)| *here)
}

#[cfg(test)]
mod tests {
    use super::hint;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    fn of(line: &[&str]) -> Option<&'static str> {
        let words = ["rsunwind"].iter().chain(line);
        let error = Cli::try_parse_from(words).expect_err("it is not ours");
        hint(&error, line[0])
    }

    #[test]
    fn words_of_other_profilers_are_answered_with_ours() {
        for (line, part) in [
            (&["stat", "ls"][..], "record -v"),
            (&["annotate"], "report --annotate"),
            (&["report", "-g"], "--tree"),
            (&["report", "-i", "x"], "rsunwind report FILE"),
            (&["report", "--sort=dso"], "--by module"),
            (&["report", "--sort", "comm,dso"], "--by process"),
            (&["./prog"], "record -- PROGRAM"),
            (&["dump", "--pid", "1"], "rsunwind dump PID"),
            (&["record", "--frequency", "9", "--", "ls"], "-F"),
        ] {
            let said = of(line).unwrap_or_default();
            assert!(said.contains(part), "{line:?}: {said:?}");
        }
        assert_eq!(of(&["report", "--nonsense"]), None);
        assert_eq!(of(&["nonsense"]), None);
    }

    #[test]
    fn an_unknown_option_is_not_proposed_as_a_program() {
        let said = |line: &[&str], is_known| {
            let words = ["rsunwind"].iter().chain(line);
            let mut error = Cli::try_parse_from(words).expect_err("it is not ours");
            super::without_guesses(&mut error, is_known);
            error.to_string()
        };
        let unknown = said(&["record", "--rat", "9"], false);
        assert!(!unknown.contains("as a value"), "{unknown}");
        assert!(unknown.contains("'--rate'"), "{unknown}");
        let known = said(&["record", "--native", "ls"], true);
        assert!(!known.contains("--rate"), "{known}");
    }

    /// An option that exists is never answered so.
    #[test]
    fn none_of_them_is_ours() {
        let ours = Cli::command();
        for (names, _) in super::COMMANDS {
            for name in names {
                assert!(ours.find_subcommand(name).is_none(), "{name}");
            }
        }
        for (command, names, _) in super::OPTIONS {
            let command = ours.find_subcommand(command).expect("it is a command");
            for name in names {
                let long = name.strip_prefix("--");
                let is_it = |argument: &clap::Arg| match long {
                    Some(long) => {
                        let aliases = argument.get_all_aliases().unwrap_or_default();
                        argument.get_long() == Some(long) || aliases.contains(&long)
                    }
                    None => argument.get_short() == name.chars().nth(1),
                };
                assert!(!command.get_arguments().any(is_it), "{name}");
            }
        }
    }
}
