//! Names as they stand in the source. Only those are translated that say by their beginning that a
//! compiler made them: `i` is also how the C++ scheme writes `int`, and a function of C may well be
//! called that.
//!
//! Not here: the short form of a name ([`super::short`]).

use cpp_demangle::{DemangleOptions, ParseOptions};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Names nest types within types; deeper ones than this are left as they are.
const DEEPEST: u32 = 512;
/// Names refer to their own parts, so that some hundred characters may stand for a name of any
/// length: longer ones are left as they are, bytes.
const LONGEST: usize = 64 << 10;

/// The name of a symbol, demangled if it is mangled.
pub(super) fn name(symbol: &str) -> Arc<str> {
    let known = whole(symbol).map(Arc::from);
    known.unwrap_or_else(|| match symbol.get(..symbol.floor_char_boundary(LONGEST)) {
        Some(start) if start.len() < symbol.len() => Arc::from(format!("{start}…")),
        _ => Arc::from(symbol),
    })
}

/// Whether a symbol says that a compiler made it from a name of another form.
pub(super) fn is_mangled(symbol: &str) -> bool {
    let starts = ["_Z", "__Z", "___Z", "____Z", "_R", "__R", "_GLOBAL_"];
    starts.iter().any(|start| symbol.starts_with(start))
}

fn whole(symbol: &str) -> Option<String> {
    if !is_mangled(symbol) {
        return None;
    }
    if is_rust(symbol)
        && let Ok(rust) = rustc_demangle::try_demangle(symbol)
    {
        let mut name = Room::default();
        write!(name, "{rust:#}").ok()?;
        return Some(name.0);
    }
    cpp(symbol).or_else(|| {
        let (readable, members) = without_dependent_members(symbol)?;
        let name = cpp(&readable)?;
        with_members(&name, &members)
    })
}

/// Rust's older scheme is that of C++ for names without parameters, whose last part is a hash.
fn is_rust(symbol: &str) -> bool {
    let Some(behind) = symbol.find("_ZN").map(|at| &symbol[at..]) else {
        return true;
    };
    let is_hash = |(at, _): (usize, &str)| {
        let hash = behind.as_bytes().get(at + 3..at + 19);
        hash.is_some_and(|hash| hash.iter().all(u8::is_ascii_hexdigit))
    };
    behind.match_indices("17h").any(is_hash)
}

fn cpp(symbol: &str) -> Option<String> {
    let options = ParseOptions::default().recursion_limit(DEEPEST);
    let parsed = cpp_demangle::Symbol::new_with_options(symbol, &options);
    let mut name = Room::default();
    let options = DemangleOptions::default();
    parsed.ok()?.structured_demangle(&mut name, &options).ok()?;
    Some(name.0)
}

/// A text that becomes no longer than [`LONGEST`].
#[derive(Default)]
struct Room(String);

impl fmt::Write for Room {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// How the C++ scheme writes a member of a type that is known only with the template's arguments,
/// as gcc does for one of `std`.
const MEMBER_OF_STD: &str = "srSt";
/// The same of the type alone: `alignof (type)`. The demangler reads this, and not the other.
const ALIGN_OF: (&str, &str) = ("atSt", "alignof (");

/// A symbol with such types in place of their members, and these.
fn without_dependent_members(symbol: &str) -> Option<(String, Vec<&str>)> {
    let (mut readable, mut members) = (String::with_capacity(symbol.len()), Vec::new());
    let mut rest = symbol;
    while let Some(at) = rest.find(MEMBER_OF_STD) {
        readable.push_str(&rest[..at]);
        readable.push_str(ALIGN_OF.0);
        rest = &rest[at + MEMBER_OF_STD.len()..];
        let (name, _) = source_name(rest)?;
        let arguments = behind_arguments(&rest[name..])?;
        let (member, text) = source_name(&rest[name + arguments..])?;
        members.push(text);
        // What is within the arguments may be another of them.
        let (inner, outer) = rest.split_at(name + arguments);
        match without_dependent_members(inner) {
            Some((inner, within)) => {
                readable.push_str(&inner);
                members.extend(within);
            }
            None => readable.push_str(inner),
        }
        rest = &outer[member..];
    }
    readable.push_str(rest);
    (!members.is_empty()).then_some((readable, members))
}

/// Puts the members back, in the order of their types.
fn with_members(name: &str, members: &[&str]) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(name.len()), name);
    let mut open = Vec::new();
    let mut members = members.iter();
    while let Some(next) = rest.find(['(', ')']) {
        let opens = rest.as_bytes()[next] == b'(';
        let before = &rest[..=next];
        if opens && before.ends_with(ALIGN_OF.1) {
            out.push_str(&before[..before.len() - ALIGN_OF.1.len()]);
            open.push(Some(*members.next()?));
        } else if opens {
            out.push_str(before);
            open.push(None);
        } else if let Some(Some(member)) = open.pop() {
            out.push_str(&rest[..next]);
            out.push_str("::");
            out.push_str(member);
        } else {
            out.push_str(before);
        }
        rest = &rest[next + 1..];
    }
    out.push_str(rest);
    Some(out)
}

/// The length of a name with its own length before it, and the name.
fn source_name(text: &str) -> Option<(usize, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text[..digits].parse().ok()?;
    let end = digits.checked_add(length)?;
    Some((end, text.get(digits..end)?))
}

/// Where template arguments end with which a text begins; 0 if it does not.
fn behind_arguments(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'I') {
        return Some(0);
    }
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        let here = *bytes.get(at)?;
        let until = |end: u8| Some(bytes[at..].iter().position(|byte| *byte == end)? + 1);
        at += match here {
            b'0'..=b'9' => source_name(&text[at..])?.0,
            // A literal of a builtin type: its digits are no length.
            b'L' if bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase) => until(b'E')?,
            b'S' if bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase) => 2,
            b'S' | b'T' => until(b'_')?,
            b'D' if matches!(bytes.get(at + 1), Some(b't' | b'T')) => {
                depth += 1;
                2
            }
            b'D' => 2,
            b'I' | b'N' | b'X' | b'J' | b'F' | b'L' => {
                depth += 1;
                1
            }
            b'E' => {
                depth = depth.checked_sub(1)?;
                1
            }
            _ => 1,
        };
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSymbol};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    /// The codes of the C++ scheme: builtin types, qualifiers, abbreviations, operators, special
    /// names.
    const CODES: &str = "v w b c a h s t i j l m x y n o f d e g z \
        Dd De Df Dh DF16_ DB5_ Di Ds Du Da Dc Dn Dt DT Dp Dv Do DO Dw Dx \
        r V K P R O C G F A M T T_ T0_ Ts Tu Te U N E X L I J Z S St Sa Sb Ss Si So Sd S_ S0_ \
        nw na dl da aw ps ng ad de co pl mi ml dv rm an or eo aS pL mI mL dV rM aN oR eO ls rs lS rS ss eq ne lt gt le ge nt \
        aa oo pp mm cm pm pt cl ix qu cv li ti te dt ds sr sZ sP sp fl fr fL fR tw sc cc dc rc st sz at az nx on gs \
        TV TT TI TS Th Tv Tc GV GR GTt C1 C2 C3 CI1 D0 D1 D2 Ki Pc PKc Pv RKSs";

    #[test]
    fn only_mangled_names_are_translated() {
        let letters = ('a'..='z').chain('A'..='Z').map(String::from);
        for plain in letters.chain(CODES.split_whitespace().map(str::to_owned)) {
            assert_eq!(&*name(&plain), plain);
        }
        for plain in [
            "main",
            "_start",
            "_",
            "_Z",
            "_R",
            "_ZN",
            "Z1fv",
            "_init",
            "__libc_start_main",
            "a.b",
            "naïve",
            "",
        ] {
            assert_eq!(&*name(plain), plain);
        }
    }

    #[test]
    fn a_name_that_doubles_at_each_step_stays_as_it_is() {
        let nested = |depth: usize| {
            let mut symbol = "_Z1f1AIiiES_IS0_S0_E".to_owned();
            for step in ('1'..='9').chain('A'..='Z').take(depth - 1) {
                symbol += &format!("S_IS{step}_S{step}_E");
            }
            symbol
        };
        let short = nested(5);
        assert!(name(&short).starts_with("f(A<int, int>, A<A<int, int>, A<int, int> >"));
        assert_eq!(&*name(&nested(30)), nested(30));
        let long = "é".repeat(LONGEST);
        assert_eq!(name(&long).len(), LONGEST + "…".len());
    }

    #[test]
    fn both_languages_are_read() {
        for (symbol, wanted) in [
            ("_ZN2ns5outerEi", "ns::outer(int)"),
            ("_ZN2ns5outerEi.cold", "ns::outer(int) [clone .cold]"),
            ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f()"),
            ("_ZN12_GLOBAL__N_16name_cE", "(anonymous namespace)::name_c"),
            ("_ZN4core3ptr4read17h0123456789abcdefE", "core::ptr::read"),
            (
                "_ZN4core3ptr4read17h0123456789abcdefE.llvm.123",
                "core::ptr::read",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar"),
        ] {
            assert_eq!(&*name(symbol), wanted);
        }
    }

    #[test]
    fn members_of_types_that_depend_on_others_are_read() {
        assert_eq!(
            &*name(
                "_ZSt4swapISt6localeENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructibleIS5_ESt18is_move_assignableIS5_EEE5valueEvE4typeERS5_SF_"
            ),
            "std::enable_if<std::__and_<std::__not_<std::__is_tuple_like<std::locale> >, std::is_move_constructible<std::locale>, \
             std::is_move_assignable<std::locale> >::value, void>::type std::swap<std::locale>(std::locale&, std::locale&)"
        );
        // Cut off in it, at every place.
        let symbol = "_Z1fIiENSt9enable_ifIXsrSt6__and_IJSt6__not_IT_ELi3EEE5valueEvE4typeES5_";
        for end in 0..symbol.len() {
            assert!(end == 0 || !name(&symbol[..end]).is_empty());
        }
    }

    fn symbols(file: &Path) -> Vec<String> {
        let bytes = std::fs::read(file).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let all = elf.symbols().chain(elf.dynamic_symbols());
        let names = all.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
        names.filter(|name| !name.is_empty()).collect()
    }

    fn filtered(names: &[String]) -> Vec<String> {
        let mut filter = Command::new("c++filt")
            .arg("--no-strip-underscore")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = filter.stdin.take().unwrap();
        let text = names.join("\n");
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
        let output = filter.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// What the compilers of this machine make: the C++ library, this test with Rust's, and as much
    /// of the compiler as there is.
    #[test]
    fn nothing_stays_mangled_that_another_demangler_reads() {
        let of_compiler = |compiler: &str, arguments: &[&str]| {
            let output = Command::new(compiler).args(arguments).output().unwrap();
            PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
        };
        let cpp = of_compiler("c++", &["-print-file-name=libstdc++.so.6"]);
        let mut files = vec![cpp, std::env::current_exe().unwrap()];
        let rust = of_compiler("rustc", &["--print", "sysroot"]).join("lib");
        let libraries = std::fs::read_dir(rust).into_iter().flatten().flatten();
        let driver = |file: &PathBuf| file.to_string_lossy().contains("librustc_driver");
        files.extend(libraries.map(|entry| entry.path()).filter(driver));
        for file in files {
            let mut all = symbols(&file);
            all.iter_mut()
                .for_each(|name| name.truncate(name.find('@').unwrap_or(name.len())));
            all.sort();
            all.dedup();
            let others = filtered(&all);
            assert_eq!(all.len(), others.len(), "{}", file.display());
            let read = all
                .iter()
                .zip(&others)
                .filter(|(symbol, other)| symbol != other);
            let left: Vec<_> = read
                .clone()
                .filter(|(symbol, _)| *name(symbol) == ***symbol)
                .collect();
            assert!(left.is_empty(), "{}: {left:?}", file.display());
            assert!(read.count() > 1000, "{}", file.display());
            let plain = all
                .iter()
                .zip(&others)
                .filter(|(symbol, other)| symbol == other);
            let read: Vec<_> = plain
                .filter(|(symbol, _)| *name(symbol) != ***symbol)
                .collect();
            assert!(read.is_empty(), "{}: {read:?}", file.display());
        }
    }
}
