//! What is written is read again, byte by byte, as the page's script does it.

use super::*;
use crate::profile::tests::example;
use base64::Engine;
use serde_json::Value;
use std::io::Read;

fn page(profile: &Profile) -> String {
    let mut out = Vec::new();
    Page.write(profile, &Options::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The fixed part, with a mark where the data were, and the data.
fn apart(page: &str) -> (String, &str) {
    let begin = r#"<script id="data" type="text/plain">"#;
    let (before, rest) = page.split_once(begin).unwrap();
    let (data, behind) = rest.split_once("</script>").unwrap();
    (format!("{before}…{behind}"), data)
}

struct Data {
    head: Value,
    bytes: Vec<u8>,
    at: usize,
}

impl Data {
    fn of(page: &str) -> Self {
        let deflated = BASE64_STANDARD.decode(apart(page).1).unwrap();
        let mut bytes = Vec::new();
        let mut inflate = flate2::read::DeflateDecoder::new(&deflated[..]);
        inflate.read_to_end(&mut bytes).unwrap();
        let at = 4 + u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let head = serde_json::from_slice(&bytes[4..at]).unwrap();
        Self { head, bytes, at }
    }

    fn column(&mut self, length: usize) -> Vec<u64> {
        let number = |at: &mut usize| {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = self.bytes[*at];
                *at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        (0..length).map(|_| number(&mut self.at)).collect()
    }

    /// For each node how deep it is, and its function's name.
    fn nodes(&mut self) -> Vec<(u64, String)> {
        let count = usize::try_from(self.head["nodes"].as_u64().unwrap()).unwrap();
        let (less, functions) = (self.column(count), self.column(count));
        let mut deep = 0;
        let depths = less.into_iter().map(|less| {
            deep = deep + 1 - less;
            deep
        });
        let depths: Vec<u64> = depths.collect();
        let names = functions.into_iter().map(|id| self.name(id));
        depths.into_iter().zip(names).collect()
    }

    fn name(&self, id: u64) -> String {
        let functions = &self.head["functions"];
        let text = &functions["name"][usize::try_from(id).unwrap()];
        let text = usize::try_from(text.as_u64().unwrap()).unwrap();
        functions["texts"][text].as_str().unwrap().to_owned()
    }
}

#[test]
fn the_data_are_the_profile() {
    let mut data = Data::of(&page(&example()));
    assert_eq!(data.head["command"], "prog --fast");
    assert_eq!(data.head["shown"], "cpu");
    assert_eq!(data.head["processes"][0]["name"], "prog");
    let threads = data.head["threads"].as_array().unwrap().clone();
    let threads = threads.iter().map(|one| (&one["name"], &one["samples"]));
    let threads: Vec<_> = threads
        .map(|(name, samples)| format!("{name} {samples}"))
        .collect();
    assert_eq!(threads, [r#""prog" 3"#, r#""worker" 1"#]);
    let nodes = data.nodes();
    let nodes: Vec<(u64, &str)> = nodes.iter().map(|(deep, name)| (*deep, &**name)).collect();
    let expected = [
        (1, "_start"),
        (2, "main"),
        (3, "work; more"),
        (4, "leaf"),
        (3, "leaf"),
        (4, "leaf"),
        (3, "[5 frames elided]"),
        (4, "leaf"),
        (1, "[truncated: no unwind information]"),
        (2, "work; more"),
    ];
    // Of callees with as much as each other either may be first.
    let mut sorted = (nodes.clone(), expected.to_vec());
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    assert_eq!(sorted.0, sorted.1);
    assert_eq!(nodes[..4], expected[..4], "what has the most comes first");
    assert_eq!(data.column(4), [1000, 1000, 2000, 3000], "times, µs");
    assert_eq!(data.column(4), [0; 4], "CPU time");
    let ends = data.column(4);
    let leaf = |end: u64| nodes[usize::try_from(end).unwrap() - 1];
    let leaves: Vec<_> = ends.into_iter().map(leaf).collect();
    assert_eq!(
        leaves,
        [(4, "leaf"), (4, "leaf"), (4, "leaf"), (2, "work; more")]
    );
    assert_eq!(data.column(4), [2_000_000, 1_000_000, 1_000_000, 3_000_000]);
    assert_eq!(data.at, data.bytes.len(), "nothing is left");
}

#[test]
fn names_stand_nowhere_but_in_the_data() {
    let hostile = r#"</script><img src=x onerror="alert(1)"><!--@@SCRIPT@@"#;
    let mut profile = example();
    let plain = page(&profile);
    for function in &mut profile.functions {
        function.name = hostile.into();
    }
    for thread in &mut profile.recording.threads {
        thread.name = hostile.to_owned();
    }
    for process in &mut profile.recording.processes {
        process.executable = hostile.to_owned();
        process.command = vec![hostile.to_owned()];
    }
    let written = page(&profile);
    assert_eq!(apart(&written).0, apart(&plain).0);
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    assert!(apart(&written).1.bytes().all(base64));
    let data = Data::of(&written);
    assert_eq!(data.head["command"], hostile);
    assert_eq!(data.head["threads"][1]["name"], hostile);
    assert_eq!(data.name(0), hostile);
}

/// Other sides' texts, and ways to make markup of one's own.
#[test]
fn the_page_is_whole_and_asks_nobody() {
    let (page, _) = apart(&page(&example()));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(!page.contains("@@"), "a part was not put in");
    for outside in [
        "http:", "https:", "src=", "href=", "@import", "url(", "import(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    for markup in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    ] {
        assert!(!page.contains(markup), "{markup}");
    }
    let scripts = page.matches("<script").count();
    assert_eq!(scripts, page.matches("</script>").count(), "{scripts}");
}

#[test]
fn more_samples_are_a_few_bytes_each() {
    let mut profile = example();
    let small = page(&profile).len();
    let sample = profile.samples[0];
    let more = (0..100_000).map(|index| crate::profile::Sample {
        time_ns: sample.time_ns + index * 1_000_003,
        ..sample
    });
    let before = profile.samples.len();
    profile.samples.splice(0..1, more);
    let added = page(&profile).len() - small;
    let samples = profile.samples.len() - before;
    assert!(added < samples * 4, "{added} bytes for {samples} samples");
    let mut data = Data::of(&page(&profile));
    data.nodes();
    let count = profile.samples.len();
    let times = data.column(count);
    assert!(
        times[10..1000]
            .iter()
            .all(|step| (1000..=1001).contains(step))
    );
}

#[test]
fn large_numbers_and_no_samples_are_written() {
    let mut profile = example();
    profile.samples[0].weight = u64::MAX;
    let mut data = Data::of(&page(&profile));
    data.nodes();
    let count = profile.samples.len();
    for _ in 0..3 {
        data.column(count);
    }
    assert_eq!(data.column(count)[0], (1 << 53) - 1);
    profile.samples.clear();
    let data = Data::of(&page(&profile));
    assert_eq!(data.at, data.bytes.len());
    assert_eq!(data.head["threads"], serde_json::json!([]));
}

#[test]
fn samples_have_the_labels_of_their_regions() {
    let mut profile = example();
    assert_eq!(
        Data::of(&page(&profile)).head["labels"],
        serde_json::json!([])
    );
    let labels = [("route", "/a"), ("user", "7")];
    let labels = labels.map(|(key, value)| (key.into(), value.into()));
    profile.recording.labels.list().push(labels.to_vec());
    profile.samples[1].labels = crate::recording::LabelsId::new(2);
    let mut data = Data::of(&page(&profile));
    let sets = serde_json::json!([[], ["[not known]"], ["route=/a", "user=7"]]);
    assert_eq!(data.head["labels"], sets);
    data.nodes();
    for _ in 0..4 {
        data.column(4);
    }
    let mut of_samples = data.column(4);
    of_samples.sort_unstable();
    assert_eq!(of_samples, [0, 0, 0, 2]);
    assert_eq!(data.at, data.bytes.len(), "nothing is left");
}
