//! Lines that are wider than a terminal go on below what they say, not below their subjects.

use console::{Term, measure_text_width};

/// Where what a line says begins.
const TEXT: usize = 12;
/// The least room for words.
const LEAST: usize = 40;

/// The summary for a place of so many columns, if it has any.
pub(crate) fn fitted(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let room = width.max(TEXT + LEAST);
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let (mut column, mut first) = (0, true);
        // The gaps of a table stay.
        for word in line.split_inclusive(' ') {
            let wide = measure_text_width(word.trim_end());
            if column + wide > room && !first {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', TEXT));
                column = TEXT;
            }
            out.push_str(word);
            column += measure_text_width(word);
            first = first && word.trim().is_empty();
        }
        out.push('\n');
    }
    out
}

/// The columns of standard error, if it is a terminal.
pub(super) fn width_of_stderr() -> Option<usize> {
    let size = Term::stderr().is_term().then(|| Term::stderr().size());
    size.map(|(_, columns)| usize::from(columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_wide_goes_on_below_the_text() {
        let text = format!(
            "      cost  {}\n      lost  none\n",
            "word ".repeat(20).trim_end()
        );
        assert_eq!(fitted(&text, None), text);
        assert_eq!(fitted(&text, Some(200)), text);
        let narrow = fitted(&text, Some(60));
        let lines: Vec<_> = narrow.lines().collect();
        assert_eq!(lines.len(), 4, "{narrow}");
        assert!(lines.iter().all(|line| line.len() <= 60), "{narrow}");
        assert!(lines[1].starts_with("            word word"), "{narrow}");
        assert_eq!(narrow.split_whitespace().count(), 23, "{narrow}");
    }
}
