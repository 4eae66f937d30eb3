//! The names of functions of real binaries, with and without debug information.

use super::*;
use object::{Object, ObjectSection};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lambdas and functions of an anonymous namespace have no linkage name in gcc's debug information.
const SOURCE: &str = r#"
#include <cstring>
#include <string>
#include <vector>
static volatile int sink;
namespace {
struct Counter {
  template <class T> __attribute__((noinline)) int count(const std::vector<T> &all) const { return sink + all.size(); }
};
__attribute__((noinline)) int hidden(const std::string &text) { sink = text.size(); return sink; }
inline __attribute__((always_inline)) int inlined(int x) { sink = x; sink = x / 3; return sink; }
}
namespace outer { namespace inner {
struct Map {
  template <class F> __attribute__((noinline)) int each(F f) const { sink = 1; return f(sink) + f(2); }
  static inline __attribute__((always_inline)) int own(int x) { sink = x * 5; return sink; }
};
} }
extern "C" __attribute__((noinline)) int i(int x) { sink = x; return sink + 1; }
extern "C" __attribute__((noinline)) int St(int x) { sink = x; return sink + 2; }
int main(int argc, char **argv) {
  auto l = [&](int x) __attribute__((noinline)) { sink = x + argc; return sink; };
  auto a = [&](int x) __attribute__((always_inline)) { sink = x - argc; sink = sink / 7; return sink; };
  std::vector<std::string> all(argc, argv[0]);
  return l(3) + a(4) + outer::inner::Map().each(l) + outer::inner::Map::own(argc) + Counter().count(all) + hidden(argv[0]) + inlined(argc)
    + i(argc) + St(argc) + memcmp(argv[0], argv[argc - 1], argc) + strspn(argv[0], argv[argc - 1]);
}
"#;

struct Built {
    _directory: tempfile::TempDir,
    program: PathBuf,
}

fn build(options: &[&str]) -> Built {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("names.cc"),
        directory.path().join("names"),
    );
    std::fs::write(&source, SOURCE).unwrap();
    let mut compiler = Command::new("g++");
    compiler
        .args(["-O1", "-fno-builtin", "-o"])
        .args([&program, &source])
        .args(options);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
    Built {
        _directory: directory,
        program,
    }
}

/// Every function that is in one of those sections, whole.
fn functions(program: &Path, sections: &[&str]) -> Vec<Vec<Named>> {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let sections = sections.iter().filter_map(|name| elf.section_by_name(name));
    let addresses =
        sections.flat_map(|section| section.address()..section.address() + section.size());
    let batch = Batch {
        image: ImageId::new(0),
        addresses: addresses.collect(),
        slots: Vec::new(),
    };
    let image = Image {
        path: program.to_str().unwrap().to_owned(),
        build_id: elf.build_id().unwrap().unwrap_or_default().to_vec(),
    };
    let places = Places::default();
    let symbolizer = elf::symbolizer(&places.debug_directories);
    name_batch(&symbolizer, &image, &batch, None, &places)
        .unwrap()
        .0
}

fn names<'a>(found: impl Iterator<Item = &'a Named>) -> BTreeSet<String> {
    found.map(|named| named.function.to_string()).collect()
}

fn outermost(found: &[Vec<Named>]) -> BTreeSet<String> {
    names(found.iter().filter_map(|functions| functions.last()))
}

#[track_caller]
fn assert_has(names: &BTreeSet<String>, wanted: &str) {
    assert!(names.contains(wanted), "{wanted} is not in {names:#?}");
}

/// That of `main`. Compilers differ in what they call its type.
#[track_caller]
fn assert_has_lambda(names: &BTreeSet<String>) {
    let is_it =
        |name: &String| name.starts_with("main::{lambda") && name.ends_with("}::operator()");
    assert!(
        names.iter().any(is_it) && !names.contains("operator()"),
        "{names:#?}"
    );
}

#[test]
fn debug_information_makes_no_name_shorter() {
    let plain = outermost(&functions(&build(&[]).program, &[".text"]));
    for wanted in [
        "main",
        "i",
        "St",
        "main::{lambda(int)#1}::operator()(int) const",
        "(anonymous namespace)::hidden(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)",
        "int outer::inner::Map::each<main::{lambda(int)#1}>(main::{lambda(int)#1}) const",
    ] {
        assert_has(&plain, wanted);
    }
    for options in [["-g"].as_slice(), &["-g1"], &["-gdwarf-4"], &["-g", "-gz"]] {
        let debug = outermost(&functions(&build(options).program, &[".text"]));
        let lost: Vec<_> = plain.difference(&debug).collect();
        assert!(lost.is_empty(), "{options:?}: {lost:#?}");
    }
}

#[test]
fn inlined_functions_have_the_scope_of_their_declaration() {
    for options in [["-g"].as_slice(), &["-gdwarf-4"], &["-g", "-gz"]] {
        let found = functions(&build(options).program, &[".text"]);
        let inlined = names(found.iter().flatten().filter(|named| named.inlined));
        for wanted in [
            "(anonymous namespace)::inlined",
            "outer::inner::Map::own(int)",
        ] {
            assert_has(&inlined, wanted);
        }
        assert_has_lambda(&inlined);
    }
}

#[test]
fn without_the_symbol_table_debug_information_has_the_scopes() {
    let built = build(&["-g"]);
    // The table is there, and empty.
    let strip = Command::new("objcopy")
        .args(["--strip-symbol=*", "-w", "--keep-section=.debug*"])
        .arg(&built.program)
        .status();
    assert!(strip.unwrap().success());
    let outer = outermost(&functions(&built.program, &[".text"]));
    assert_has(&outer, "(anonymous namespace)::hidden");
    assert_has_lambda(&outer);
}

/// Of each kind of stub that linkers make.
#[test]
fn stubs_are_called_by_what_they_lead_to() {
    for options in [
        ["-fcf-protection=full"].as_slice(),
        &["-fcf-protection=none", "-Wl,-z,lazy"],
        &["-fcf-protection=none", "-Wl,-z,now", "-no-pie"],
    ] {
        let built = build(options);
        let strip = Command::new("strip").arg(&built.program).status();
        assert!(strip.unwrap().success());
        let found = functions(&built.program, &[".plt", ".plt.sec", ".plt.got"]);
        let stubs = outermost(&found);
        assert_has(&stubs, "memcmp@plt");
        assert_has(
            &stubs,
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)@plt",
        );
        let others = stubs
            .iter()
            .filter(|name| !name.ends_with("@plt") && *name != ".plt");
        assert_eq!(others.count(), 0, "{stubs:#?}");
        let start = |wanted: &str| {
            found
                .iter()
                .flatten()
                .find(|named| &*named.function == wanted)
                .and_then(|named| named.start)
        };
        assert!(start("memcmp@plt").is_some_and(|at| at % 8 == 0));
    }
}

#[test]
fn short_names_are_there_beside_whole_ones() {
    let found = functions(&build(&["-g"]).program, &[".text"]);
    let short: BTreeSet<_> = found
        .iter()
        .flatten()
        .filter_map(|named| named.short.as_deref())
        .collect();
    for wanted in [
        "outer::inner::Map::each<…>",
        "(anonymous namespace)::hidden",
        "main::{lambda#1}::operator()",
    ] {
        assert!(short.contains(wanted), "{wanted} is not in {short:#?}");
    }
}
