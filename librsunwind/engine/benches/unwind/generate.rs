//! Functions with known call sites, generated as C and compiled, and random paths through them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

pub const DEPTH: usize = 60;

/// A reproducible source of numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// A compiled, loaded program.
pub struct Program {
    pub functions: usize,
    pub run: extern "C" fn(*const u32, extern "C" fn()) -> u64,
}

impl Program {
    pub fn build(functions: usize, frame_pointers: bool) -> Self {
        let source = source(functions);
        let name = format!("bench-{functions}-{frame_pointers}-{:x}", hash(&source));
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let library = directory.join(format!("{name}.so"));
        if !library.exists() {
            let path = directory.join(format!("{name}.c"));
            std::fs::write(&path, source).unwrap();
            let frame = if frame_pointers {
                "-fno-omit-frame-pointer"
            } else {
                "-fomit-frame-pointer"
            };
            let status = Command::new("gcc")
                .args([
                    "-O1",
                    "-shared",
                    "-fPIC",
                    "-w",
                    "-fno-optimize-sibling-calls",
                    frame,
                    "-o",
                ])
                .args([&library, &path])
                .status()
                .expect("gcc runs");
            assert!(status.success());
        }
        let path = std::ffi::CString::new(library.to_str().unwrap()).unwrap();
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null());
            let run = libc::dlsym(handle, c"run".as_ptr());
            Self {
                functions,
                run: std::mem::transmute::<
                    *mut libc::c_void,
                    extern "C" fn(*const u32, extern "C" fn()) -> u64,
                >(run),
            }
        }
    }

    /// A random path: for each level the function to call next and the call site to do it from.
    pub fn path(&self, depth: usize, random: &mut Random) -> Vec<u32> {
        let mut path = vec![0; depth];
        self.change(&mut path, depth, random);
        path.push((self.functions as u32) << 2);
        path
    }

    /// Makes the innermost `count` levels of a path, but for its end, others.
    pub fn change(&self, path: &mut [u32], count: usize, random: &mut Random) {
        let end = path.len().min(self.end_of(path));
        for level in &mut path[end - count..end] {
            *level = (random.below(self.functions as u64) << 2 | random.below(4)) as u32;
        }
    }

    fn end_of(&self, path: &[u32]) -> usize {
        let leaf = (self.functions as u32) << 2;
        let end = path.iter().position(|level| *level == leaf);
        end.unwrap_or(path.len())
    }
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(1469, |h: u64, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn source(functions: usize) -> String {
    let mut random = Random::new(functions as u64);
    let mut text = String::from(
        "#include <stdint.h>\n#include <alloca.h>\ntypedef uint64_t (*fn)(uint64_t);\n\
         extern const fn table[] __attribute__((visibility(\"hidden\")));\n\
         static const uint32_t *path; static void (*hook)(void); static volatile uint64_t src[8];\n",
    );
    for f in 0..functions {
        let live = random.below(7);
        let frame = random.below(66) * 8;
        let _ = writeln!(
            text,
            "static __attribute__((noinline)) uint64_t f{f}(uint64_t d) {{ uint64_t r;"
        );
        if frame > 0 {
            let _ = writeln!(text, "volatile char b[{frame}]; b[0]=d;");
        }
        if random.below(25) == 0 {
            text.push_str("volatile char *a = alloca(16 + (src[0] & 15)); a[0]=d;\n");
        }
        for v in 0..live {
            let _ = writeln!(text, "uint64_t v{v} = src[{v}];");
        }
        text.push_str("uint32_t p = path[d]; fn n = table[path[d + 1] >> 2];\nswitch (p & 3) {\n");
        for site in 0..4 {
            let _ = writeln!(
                text,
                "case {site}: r = n(d + 1) {} {}; break;",
                ["+", "^", "*", "-"][site],
                random.below(1000) + 3
            );
        }
        text.push_str("}\nreturn r");
        for v in 0..live {
            let _ = write!(text, " + v{v} * {}", 3 + 2 * v);
        }
        text.push_str(if frame > 0 { " + b[0]; }\n" } else { "; }\n" });
    }
    text.push_str("static __attribute__((noinline)) uint64_t leaf(uint64_t d) { hook(); return d + src[0]; }\nconst fn table[] = {");
    for f in 0..functions {
        let _ = write!(text, "f{f},");
    }
    text.push_str("leaf};\n");
    text.push_str(RUN);
    text
}

/// The outermost frame. What calls it is the benchmark, whose registers change from walk to walk,
/// and which is not to be walked: no return address is said to be known, and no frame pointer.
const RUN: &str = r#"
__attribute__((used)) static uint64_t begin(const uint32_t *p, void (*h)(void)) {
  path = p;
  hook = h;
  return table[p[0] >> 2](0) + 1;
}
__asm__(
  ".text\n.globl run\n.type run, @function\nrun:\n"
  ".cfi_startproc\n.cfi_undefined rip\n"
  "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\nsub $8, %rsp\n"
  "xor %ebp, %ebp\ncall begin\n"
  "add $8, %rsp\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n"
  ".cfi_endproc\n.size run, . - run\n");
"#;
