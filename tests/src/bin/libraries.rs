//! Works in its own code, in libc and in a library that it loads, and prints what findshlibs, by
//! the loader, says of its shared objects: bias, first and last address, path. The test
//! `module_map` compares that with the modules of the recording.
#![expect(unsafe_code, reason = "functions of a library that is loaded")]

use findshlibs::{SharedLibrary, TargetSharedLibrary};
use std::hint::black_box;
use std::time::Duration;

fn main() {
    // SAFETY: libm has nothing that runs when it is loaded, and `lgamma` is as it is declared here.
    let lgamma: extern "C" fn(f64) -> f64 = unsafe {
        let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "glibc has it");
        let function = libc::dlsym(library, c"lgamma".as_ptr());
        assert!(!function.is_null(), "C has it");
        std::mem::transmute(function)
    };
    let mut bytes = vec![0u8; 1 << 20];
    let end = cpu_time() + Duration::from_millis(300);
    while cpu_time() < end {
        for turn in 0..2000u32 {
            black_box(lgamma(black_box(f64::from(turn))));
        }
        for byte in 0..20 {
            black_box(&mut bytes).fill(byte); // memset of libc
        }
        let mut value = black_box(1u64);
        for turn in 0..100_000 {
            value = black_box(value.wrapping_mul(31) ^ turn);
        }
    }
    TargetSharedLibrary::each(|library| {
        let bias = library.virtual_memory_bias().0;
        let start = library.actual_load_addr().0;
        let end = start + library.len();
        println!("{bias:x} {start:x} {end:x} {}", library.name().display());
    });
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes into `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
