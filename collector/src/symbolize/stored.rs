//! Names that are stored in a recording, and those to be stored.
//!
//! What was seen when it was made is shown again, whatever the files here are by now. Only where a
//! binary had no debug information then, and some of the very same build is here now, that is used
//! instead.

use super::images::Found;
use super::{Image, Key, NameSource, Named, Places, Symbols, UNKNOWN};
use crate::intern::HashMap;
use crate::recording::names::{Group, Owner, StoredNames};
use crate::recording::{RawFrame, Recording};

/// The functions at each address as far as they are stored; none where nothing is.
pub(super) fn names(
    recording: &Recording,
    symbols: &mut Symbols,
    keys: &[Key],
    places: &Places,
) -> Vec<Vec<Named>> {
    let groups: Vec<Option<&Group>> = symbols
        .images
        .iter()
        .map(|image| {
            let group = recording.names.get(&owner(image))?;
            (group.debug || !has_debug_information(image, places)).then_some(group)
        })
        .collect();
    for (source, group) in symbols.sources.iter_mut().zip(&groups) {
        *source = match group {
            Some(group) if group.debug => NameSource::Debug,
            Some(_) => NameSource::Symbols,
            None => NameSource::None,
        };
    }
    let kernel = recording.names.get(&Owner::Kernel);
    let find = |key: &Key| match *key {
        Key::Image(image, address) => groups[image.index()]?.find(address.0),
        Key::Kernel(address) => kernel?.find(address.0),
        Key::Anonymous(process, address) => {
            let process = &recording.processes[process.index()];
            let owner = Owner::Process(process.pid, process.key);
            recording.names.get(&owner)?.find(address.0)
        }
        Key::Language(..) => None,
    };
    let found = keys.iter().map(find);
    found
        .map(|found| found.unwrap_or_default().to_vec())
        .collect()
}

/// Whether there is debug information here for the very build that was recorded.
fn has_debug_information(image: &Image, places: &Places) -> bool {
    !image.build_id.is_empty() && matches!(places.find(image), Found::Files { debug: true, .. })
}

fn owner(image: &Image) -> Owner {
    match image.build_id.is_empty() {
        true => Owner::Path(image.path.clone()),
        false => Owner::Build(image.build_id.clone()),
    }
}

impl Symbols {
    /// What was found, to be stored in the recording. Not what was not: it may be some day.
    #[must_use]
    pub fn to_be_stored(&self, recording: &Recording) -> StoredNames {
        let mut groups: HashMap<Owner, HashMap<u64, u32>> = HashMap::default();
        let mut names = StoredNames::default();
        for (frame, index) in recording.frames.iter().zip(&self.of_frame) {
            let Some(index) = *index else { continue };
            let place = &self.places[index as usize];
            let is_named =
                !place.functions[0].is_nameless() && &*place.functions[0].function != UNKNOWN;
            let owner = match (frame, place.image) {
                _ if place.language.is_some() => continue,
                (_, Some(image)) => match self.sources[image.index()] {
                    NameSource::None => continue,
                    _ => owner(&self.images[image.index()]),
                },
                (RawFrame::Kernel(_), None) if is_named => Owner::Kernel,
                (RawFrame::Code { process, .. }, None) if is_named => {
                    let process = &recording.processes[process.index()];
                    Owner::Process(process.pid, process.key)
                }
                _ => continue,
            };
            groups
                .entry(owner)
                .or_default()
                .insert(place.address, index);
        }
        for image in self.images.iter().zip(&self.sources) {
            if let (image, NameSource::Debug) = image {
                names.entry(owner(image)).or_default().debug = true;
            }
        }
        for (owner, places) in groups {
            let group = names.entry(owner).or_default();
            let named = |(address, index): (u64, u32)| {
                (address, self.places[index as usize].functions.clone())
            };
            group.places = places.into_iter().map(named).collect();
            group.places.sort_by_key(|place| place.0);
        }
        names
    }
}
