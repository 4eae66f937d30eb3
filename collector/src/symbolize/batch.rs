//! Names the addresses of one binary, by all that there is in its files.
//!
//! Not here: what else an address may be of ([`super::symbolize`]).

use super::images::Found;
use super::{
    Effort, Functions, Image, ImageId, NameSource, Named, Places, by_symbols, code_starts, elf,
    entry, go_functions, plt, vdso,
};
use crate::binary::{self, Binary};
use crate::progress;
use crate::recording::names::Group;
use crate::visible::Shown;
use object::Object;
use std::cell::LazyCell;
use std::fmt::Display;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The addresses of one image that are to be looked up, and where their names go.
pub(super) struct Batch {
    pub(super) image: ImageId,
    pub(super) addresses: Vec<u64>,
    pub(super) slots: Vec<usize>,
}

/// How many addresses are looked up before they count as done.
const STEP: usize = 2000;

/// The functions at each address of a batch, and from where they are.
///
/// # Errors
/// A sentence, if no file can be read.
pub(super) fn name_batch(
    symbolizer: &blazesym::symbolize::Symbolizer,
    image: &Image,
    batch: &Batch,
    known: Option<&Group>,
    places: &Places,
) -> Result<(Vec<Vec<Named>>, NameSource), String> {
    let own_vdso;
    let (symbols, code, debug): (PathBuf, Option<PathBuf>, bool) = if image.path == vdso::NAME {
        own_vdso = vdso::own_copy(&image.build_id).ok_or_else(|| {
            "[vdso] has no symbols: it is recorded from another kernel than the one running here".to_owned()
        })?;
        (own_descriptor(&own_vdso), None, false)
    } else {
        match places.files(image) {
            Found::Files {
                symbols,
                code,
                debug,
            } => (symbols, code, debug),
            Found::Nothing(note) => return Err(note),
        }
    };
    let failed = |error: &dyn Display| format!("{}: {error}", symbols.shown());
    let data = Binary::open(&symbols);
    let elf = match &data {
        Ok(data) => object::File::parse(data).map_err(|error| failed(&error)),
        Err(error) => Err(failed(error)),
    };
    let mut named = Vec::with_capacity(batch.addresses.len());
    let mut met = elf::Met::of(debug);
    for addresses in batch.addresses.chunks(STEP) {
        named.extend(match known {
            Some(known) => {
                let file = (elf.as_ref().map_err(Clone::clone)?, image);
                by_symbols::names(file, addresses, known, &mut met, &places.functions)
            }
            None => elf::names(symbolizer, &symbols, addresses, &mut met)?,
        });
        progress::add(addresses.len() as u64);
    }
    // Nobody asks for them otherwise, and a debug file alone has no more than symbols.
    let is_asked_for = places.effort == Effort::Little && code.is_some();
    let remembered = is_asked_for.then_some(&places.functions);
    let mut name = |code: &Path, elf: &object::File<'_, &Binary>| {
        let has_all = code == symbols;
        let file = (code, elf, has_all);
        name_without_symbols(file, image, &batch.addresses, &mut named, remembered);
    };
    match code.filter(|code| *code != symbols) {
        None => {
            if let Ok(elf) = &elf {
                name(&symbols, elf);
            }
        }
        Some(code) => {
            if let Ok(data) = Binary::open(&code)
                && let Ok(elf) = object::File::parse(&data)
            {
                name(&code, &elf);
            }
        }
    }
    let source = match known.map_or(debug, |known| known.debug) {
        true => NameSource::Debug,
        false => NameSource::Symbols,
    };
    Ok((named, source))
}

fn own_descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Names what the symbols of a binary do not, by what else there is in its file; `has_all`: no
/// other file has symbols of it.
fn name_without_symbols<'e>(
    (code, elf, has_all): (&Path, &impl Object<'e>, bool),
    image: &Image,
    addresses: &[u64],
    named: &mut [Vec<Named>],
    remembered: Option<&Functions>,
) {
    let read = |all| plt::Stubs::of(elf, addresses, all).map(Arc::new);
    let stubs = match remembered {
        Some(remembered) => remembered.stubs(image, read),
        None => read(false),
    };
    if let Some(stubs) = stubs {
        for (address, names) in addresses.iter().zip(&mut *named) {
            if let Some(stub) = stubs.find(*address) {
                *names = vec![stub];
            }
        }
    }
    if named.iter().all(|names| !names.is_empty()) {
        return;
    }
    if remembered.is_none_or(|it| it.may_have_go(image)) {
        let unnamed = addresses.iter().zip(&mut *named);
        let has_go = go_functions::name(elf, unnamed.filter(|(_, names)| names.is_empty()));
        if let Some(remembered) = remembered.filter(|_| !has_go) {
            remembered.list_nameless(image, elf, has_all);
        }
    }
    let unnamed = addresses.iter().zip(&mut *named);
    let unnamed = unnamed.filter(|(_, names)| names.is_empty());
    let met = entry::name(elf, image.name(), unnamed);
    if let Some(remembered) = remembered {
        remembered.add_nameless(image, elf, met);
    }
    let unnamed = addresses.iter().zip(named);
    let unnamed = unnamed.filter(|(_, names)| names.is_empty());
    let file = LazyCell::new(|| binary::open(code));
    let read = |offset, bytes: &mut [u8]| {
        let read = file.as_ref().ok().map(|file| file.read_at(bytes, offset));
        read.and_then(Result::ok).unwrap_or(0)
    };
    code_starts::name(elf, read, image.name(), addresses, unnamed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{ObjectSection as _, ObjectSymbol as _};

    /// The C library here: of most of its functions there are no symbols.
    #[test]
    fn what_is_remembered_is_what_the_file_says() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5));
        let path = Path::new(paths.find(|path| path.contains("/libc.so")).unwrap());
        let data = Binary::open(path).unwrap();
        let elf = object::File::parse(&data).unwrap();
        let image = Image {
            path: path.to_str().unwrap().into(),
            build_id: vec![1],
        };
        let text = |name| elf.section_by_name(name).unwrap();
        let range = |name| text(name).address()..text(name).address() + text(name).size();
        let symbols = elf.dynamic_symbols().map(|symbol| symbol.address());
        let mut addresses: Vec<u64> = range(".text").step_by(61).chain(range(".plt")).collect();
        addresses.extend(symbols.filter(|address| range(".text").contains(address)));
        addresses.push(elf.entry());
        addresses.sort_unstable();
        addresses.dedup();
        let known = Group::default();
        let names = |addresses: &[u64], remembered: Option<&Functions>| {
            let (mut met, nothing) = (elf::Met::of(false), Functions::default());
            let symbols = remembered.unwrap_or(&nothing);
            let mut named = by_symbols::names((&elf, &image), addresses, &known, &mut met, symbols);
            let file = (path, &elf, true);
            name_without_symbols(file, &image, addresses, &mut named, remembered);
            named
        };
        let remembered = Functions::default();
        let all = names(&addresses, None);
        // Where one of a kind is met all of them are listed.
        for met in [elf.entry(), range(".plt").start] {
            names(&[met], Some(&remembered));
            assert!(!remembered.may_have_go(&image));
            let (mut found, mut missed) = (0, 0);
            for (address, names) in addresses.iter().zip(&all) {
                match remembered.find(&image, *address, &known) {
                    Some(named) => {
                        assert_eq!(*names, [named], "{address:#x}");
                        found += 1;
                    }
                    None => missed += 1,
                }
            }
            assert!(found > 10 * missed, "{found} found, {missed} not");
        }
    }
}
