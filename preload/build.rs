//! Link arguments of the library. It must load into any program: no start files and no default
//! libraries, so no DT_NEEDED; bound at load, because lazy binding inside a handler takes the
//! loader's locks; never unloaded, because its handler stays installed. Every program pays for
//! what the loader maps and protects: code and constants are one mapping, and so is what is written
//! to. (Addresses of the program's functions lie in our data anyway, which write protection of the
//! global offset table would not reach.)

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

/// As GNU's linker and as LLVM's have it that code and constants are one mapping: LLVM's takes
/// both, GNU's the second from binutils 2.43 on.
const ONE_MAPPING: [&str; 2] = ["-Wl,-z,noseparate-code", "-Wl,--no-rosegment"];

fn main() {
    for argument in [
        "-nostartfiles",
        "-nodefaultlibs",
        "-nostdlib",
        "-Wl,--build-id=sha1",
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
        "-Wl,-z,norelro",
        "-Wl,-soname,librsunwind_preload.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    for argument in ONE_MAPPING
        .into_iter()
        .filter(|argument| is_known(argument))
    {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Whether the linker that links the library takes that argument.
fn is_known(argument: &str) -> bool {
    let setting = |name: &str| env::var(name).unwrap_or_default();
    let mut compiler = Command::new(setting("RUSTC"));
    compiler
        .args([
            "-",
            "--edition=2024",
            "--crate-type=cdylib",
            "-Cpanic=abort",
        ])
        .args(["-Clink-arg=-nostdlib", "-Clink-arg=-nostartfiles"])
        .arg(format!("-Clink-arg={argument}"))
        .arg(format!("--target={}", setting("TARGET")))
        .arg(format!("-o{}/tried.so", setting("OUT_DIR")));
    let flags = setting("CARGO_ENCODED_RUSTFLAGS");
    compiler.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    compiler.stdin(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut running) = compiler.spawn() else {
        return false;
    };
    let source = "#![no_std]
        #[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }";
    let told = running
        .stdin
        .take()
        .map(|mut input| input.write_all(source.as_bytes()));
    matches!(told, Some(Ok(()))) && running.wait().is_ok_and(|status| status.success())
}
