//! Tables and trees for other programs: JSON and CSV. Names are whole, amounts are in ns or in what
//! the event counted.

use super::call_tree::{Children, NodeId, Tree};
use super::columns::headings;
use super::table::Row;
use super::{By, tree};
use crate::profile::{Names, Profile, is_time};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// An object with the rows or the tree
    Json,
    /// A line for each row
    Csv,
}

/// Which part something is of all, 0 to 1.
fn share(part: u64, whole: u64) -> f64 {
    let share = part as f64 / whole.max(1) as f64;
    (share * 1e6).round() / 1e6
}

pub(super) fn table(profile: &Profile, rows: &[Row], by: By, format: Format) -> String {
    let whole = profile.whole();
    let (name, origin) = headings(by);
    let (name, origin) = (name.to_lowercase(), origin.to_lowercase());
    if format == Format::Csv {
        let mut out = format!("self,self_share,total,total_share,{name},{origin}\n");
        for row in rows {
            let (own, total) = (row.own_ns, row.total_ns);
            let (own_share, total_share) = (share(own, whole), share(total, whole));
            let (name, origin) = (quoted(&row.name), quoted(&row.origin));
            let _ = writeln!(
                out,
                "{own},{own_share},{total},{total_share},{name},{origin}"
            );
        }
        return out;
    }
    let row = |row: &Row| {
        json!({
            "self": row.own_ns,
            "total": row.total_ns,
            &name: row.name,
            &origin: row.origin,
        })
    };
    with_head(profile, "rows", rows.iter().map(row).collect())
}

pub(super) fn calls(
    profile: &Profile,
    tree: &Tree,
    limit: Option<usize>,
    format: Format,
) -> String {
    let children = tree.children(profile, tree::least(tree), limit);
    if format == Format::Json {
        let nodes = children.of(None).iter();
        let nodes = nodes.map(|id| nested(profile, tree, &children, *id));
        return with_head(profile, "tree", nodes.collect());
    }
    let whole = profile.whole();
    let mut out = "depth,self,self_share,total,total_share,function,module\n".to_owned();
    let mut todo: Vec<(NodeId, usize)> = Vec::new();
    todo.extend(children.of(None).iter().rev().map(|id| (*id, 0)));
    while let Some((id, depth)) = todo.pop() {
        let node = tree.nodes[id.index()];
        let function = &profile.functions[node.function.index()];
        let name = quoted(function.called(Names::Whole));
        let module = quoted(profile.image_name(function));
        let (own, total) = (node.own, node.total);
        let (own_share, total_share) = (share(own, whole), share(total, whole));
        let _ = writeln!(
            out,
            "{depth},{own},{own_share},{total},{total_share},{name},{module}"
        );
        let below = children.of(Some(id)).iter().rev();
        todo.extend(below.map(|id| (*id, depth + 1)));
    }
    out
}

/// A node with what is below it. Made from the leaves up: a tree may be deeper than the stack.
fn nested(profile: &Profile, tree: &Tree, children: &Children, root: NodeId) -> Value {
    let mut order = vec![root];
    let mut next = 0;
    while let Some(id) = order.get(next).copied() {
        order.extend(children.of(Some(id)));
        next += 1;
    }
    let mut made: std::collections::HashMap<NodeId, Value> = std::collections::HashMap::new();
    for id in order.iter().rev() {
        let node = tree.nodes[id.index()];
        let function = &profile.functions[node.function.index()];
        let below = children.of(Some(*id)).iter();
        let below: Vec<Value> = below.filter_map(|id| made.remove(id)).collect();
        let value = json!({
            "function": function.called(Names::Whole),
            "module": profile.image_name(function),
            "self": node.own,
            "total": node.total,
            "children": below,
        });
        made.insert(*id, value);
    }
    made.remove(&root).unwrap_or(Value::Null)
}

fn with_head(profile: &Profile, what: &str, list: Vec<Value>) -> String {
    let session = profile.recording.session.as_ref();
    let unit = if is_time(profile.shown_event) {
        "ns"
    } else {
        "count"
    };
    let text = json!({
        "command": session.map(|session| &session.command),
        "event": profile.event_name(profile.shown_event),
        "unit": unit,
        "total": profile.whole(),
        "recorded": profile.unfiltered.unwrap_or_else(|| profile.whole()),
        "samples": profile.number(),
        what: list,
    });
    format!("{text}\n")
}

/// A field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
