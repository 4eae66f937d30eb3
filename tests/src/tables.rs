//! What an agent has inserted into tables of ClickHouse, as the server of the tests has it.

use crate::native;
use crate::receiver::{Posted, Receiver, unzipped};
use serde_json::Value;
use std::collections::HashSet;
use twox_hash::XxHash64;

/// What is in the tables.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// How many windows there are.
    pub windows: usize,
    /// The sum of samples, ns.
    pub cpu_ns: i64,
    /// What services they are of.
    pub services: HashSet<String>,
    /// What is said of the last window.
    pub labels: Value,
}

/// The table and the rows of an insert.
fn inserted(one: &Posted) -> (&str, Vec<Value>) {
    let words = one.path.split("INSERT%20INTO%20").nth(1);
    let table = words.and_then(|words| words.split("%20").next());
    assert!(one.path.contains("FORMAT%20Native&"), "{}", one.path);
    (
        table.unwrap_or_default(),
        native::rows(&unzipped(&one.body)),
    )
}

/// Reads what one agent has sent to the database `profiles`.
///
/// # Panics
/// If a frame or a stack came twice or too late, or a sample not with its window.
#[must_use]
pub fn in_tables(receiver: &Receiver) -> Tables {
    let (mut frames, mut stacks) = (HashSet::new(), HashSet::new());
    let (mut tokens, mut found) = (HashSet::new(), Tables::default());
    let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
    let of_service =
        |row: &Value, hash| (row["service"].as_str().expect("a name").to_owned(), hash);
    for one in &receiver.taken("/?database=profiles&query=INSERT%20INTO%20") {
        let (table, rows) = inserted(one);
        let token = one.path.split("insert_deduplication_token=").nth(1);
        for row in &rows {
            match table {
                "rsunwind_frames" => {
                    assert!(frames.insert(of_service(row, number(row, "hash"))));
                }
                "rsunwind_stacks" => {
                    let all = row["frames"].as_array().expect("a list").iter();
                    let all: Vec<_> = all.map(|one| one.as_u64().expect("a hash")).collect();
                    assert!(
                        all.iter()
                            .all(|frame| frames.contains(&of_service(row, *frame)))
                    );
                    assert!(stacks.insert(of_service(row, hash(&all))));
                }
                "rsunwind_windows" => {
                    let id = format!("{:016x}", number(row, "window"));
                    assert_eq!(token, Some(&*id));
                    assert!(tokens.insert(id));
                    found.windows += 1;
                    found.labels = row["labels"].clone();
                }
                _ => {
                    let stack = of_service(row, number(row, "stack"));
                    assert!(stacks.contains(&stack));
                    found.services.insert(stack.0);
                    assert!(tokens.contains(token.expect("a window")));
                    found.cpu_ns += row["cpu_ns"].as_i64().expect("a number");
                }
            }
        }
    }
    found
}

/// As the table's definition has it.
fn hash(frames: &[u64]) -> u64 {
    let frames: Vec<_> = frames.iter().map(u64::to_string).collect();
    XxHash64::oneshot(0, frames.join(",").as_bytes())
}

/// The rows of samples that were sent to the database `default`.
#[must_use]
pub fn samples(receiver: &Receiver) -> Vec<Value> {
    let posted = receiver.taken("/?database=default&query=INSERT%20INTO%20rsunwind_samples%20");
    posted.iter().flat_map(|one| inserted(one).1).collect()
}
