//! The C interface: what `include/rsunwind.h` declares. The library that is preloaded and the one
//! that is linked export the same functions, under the names of
//! [`for_each_function`](crate::for_each_function).
//!
//! # Safety
//! Addresses of functions are given between libraries.

#![allow(unsafe_code)]

pub mod clients;
pub mod languages;
pub mod regions;

/// All functions, in the order of [`for_each_function`](crate::for_each_function), which only grows
/// at its end. The preload library exports its own as `rsunwind_preloaded_2`, for linked libraries,
/// which may be older or newer.
#[derive(Debug)]
#[repr(C)]
pub struct Functions<const COUNT: usize> {
    /// How many there are.
    pub count: usize,
    /// Each of its own type. The library's own, whatever others of the same name there are.
    pub all: [*const (); COUNT],
}

// SAFETY: addresses of functions, which never change.
unsafe impl<const COUNT: usize> Sync for Functions<COUNT> {}

/// Hands all functions, with the names that they are exported under, to another macro.
#[macro_export]
macro_rules! for_each_function {
    ($export:ident) => {
        $export! {
            rsunwind_register = clients::register,
            rsunwind_unregister = clients::unregister,
            rsunwind_request = clients::request,
            rsunwind_backtrace = clients::backtrace,
            rsunwind_counts = clients::counts,
            rsunwind_error = clients::error,
            rsunwind_language_add = languages::language_add,
            rsunwind_language_remove = languages::language_remove,
            rsunwind_language_cover = languages::language_cover,
            rsunwind_language_uncover = languages::language_uncover,
            rsunwind_language_counts = languages::language_counts,
            rsunwind_jit_add = languages::jit_add,
            rsunwind_jit_remove = languages::jit_remove,
            rsunwind_request_all = clients::request_all,
            rsunwind_request_later = clients::request_later,
            rsunwind_answer = clients::answer,
            rsunwind_nonce = clients::nonce,
            rsunwind_region_begin = regions::begin,
            rsunwind_region_end = regions::end,
        }
    };
}
