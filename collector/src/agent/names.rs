//! Names are looked up once for each build, and kept from one window to the next.

use crate::charge::Row;
use crate::profile::Profile;
use crate::recording::Recording;
use crate::recording::names::{self, Group, Named, Owner, StoredNames};
use crate::recording::write::{OwnChunks, Writer};
use crate::symbolize::{Effort, Places, Version, version};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// So much memory may they take, bytes; then they begin anew with what was just seen.
const MOST: usize = 12 << 20;

/// The names of windows so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: StoredNames,
    /// The files of those that have no build-id, as they were.
    files: HashMap<String, Version>,
    places: Places,
}

impl Names {
    /// Whether there are none yet.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Names what is in a part of a recording, with those that it was read with if there are none
    /// here. `thorough`: whether lines and inlined functions are looked for, too, in binaries of
    /// which there are names already.
    pub(super) fn name(&mut self, mut part: Recording, rows: &[Row], thorough: bool) -> Profile {
        self.places.effort = match thorough {
            true => Effort::Again,
            false => Effort::Little,
        };
        let files = &self.files;
        self.known.retain(|owner, _| match owner {
            Owner::Path(path) => version(path).as_ref() == files.get(path),
            _ => true,
        });
        if !self.is_empty() {
            part.names = std::mem::take(&mut self.known);
        }
        let mut profile = Profile::of_part(part, &self.places, rows);
        self.known = std::mem::take(&mut profile.recording.names);
        let seen = match self.are_too_many() {
            true => {
                self.known.clear();
                profile.symbols.to_be_stored(&profile.recording)
            }
            false => profile.symbols.to_be_added(&profile.recording),
        };
        self.add(seen);
        profile
    }

    fn are_too_many(&self) -> bool {
        size(&self.known) > MOST
    }

    fn add(&mut self, seen: StoredNames) {
        let mut kept = StoredNames::default();
        for (owner, group) in seen {
            if let Owner::Path(path) = &owner {
                let Some(version) = version(path) else {
                    continue;
                };
                self.files.insert(path.clone(), version);
            } else if !owner.lasts() {
                continue;
            }
            kept.insert(owner, group);
        }
        for (owner, group) in kept {
            add(self.known.entry(owner).or_default(), group);
        }
    }

    /// Writes them as a recording that has nothing else.
    ///
    /// # Errors
    /// As write.
    pub(super) fn write(&mut self, path: &Path) -> io::Result<()> {
        self.known.retain(|owner, _| owner.lasts());
        let bytes = names::encode(&self.known);
        let new = path.with_extension("new");
        let mut writer = Writer::begin(File::create(&new)?)?;
        writer.append_own(OwnChunks::of_names(&bytes))?;
        writer.finish()?;
        fs::rename(new, path)
    }
}

/// Adds what is not there, or there without a line.
fn add(known: &mut Group, seen: Group) {
    known.debug |= seen.debug;
    let has_line = |functions: &[Named]| functions.last().is_some_and(|it| it.line > 0);
    let mut new = Vec::new();
    for (address, functions) in seen.places {
        match known.places.binary_search_by_key(&address, |place| place.0) {
            Err(_) => new.push((address, functions)),
            Ok(at) => {
                let there = &mut known.places[at].1;
                if has_line(&functions) && !has_line(there) {
                    *there = functions;
                }
            }
        }
    }
    if !new.is_empty() {
        // Both are sorted, which this sort makes use of.
        known.places.extend(new);
        known.places.sort_by_key(|place| place.0);
    }
}

/// About how much memory they take, bytes: strings are shared.
fn size(names: &StoredNames) -> usize {
    let places = names.values().flat_map(|group| &group.places);
    let of_place = |(_, functions): &(u64, Vec<Named>)| {
        size_of::<(u64, Vec<Named>)>() + functions.len() * size_of::<Named>()
    };
    places.map(of_place).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(places: &[(u64, u32)]) -> Group {
        let named = |at: u64, line| Named {
            line,
            ..Named::only(format!("f{at}"))
        };
        Group {
            debug: false,
            places: places
                .iter()
                .map(|(at, line)| (*at, vec![named(*at, *line)]))
                .collect(),
        }
    }

    #[test]
    fn what_is_new_is_added_and_what_had_no_line_gets_one() {
        let mut known = group(&[(1, 0), (5, 7), (6, 0)]);
        add(&mut known, group(&[(5, 0), (3, 0), (6, 9)]));
        assert_eq!(known, group(&[(1, 0), (3, 0), (5, 7), (6, 9)]));
    }

    #[test]
    fn names_are_kept_of_builds_and_of_files_that_stay_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, "a").unwrap();
        let program = Owner::Path(path.to_str().unwrap().into());
        let gone = Owner::Path("/nonexistent/program".into());
        let owners = [
            Owner::Build(vec![1]),
            program.clone(),
            gone,
            Owner::Process(7, 8),
        ];
        let seen: StoredNames = owners.map(|owner| (owner, group(&[(1, 0)]))).into();
        let mut names = Names::default();
        names.add(seen);
        let known = |names: &mut Names| {
            names.name(Recording::default(), &[], false);
            let mut known: Vec<_> = names.known.keys().cloned().collect();
            known.sort_by_key(|owner| format!("{owner:?}"));
            known
        };
        assert_eq!(known(&mut names), [Owner::Build(vec![1]), program]);
        fs::write(&path, "ab").unwrap();
        assert_eq!(known(&mut names), [Owner::Build(vec![1])]);
    }

    #[test]
    fn too_many_names_give_way_to_those_that_were_just_seen() {
        let owner = Owner::Build(vec![1]);
        let mut names = Names::default();
        let many: Vec<_> = (1..=MOST as u64 / 64).map(|at| (at, 0)).collect();
        names.add([(owner.clone(), group(&many))].into());
        assert_eq!(names.known[&owner].places.len(), many.len());
        names.name(Recording::default(), &[], false);
        assert!(names.is_empty());
        names.add([(owner.clone(), group(&[(0, 0)]))].into());
        names.name(Recording::default(), &[], false);
        assert_eq!(names.known[&owner], group(&[(0, 0)]));
    }
}
