//! Summaries of recordings made for the test.
