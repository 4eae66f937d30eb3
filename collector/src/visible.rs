//! Names are whatever a program says: in what is shown or written, characters that do something
//! instead of standing for something are spelled out. Control characters move a terminal's cursor
//! and end lines, marks of direction turn text around, and XML has no place for either. Whatever
//! goes into a profile, a message or a file goes through here.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io::{self, Write as _};
use std::path::Path;

/// A name with everything in it to be seen: `\n`, `\u{1b}`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    spelled_out(text, acts)
}

/// The same of text that is made of lines.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    let acts = |character| character != '\n' && acts(character);
    spelled_out(text, acts)
}

fn spelled_out(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) || !text.chars().any(&acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match acts(character) {
            true => out.extend(character.escape_default()),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// Whether each byte is one of `' '..='~'`, as most are: eight are looked at at once.
fn is_plain(text: &[u8]) -> bool {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = text.as_chunks();
    // One below takes from the next, one above adds to its own highest bit.
    let all = words.iter().fold(0, |all, word| {
        let word = u64::from_le_bytes(*word);
        all | word | word.wrapping_sub(EACH * 0x20) | word.wrapping_add(EACH)
    });
    all & (EACH << 7) == 0 && rest.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Says something on standard error.
pub fn say(message: impl Display) {
    show(&format!("rsunwind: {message}\n"));
}

/// Writes lines to standard error, where perhaps nobody reads them any more.
pub fn show(text: &str) {
    let _ = io::stderr().write_all(visible_lines(text).as_bytes());
}

/// Paths in messages.
pub trait Shown {
    /// The path with everything in it to be seen.
    fn shown(&self) -> impl Display;
}

impl Shown for Path {
    fn shown(&self) -> impl Display {
        ShownPath(self)
    }
}

struct ShownPath<'a>(&'a Path);

impl Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&visible(&self.0.to_string_lossy()))
    }
}

/// Whether a character is not to be seen but acts on what is: controls, marks and overrides of
/// direction, separators of lines, characters of no width, and those that are none.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}'
                | '\u{ffff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn eight_bytes_at_once_are_plain_if_each_is() {
        for length in [8, 11, 16] {
            for (at, byte) in (0..length).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                for around in *b" z~" {
                    let mut text = vec![around; length];
                    text[at] = byte;
                    let expected = (b' '..=b'~').contains(&byte);
                    assert_eq!(is_plain(&text), expected, "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn what_acts_is_spelled_out_and_the_rest_stays() {
        let plain = "std::vec<T>::push(α, \"π\", 名前, 🦀)\u{fffd}\\n";
        assert!(matches!(visible(plain), Cow::Borrowed(same) if same == plain));
        assert_eq!(
            visible("a\u{1b}]0;x\u{7}\n\t\r\0\u{7f}\u{9b}b"),
            "a\\u{1b}]0;x\\u{7}\\n\\t\\r\\u{0}\\u{7f}\\u{9b}b"
        );
        assert_eq!(
            visible("\u{202e}gpj\u{2066}\u{200f}"),
            "\\u{202e}gpj\\u{2066}\\u{200f}"
        );
        assert_eq!(
            visible("\u{ffff}\u{fffe}\u{2028}"),
            "\\u{ffff}\\u{fffe}\\u{2028}"
        );
        assert_eq!(visible_lines("a\n\u{1b}b\n"), "a\n\\u{1b}b\n");
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/a\n\xff\x1b"));
        assert_eq!(path.shown().to_string(), "/a\\n\u{fffd}\\u{1b}");
    }
}
