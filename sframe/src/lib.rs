//! SFrame stack-trace tables, versions 1 to 3.
#![no_std]
#![forbid(unsafe_code)]
