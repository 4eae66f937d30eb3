//! Prints a tree of calls, a function a line.

use super::call_tree::{NodeId, Shape, Tree};
use super::look::{Look, without_middle};
use crate::numbers::{plural, share};
use crate::profile::{Names, Profile};
use std::fmt::Write as _;

/// Parts of the whole that are too small to be shown, in thousandths.
const LEAST: u64 = 5;

/// What a node must have to be shown: half a per cent of the whole.
pub(super) fn least(tree: &Tree) -> u64 {
    tree.whole() / 1000 * LEAST
}

/// Prints a tree below its headings.
pub(super) fn print(
    out: &mut String,
    profile: &Profile,
    shape: Shape<'_>,
    limit: Option<usize>,
    names: Names,
    look: Look,
) {
    let tree = Tree::of(profile, shape, names);
    let children = tree.children(profile, least(&tree), limit);
    let whole = profile.whole();
    // What is in a function itself is not in who calls it.
    let upwards = matches!(shape, Shape::Callers(_));
    let numbers_width = if upwards { 20 } else { 40 };
    let _ = writeln!(
        out,
        "{}",
        look.heading(&match upwards {
            true => format!("{:>18}  FUNCTION", "TOTAL"),
            false => format!("{:>18}  {:>18}  FUNCTION", "TOTAL", "SELF"),
        })
    );
    let mut todo: Vec<(NodeId, usize)> = Vec::new();
    let push = |todo: &mut Vec<(NodeId, usize)>, of, depth| {
        let nodes = children.of(of).iter().rev();
        todo.extend(nodes.map(|id| (*id, depth)));
    };
    push(&mut todo, None, 0);
    while let Some((id, depth)) = todo.pop() {
        let node = tree.nodes[id.index()];
        let function = &profile.functions[node.function.index()];
        let numbers = |amount: u64| {
            let text = format!("{:>9}  {:>7}", profile.amount(amount), share(amount, whole));
            look.part(&text, amount, whole)
        };
        let sign = match node.parent {
            Some(_) if upwards => "← ",
            _ => "",
        };
        let deepest = look
            .width
            .map_or(40, |width| width.saturating_sub(numbers_width + 20) / 2);
        let indent = 2 * depth.min(deepest);
        let name = function.called(names);
        let name = look.width.map_or(name.into(), |width| {
            let room = width.saturating_sub(numbers_width + indent + sign.chars().count());
            without_middle(name, room)
        });
        let name = format!("{:indent$}{sign}{name}", "");
        let (own, total) = (numbers(node.own), numbers(node.total));
        let _ = match upwards {
            true => writeln!(out, "{total}  {name}"),
            false => writeln!(out, "{total}  {own}  {name}"),
        };
        // Only where paths part are they set apart.
        let below = children.of(Some(id));
        let single = below.len() == 1 && children.of(node.parent).len() == 1;
        push(&mut todo, Some(id), depth + usize::from(!single));
    }
    if children.left_out > 0 {
        let left_out = plural(children.left_out as u64, "more", "more");
        let amount = profile.amount(children.most_left_out);
        let _ = writeln!(out, "… and {left_out}, each of {amount} at most");
    }
}
