//! Unwinding in a signal handler.
#![cfg_attr(not(test), no_std)]
