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

/// How much is done for names that are not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// All is read that there is.
    #[default]
    Whole,
    /// Where some names of a binary are stored, others are looked for among its symbols alone: they
    /// have no lines. Symbols of the kernel that were read before are used.
    Little,
    /// As [`Effort::Whole`], also for what has debug information and is stored without a line.
    Again,
}

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
            let holds = group.debug
                || places.effort == Effort::Little
                || !has_debug_information(image, places);
            holds.then_some(group)
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
        Key::Image(image, address) => {
            let group = groups[image.index()]?;
            let found = group.find(address.0)?;
            let is_whole = found.last().is_some_and(|function| function.line > 0);
            (is_whole || !group.debug || places.effort != Effort::Again).then_some(found)
        }
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

pub(super) fn owner(image: &Image) -> Owner {
    match image.build_id.is_empty() {
        true => Owner::Path(image.path.clone()),
        false => Owner::Build(image.build_id.clone()),
    }
}

impl Symbols {
    /// What was found, to be stored in the recording. Not what was not: it may be some day.
    #[must_use]
    pub fn to_be_stored(&self, recording: &Recording) -> StoredNames {
        self.names_of(recording, |_| true)
    }

    /// The same without what is stored there.
    #[cfg(feature = "agent")]
    pub(crate) fn to_be_added(&self, recording: &Recording) -> StoredNames {
        self.names_of(recording, |place| !self.were_stored[place as usize])
    }

    fn names_of(&self, recording: &Recording, are_meant: impl Fn(u32) -> bool) -> StoredNames {
        let mut groups: HashMap<Owner, HashMap<u64, u32>> = HashMap::default();
        let mut of_images: Vec<HashMap<u64, u32>> = vec![HashMap::default(); self.images.len()];
        let mut names = StoredNames::default();
        for (frame, index) in recording.frames.iter().zip(&self.of_frame) {
            let Some(index) = index.filter(|index| are_meant(*index)) else {
                continue;
            };
            let place = &self.places[index as usize];
            let is_named =
                !place.functions[0].is_nameless() && &*place.functions[0].function != UNKNOWN;
            let owner = match (frame, place.image) {
                _ if place.language.is_some() => continue,
                (_, Some(image)) => {
                    if self.sources[image.index()] != NameSource::None {
                        of_images[image.index()].insert(place.address, index);
                    }
                    continue;
                }
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
        let of_images = self.images.iter().map(owner).zip(of_images);
        let of_images = of_images.filter(|(_, places)| !places.is_empty());
        for (owner, places) in groups.into_iter().chain(of_images) {
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
