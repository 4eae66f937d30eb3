//! Which file on this machine has the symbols of a recorded module: the module's own file if its
//! build-id is the recorded one, else a separate debug file of that build-id.
//!
//! Not here: reading the symbols (`elf`).

use super::{Effort, Functions, KernelSymbols};
use crate::binary::{self, Binary};
use crate::intern::{HashMap, index};
use object::Object;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// So many binaries' files are remembered.
const MOST: usize = 1 << 10;

index!(
    /// Of [`super::Symbols::images`].
    ImageId
);

/// A binary file that code was mapped from, in however many processes and places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// As the processes saw it; `[vdso]` for the vDSO; empty if unknown.
    pub path: String,
    /// `NT_GNU_BUILD_ID`; empty if it has none.
    pub build_id: Vec<u8>,
}

impl Image {
    /// The last component of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        match path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => "[unknown]",
        }
    }

    /// Its build-id in hexadecimal.
    #[must_use]
    pub fn build_id_text(&self) -> String {
        self.build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Where symbols are looked for, and how hard.
#[derive(Clone, Debug)]
pub struct Places {
    /// Directories with a `.build-id` directory inside, such as `/usr/lib/debug`.
    pub debug_directories: Vec<PathBuf>,
    /// Caches of debuginfod, in which a build-id is a directory.
    pub debuginfod_caches: Vec<PathBuf>,
    /// The kernel's, as far as they were read already.
    pub kernel: KernelSymbols,
    /// Of binaries the functions that were found, for what takes little effort.
    pub functions: Functions,
    /// Likewise their files.
    pub files: Files,
    /// How much is done for a name.
    pub effort: Effort,
}

impl Default for Places {
    fn default() -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        let named = variable("DEBUGINFOD_CACHE_PATH");
        Self {
            debug_directories: vec!["/usr/lib/debug".into(), "/lib/debug".into()],
            debuginfod_caches: named
                .into_iter()
                .chain(cache.map(|cache| cache.join("debuginfod_client")))
                .collect(),
            kernel: KernelSymbols::default(),
            functions: Functions::default(),
            files: Files::default(),
            effort: Effort::default(),
        }
    }
}

/// Device, inode, bytes, and when it was changed.
pub(crate) type Version = (u64, u64, u64, (i64, i64));

/// What a file is, by which it is known again; `None` if it is not to be seen.
pub(crate) fn version(path: impl AsRef<Path>) -> Option<Version> {
    Some(version_of(&std::fs::metadata(path).ok()?))
}

/// The same of one that is open.
pub(crate) fn version_of(file: &std::fs::Metadata) -> Version {
    let changed = (file.mtime(), file.mtime_nsec());
    (file.dev(), file.ino(), file.len(), changed)
}

/// What was found for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Files of that build.
    Files {
        /// This one has its symbols, as far as there are any.
        symbols: PathBuf,
        /// And this one its code.
        code: Option<PathBuf>,
        /// Whether there is debug information in that of the symbols.
        debug: bool,
    },
    /// None has; the sentence says why, and the remedy.
    Nothing(String),
}

impl Found {
    /// What the file of the symbols is by now.
    fn version(&self) -> Option<Version> {
        match self {
            Self::Files { symbols, .. } => version(symbols),
            Self::Nothing(_) => None,
        }
    }
}

/// The files of binaries, by these and what the binaries' own were when they were found.
#[derive(Clone, Debug, Default)]
pub struct Files(Arc<Mutex<HashMap<(Image, Version), Remembered>>>);

/// What was found, and what the file of the symbols was then.
type Remembered = (Found, Option<Version>);

impl Places {
    /// The files of an image: with little effort those that were found before, if its own is what
    /// it was then, and so is that of its symbols: a debug file may be taken away, or become that
    /// of another build before the binary does.
    pub(super) fn files(&self, image: &Image) -> Found {
        let Some(version) = version(&image.path) else {
            return self.find(image);
        };
        let all = || self.files.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (image.clone(), version);
        let known = (self.effort == Effort::Little).then(|| all().get(&name).cloned());
        if let Some((known, of_symbols)) = known.flatten()
            && known.version() == of_symbols
        {
            return known;
        }
        let found = self.find(image);
        let of_symbols = found.version();
        let mut all = all();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(name, (found.clone(), of_symbols));
        found
    }

    /// Looks for the symbols of an image.
    pub(super) fn find(&self, image: &Image) -> Found {
        let name = image.name();
        if image.path.is_empty() {
            return Found::Nothing("a module without a path has no symbols".to_owned());
        }
        let path = image.path.strip_suffix(" (deleted)").unwrap_or(&image.path);
        let own = Path::new(path);
        // A path in a recording may name anything here by now.
        let why = match Binary::open(own).ok().and_then(|file| Facts::read(&file)) {
            Some(facts) if facts.build_id == image.build_id => {
                let better = || {
                    self.linked(own, &facts)
                        .or_else(|| self.debug_file(&image.build_id))
                };
                let better = (!facts.has_dwarf).then(better).flatten();
                return Found::Files {
                    debug: facts.has_dwarf || better.as_deref().is_some_and(has_dwarf),
                    symbols: better.unwrap_or_else(|| own.to_owned()),
                    code: Some(own.to_owned()),
                };
            }
            Some(_) => "another build of it is there now",
            None if own.exists() => "it cannot be read here",
            None => "it is not on this machine",
        };
        match self.debug_file(&image.build_id) {
            Some(symbols) => Found::Files {
                debug: has_dwarf(&symbols),
                symbols,
                code: None,
            },
            None if image.build_id.is_empty() => Found::Nothing(format!(
                "{name} has no symbols: {why} ({path}), and it has no build-id to look for debug files by"
            )),
            None => Found::Nothing(format!(
                "{name} has no symbols: {why} ({path}); bring back the build with build-id {}, or install its debug file \
                 under /usr/lib/debug/.build-id",
                image.build_id_text()
            )),
        }
    }

    /// The file that has the code of an image, if it is here and of that build.
    #[must_use]
    pub fn code(&self, image: &Image) -> Option<PathBuf> {
        match self.find(image) {
            Found::Files { code, .. } => code,
            Found::Nothing(_) => None,
        }
    }

    /// The debug file that a binary names, if it is of the same build.
    fn linked(&self, own: &Path, facts: &Facts) -> Option<PathBuf> {
        let (name, checksum) = facts.link.as_ref()?;
        let own = own.canonicalize().ok()?;
        let directory = own.parent()?;
        let below = directory.strip_prefix("/").ok()?;
        let elsewhere = self.debug_directories.iter().map(|debug| debug.join(below));
        let directories = [directory.to_owned(), directory.join(".debug")];
        let mut files = directories
            .into_iter()
            .chain(elsewhere)
            .map(|directory| directory.join(name));
        files.find(|file| {
            *file != own && file.is_file() && is_of_build(file, &facts.build_id, *checksum)
        })
    }

    fn debug_file(&self, build_id: &[u8]) -> Option<PathBuf> {
        let text: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = text
            .split_at_checked(2)
            .filter(|(_, rest)| !rest.is_empty())?;
        let in_directories = self.debug_directories.iter().map(|directory| {
            let indexed = directory.join(".build-id").join(first);
            indexed.join(format!("{rest}.debug"))
        });
        let in_caches = self.debuginfod_caches.iter().flat_map(|cache| {
            let of_build = cache.join(&text);
            [of_build.join("debuginfo"), of_build.join("executable")]
        });
        in_directories.chain(in_caches).find(|file| file.is_file())
    }
}

/// What the sections of an ELF file say of it.
struct Facts {
    build_id: Vec<u8>,
    has_dwarf: bool,
    /// The name of its debug file, and the checksum of that one.
    link: Option<(PathBuf, u32)>,
}

/// Whether a debug file is that of a binary: by its build-id, or if there is none by its checksum.
fn is_of_build(file: &Path, build_id: &[u8], checksum: u32) -> bool {
    let Ok(file) = binary::open(file) else {
        return false;
    };
    if !build_id.is_empty() {
        let facts = Facts::read(&Binary::new(file));
        return facts.is_some_and(|facts| facts.build_id == build_id);
    }
    let mut read = flate2::CrcReader::new(std::io::BufReader::new(file));
    let copied = std::io::copy(&mut read, &mut std::io::sink());
    copied.is_ok() && read.crc().sum() == checksum
}

/// Whether a debug file has debug information that may be read.
fn has_dwarf(file: &Path) -> bool {
    let facts = Binary::open(file).ok().and_then(|file| Facts::read(&file));
    facts.is_some_and(|facts| facts.has_dwarf)
}

impl Facts {
    fn read(file: &Binary) -> Option<Self> {
        let elf = object::File::parse(file).ok()?;
        let link = elf.gnu_debuglink().ok().flatten();
        Some(Self {
            build_id: elf.build_id().ok().flatten().unwrap_or_default().to_vec(),
            has_dwarf: binary::has_debug_information(&elf, file),
            link: link
                .map(|(name, checksum)| (Path::new(OsStr::from_bytes(name)).to_owned(), checksum)),
        })
    }
}
