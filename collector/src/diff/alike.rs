//! What is the same in two recordings though it is called otherwise: threads and processes have new
//! numbers, a rebuilt program lies in another directory or has another name (`app-1.2`, `app-1.3`).

use crate::profile::{Kind, Kinds, Profile};
use crate::report::By;
use std::collections::{BTreeMap, BTreeSet};

/// Binaries of one profile by the names that they have in the other.
pub(super) type Renamed = BTreeMap<String, String>;

/// Of one binary: its functions, and whether it is a program and not a library.
#[derive(Default)]
struct Binary<'a> {
    functions: BTreeSet<&'a str>,
    is_program: bool,
}

/// Which binary of the profile before is which of that after, where both have names that the other
/// profile does not know: those with the most functions in common.
pub(super) fn renamed([before, after]: [&Profile; 2]) -> Renamed {
    let (before, after) = (binaries(before), binaries(after));
    let mut pairs = Vec::new();
    for (old, of_old) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
        for (new, of_new) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
            let common = of_old.functions.intersection(&of_new.functions).count();
            let both = usize::from(of_old.is_program && of_new.is_program);
            pairs.push((common + both, *old, *new));
        }
    }
    pairs.sort_by_key(|(common, old, new)| (std::cmp::Reverse(*common), *old, *new));
    let mut renamed = Renamed::new();
    for (common, old, new) in pairs {
        let is_taken = renamed.contains_key(old) || renamed.values().any(|it| it == new);
        if common > 0 && !is_taken {
            renamed.insert(old.to_owned(), new.to_owned());
        }
    }
    renamed
}

fn binaries(profile: &Profile) -> BTreeMap<&str, Binary<'_>> {
    let kinds = Kinds::of(profile);
    let mut binaries: BTreeMap<&str, Binary<'_>> = BTreeMap::new();
    for function in profile.functions.iter().filter(|it| it.image.is_some()) {
        let binary = binaries.entry(profile.image_name(function)).or_default();
        binary.functions.insert(&function.name);
        binary.is_program |= kinds.kind(function) == Kind::Program;
    }
    binaries
}

/// By what a row is found in both profiles, and the origin that is shown.
pub(super) struct Place {
    pub(super) key: (String, String),
    pub(super) origin: String,
}

/// The place of a row; `renamed` is empty for the profile after.
pub(super) fn place(name: &str, origin: &str, by: By, renamed: &Renamed) -> Place {
    let new = |name: &str| renamed.get(name).map_or(name, |new| new).to_owned();
    let (name, key, origin) = match by {
        // Functions of languages may begin at another line.
        By::Function => {
            let file = match origin.rsplit_once(':') {
                Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => file,
                _ => origin,
            };
            (name.to_owned(), new(file), new(file))
        }
        // What a function of the program's own called most may be another one.
        By::Own => (name.to_owned(), String::new(), String::new()),
        // A file's directory is that of the build.
        By::Line => {
            let file = origin.rsplit_once('/').map_or(origin, |(_, file)| file);
            (name.to_owned(), new(file), new(file))
        }
        By::Module => (new(name), String::new(), origin.to_owned()),
        By::Thread => {
            let process = new(without_number(origin));
            (new(without_number(name)), process.clone(), process)
        }
        By::Process => (new(without_number(name)), String::new(), origin.to_owned()),
        By::Cgroup | By::Label => (name.to_owned(), origin.to_owned(), origin.to_owned()),
    };
    Place {
        key: (name, key),
        origin,
    }
}

/// `name (123)` as `name`.
fn without_number(name: &str) -> &str {
    name.rsplit_once(" (").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;
    use crate::symbolize::{Image, ImageId};

    #[test]
    fn a_program_of_another_name_is_the_one_with_the_same_functions() {
        let of = |paths: [&str; 2], is_in: fn(&str) -> usize| {
            let mut profile = example();
            let image = |path: &str| Image {
                path: path.to_owned(),
                build_id: Vec::new(),
            };
            profile.symbols.images = paths.map(image).to_vec();
            for function in &mut profile.functions {
                function.image = Some(ImageId::next_of(is_in(&function.name)));
            }
            profile
        };
        let is_in = |name: &str| usize::from(name == "leaf");
        let before = of(["/old/app-1", "/lib/libleaf.so.1"], is_in);
        assert_eq!(renamed([&before, &before]), Renamed::new());
        let after = of(["/lib/libleaf.so.2", "/new/app-2"], |name| {
            usize::from(name != "leaf")
        });
        let pairs = [("app-1", "app-2"), ("libleaf.so.1", "libleaf.so.2")];
        let wanted = pairs.map(|(old, new)| (old.to_owned(), new.to_owned()));
        let wanted = Renamed::from(wanted);
        assert_eq!(renamed([&before, &after]), wanted);
        let row = place("main", "app-1", By::Function, &wanted);
        assert_eq!(row.key, ("main".to_owned(), "app-2".to_owned()));
    }

    #[test]
    fn numbers_and_directories_are_not_compared() {
        let key = |name, origin, by| place(name, origin, by, &Renamed::new()).key;
        for (by, first, second) in [
            (By::Thread, ["a (1)", "p (1)"], ["a (7)", "p (6)"]),
            (By::Process, ["p (1)", "./p 1"], ["p (2)", "./p 2"]),
            (By::Module, ["p", "/old/p"], ["p", "/new/p"]),
            (By::Line, ["f", "/old/f.c:3"], ["f", "/new/f.c:3"]),
            (By::Function, ["f", "f.js:3"], ["f", "f.js:4"]),
            (By::Own, ["f", "read (libc)"], ["f", "write (libc)"]),
        ] {
            let [first, second] = [first, second].map(|[name, origin]| key(name, origin, by));
            assert_eq!(first, second, "{by:?}");
        }
        let (first, second) = (("f", "one"), ("f", "other"));
        let of = |(name, origin)| key(name, origin, By::Function);
        assert_ne!(of(first), of(second), "of another library");
    }
}
