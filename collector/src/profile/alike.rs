//! Functions that a reader cannot tell apart. Without template arguments and parameters,
//! instances of one template and overloads of one function are called the same: where they are,
//! they are one.

use super::{FunctionId, Names, Profile};
use crate::intern::HashMap;

impl Profile {
    /// For each function the first one that is called the same, in the same binary and
    /// file, and begins at the same line.
    #[must_use]
    pub fn alike(&self, names: Names) -> Vec<FunctionId> {
        let mut first = HashMap::default();
        let functions = self.functions.iter().enumerate();
        let first = functions.map(|(index, function)| {
            let id = FunctionId::next_of(index);
            let (image, mode) = (function.image, function.mode);
            let source = (&function.source, function.begins);
            match names {
                Names::Whole => id,
                Names::Short => *first
                    .entry((function.called(names), image, mode, source))
                    .or_insert(id),
            }
        });
        first.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;

    #[test]
    fn instances_of_a_template_are_one_unless_whole_names_are_asked_for() {
        let mut profile = example();
        profile.functions.truncate(1);
        let called = |profile: &mut Profile, name: &str, short: &str| {
            let mut function = profile.functions[0].clone();
            (function.name, function.short) = (name.into(), Some(short.into()));
            profile.functions.push(function);
        };
        called(&mut profile, "f<int>(int)", "f<…>");
        called(&mut profile, "f<char>(char)", "f<…>");
        called(&mut profile, "g(char)", "g");
        let of = |names| -> Vec<_> {
            let alike = profile.alike(names).into_iter();
            alike.map(FunctionId::index).collect()
        };
        assert_eq!(of(Names::Short), [0, 1, 1, 3]);
        assert_eq!(of(Names::Whole), [0, 1, 2, 3]);
        profile.functions[2].source = Some("other.py".into());
        assert_eq!(profile.alike(Names::Short)[2].index(), 2, "of another file");
        profile.functions[2].source = None;
        profile.functions[2].begins = 7;
        assert_eq!(profile.alike(Names::Short)[2].index(), 2, "at another line");
    }
}
