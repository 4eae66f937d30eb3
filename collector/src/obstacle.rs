//! Whether the preload library can get into a program, from what is in its file.
//!
//! Not here: finding the file (`record/executable.rs`), and what is done about an obstacle
//! (`record/copying.rs` for the program that is run, `exec_watch.rs` for those that it starts). A
//! program with an obstacle is run all the same.
//!
//! # Safety
//! One call without a safe wrapper, `getxattr`, with a buffer of no size.
#![allow(unsafe_code)]

use crate::binary;
use crate::visible::Shown;
use engine::wire::file::VERSION;
use nix::libc;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getegid, geteuid};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadRef, elf};
use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many interpreters of interpreters the kernel follows.
const MOST_INTERPRETERS: usize = 4;
/// The ELF machine of this build.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else {
    elf::EM_X86_64
};

/// The name of the note of our library, linked in.
const LINKED_NOTE: &[u8] = b"rsunwind-linked";

/// Why the preload library does not get into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The file that has it: the program, or the interpreter of a script.
    pub path: PathBuf,
    /// What it is.
    pub kind: ObstacleKind,
}

/// Kinds of [`Obstacle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObstacleKind {
    /// No dynamic loader is involved; whether it is a Go program.
    Static {
        /// Then the remedy is known better.
        go: bool,
    },
    /// No dynamic loader either, but our library is linked in: it records itself.
    Linked,
    /// A runtime that insists on being the first library, as AddressSanitizer's does.
    Sanitized,
    /// Setuid, setgid or file capabilities: the loader ignores `LD_PRELOAD`.
    Privileged(&'static str),
    /// ELF of 32 bits.
    ThirtyTwoBit,
    /// ELF for another machine.
    Foreign(u16),
}

impl Obstacle {
    /// Whether the kernel takes the events of others away at exec.
    #[must_use]
    pub const fn takes_events(&self) -> bool {
        matches!(self.kind, ObstacleKind::Privileged(_))
    }

    /// Whether even naming the library would change what the program prints: its loader would
    /// complain.
    #[must_use]
    pub const fn refuses_the_library(&self) -> bool {
        matches!(
            self.kind,
            ObstacleKind::ThirtyTwoBit | ObstacleKind::Foreign(_) | ObstacleKind::Sanitized
        )
    }
}

impl ObstacleKind {
    /// Whether events can be opened on a process that is about to become the program.
    #[must_use]
    pub const fn is_seen_at_exec(self) -> bool {
        matches!(self, Self::Static { .. } | Self::Linked | Self::Sanitized)
    }
}

impl Obstacle {
    /// What is said where the program records itself.
    #[must_use]
    pub fn records_itself(&self) -> String {
        format!(
            "{} is statically linked with librsunwind: it unwinds itself, in user mode only",
            self.path.shown()
        )
    }

    /// What is said where the kernel copies the program's stacks instead; whether those of its own
    /// are recorded, too.
    #[must_use]
    pub fn circumvented(&self, kernel: bool) -> String {
        let path = self.path.shown();
        let what = match self.kind {
            ObstacleKind::Privileged(what) => format!("has {what}"),
            ObstacleKind::Sanitized => {
                "needs AddressSanitizer's runtime as its first library".to_owned()
            }
            _ => "is statically linked".to_owned(),
        };
        let mode = if kernel { "" } else { ", in user mode only" };
        format!(
            "{path} {what}, so the preload library cannot get into it: the kernel copies its stacks instead{mode}"
        )
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.shown();
        match self.kind {
            ObstacleKind::Static { go: false } | ObstacleKind::Linked => write!(
                f,
                "{path} is statically linked, so the preload library cannot get into it: it runs unprofiled \
                 (dynamically linked programs that it starts are profiled); link it dynamically to profile it"
            ),
            ObstacleKind::Static { go: true } => write!(
                f,
                "{path} is a statically linked Go program, so the preload library cannot get into it: it runs unprofiled \
                 (dynamically linked programs that it starts are profiled); build it with -ldflags=-linkmode=external, or use runtime/pprof"
            ),
            ObstacleKind::Privileged(what) => write!(
                f,
                "{path} has {what}, so the loader ignores LD_PRELOAD: it runs unprofiled; record it as root, or profile a copy without {what}"
            ),
            ObstacleKind::Sanitized => write!(
                f,
                "{path} needs AddressSanitizer's runtime as its first library, so the preload library cannot get into it: it runs unprofiled; \
                 link that runtime statically (-static-libasan) to profile it"
            ),
            ObstacleKind::ThirtyTwoBit => {
                write!(
                    f,
                    "{path} is a 32-bit program: it and what it starts run unprofiled; profile a 64-bit build"
                )
            }
            ObstacleKind::Foreign(machine) => write!(
                f,
                "{path} is built for another machine (ELF machine {machine}): it and what it starts run unprofiled; profile a native build"
            ),
        }
    }
}

/// What kind of file a program is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// Why it will not be profiled, if so.
    pub obstacle: Option<Obstacle>,
    /// The interpreter of a script; the program's own loader otherwise.
    pub interpreter: Option<PathBuf>,
}

impl Nature {
    /// Looks into the file. What cannot be read is taken to be without obstacle: the recording
    /// shows.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let mut nature = Self::default();
        let mut file = path.to_owned();
        for _ in 0..=MOST_INTERPRETERS {
            let Some(interpreter) = script_interpreter(&file) else {
                break;
            };
            nature
                .interpreter
                .get_or_insert_with(|| interpreter.clone());
            file = interpreter;
        }
        let Ok(opened) = binary::Binary::open(&file) else {
            return nature;
        };
        let kind = match binary(&opened) {
            Some(Binary::Other(kind)) => Some(kind),
            Some(Binary::Dynamic { loader, sanitized }) => {
                nature.interpreter.get_or_insert(loader);
                let privileged = privileges(&file).map(ObstacleKind::Privileged);
                privileged.or(sanitized.then_some(ObstacleKind::Sanitized))
            }
            Some(Binary::Static { .. }) if is_loader(&file) => None,
            Some(Binary::Static { linked: true, .. }) => Some(ObstacleKind::Linked),
            Some(Binary::Static { go, .. }) => Some(ObstacleKind::Static { go }),
            None => None,
        };
        nature.obstacle = kind.map(|kind| Obstacle { path: file, kind });
        nature
    }
}

/// The program that `#!` names.
fn script_interpreter(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    binary::open(path)
        .ok()?
        .take(256)
        .read_to_end(&mut start)
        .ok()?;
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let word = line
        .trim_ascii()
        .split(|byte| matches!(byte, b' ' | b'\t'))
        .next()?;
    (!word.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(word)))
}

/// A dynamic loader run by name is static itself and loads the library all the same. musl's may be
/// called that by a link only: its file is libc.
fn is_loader(path: &Path) -> bool {
    let is_named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(b"ld-") || name.starts_with(b"ld.so")
    };
    is_named(path) || fs::canonicalize(path).is_ok_and(|path| is_named(&path))
}

enum Binary {
    Dynamic { loader: PathBuf, sanitized: bool },
    Static { go: bool, linked: bool },
    Other(ObstacleKind),
}

fn binary<'data>(data: impl ReadRef<'data>) -> Option<Binary> {
    let identity = data.read_bytes_at(0, 20).ok()?;
    if !identity.starts_with(&elf::ELFMAG) {
        return None;
    }
    let machine = |bytes: [u8; 2]| {
        if identity.get(5) == Some(&elf::ELFDATA2MSB) {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    };
    let machine = machine(identity.get(18..20)?.try_into().ok()?);
    let compatible = if MACHINE == elf::EM_X86_64 {
        elf::EM_386
    } else {
        elf::EM_ARM
    };
    match (machine, identity.get(4)) {
        (machine, Some(&elf::ELFCLASS32)) if machine == compatible || machine == MACHINE => {
            return Some(Binary::Other(ObstacleKind::ThirtyTwoBit));
        }
        (machine, _) if machine != MACHINE => {
            return Some(Binary::Other(ObstacleKind::Foreign(machine)));
        }
        _ => {}
    }
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(loader)) = segment.interpreter(endian, data) {
            return Some(Binary::Dynamic {
                loader: PathBuf::from(OsStr::from_bytes(loader)),
                sanitized: is_sanitized(header, endian, data).unwrap_or(false),
            });
        }
    }
    let go = header
        .sections(endian, data)
        .is_ok_and(|sections| sections.section_by_name(endian, b".go.buildinfo").is_some());
    let linked = has_library(header, endian, data);
    Some(Binary::Static { go, linked })
}

/// Whether a file, of a program or of a library, has our library linked in.
pub(crate) fn is_linked(path: &Path) -> bool {
    let look = || {
        let file = binary::Binary::open(path).ok()?;
        let header = elf::FileHeader64::<Endianness>::parse(&file).ok()?;
        Some(has_library(header, header.endian().ok()?, &file))
    };
    look().unwrap_or(false)
}

fn has_library<'data>(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
) -> bool {
    let segments = header.program_headers(endian, data);
    let mut segments = segments.into_iter().flatten();
    segments.any(|segment| has_linked_note(segment, endian, data).unwrap_or(false))
}

/// Whether the segment has the note of our library (`linked/src/lib.rs`), of this version.
fn has_linked_note<'data>(
    segment: &elf::ProgramHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
) -> object::Result<bool> {
    let Some(mut notes) = segment.notes(endian, data)? else {
        return Ok(false);
    };
    while let Some(note) = notes.next()? {
        if note.name() == LINKED_NOTE && note.n_type(endian) == 1 {
            return Ok(note.desc() == VERSION.to_le_bytes());
        }
    }
    Ok(false)
}

/// Whether the program needs a runtime that ends it unless it is the first library.
fn is_sanitized<'data>(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    data: impl ReadRef<'data>,
) -> Option<bool> {
    const FIRST: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];
    let segments = header.program_headers(endian, data).ok()?;
    let dynamic = segments
        .iter()
        .find_map(|segment| segment.dynamic(endian, data).ok().flatten())?;
    let values = |tag: i64| {
        let entries = dynamic.iter();
        let of_tag = entries.filter(move |entry| entry.d_tag.get(endian) == tag);
        of_tag.map(|entry| entry.d_val.get(endian))
    };
    let strings = values(elf::DT_STRTAB).next()?;
    let strings = segments.iter().find_map(|segment| {
        let inside = strings.checked_sub(segment.p_vaddr(endian))?;
        let is_here = segment.p_type(endian) == elf::PT_LOAD && inside < segment.p_filesz(endian);
        is_here.then(|| segment.p_offset(endian).checked_add(inside))?
    })?;
    let is_first = |name: u64| {
        let start = strings.checked_add(name);
        FIRST.iter().any(|first| {
            start.and_then(|start| data.read_bytes_at(start, first.len() as u64).ok())
                == Some(first)
        })
    };
    Some(values(elf::DT_NEEDED).any(is_first))
}

/// What gives the program other rights than ours, so that the kernel asks the loader to be careful.
fn privileges(path: &Path) -> Option<&'static str> {
    let metadata = fs::metadata(path).ok()?;
    let mounted_without =
        statvfs(path).is_ok_and(|system| system.flags().contains(FsFlags::ST_NOSUID));
    if mounted_without || nix::sys::prctl::get_no_new_privs().unwrap_or(false) {
        return None;
    }
    if metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != geteuid().as_raw() {
        return Some("a setuid bit");
    }
    let group = libc::S_ISGID | libc::S_IXGRP;
    if metadata.mode() & group == group && metadata.gid() != getegid().as_raw() {
        return Some("a setgid bit");
    }
    (!geteuid().is_root() && has_capabilities(path)).then_some("file capabilities")
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: two strings that end in zero, and a buffer of no size: only the attribute's length is
    // asked for.
    unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A file of that content that may be executed.
    pub(crate) fn executable(directory: &Path, name: &str, content: &[u8]) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A header without any program header, for the machine and class given.
    fn header(class: u8, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[52] = 64;
        bytes
    }

    #[test]
    fn binaries_that_cannot_load_the_library_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let kind = |class, machine| {
            let path = executable(directory.path(), "program", &header(class, machine));
            Nature::of(&path).obstacle.map(|obstacle| obstacle.kind)
        };
        assert_eq!(kind(2, MACHINE), Some(ObstacleKind::Static { go: false }));
        let (compatible, foreign) = if MACHINE == 62 { (3, 183) } else { (40, 62) };
        assert_eq!(kind(1, compatible), Some(ObstacleKind::ThirtyTwoBit));
        assert_eq!(kind(2, foreign), Some(ObstacleKind::Foreign(foreign)));
        // This very test is dynamically linked.
        assert_eq!(Nature::of(&std::env::current_exe().unwrap()).obstacle, None);
    }

    /// As Debian installs musl's.
    #[test]
    fn a_loader_that_only_a_link_names_loads_the_library() {
        let directory = tempfile::tempdir().unwrap();
        let libc = executable(directory.path(), "libc.so", &header(2, MACHINE));
        let loader = directory.path().join("ld-musl-x86_64.so.1");
        std::os::unix::fs::symlink(&libc, &loader).unwrap();
        assert_eq!(Nature::of(&loader).obstacle, None);
        assert!(Nature::of(&libc).obstacle.is_some());
    }

    #[test]
    fn a_script_is_as_good_as_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let interpreter = executable(directory.path(), "static", &header(2, MACHINE));
        let line = format!("#! {} -x\necho\n", interpreter.display());
        let inner = executable(directory.path(), "inner", line.as_bytes());
        let outer = executable(
            directory.path(),
            "outer",
            format!("#!{}\n", inner.display()).as_bytes(),
        );
        let obstacle = Nature::of(&outer).obstacle.unwrap();
        assert_eq!(
            (obstacle.path, obstacle.kind),
            (interpreter, ObstacleKind::Static { go: false })
        );
    }
}
