//! The preload library, as the build script made it, and what it stands in front of.
//!
//! Not here: where its file is put (`record/library.rs`), and which module of a process it is,
//! which the process itself says ([`engine::wire::module::Module::ours`]).

use object::{Object, ObjectSymbol};
use std::collections::HashSet;
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

/// Whether that is a function that programs call.
pub(crate) fn exports(name: &str) -> bool {
    EXPORTS.contains(name)
}

#[cfg(test)]
mod tests {
    use super::exports;

    #[test]
    fn what_programs_call_is_told_from_what_is_inside() {
        assert!(exports("pthread_create") && exports("execve"));
        assert!(exports("rsunwind_backtrace"));
        assert!(!exports("signal_entry") && !exports("memcpy"));
    }
}
