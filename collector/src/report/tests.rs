//! Reports of a recording made for the test.
