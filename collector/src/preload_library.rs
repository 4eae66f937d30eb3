//! The preload library, as the build script made it, and what it stands in front of.
//!
//! Not here: where its file is put (`record/library.rs`), and which module of a process it is,
//! which the process itself says ([`engine::wire::module::Module::ours`]).

use object::{Object, ObjectSymbol};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

/// Its file.
pub(crate) static CONTENT: &[u8] = include_bytes!(env!("RSUNWIND_PRELOAD_SO"));

/// What it exports: functions of libc that it stands in front of, and its own interface.
static EXPORTS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let Ok(library) = object::File::parse(CONTENT) else {
        return HashSet::new();
    };
    let defined = library.dynamic_symbols().filter(|s| s.is_definition());
    let names = defined.filter_map(|symbol| symbol.name_bytes().ok());
    // A name may have a version behind it.
    let plain = names.filter_map(|name| std::str::from_utf8(name).ok()?.split('@').next());
    // The file is part of this program.
    plain
        .map(|name| &*Box::leak(name.to_owned().into_boxed_str()))
        .collect()
});

/// Where threads make what is left of a call of the program's that our signal has cut short.
const REST_OF_CALL: &str = "rsunwind_rest";

/// Where that is in the library's file, by its symbols, and what file that is.
static PLACE_OF_REST: LazyLock<Option<(&'static [u8], Range<u64>)>> = LazyLock::new(|| {
    let library = object::File::parse(CONTENT).ok()?;
    let build_id = library.build_id().ok()??;
    let found = library.symbol_by_name(REST_OF_CALL)?;
    Some((build_id, found.address()..found.address() + found.size()))
});

/// Whether what entered the kernel at that address of a file of the library was the rest of a call
/// of the program's. Only of the library that this program has is that known.
pub(crate) fn is_in_rest_of_call(build_id: &[u8], address: u64) -> bool {
    let place = PLACE_OF_REST.as_ref();
    place.is_some_and(|(known, place)| *known == build_id && place.contains(&address))
}

/// An address there, and the library's build-id.
#[cfg(test)]
pub(crate) fn rest_of_call() -> (&'static [u8], u64) {
    let (build_id, place) = PLACE_OF_REST.as_ref().expect("the library has it");
    (build_id, place.start + 0x28)
}

/// Whether that is a function that programs call.
pub(crate) fn exports(name: &str) -> bool {
    EXPORTS.contains(name)
}

/// Whether what is done in a function of its is the program's own system call.
pub(crate) fn makes_rest_of_call(name: &str) -> bool {
    // A label within it may be what names an address.
    name.strip_prefix(REST_OF_CALL)
        .is_some_and(|label| label.is_empty() || label.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::{CONTENT, exports, makes_rest_of_call};
    use object::{Object, ObjectSymbol};

    #[test]
    fn what_programs_call_is_told_from_what_is_inside() {
        assert!(exports("pthread_create") && exports("execve"));
        assert!(exports("rsunwind_backtrace"));
        assert!(!exports("signal_entry") && !exports("memcpy"));
    }

    #[test]
    fn where_the_rest_of_calls_is_made_has_its_name() {
        let library = object::File::parse(CONTENT).unwrap();
        let names = library.symbols().filter_map(|symbol| symbol.name().ok());
        let made: Vec<_> = names.filter(|name| makes_rest_of_call(name)).collect();
        assert!(made.contains(&"rsunwind_rest"), "{made:?}");
        assert!(!makes_rest_of_call("rsunwind_restorer"));
    }
}
