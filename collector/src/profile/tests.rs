//! Profiles of recordings made for the test.
