//! How the sources hang together: no circles, imports that run downwards, and links that lead
//! somewhere.

use rsunwind_tests::imports::{Edges, Sources, describe, in_circles, module, rooms};
use rsunwind_tests::repository;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each room's floor, from the top, as the table in a crate's module doc says: its rows' first
/// columns.
fn floors(lib: &str) -> BTreeMap<String, usize> {
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter(|row| row.starts_with(['[', '`']));
    let columns = rows.map(|row| row.split(" | ").next().unwrap());
    let rooms = columns.map(|column| column.split('`').skip(1).step_by(2));
    let numbered = rooms.enumerate();
    numbered
        .flat_map(|(floor, rooms)| rooms.map(move |room| (room.to_owned(), floor)))
        .collect()
}

/// Imports from a floor above, without a comment `// Upwards: …` in front of them.
fn upwards(sources: &Sources, edges: &Edges, floors: &BTreeMap<String, usize>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (module, used) in edges.iter().filter(|(module, _)| !module.is_empty()) {
        let Some(floor) = floors.get(&module[0]) else {
            complaints.push(format!("{} has no floor in lib.rs", module[0]));
            continue;
        };
        for (other, lines) in used {
            let above = floors.get(&other[0]).is_some_and(|other| other < floor);
            for line in lines.iter().filter(|_| above) {
                let text = &sources.0[module];
                let mut comment = text[..*line].iter().rev();
                let mut comment = comment
                    .by_ref()
                    .map(|line| line.trim())
                    .take_while(|line| line.starts_with("//"));
                if !comment.any(|line| line.starts_with("// Upwards: ")) {
                    let (module, other, line) = (module.join("::"), other.join("::"), line + 1);
                    complaints.push(format!("{module} uses {other} (line {line})"));
                }
            }
        }
    }
    complaints
}

#[test]
fn no_files_of_what_runs_in_programs_use_each_other() {
    for (crate_, some_use) in [
        ("librsunwind/src", ("trigger::perf", "sys")),
        (
            "librsunwind/engine/src",
            ("table::eh_frame", "table::usual"),
        ),
        ("preload/src", ("interpose::signals", "interpose::handlers")),
    ] {
        let edges = Sources::read(&repository().join(crate_)).edges();
        assert!(edges[&module(some_use.0)].contains_key(&module(some_use.1)));
        let circles = in_circles(&edges);
        assert!(
            circles.is_empty(),
            "{crate_}:\n{}",
            describe(&edges, &circles)
        );
    }
}

#[test]
fn the_runtime_imports_downwards_or_says_why_not() {
    let root = repository().join("librsunwind/src");
    let sources = Sources::read(&root);
    let floors = floors(&fs::read_to_string(root.join("lib.rs")).unwrap());
    assert!(floors["life"] < floors["handler"] && floors["thread"] < floors["sys"]);
    for room in floors.keys() {
        let is_there = sources.0.contains_key(std::slice::from_ref(room));
        assert!(
            is_there,
            "lib.rs gives `{room}` a floor, which is no module"
        );
    }
    let complaints = upwards(&sources, &sources.edges(), &floors);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn no_rooms_of_the_collector_use_each_other() {
    let rooms = rooms(&Sources::read(&repository().join("collector/src")).edges());
    assert!(rooms.len() > 20 && rooms[&module("record")].contains_key(&module("copy")));
    let circles = in_circles(&rooms);
    assert!(circles.is_empty(), "{}", describe(&rooms, &circles));
}

#[test]
fn links_in_the_documents_lead_to_files() {
    let root = repository();
    let mut documents = Vec::new();
    let folders = fs::read_dir(&root).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path());
    for folder in folders.chain([root.clone()]) {
        let is_docs = folder == root || folder.ends_with("docs");
        for file in fs::read_dir(&folder).into_iter().flatten() {
            let file = file.unwrap().path();
            let is_readme = file.file_name().is_some_and(|name| name == "README.md");
            if is_readme || is_docs && file.extension().is_some_and(|end| end == "md") {
                documents.push(file);
            }
        }
    }
    let mut count = 0;
    for document in &documents {
        let text = fs::read_to_string(document).unwrap();
        for link in links(&text) {
            let file = document.parent().unwrap().join(link);
            assert!(file.exists(), "{}: {link} is not there", document.display());
            count += 1;
        }
    }
    assert!(
        documents.len() > 3 && count > 30,
        "{count} in {documents:?}"
    );
}

/// The files that a Markdown text links to.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1);
    let links = links.filter_map(|rest| Some(rest.split_once(')')?.0));
    let files = links.map(|link| link.split('#').next().unwrap());
    files.filter(|file| !file.is_empty() && !file.contains("://"))
}

#[test]
fn imports_upwards_are_found() {
    let lib =
        "//! | floor | what |\n//! |---|---|\n//! | [`top`] | a |\n//! | `low`, [`lower`] | b |\n";
    let sources = Sources::made_up(&[
        ("", lib),
        ("top", "use crate::low;\nfn f() { low::f() }"),
        (
            "low",
            "// Upwards: so it is\n// since then.\nuse crate::top::One;\nfn f() {\n    crate::top::f();\n}",
        ),
        ("lower::deep", "use crate::low::f;\n"),
        ("none", ""),
    ]);
    let floors = floors(lib);
    let found = upwards(&sources, &sources.edges(), &floors);
    assert_eq!(
        found,
        ["low uses top (line 5)", "none has no floor in lib.rs"]
    );
}

#[test]
fn only_links_to_files_are_looked_up() {
    let text = "[a](b/c.rs#L1) and [d](https://e/f), [g](#h) [i](j.md)";
    assert_eq!(links(text).collect::<Vec<_>>(), ["b/c.rs", "j.md"]);
}

/// What a manifest declares under `[dependencies]` and its sisters.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("workspace");
        } else if let Some((name, _)) = line.split_once([' ', '.', '=']).filter(|_| inside) {
            names.push(name);
        }
    }
    names.retain(|name| !name.is_empty() && !name.starts_with('#'));
    names
}

/// All files of the repository, a line each.
fn listed() -> String {
    let mut git = Command::new("git");
    let listed = git.current_dir(repository()).arg("ls-files").output();
    String::from_utf8(listed.expect("tests/setup installs git").stdout).unwrap()
}

#[test]
fn dependencies_that_are_declared_are_used() {
    let root = repository();
    let listed = listed();
    let manifests: Vec<&str> = listed
        .lines()
        .filter(|file| file.ends_with("Cargo.toml"))
        .collect();
    assert!(manifests.len() > 8, "{manifests:?}");
    // Files that a crate includes by their path are another's, so all of a fuzz crate's count.
    fn folder(file: &str) -> &Path {
        Path::new(file).parent().unwrap()
    }
    let mut complaints = Vec::new();
    for manifest in manifests
        .iter()
        .filter(|manifest| !manifest.contains("/fuzz/"))
    {
        let nested = |file: &&str| {
            let nearest = manifests
                .iter()
                .filter(|other| Path::new(file).starts_with(folder(other)));
            nearest.max_by_key(|other| folder(other).as_os_str().len()) == Some(manifest)
        };
        let sources = listed
            .lines()
            .filter(|file| file.ends_with(".rs"))
            .filter(nested);
        let sources = sources.map(|file| fs::read_to_string(root.join(file)).unwrap_or_default());
        let sources = sources.collect::<String>();
        let text = fs::read_to_string(root.join(manifest)).unwrap();
        for name in dependencies(&text) {
            let used = format!("{}::", name.replace('-', "_"));
            if !sources.contains(&used) {
                complaints.push(format!("{manifest}: {name}"));
            }
        }
    }
    assert!(
        complaints.is_empty(),
        "not used:\n{}",
        complaints.join("\n")
    );
}

/// The numbers of the lines of a source with a comment beyond column 100. Rows of tables, pictures
/// and addresses on the web may be longer.
fn too_wide(file: &str, source: &str) -> Vec<usize> {
    let marks: &[&str] = match file.ends_with(".rs") {
        true => &["//"],
        false => &["//", "# ", "/* ", "* "],
    };
    let may_be = |text: &str| {
        ["|", "─", "►", "   ", "://"]
            .iter()
            .any(|it| text.contains(it))
    };
    let lines = source.lines().enumerate();
    let too_wide = lines.filter(|(_, line)| {
        let text = line.trim();
        let is_comment = marks.iter().any(|mark| text.starts_with(mark));
        is_comment && line.chars().count() > 100 && !may_be(text)
    });
    too_wide.map(|(index, _)| index + 1).collect()
}

#[test]
fn comments_are_not_too_wide() {
    let root = repository();
    let listed = listed();
    let is_made = |file: &str| {
        let folders = ["/corpus/", "/fixtures/"];
        file.ends_with(".md") || folders.iter().any(|folder| file.contains(folder))
    };
    let mut count = 0;
    let mut complaints = Vec::new();
    for file in listed.lines().filter(|file| !is_made(file)) {
        let Ok(source) = fs::read_to_string(root.join(file)) else {
            continue; // no text
        };
        count += 1;
        let lines = too_wide(file, &source).into_iter();
        complaints.extend(lines.map(|line| format!("{file}:{line}")));
    }
    assert!(count > 500, "{count}");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn comments_that_are_too_wide_are_found() {
    let wide = format!("    // {}\n", "word ".repeat(20));
    let code = format!("    \"{}\"\n", "word ".repeat(20));
    let row = format!("// | {}|\n", "word ".repeat(20));
    let source = [&*code, &wide, &row, "// short\n"].concat();
    assert_eq!(too_wide("a.rs", &source), [2]);
    let script = wide.replace("//", "#");
    assert_eq!(too_wide("a", &script), [1]);
    assert!(too_wide("a.rs", &script).is_empty());
}

#[test]
fn dependencies_are_found() {
    let manifest = "[package]\nname = \"a\"\n[dependencies]\none.workspace = true\n# why\ntwo-b = { path = \"x\" }\n\n[dev-dependencies]\nthree = \"1\"\n[[bin]]\nname = \"c\"";
    assert_eq!(dependencies(manifest), ["one", "two-b", "three"]);
}
