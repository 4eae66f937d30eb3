//! Names are looked up once for each build, and kept from one window to the next in a recording
//! that has nothing but names.

use crate::profile::Profile;
use crate::recording::names::{self, StoredNames};
use crate::recording::write::{OwnChunks, Writer};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// So long may the file become, bytes; then it begins anew with what was just seen.
const MOST: usize = 8 << 20;

/// Adds the names of a profile to those that it was read with, and writes them if there are new
/// ones.
///
/// # Errors
/// As write.
pub(super) fn keep(profile: &mut Profile, path: &Path) -> io::Result<()> {
    let mut seen = profile.symbols.to_be_stored(&profile.recording);
    seen.retain(|owner, _| owner.lasts());
    let known = std::mem::take(&mut profile.recording.names);
    let Some(all) = added(known, &seen) else {
        return Ok(());
    };
    let mut bytes = names::encode(&all);
    if bytes.len() > MOST {
        bytes = names::encode(&seen);
    }
    let new = path.with_extension("new");
    let mut writer = Writer::begin(File::create(&new)?)?;
    writer.append_own(OwnChunks::of_names(&bytes))?;
    writer.finish()?;
    fs::rename(new, path)
}

/// All of them; `None` if there is nothing new.
fn added(mut known: StoredNames, seen: &StoredNames) -> Option<StoredNames> {
    let mut is_new = false;
    for (owner, group) in seen {
        let there = known.entry(owner.clone()).or_default();
        let new = group.places.iter();
        let new = new.filter(|(address, _)| there.find(*address).is_none());
        let new: Vec<_> = new.cloned().collect();
        is_new |= !new.is_empty() || group.debug && !there.debug;
        there.debug |= group.debug;
        there.places.extend(new);
        there.places.sort_by_key(|place| place.0);
    }
    is_new.then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::names::{Group, Named, Owner};

    #[test]
    fn only_what_is_new_is_added() {
        let group = |addresses: &[u64]| Group {
            debug: false,
            places: addresses
                .iter()
                .map(|at| (*at, vec![Named::only(format!("f{at}"))]))
                .collect(),
        };
        let names = |addresses: &[u64]| {
            let owner = Owner::Build(vec![1]);
            StoredNames::from([(owner, group(addresses))])
        };
        let all = added(names(&[1, 5]), &names(&[5, 3])).unwrap();
        assert_eq!(all, names(&[1, 3, 5]));
        assert!(added(all, &names(&[3])).is_none());
    }
}
