//! Functions: what tells them from each other, and what they are called. They are told by what they
//! are, since the collector moves all objects, and puts others in their places.

use super::heap::{Heap, small};
use super::layout::Positions;
use crate::interpreter::memory::Memory;
use crate::interpreter::utf8::Utf8;
use crate::mix::mix;
use crate::wire::code::UNREADABLE;

/// What a `SharedFunctionInfo` leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where its scope is; `None` for what V8 brings, and functions of native code.
    scope: Option<u64>,
    /// What it has instead: the tagged pointer to its name.
    name: u64,
    /// Where its script is, if it has one.
    pub script: Option<u64>,
    /// From where to where in the source it is, in characters.
    pub range: Option<(u32, u32)>,
}

/// Of a script.
pub const SCRIPT_SOURCE: u64 = 8;
pub const SCRIPT_NAME: u64 = 16;
pub const SCRIPT_FIRST_LINE: u64 = 24;
pub const SCRIPT_ID: u64 = 64;
/// Its functions, by weak pointers.
pub const SCRIPT_FUNCTIONS: u64 = 88;

/// What functions may be numbered from the first on.
const FUNCTION_KINDS: u32 = 32;

/// Of a scope: its flags, and the number of names.
const SCOPE_FLAGS: u64 = 8;
const SCOPE_COUNT: u64 = 24;
/// From so many names on they are in a table of their own.
const MOST_INLINE: u32 = 75;
/// Bits of the flags.
const HAS_CLASS: u32 = 1 << 10;
const FUNCTION_VARIABLE: u32 = 3 << 12;
const HAS_INFERRED: u32 = 1 << 14;

impl<M: Memory> Heap<'_, M> {
    /// The `SharedFunctionInfo` of a function, if that is one.
    pub fn shared(&self, word: u64) -> Option<u64> {
        let types = &self.layout.types;
        let function = self.object(word)?;
        if function.kind.wrapping_sub(types.function) >= FUNCTION_KINDS {
            return None;
        }
        let shared = self.field(function.address, self.layout.function_shared)?;
        self.of_kind(shared, types.shared)
    }

    /// What is known of a function.
    pub fn function(&self, shared: u64) -> Option<Function> {
        let types = &self.layout.types;
        let script = self.field(shared, self.layout.shared_script)?;
        let name = self.field(shared, self.layout.shared_name)?;
        let scope = self.of_kind(name, types.scope);
        Some(Function {
            scope,
            name,
            script: self.of_kind(script, types.script),
            range: scope.and_then(|scope| self.range(scope)),
        })
    }

    /// A number that is another for another function of the thread; never 0.
    pub fn check(&self, function: &Function) -> u64 {
        let (start, end) = function.range.unwrap_or((0, 0));
        let place = mix(u64::from(start) << 32 | u64::from(end));
        let of = match function.script {
            // No other script of the thread has that number.
            Some(script) => self.field(script, SCRIPT_ID).unwrap_or(0),
            None => self.summary(function.name),
        };
        mix(place ^ of).max(1)
    }

    /// Whether there is something that it can be called.
    pub fn has_name(&self, function: &Function) -> bool {
        function.scope.is_some() || self.has_text(function.name)
    }

    fn has_text(&self, word: u64) -> bool {
        self.string(word).is_some_and(|(_, length)| length > 0)
    }

    /// Where in a scope what is, behind the names of its variables: the function's name and what it
    /// was inferred to be, if it has them, and its place in the source.
    fn parts(&self, scope: u64) -> Option<[Option<u64>; 3]> {
        let flags = self.field(scope, SCOPE_FLAGS)?;
        let flags = small(flags).filter(|all| *all != 0).unwrap_or(flags as u32);
        let count = small(self.field(scope, SCOPE_COUNT)?).filter(|count| *count < 1 << 20)?;
        // Each name has a word behind all names.
        let names = if count < MOST_INLINE { count } else { 1 };
        let words = u64::from(names.checked_add(count)?);
        let mut at = self.layout.scope_names.checked_add(words.checked_mul(8)?)?;
        let mut take = |is_there: bool, count: u64| {
            let here = at;
            at = at.saturating_add(if is_there { count.saturating_mul(8) } else { 0 });
            is_there.then_some(here)
        };
        take(flags & HAS_CLASS != 0, 1);
        let name = take(flags & FUNCTION_VARIABLE != 0, 2);
        let inferred = take(flags & HAS_INFERRED != 0, 1);
        Some([name, inferred, take(true, 2)])
    }

    fn range(&self, scope: u64) -> Option<(u32, u32)> {
        let range = |at: u64| {
            let start = small(self.field(scope, at)?)?;
            let end = small(self.field(scope, at.checked_add(8)?)?)?;
            (start <= end).then_some((start, end))
        };
        match self.layout.positions {
            Positions::At(at) => range(at),
            Positions::BehindNames => {
                let [.., at] = self.parts(scope)?;
                // A module's scope has another word in front of its names.
                range(at?).or_else(|| range(at?.checked_add(8)?))
            }
        }
    }

    /// The tagged pointer to a function's name; 0 if it has none.
    fn name(&self, function: &Function) -> u64 {
        let Some(scope) = function.scope else {
            return function.name;
        };
        let [name, inferred, _] = self.parts(scope).unwrap_or_default();
        let text = |at: Option<u64>| {
            let word = self.field(scope, at?)?;
            self.has_text(word).then_some(word)
        };
        text(name).or_else(|| text(inferred)).unwrap_or(0)
    }

    /// A function's name, or what stands for one that has none.
    pub fn name_of<'t>(&self, function: &Function, room: &'t mut [u8]) -> &'t [u8] {
        let mut out = Utf8::new(room);
        let name = self.name(function);
        let written = self.write(name, &mut out);
        match out.text() {
            Some(text) if written.is_some() && !text.is_empty() => text,
            _ if name & 3 != 1 => b"(anonymous)",
            _ => UNREADABLE.as_bytes(),
        }
    }

    /// The file of a function; empty if it has none.
    pub fn file_of<'t>(&self, function: &Function, room: &'t mut [u8]) -> &'t [u8] {
        const URL: &[u8] = b"file://";
        let mut out = Utf8::new(room);
        if let Some(script) = function.script
            && let Some(name) = self.field(script, SCRIPT_NAME)
        {
            let _ = self.write(name, &mut out);
        }
        let text = out.text().unwrap_or(b"");
        text.strip_prefix(URL).unwrap_or(text)
    }
}
