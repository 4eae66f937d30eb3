//! Live tests: real processes, profiled.
