//! What the modules of a crate use of each other, by its sources.
//!
//! It is read from `use` declarations and from paths that begin with `crate::` or `super::`; a name
//! that a module only passes on (`pub use`) counts for the file that it comes from. Tests are left
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module, from the crate's root: `["trigger", "perf"]`.
pub type Module = Vec<String>;
/// A module by its name: `trigger::perf`.
#[must_use]
pub fn module(name: &str) -> Module {
    let parts = name.split("::").filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// What modules use of each other, and the lines where.
pub type Edges = BTreeMap<Module, BTreeMap<Module, Vec<usize>>>;

/// A path in a source, with the line where its statement begins (from 0).
struct Used {
    path: Vec<String>,
    alias: Option<String>,
    public: bool,
    line: usize,
}

/// The modules of a crate, with their lines.
#[derive(Debug, Default)]
pub struct Sources(pub BTreeMap<Module, Vec<String>>);

impl Sources {
    /// Those of the crate whose `lib.rs` is in that folder.
    pub fn read(root: &Path) -> Self {
        let mut sources = Self::default();
        sources.read_below(root, &[]);
        sources.leave_out_tests();
        sources
    }

    /// A made-up crate of modules by name, the root's being empty, and text.
    pub fn made_up(files: &[(&str, &str)]) -> Self {
        let mut sources = Self::default();
        for (name, text) in files {
            sources.add(module(name), text);
        }
        sources.leave_out_tests();
        sources
    }

    fn read_below(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem.ends_with("tests") || stem == "main" {
                continue;
            }
            let mut inner = module.to_vec();
            if !matches!(stem, "mod" | "lib") {
                inner.push(stem.to_owned());
            }
            if path.is_dir() {
                self.read_below(&path, &inner);
            } else if path.extension().is_some_and(|end| end == "rs") {
                self.add(inner, &fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Modules that are there for tests only.
    fn leave_out_tests(&mut self) {
        let mut left_out = Vec::new();
        for (module, lines) in &self.0 {
            for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
                if let Some((_, name)) = pair[1].split_once("mod ") {
                    let name = name.trim_end_matches(';').to_owned();
                    left_out.push([module.as_slice(), &[name]].concat());
                }
            }
        }
        let is_out = |module: &Module| left_out.iter().any(|out| module.starts_with(out));
        self.0.retain(|module, _| !is_out(module));
    }

    /// Without the module's tests, which stand at its end.
    fn add(&mut self, module: Module, text: &str) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = text.lines().map(str::to_owned).collect();
        self.0.insert(module, lines);
    }

    /// The path of a module or item that is named in `module`, from the crate's root; `None` if it
    /// is of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let left = module.len().checked_sub(ups)?;
                Some([&module[..left], &path[ups..]].concat())
            }
            _ => {
                let inner = [module, &path[..1]].concat();
                self.0.contains_key(&inner).then(|| [module, path].concat())
            }
        }
    }

    /// The file that a path leads to, behind what others pass on.
    fn file_of(&self, path: &[String], passed_on: &BTreeMap<Vec<String>, Vec<String>>) -> Module {
        let mut path = path.to_vec();
        for _ in 0..9 {
            let length = (0..=path.len()).rev();
            let mut lengths = length.filter(|n| self.0.contains_key(&path[..*n]));
            let length = lengths.next().unwrap_or(0);
            match path.get(..=length).and_then(|name| passed_on.get(name)) {
                Some(origin) => path = [origin.as_slice(), &path[length + 1..]].concat(),
                None => return path[..length].to_vec(),
            }
        }
        panic!("{path:?} is passed on in a circle");
    }

    /// What the modules use of each other.
    ///
    /// # Panics
    /// A name is passed on in a circle, which the compiler would not take.
    pub fn edges(&self) -> Edges {
        let used: Vec<(&Module, Vec<Used>)> = self
            .0
            .iter()
            .map(|(module, lines)| (module, paths(lines)))
            .collect();
        let mut passed_on = BTreeMap::new();
        for (module, paths) in &used {
            for one in paths.iter().filter(|one| one.public) {
                if let Some(origin) = self.absolute(module, &one.path) {
                    let name = one.alias.as_ref().or(one.path.last()).unwrap();
                    let name = [module.as_slice(), std::slice::from_ref(name)].concat();
                    if name != origin {
                        passed_on.insert(name, origin);
                    }
                }
            }
        }
        let mut edges = Edges::new();
        for (module, paths) in &used {
            let of_module = edges.entry((*module).clone()).or_default();
            for one in paths {
                let Some(path) = self.absolute(module, &one.path) else {
                    continue;
                };
                let passes_child_on = one.public && path.starts_with(module);
                // A module that is imported as such is used by what is named of it.
                let mut targets = Vec::new();
                if self.0.contains_key(&path) {
                    let name = one.alias.as_ref().or(one.path.last()).unwrap();
                    for item in named_of(name, &self.0[*module]) {
                        let path = [path.as_slice(), &[item]].concat();
                        targets.push(self.file_of(&path, &passed_on));
                    }
                }
                if targets.is_empty() {
                    targets.push(self.file_of(&path, &passed_on));
                }
                for target in targets {
                    if target != **module && !target.is_empty() && !passes_child_on {
                        of_module.entry(target).or_default().push(one.line);
                    }
                }
            }
        }
        edges
    }
}

/// The code of a line, without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What follows `name::` in these lines.
fn named_of(name: &str, lines: &[String]) -> BTreeSet<String> {
    let lead = format!("{name}::");
    let mut items = BTreeSet::new();
    for line in lines {
        let line = code(line);
        for (at, _) in line.match_indices(&lead) {
            if !line[..at].ends_with(|c| is_word(c) || c == ':') {
                let item = line[at + lead.len()..].split(|c| !is_word(c)).next();
                items.extend(item.filter(|item| !item.is_empty()).map(str::to_owned));
            }
        }
    }
    items
}

/// Whether that is what stands in front of `use`.
fn is_visibility(text: &str) -> bool {
    let text = text.trim_end();
    text.is_empty() || text == "pub" || (text.starts_with("pub(") && text.ends_with(')'))
}

/// The paths in these lines that may lead to other modules of the crate.
fn paths(lines: &[String]) -> Vec<Used> {
    let mut found = Vec::new();
    let mut lines = lines.iter().enumerate();
    while let Some((line, text)) = lines.next() {
        let text = code(text).trim();
        let (visibility, declared) = match text.find("use ") {
            Some(at) if is_visibility(&text[..at]) => (&text[..at], &text[at + 4..]),
            _ => {
                found.extend(in_code(text).into_iter().map(|path| Used {
                    path,
                    alias: None,
                    public: false,
                    line,
                }));
                continue;
            }
        };
        let mut tree = declared.to_owned();
        while !tree.contains(';') {
            let Some((_, more)) = lines.next() else { break };
            tree.push_str(code(more).trim());
        }
        for path in leaves(tree.split(';').next().unwrap()) {
            let (path, alias) = match path.split_once(" as ") {
                Some((path, alias)) => (path.to_owned(), Some(alias.trim().to_owned())),
                None => (path, None),
            };
            let mut path: Vec<String> = path.split("::").map(|part| part.trim().into()).collect();
            if path.len() > 1
                && path
                    .last()
                    .is_some_and(|last| last == "self" || last == "*")
            {
                path.pop();
            }
            let public = visibility.starts_with("pub");
            found.push(Used {
                path,
                alias,
                public,
                line,
            });
        }
    }
    found
}

/// Paths from `crate::` and `super::` in a line of code.
fn in_code(line: &str) -> Vec<Vec<String>> {
    let starts = line
        .match_indices("crate::")
        .chain(line.match_indices("super::"));
    starts
        .filter(|(at, _)| !line[..*at].ends_with(|c| is_word(c) || c == ':' || c == '$'))
        .map(|(at, _)| {
            let path = line[at..]
                .split(|c| !is_word(c) && c != ':')
                .next()
                .unwrap();
            path.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .collect()
}

/// The paths of a tree of imports: `a::{b, c::{d, e}}` has three.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((lead, inner)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let inner = inner.strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts
        .flat_map(leaves)
        .map(|leaf| format!("{lead}{leaf}"))
        .collect()
}

/// The modules that are left when again and again those are taken away that use no other one, or
/// that no other one uses.
#[must_use]
pub fn in_circles(edges: &Edges) -> BTreeSet<Module> {
    let mut left: BTreeSet<Module> = edges.keys().cloned().collect();
    loop {
        let uses = |one: &Module| edges[one].keys().any(|other| left.contains(other));
        let used = |one: &Module| left.iter().any(|other| edges[other].contains_key(one));
        let kept = left.iter().filter(|one| uses(one) && used(one));
        let kept: BTreeSet<Module> = kept.cloned().collect();
        if kept == left {
            return left;
        }
        left = kept;
    }
}

/// Says who uses whom in what [`in_circles`] has found.
#[must_use]
pub fn describe(edges: &Edges, circles: &BTreeSet<Module>) -> String {
    let mut text = String::new();
    for one in circles {
        for other in edges[one].keys().filter(|other| circles.contains(*other)) {
            text += &format!("{} uses {}\n", one.join("::"), other.join("::"));
        }
    }
    text
}

/// The rooms of a crate, which are the modules below its root, with all that is in them.
#[must_use]
pub fn rooms(edges: &Edges) -> Edges {
    let room = |module: &Module| module[..module.len().min(1)].to_vec();
    let mut all = Edges::new();
    for (module, used) in edges.iter().filter(|(module, _)| !module.is_empty()) {
        let of_room = all.entry(room(module)).or_default();
        for other in used.keys().map(room).filter(|other| *other != room(module)) {
            of_room.entry(other).or_default();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(modules: &BTreeSet<Module>) -> Vec<String> {
        modules.iter().map(|module| module.join("::")).collect()
    }

    #[test]
    fn circles_are_found() {
        let sources = Sources::made_up(&[
            ("", "pub mod a;\npub mod b;\n"),
            (
                "a",
                "use crate::{\n    b::{self, other::Three},\n    e,\n};\nfn f() { b::go() }",
            ),
            ("b", "mod other;\npub use other::Three;\n"),
            (
                "b::other",
                "fn f(s: &str) { super::super::c::g() } // crate::a",
            ),
            ("c", "use super::d::Four as Five;\n"),
            (
                "d",
                "#[cfg(test)]\npub(crate) mod example;\nuse crate::b::Three;\n#[cfg(test)]\nmod tests {\n use crate::a; }",
            ),
            ("d::example", "use crate::a::f;"),
            ("e", "use libc::a;\n"),
        ]);
        let edges = sources.edges();
        assert_eq!(names(&in_circles(&edges)), ["b::other", "c", "d"]);
        assert_eq!(names(&in_circles(&rooms(&edges))), ["b", "c", "d"]);
        assert!(describe(&edges, &in_circles(&edges)).contains("d uses b::other"));
        assert!(edges[&module("a")].contains_key(&module("b")));
    }
}
