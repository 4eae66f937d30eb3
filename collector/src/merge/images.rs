//! What a file on this machine says of a mapping that perf recorded: its build-id, and at which of
//! its own addresses it was mapped.

use crate::binary::Binary;
use crate::segments::Segments;
use object::Object;
use std::collections::HashMap;
use std::path::Path;

/// A file: build-id, and parts.
type Image = (Vec<u8>, Segments);

/// Files looked at.
#[derive(Debug, Default)]
pub(crate) struct Images(HashMap<String, Image>);

impl Images {
    /// The build-id of the file, and by how much runtime addresses are above its own. Without the
    /// file: as if it had equal addresses and offsets, as most have.
    pub(crate) fn of_mapping(&mut self, path: &str, start: u64, offset: u64) -> (Vec<u8>, u64) {
        let known = self.0.entry(path.to_owned());
        let (build_id, parts) = known.or_insert_with(|| read(Path::new(path)).unwrap_or_default());
        let address = parts.address_of_code(offset).unwrap_or(offset);
        (build_id.clone(), start.wrapping_sub(address))
    }
}

fn read(path: &Path) -> Option<Image> {
    let data = Binary::open(path).ok()?;
    let elf = object::File::parse(&data).ok()?;
    let build_id = elf.build_id().ok().flatten().unwrap_or_default().to_vec();
    Some((build_id, Segments::of(&elf)))
}
