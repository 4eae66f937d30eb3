//! Addresses of receivers, as they are written: `http://USER:PASSWORD@HOST:PORT/PATH?QUERY`.
//!
//! User and password become a header: an address is shown in messages, and names a folder.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

/// What is before the path, the path without its `/`, and the query with its `?`.
fn parts(address: &str) -> (&str, &str, &str) {
    let start = address.find("://").map_or(0, |at| at + 3);
    let query = address.find('?').unwrap_or(address.len());
    let (before, query) = address.split_at(query);
    let slash = before.get(start..).and_then(|rest| rest.find('/'));
    match slash.map(|at| before.split_at(start + at)) {
        Some((server, path)) => (server, path.get(1..).unwrap_or_default(), query),
        None => (before, "", query),
    }
}

pub(super) fn path_of(address: &str) -> &str {
    parts(address).1
}

/// The address with a path behind its own, and before its query.
pub(super) fn joined(base: &str, path: &str) -> String {
    let (server, own, query) = parts(base);
    let own = own.trim_end_matches('/');
    let slash = if own.is_empty() { "" } else { "/" };
    format!("{server}/{own}{slash}{path}{query}")
}

/// The address without user and password, and the `Authorization` that they are.
pub(super) fn without_user(address: &str) -> (String, Option<String>) {
    let (server, ..) = parts(address);
    let Some((scheme, (user, host))) = server
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)))
    else {
        return (address.to_owned(), None);
    };
    let rest = address.get(server.len()..).unwrap_or_default();
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let user = [decoded(name), decoded(password)].join(&b':');
    let basic = format!("Basic {}", STANDARD.encode(user));
    (format!("{scheme}://{host}{rest}"), Some(basic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_before_the_query() {
        for (base, whole) in [
            ("http://a:1", "http://a:1/p/q"),
            ("http://a:1/", "http://a:1/p/q"),
            ("http://a/b/", "http://a/b/p/q"),
            ("https://a?t=x/y", "https://a/p/q?t=x/y"),
            ("http://a/b?t=x", "http://a/b/p/q?t=x"),
        ] {
            assert_eq!(joined(base, "p/q"), whole);
        }
        assert_eq!(path_of("http://a?t=x/y"), "");
        assert_eq!(path_of("http://a/b/c?t=x"), "b/c");
    }

    #[test]
    fn user_and_password_are_taken_out() {
        let (address, basic) = without_user("https://us%40er:pa%3Ass@h:1/p?a=b@c");
        assert_eq!(address, "https://h:1/p?a=b@c");
        assert_eq!(
            basic.unwrap(),
            format!("Basic {}", STANDARD.encode("us@er:pa:ss"))
        );
        let (address, basic) = without_user("http://u@[::1]:1");
        assert_eq!(address, "http://[::1]:1");
        assert_eq!(basic.unwrap(), format!("Basic {}", STANDARD.encode("u:")));
        for plain in ["http://h/a@b", "http://h?a@b"] {
            assert_eq!(without_user(plain), (plain.to_owned(), None));
        }
    }
}
