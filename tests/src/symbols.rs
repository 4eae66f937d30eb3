//! Function names for addresses, from the symbol tables of the modules themselves.

use crate::recording::Recording;
use engine::wire::sample::Frame;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Names the frames of one recording.
#[derive(Debug)]
pub struct Symbols<'a> {
    recording: &'a Recording,
    tables: HashMap<&'a str, BTreeMap<u64, (u64, String)>>,
}

impl<'a> Symbols<'a> {
    /// Reads the symbol tables of the recording's modules that are files.
    #[must_use]
    pub fn of(recording: &'a Recording) -> Self {
        let paths = recording.modules.iter().map(|module| module.path.as_str());
        let tables = paths.map(|path| (path, table(Path::new(path)))).collect();
        Self { recording, tables }
    }

    /// The function of a frame, or where it lies.
    #[must_use]
    pub fn name(&self, frame: &Frame) -> String {
        let pc = frame.code_address().lookup().0;
        let module = self
            .recording
            .modules
            .iter()
            .rev()
            .find(|module| (module.start..module.end).contains(&pc));
        let Some(module) = module else {
            return format!("{pc:#x}");
        };
        let address = pc.wrapping_sub(module.bias);
        let symbol = self
            .tables
            .get(module.path.as_str())
            .and_then(|table| table.range(..=address).next_back());
        match symbol {
            Some((start, (size, name))) if address < start + size => name.clone(),
            _ => format!("{}+{address:#x}", module.path),
        }
    }
}

fn table(path: &Path) -> BTreeMap<u64, (u64, String)> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let Ok(file) = object::File::parse(&*bytes) else {
        return BTreeMap::new();
    };
    file.symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| {
            Some((
                symbol.address(),
                (symbol.size(), symbol.name().ok()?.to_owned()),
            ))
        })
        .collect()
}
