//! Link arguments of the library: it is mapped and relocated by the collector, without a loader, so
//! it needs nobody, and its symbols are its own.

fn main() {
    for argument in [
        "-nostartfiles",
        "-nodefaultlibs",
        "-nostdlib",
        "-Wl,--build-id=sha1",
        "-Wl,-z,now",
        "-Wl,-Bsymbolic",
        "-Wl,-soname,librsunwind_inside.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
