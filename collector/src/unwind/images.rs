//! The files that processes have mapped, each read once for all that have it. Of those that no
//! process has any more the ones that were last asked for are kept, as many as there is room for:
//! programs come again.

use super::elf_sections::Image;
use super::source::{Key, Source};
use crate::processes::Mapping;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// So much is kept for processes that come, bytes.
const KEPT: usize = 64 << 20;
/// So many files are known before those are looked for that are gone.
const MANY: usize = 1024;

/// Files that were read.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// Without an image if it is no ELF file that can be read.
    known: HashMap<Key, Option<Weak<Image>>>,
    /// Those that stay, the last one asked for at the end, and how many bytes of them are kept.
    kept: VecDeque<Arc<Image>>,
    bytes: usize,
    /// How many were known when it was last looked which are gone.
    looked: usize,
}

impl Images {
    /// The file of a mapping in a process, which need not live any more; `None` if it is no ELF
    /// file that can be read.
    pub(crate) fn get(&mut self, pid: i32, mapping: &Mapping) -> Option<Arc<Image>> {
        let key = (mapping.path.clone(), mapping.file);
        match self.known.get(&key) {
            Some(None) => return None,
            Some(Some(image)) => {
                if let Some(image) = image.upgrade()
                    && self.is_same(pid, &image)
                {
                    return Some(image);
                }
            }
            None => {}
        }
        self.forget_gone();
        // What cannot be read just now may be later: of the next process.
        let (source, file) = Source::open(pid, &key)?;
        let image = Image::read(source, file).ok()?.map(Arc::new);
        let weak = image.as_ref().map(Arc::downgrade);
        self.known.insert(key, weak);
        let image = image?;
        self.keep(Arc::clone(&image));
        Some(image)
    }

    /// Keeps one, and of the others as many as there is room for: rather many than a large one.
    fn keep(&mut self, image: Arc<Image>) {
        let mut others = self.bytes;
        while others > KEPT {
            let is_large = |image: &Arc<Image>| image.size() > KEPT / 2;
            let at = self.kept.iter().position(is_large).unwrap_or(0);
            let Some(gone) = self.kept.remove(at) else {
                break;
            };
            others -= gone.size();
        }
        self.bytes = others + image.size();
        self.kept.push_back(image);
    }

    /// Whether an image is still what its file is. While a process has it mapped no other file is
    /// of its number; later one may be.
    fn is_same(&mut self, pid: i32, image: &Arc<Image>) -> bool {
        let mut kept = self.kept.iter();
        let Some(at) = kept.rposition(|one| Arc::ptr_eq(one, image)) else {
            return true;
        };
        let Some(one) = self.kept.remove(at) else {
            return true;
        };
        // This one, and that which is kept.
        let is_mapped = Arc::strong_count(image) > 2;
        if is_mapped || !image.is_another(pid) {
            self.kept.push_back(one);
            return true;
        }
        self.bytes -= image.size();
        false
    }

    fn forget_gone(&mut self) {
        if self.known.len() < MANY.max(2 * self.looked) {
            return;
        }
        let is_there = |image: &Option<Weak<Image>>| {
            let image = image.as_ref();
            image.is_some_and(|image| image.strong_count() > 0)
        };
        self.known.retain(|_, image| is_there(image));
        self.looked = self.known.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::FileId;
    use crate::symbolize::version;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    fn mapping(path: &Path, inode: u64) -> Mapping {
        Mapping {
            path: path.as_os_str().as_bytes().to_owned(),
            file: FileId {
                device: (8, 1),
                inode,
            },
            ..Mapping::default()
        }
    }

    #[test]
    fn a_file_is_read_once_until_it_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let pid = std::process::id().cast_signed();
        let copy = |from: &Path| {
            // As linkers do: a program that runs is not written to.
            let new = folder.path().join("new");
            fs::copy(from, &new).unwrap();
            fs::rename(new, &program).unwrap();
        };
        copy(&std::env::current_exe().unwrap());
        let mut images = Images::default();
        let first = images.get(pid, &mapping(&program, 1)).unwrap();
        let again = images.get(pid, &mapping(&program, 1)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        copy(Path::new("/bin/sh"));
        // Who has the first one mapped keeps it; another file is another image.
        let same = images.get(pid, &mapping(&program, 1)).unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        let other = images.get(pid, &mapping(&program, 2)).unwrap();
        assert_ne!(other.size(), first.size());
        // Its number may be that of another file once nobody has it.
        drop((again, same));
        let size = first.size();
        drop(first);
        let new = images.get(pid, &mapping(&program, 1)).unwrap();
        assert!(new.size() == other.size() && new.size() != size);
        assert!(images.get(pid, &mapping(folder.path(), 3)).is_none());
        // What we have at the same path may be another file than that of a process that is gone.
        let gone = i32::MAX;
        assert!(images.get(gone, &mapping(&program, 4)).is_none());
        let inode = version(&program).unwrap().1;
        assert!(images.get(gone, &mapping(&program, inode)).is_some());
    }

    #[test]
    fn so_much_is_kept_of_what_no_process_has_and_all_of_what_one_has() {
        let own = std::env::current_exe().unwrap();
        let pid = std::process::id().cast_signed();
        let mut images = Images::default();
        let first = images.get(pid, &mapping(&own, 1)).unwrap();
        let most = KEPT / first.size() + 2;
        for inode in 2..most as u64 {
            drop(images.get(pid, &mapping(&own, inode)).unwrap());
        }
        assert!(images.bytes <= KEPT + first.size() && images.kept.len() < most);
        let kept: usize = images.kept.iter().map(|image| image.size()).sum();
        assert_eq!(kept, images.bytes);
        let same = images.get(pid, &mapping(&own, 1)).unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        drop((first, same));
        // A text is none, which is remembered until there are too many.
        for inode in 0..2 * MANY as u64 {
            let text = mapping(Path::new("/etc/passwd"), inode);
            assert!(images.get(pid, &text).is_none());
        }
        assert!(images.known.len() <= MANY);
    }
}
