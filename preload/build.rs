//! Link arguments of the library. It must load into any program: no start files and no default
//! libraries, so no DT_NEEDED; bound at load, because lazy binding inside a handler takes the
//! loader's locks; never unloaded, because its handler stays installed. Every program pays for
//! what the loader maps and protects: code and constants are one mapping, and so is what is written
//! to. (Addresses of the program's functions lie in our data anyway, which write protection of the
//! global offset table would not reach.)

fn main() {
    for argument in [
        "-nostartfiles",
        "-nodefaultlibs",
        "-nostdlib",
        "-Wl,--build-id=sha1",
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
        "-Wl,-z,norelro",
        "-Wl,--no-rosegment",
        "-Wl,-soname,librsunwind_preload.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
