//! What an agent has inserted into tables of ClickHouse, as the server of the tests has it.

use crate::receiver::{Posted, Receiver, unzipped};
use serde_json::Value;
use std::collections::HashSet;

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
    let text = String::from_utf8(unzipped(&one.body)).expect("rows are text");
    let rows = text.lines().map(serde_json::from_str);
    let rows: Result<_, _> = rows.collect();
    (table.unwrap_or_default(), rows.expect("rows are JSON"))
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
    for one in &receiver.taken("/?database=profiles&query=INSERT%20INTO%20") {
        let (table, rows) = inserted(one);
        let token = one.path.split("insert_deduplication_token=").nth(1);
        for row in &rows {
            match table {
                "rsunwind_frames" => assert!(frames.insert(number(row, "hash"))),
                "rsunwind_stacks" => {
                    let mut all = row["frames"].as_array().expect("a list").iter();
                    assert!(all.all(|frame| frames.contains(&frame.as_u64().expect("a hash"))));
                    assert!(stacks.insert(number(row, "hash")));
                }
                "rsunwind_windows" => {
                    let id = format!("{:016x}", number(row, "window"));
                    assert_eq!(token, Some(&*id));
                    assert!(tokens.insert(id));
                    found.windows += 1;
                    found.labels = row["labels"].clone();
                }
                _ => {
                    let service = row["service"].as_str().expect("a name");
                    found.services.insert(service.to_owned());
                    assert!(stacks.contains(&number(row, "stack")));
                    assert!(tokens.contains(token.expect("a window")));
                    found.cpu_ns += row["cpu_ns"].as_i64().expect("a number");
                }
            }
        }
    }
    found
}

/// The rows of samples that were sent to the database `default`.
#[must_use]
pub fn samples(receiver: &Receiver) -> Vec<Value> {
    let posted = receiver.taken("/?database=default&query=INSERT%20INTO%20rsunwind_samples");
    posted.iter().flat_map(|one| inserted(one).1).collect()
}
