//! Profiles in ClickHouse: the tables, the rows of a window for them, and profiles read back.
//!
//! `schema.sql` is what the tables are; [`rows`] makes a window's rows, which [`message`] keeps
//! until they are sent, in the format of [`native`]; [`address`] is what is wanted, [`queries`]
//! what is asked for by [`ask`], [`answer`] what comes back, [`parts`] in which order, and [`read`]
//! makes a profile of it.
//!
//! Not here: when windows are sent (`agent`).

mod address;
mod answer;
mod ask;
mod build;
mod call_path;
mod calls;
pub(crate) mod message;
pub(crate) mod native;
mod parts;
mod queries;
mod read;
pub(crate) mod rows;
pub(crate) mod table;
mod turns;

pub use read::Error;
pub(crate) use read::open;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::Write as _;

/// What may have a meaning in an address.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');

/// An address with what is asked for in it. What is behind `?` is text for ClickHouse, never SQL.
pub(crate) fn asking<'a>(
    base: &str,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut address = base.to_owned();
    let mut mark = if base.contains('?') { '&' } else { '?' };
    for (key, value) in pairs {
        let [key, value] = [key, value].map(|text| utf8_percent_encode(text, RESERVED));
        let _ = write!(address, "{mark}{key}={value}");
        mark = '&';
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_ends_nothing() {
        let asked = asking("http://h/", [("a", "x&y='z"), ("b", "ä")]);
        assert_eq!(asked, "http://h/?a=x%26y%3D%27z&b=%C3%A4");
        assert_eq!(asking(&asked, [("c", "#")]), format!("{asked}&c=%23"));
    }
}
