//! What a text is made for: a terminal has a width and colours, a file has neither.

use crate::profile::Names;
use console::{Style, measure_text_width, truncate_str};
use std::borrow::Cow;
use std::io::{self, IsTerminal};

/// How a text is to look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Columns that a line may have; `None` for as many as it needs.
    pub(crate) width: Option<usize>,
    /// Whether it has colours.
    pub(crate) colour: bool,
}

/// Shares from which on a row stands out, in thousandths.
const HOT: u64 = 100;
const WARM: u64 = 20;

impl Look {
    /// That of standard output: `NO_COLOR`, `CLICOLOR` and `TERM` are heeded.
    pub(crate) fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::default();
        }
        let (_, columns) = console::Term::stdout().size();
        Self {
            width: Some(usize::from(columns).max(60)),
            colour: console::colors_enabled(),
        }
    }

    /// That of a text with such names: whole ones are wanted whole, however long.
    pub(crate) fn of_names(self, names: Names) -> Self {
        match names {
            Names::Whole => Self {
                width: None,
                ..self
            },
            Names::Short => self,
        }
    }

    /// A heading of columns.
    pub(crate) fn heading(self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    /// What is less important.
    pub(crate) fn aside(self, text: &str) -> String {
        self.styled(text, Style::new().dim())
    }

    /// Numbers that say which part of the whole a row is.
    pub(crate) fn part(self, text: &str, part: u64, whole: u64) -> String {
        let part = u128::from(part) * 1000;
        let is = |thousandths: u64| part >= u128::from(whole) * u128::from(thousandths);
        match () {
            () if whole == 0 => text.to_owned(),
            () if is(HOT) => self.styled(text, Style::new().red()),
            () if is(WARM) => self.styled(text, Style::new().yellow()),
            () => text.to_owned(),
        }
    }

    /// What has grown, or shrunk.
    pub(crate) fn change(self, text: &str, grown: bool) -> String {
        match grown {
            true => self.styled(text, Style::new().red()),
            false => self.styled(text, Style::new().green()),
        }
    }

    fn styled(self, text: &str, style: Style) -> String {
        match self.colour {
            true => style.force_styling(true).apply_to(text).to_string(),
            false => text.to_owned(),
        }
    }
}

/// Text without its end where it is too wide.
pub(crate) fn without_end(text: &str, width: usize) -> Cow<'_, str> {
    match width_of(text) <= width {
        true => Cow::Borrowed(text),
        false => truncate_str(text, width, "…"),
    }
}

/// Text without its beginning where it is too wide: the end of a path says more.
pub(crate) fn without_beginning(text: &str, width: usize) -> Cow<'_, str> {
    let wide = width_of(text);
    if wide <= width {
        return Cow::Borrowed(text);
    }
    let mut rest = text.chars();
    while width_of(rest.as_str()) >= width.max(1) {
        rest.next();
    }
    Cow::Owned(format!("…{}", rest.as_str()))
}

/// A name of a function without its middle where it is too wide: its last part, which says what is
/// done, and as much of its beginning as there is room for.
pub(crate) fn without_middle(name: &str, width: usize) -> Cow<'_, str> {
    if width_of(name) <= width {
        return Cow::Borrowed(name);
    }
    // Which part of a function the compiler made one of its own is worth less.
    let (stem, more) = match name.find(" [clone") {
        Some(at) => (&name[..at], "…"),
        None => (name, ""),
    };
    let last = last_part(stem);
    let room = width.saturating_sub(width_of(last) + width_of(more) + 1);
    match (
        width_of(stem) < width,
        last.is_empty() || room < LEAST_BEGINNING,
    ) {
        (true, _) => Cow::Owned(format!("{stem}…")),
        (_, true) => without_end(name, width),
        _ => {
            let first = truncate_str(stem, room, "");
            let first = first.trim_end_matches(['<', '…', ':']);
            Cow::Owned(format!("{first}…{last}{more}"))
        }
    }
}

/// `::last` of a name; of a lambda that is called with its own name.
fn last_part(name: &str) -> &str {
    let Some(at) = name.rfind("::") else {
        return "";
    };
    let before = name[..at]
        .rfind("::")
        .filter(|_| name[at..].starts_with("::operator"));
    &name[before.unwrap_or(at)..]
}

/// Less of a name's beginning says nothing.
const LEAST_BEGINNING: usize = 4;

/// Text with blanks behind it, for a column.
pub(crate) fn padded(text: &str, width: usize) -> Cow<'_, str> {
    match width.saturating_sub(width_of(text)) {
        0 => Cow::Borrowed(text),
        missing => Cow::Owned(format!("{text}{:missing$}", "")),
    }
}

/// The columns of a terminal that text takes; most is plain, of which there may be much.
pub(crate) fn width_of(text: &str) -> usize {
    match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => text.len(),
        false => measure_text_width(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_wide_loses_an_end() {
        assert_eq!(without_end("abcdef", 6), "abcdef");
        assert_eq!(without_end("abcdefg", 6), "abcde…");
        assert_eq!(without_beginning("abcdef", 6), "abcdef");
        assert_eq!(without_beginning("abcdefg", 6), "…cdefg");
        assert_eq!(without_beginning("αβγ名前", 4), "…前");
        assert_eq!(padded("名", 4), "名  ");
        let name = "(anonymous namespace)::Hidden::crunch";
        assert_eq!(without_middle(name, 37), name);
        assert_eq!(without_middle(name, 25), "(anonymous names…::crunch");
        assert_eq!(without_middle(name, 12), "(anonymous …");
        let clone = format!("{name} [clone .cold]");
        assert_eq!(without_middle(&clone, 26), "(anonymous names…::crunch…");
        assert_eq!(without_middle(&clone, 40), format!("{name}…"));
        let lambda = "app::Runner<…>::run::{lambda#1}::operator()";
        assert_eq!(
            without_middle(lambda, 35),
            "app::Runne…::{lambda#1}::operator()"
        );
        assert_eq!(without_middle("a_long_name_of_c", 10), "a_long_na…");
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        let plain = Look::default();
        assert_eq!(plain.part("x", 1, 1), "x");
        let coloured = Look {
            colour: true,
            ..plain
        };
        assert_eq!(coloured.part("x", 1, 10), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(coloured.part("x", 1, 11), "\u{1b}[33mx\u{1b}[0m");
        assert_eq!(coloured.part("x", 1, 51), "x");
    }
}
