//! The `rsunwind` command.
fn main() {}
