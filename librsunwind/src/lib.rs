//! The self-unwinding runtime.
#![no_std]
