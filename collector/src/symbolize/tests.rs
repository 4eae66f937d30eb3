//! Names of real binaries, built for the test.
