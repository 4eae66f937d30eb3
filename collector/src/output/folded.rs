//! Folded stacks, Brendan Gregg's format: a line per distinct stack, functions from root to leaf
//! with semicolons between, then a blank and the weight in sampling periods (the shortest where
//! there are several; of other events than CPU time: what they counted). flamegraph.pl, inferno,
//! speedscope and many others read it.

use super::call_tree::{CallTree, Step};
use super::{Format, Options};
use crate::profile::Profile;
use std::io::{self, Write};

pub(super) struct Folded;

impl Format for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn about(&self) -> &'static str {
        "stacks as lines of text, for flame graph tools"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".folded", ".collapsed"]
    }

    fn write(&self, profile: &Profile, options: &Options, out: &mut dyn Write) -> io::Result<()> {
        let tree = CallTree::of(profile, options);
        let whole = |path: &mut String, step: &Step<'_>| path.push_str(&step.name.whole);
        tree.paths(0, whole, |stack, weight| writeln!(out, "{stack} {weight}"))
    }
}
