//! Link arguments of the library. It must load into any program: no start files and no default
//! libraries, so no DT_NEEDED; bound at load, because lazy binding inside a handler takes the
//! loader's locks; never unloaded, because its handler stays installed.

fn main() {
    for argument in [
        "-nostartfiles",
        "-nodefaultlibs",
        "-nostdlib",
        "-Wl,--build-id=sha1",
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
        "-Wl,-soname,librsunwind_preload.so",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
