//! The preload library.
#![no_std]
