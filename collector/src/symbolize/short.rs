//! Names as people say them: without template arguments, parameters and return types, and
//! `std::string` for what that stands for.
//!
//! ```text
//! void ns::Map<int, std::allocator<int> >::each<ns::f()::{lambda()#1}>(ns::f()::{lambda()#1})
//!     ns::Map<…>::each<…>
//! <alloc::vec::Vec<T> as core::iter::traits::collect::Extend<T>>::extend
//!     <alloc::vec::Vec<…> as core::iter::traits::collect::Extend<…>>::extend
//! ```
//!
//! Only for names that were mangled, and those of C++ and Rust in debug information: in others
//! these signs mean other things.

use std::sync::Arc;

/// Types that have a name of their own, as they begin, and that name. `std::basic_string<char,…>`
/// is `std::string`.
const ALIASES: [(&str, &str); 9] = [
    ("basic_string", "string"),
    ("basic_string_view", "string_view"),
    ("basic_ostream", "ostream"),
    ("basic_istream", "istream"),
    ("basic_iostream", "iostream"),
    ("basic_ios", "ios"),
    ("basic_stringstream", "stringstream"),
    ("basic_regex", "regex"),
    ("basic_streambuf", "streambuf"),
];
/// Namespaces of `std` that versions of it are kept in.
const INLINE_NAMESPACES: [&str; 2] = ["std::__cxx11::", "std::__1::"];
/// What stands for what is left out.
const ELIDED: &str = "<…>";
/// Where things are that have no name in other files.
const ANONYMOUS: &str = "(anonymous namespace)";
/// What may stand behind parameters.
const QUALIFIERS: [&str; 4] = ["const", "volatile", "&", "[clone"];

/// The short form of a name; `None` if it is that already.
pub(super) fn short(name: &str) -> Option<Arc<str>> {
    let mut out = Shortened::default();
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        rest = out.take(next, rest);
    }
    let mut made = out.text;
    for namespace in INLINE_NAMESPACES {
        made = made.replace(namespace, "std::");
    }
    let made = made.trim();
    (!made.is_empty() && made != name).then(|| Arc::from(made))
}

#[derive(Default)]
struct Shortened {
    text: String,
    /// How many angle brackets are open that are part of the name: `<A as B>::f`.
    open: usize,
    /// Parameters were passed over, outside of all brackets: what follows without `::` is no part
    /// of the name.
    ended: bool,
}

impl Shortened {
    /// Takes in what begins with `next`, and gives what is behind it.
    fn take<'a>(&mut self, next: char, rest: &'a str) -> &'a str {
        if let Some(operator) = self.operator(rest) {
            self.text.push_str(&rest[..operator]);
            return &rest[operator..];
        }
        match next {
            '(' if rest.starts_with(ANONYMOUS) => {
                self.push(ANONYMOUS);
                &rest[ANONYMOUS.len()..]
            }
            // What a type stands in for in a name of Rust's: `<(A, B) as C>::f`.
            '(' if self.open > 0 => {
                self.text.push('(');
                &rest[1..]
            }
            '(' => {
                self.ended = true;
                behind(rest)
            }
            '{' => {
                let behind = behind(rest);
                let inner = &rest[..rest.len() - behind.len()];
                self.push(&without_parameters(inner));
                behind
            }
            '<' if self.begins_name() => {
                self.push("<");
                self.open += 1;
                &rest[1..]
            }
            '<' => self.arguments(rest),
            '>' if self.open > 0 => {
                self.open -= 1;
                self.text.push('>');
                &rest[1..]
            }
            ':' => {
                self.ended = false;
                self.text.push(':');
                &rest[1..]
            }
            '[' if self.ended && rest.starts_with("[clone") => {
                let behind = behind(rest);
                self.text.push(' ');
                self.text.push_str(&rest[..rest.len() - behind.len()]);
                behind
            }
            ' ' if self.open == 0 => {
                let rest = &rest[1..];
                let qualifies = |word: &&str| rest.starts_with(*word);
                let goes_on = match self.ended {
                    true => QUALIFIERS.iter().any(qualifies),
                    false => rest.starts_with('<'),
                };
                if !goes_on {
                    // What came was a return type.
                    self.forget();
                }
                rest
            }
            next => {
                if !self.ended {
                    self.text.push(next);
                }
                &rest[next.len_utf8()..]
            }
        }
    }

    fn forget(&mut self) {
        self.text.clear();
        self.ended = false;
    }

    fn push(&mut self, text: &str) {
        self.ended = false;
        self.text.push_str(text);
    }

    /// Whether an angle bracket would begin a name, or a type in one, not template arguments.
    fn begins_name(&self) -> bool {
        let last = self.text.rsplit("::").next().unwrap_or_default();
        let before = self.text.chars().next_back();
        let is_operator = last.starts_with("operator");
        !is_operator
            && before.is_none_or(|before| matches!(before, '<' | ' ' | '(' | '&' | '*' | ',' | '['))
    }

    /// Template arguments: with the type that they belong to they may have a name.
    fn arguments<'a>(&mut self, rest: &'a str) -> &'a str {
        let behind = behind(rest);
        let of_char = rest.starts_with("<char>") || rest.starts_with("<char,");
        let alias = ALIASES.iter().find(|(whole, _)| {
            let before = self.text.strip_suffix(whole);
            of_char && before.is_some_and(|before| before.ends_with("::"))
        });
        match alias {
            Some((whole, alias)) => {
                self.text.truncate(self.text.len() - whole.len());
                self.text.push_str(alias);
            }
            None => {
                // Rust writes `f::<T>`.
                let bare = self.text.strip_suffix("::").map(str::len);
                self.text.truncate(bare.unwrap_or(self.text.len()));
                if self.text.ends_with('<') {
                    self.text.push(' '); // `operator< <T>` is not `operator<<`
                }
                self.text.push_str(ELIDED);
            }
        }
        behind
    }

    /// The length of an operator's name, if one is here: its signs are no brackets, and its type
    /// has spaces.
    fn operator(&self, rest: &str) -> Option<usize> {
        const OPERATOR: &str = "operator";
        let signs = rest.strip_prefix(OPERATOR)?;
        let before = self.text.chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
            return None;
        }
        let length = match signs.chars().next()? {
            _ if signs.starts_with("()") || signs.starts_with("[]") => 2,
            // A conversion: its type is up to the parameters.
            ' ' => return conversion(signs).map(|length| OPERATOR.len() + length),
            '"' => signs.find(['(', '<'])?,
            sign if "+-*/%^&|~!=<>,".contains(sign) => {
                let length = signs
                    .find(|sign| !"+-*/%^&|~!=<>,".contains(sign))
                    .unwrap_or(signs.len());
                // `operator<< <T>` and `operator==<T>`: the last angle bracket begins arguments.
                let text = &signs[..length];
                let known = [
                    "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">",
                ];
                let known = known.iter().find(|known| text.starts_with(**known));
                let plain = text.find('<').filter(|at| *at > 0).unwrap_or(length);
                known.map_or(plain, |known| known.len())
            }
            _ => return None,
        };
        Some(OPERATOR.len() + length)
    }
}

/// The length of what a conversion is to, with the blank before it; template arguments in it stay.
fn conversion(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, sign) in text.char_indices() {
        match sign {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    Some(text.len())
}

/// What is behind a bracket and what it encloses.
fn behind(text: &str) -> &str {
    let mut depth = 0_usize;
    let mut before = '\0';
    for (at, sign) in text.char_indices() {
        match sign {
            '(' | '<' | '{' | '[' => depth += 1,
            // An arrow, not a bracket.
            '>' if before == '-' => {}
            ')' | '>' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return &text[at + sign.len_utf8()..];
        }
        before = sign;
    }
    ""
}

/// `{lambda(int)#1}` as `{lambda#1}`.
fn without_parameters(braced: &str) -> String {
    let Some(at) = braced.find('(').filter(|_| braced.starts_with("{lambda")) else {
        return braced.to_owned();
    };
    let (before, parameters) = braced.split_at(at);
    format!("{before}{}", behind(parameters))
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn arguments_and_parameters_are_left_out() {
        for (whole, wanted) in [
            ("ns::outer(int)", "ns::outer"),
            (
                "void std::sort<int*, std::less<int> >(int*, int*, std::less<int>)",
                "std::sort<…>",
            ),
            (
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                "std::vector<…>::push_back",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::append(char const*) const",
                "std::string::append",
            ),
            (
                "std::basic_ostream<char, std::char_traits<char> >& std::operator<< <std::char_traits<char> >(int)",
                "std::operator<< <…>",
            ),
            (
                "bool std::operator< <char>(std::string const&, std::string const&)",
                "std::operator< <…>",
            ),
            (
                "bool __gnu_cxx::operator==<char*>(char*, char*)",
                "__gnu_cxx::operator==<…>",
            ),
            ("Q::operator()(int) &&", "Q::operator()"),
            ("Q::operator->*(int)", "Q::operator->*"),
            ("Q::operator<=>(Q const&) const", "Q::operator<=>"),
            ("Q::operator bool() const", "Q::operator bool"),
            (
                "Q::operator std::vector<int>*() const",
                "Q::operator std::vector<int>*",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            (
                "ns::f(int)::{lambda(int, std::function<int (int)>)#1}::operator()(int) const",
                "ns::f::{lambda#1}::operator()",
            ),
            (
                "int (&arr<3>::f(int (&) [3]))[3]",
                "int (&arr<3>::f(int (&) [3]))[3]",
            ),
            (
                "A::f() const::{lambda()#1}::operator()() const",
                "A::f::{lambda#1}::operator()",
            ),
            ("ns::outer(int) [clone .cold]", "ns::outer [clone .cold]"),
            (
                "decltype (std::forward<int>(fp)) std::pass<int>(int)",
                "std::pass<…>",
            ),
            (
                "std::enable_if<(A)::value, void>::type std::swap<B>(B&, B&)",
                "std::swap<…>",
            ),
            (
                "core::ptr::drop_in_place::<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place<…>",
            ),
            (
                "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
                "<alloc::vec::Vec<…> as core::clone::Clone>::clone",
            ),
            (
                "<&(A, B<C>) as D>::f::{closure#0}",
                "<&(A, B<…>) as D>::f::{closure#0}",
            ),
            (
                "<F as Fn<(A,)>>::call::<fn(u8) -> u8>",
                "<F as Fn<…>>::call<…>",
            ),
            (
                "core::slice::sort::<impl [T]>::f",
                "core::slice::sort<…>::f",
            ),
            ("<[T] as A>::f::{{closure}}", "<[T] as A>::f::{{closure}}"),
            ("main", "main"),
        ] {
            let made = short(whole);
            assert_eq!(made.as_deref().unwrap_or(whole), wanted);
        }
    }

    /// Whatever comes, there is a name.
    #[test]
    fn no_name_is_lost() {
        for odd in [
            "(",
            "()",
            "<",
            ">",
            "<>",
            "{",
            " ",
            "a b c",
            "operator",
            "operator<",
            "f(",
            "é<ü>",
            ")))",
            "::",
        ] {
            assert!(short(odd).is_none_or(|short| !short.is_empty()), "{odd}");
        }
    }
}
