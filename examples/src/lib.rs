//! Programs with a known stack.
