//! The modules of a recording are those that the loader knows, where it put them.

use rsunwind_tests::command::{Bench, output, text};
use rsunwind_tests::recording::{ModuleFacts, Recording};
use std::path::Path;

/// What findshlibs says of a shared object.
struct Library<'a> {
    bias: u64,
    start: u64,
    end: u64,
    path: &'a str,
}

fn libraries(printed: &str) -> Vec<Library<'_>> {
    let parse = |line| {
        let mut words = str::splitn(line, 4, ' ');
        let mut number = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let (bias, start, end) = (number(), number(), number());
        let path = words.next().unwrap();
        Library {
            bias,
            start,
            end,
            path,
        }
    };
    printed.lines().map(parse).collect()
}

#[test]
fn modules_are_those_that_the_loader_knows() {
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_libraries");
    let ended = output(bench.record(&["-F", "2000"]).arg(program));
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let printed = text(&ended.stdout);
    let libraries = libraries(&printed);
    let recording = Recording::read(&bench.path("profile.rsu"));
    let is_file = |module: &&ModuleFacts| module.path.starts_with('/');
    for module in recording.modules.iter().filter(is_file) {
        let library = libraries
            .iter()
            .find(|library| library.bias == module.bias)
            .unwrap_or_else(|| panic!("the loader has no {module:?}:\n{printed}"));
        let within = library.start <= module.start && module.start < library.end;
        assert!(within, "{module:?}:\n{printed}");
        // findshlibs has the program itself without a name, or as it was called.
        let name = |path| Path::new(path).file_name();
        let named = name(library.path);
        assert!(
            named.is_none() || named == name(&module.path),
            "{module:?}:\n{printed}"
        );
    }
    for wanted in ["libraries", "libc.so.6", "libm.so.6"] {
        let there = recording
            .modules
            .iter()
            .any(|module| module.path.ends_with(wanted));
        assert!(there, "no {wanted} in {:?}", recording.modules);
    }
}
