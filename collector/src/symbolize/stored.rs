//! Names that are in the recording itself: what the collector looked up when it ended. They are
//! used where the files are not here any more, or other builds of them are.

use super::{Image, Named, Symbols, nameless};
use crate::intern::HashMap;
use crate::recording::{RawFrame, Recording};
use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use serde_json::{Value, json};
use std::io::Read;
use std::sync::{Arc, OnceLock};

/// Addresses in one document: it must fit into a record.
const PLACES: usize = 4000;
/// The longest document that is read, bytes.
const LONGEST: u64 = 64 << 20;

/// Names for a part of the addresses of a recording each, to be stored in it.
#[must_use]
pub(crate) fn documents(recording: &Recording, symbols: &Symbols) -> Vec<Vec<u8>> {
    let mut is_kernel = vec![false; symbols.places.len()];
    for (frame, place) in recording.frames.iter().zip(&symbols.of_frame) {
        if let (RawFrame::Kernel(_), Some(place)) = (frame, place) {
            is_kernel[*place as usize] = true;
        }
    }
    let places = symbols.places.iter().zip(is_kernel);
    let named = places.filter(|(place, is_kernel)| {
        let image = place
            .image
            .map(|image| symbols.images[image.index()].name());
        let image = image.or(is_kernel.then_some("kernel"));
        image.is_some_and(|image| {
            let unknown = nameless(image, place.address);
            place
                .functions
                .iter()
                .any(|named| *named.function != *unknown)
        })
    });
    let named: Vec<_> = named.map(|(place, _)| place).collect();
    let documents = named.chunks(PLACES).map(|places| {
        let mut strings = Strings::default();
        let places: Vec<Value> = places
            .iter()
            .map(|place| {
                let function = |named: &Named| {
                    json!([
                        strings.place(&named.function),
                        named.short.as_ref().map(|name| strings.place(name)),
                        named.file.as_ref().map(|name| strings.place(name)),
                        named.line,
                        named.inlined,
                        named.start,
                    ])
                };
                let functions: Vec<Value> = place.functions.iter().map(function).collect();
                json!([place.image.map(|image| image.0), place.address, functions])
            })
            .collect();
        let image = |image: &Image| json!([image.path, image.build_id_text()]);
        let images: Vec<Value> = symbols.images.iter().map(image).collect();
        let text = json!({"strings": strings.all, "images": images, "places": places});
        let mut deflated = Vec::new();
        let text = text.to_string();
        let mut encoder = ZlibEncoder::new(text.as_bytes(), Compression::default());
        // Reading from memory cannot fail.
        let _ = encoder.read_to_end(&mut deflated);
        deflated
    });
    documents.collect()
}

#[derive(Default)]
struct Strings {
    all: Vec<Arc<str>>,
    known: HashMap<Arc<str>, usize>,
}

impl Strings {
    fn place(&mut self, text: &Arc<str>) -> usize {
        let (all, next) = (&mut self.all, self.all.len());
        *self.known.entry(text.clone()).or_insert_with(|| {
            all.push(text.clone());
            next
        })
    }
}

/// Build-id (in hexadecimal) of an image, or its path if it has none; nothing for the kernel.
type Owner = Option<String>;

/// The names in a recording, read when the first is asked for.
pub(super) struct Stored<'a> {
    documents: &'a [Vec<u8>],
    read: OnceLock<HashMap<Owner, HashMap<u64, Vec<Named>>>>,
}

impl<'a> Stored<'a> {
    pub(super) fn of(recording: &'a Recording) -> Self {
        Self {
            documents: &recording.names,
            read: OnceLock::new(),
        }
    }

    /// The functions at addresses of an image, if names of it are stored.
    pub(super) fn of_image(&self, image: &Image, addresses: &[u64]) -> Option<Vec<Vec<Named>>> {
        self.find(&Some(owner(&image.path, image.build_id_text())), addresses)
    }

    /// Likewise of the kernel.
    pub(super) fn of_kernel(&self, addresses: &[u64]) -> Option<Vec<Vec<Named>>> {
        self.find(&None, addresses)
    }

    fn find(&self, owner: &Owner, addresses: &[u64]) -> Option<Vec<Vec<Named>>> {
        let all = self.read.get_or_init(|| {
            let mut all = HashMap::default();
            for document in self.documents {
                // Damage is noticed by the record's check; anything else is not ours.
                let _ = read(document, &mut all);
            }
            all
        });
        let names = all.get(owner)?;
        let named = addresses.iter();
        let named = named.map(|address| names.get(address).cloned().unwrap_or_default());
        Some(named.collect())
    }
}

fn owner(path: &str, build_id: String) -> String {
    match build_id.is_empty() {
        true => path.to_owned(),
        false => build_id,
    }
}

/// Takes in a document, as far as it is one.
fn read(document: &[u8], all: &mut HashMap<Owner, HashMap<u64, Vec<Named>>>) -> Option<()> {
    let mut text = Vec::new();
    let mut decoder = ZlibDecoder::new(document).take(LONGEST);
    decoder.read_to_end(&mut text).ok()?;
    let found: Value = serde_json::from_slice(&text).ok()?;
    let strings = found["strings"].as_array()?.iter();
    let strings: Vec<Arc<str>> = strings
        .map(|text| Arc::from(text.as_str().unwrap_or_default()))
        .collect();
    let string = |value: &Value| {
        let index = usize::try_from(value.as_u64()?).ok()?;
        strings.get(index).cloned()
    };
    let images = found["images"].as_array()?.iter();
    let images: Vec<Owner> = images
        .map(|image| {
            let build_id = image[1].as_str().unwrap_or_default();
            Some(owner(image[0].as_str()?, build_id.to_owned()))
        })
        .collect();
    let function = |value: &Value| {
        Some(Named {
            function: string(&value[0])?,
            short: string(&value[1]),
            file: string(&value[2]),
            line: u32::try_from(value[3].as_u64()?).ok()?,
            inlined: value[4].as_bool()?,
            start: value[5].as_u64(),
        })
    };
    for place in found["places"].as_array()? {
        let owner = match place[0].as_u64() {
            None => None,
            Some(index) => {
                let image = usize::try_from(index)
                    .ok()
                    .and_then(|index| images.get(index));
                let Some(Some(image)) = image else { continue };
                Some(image.clone())
            }
        };
        let functions = place[2].as_array().into_iter().flatten();
        let functions: Option<Vec<Named>> = functions.map(function).collect();
        if let (Some(address), Some(functions)) = (place[1].as_u64(), functions) {
            all.entry(owner).or_default().insert(address, functions);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::{ImageId, Place};

    fn symbols() -> Symbols {
        let image = |build_id: &[u8]| Image {
            path: "/bin/x".to_owned(),
            build_id: build_id.to_owned(),
        };
        let inlined = Named {
            short: Some("f<…>".into()),
            file: Some("a.c".into()),
            line: 7,
            inlined: true,
            ..Named::only("f<int>")
        };
        let outer = Named {
            start: Some(0x1000),
            ..Named::only("main")
        };
        let place = |image, address, functions| Place {
            image: Some(ImageId(image)),
            address,
            functions,
            language: None,
        };
        Symbols {
            images: vec![image(&[0xab, 1]), image(&[])],
            places: vec![
                place(0, 0x1234, vec![inlined, outer]),
                place(1, 0x10, vec![Named::only("without")]),
                place(0, 0x99, vec![Named::only("[x+0x99]")]),
            ],
            ..Symbols::default()
        }
    }

    fn stored(documents: &[Vec<u8>]) -> Stored<'_> {
        Stored {
            documents,
            read: OnceLock::new(),
        }
    }

    #[test]
    fn what_is_stored_is_read_back_by_build() {
        let symbols = symbols();
        let documents = documents(&Recording::default(), &symbols);
        let stored = stored(&documents);
        let named = stored.of_image(&symbols.images[0], &[0x1234, 0x99, 0x5]);
        let expected = symbols.places[0].functions.clone();
        assert_eq!(named.unwrap(), [expected, vec![], vec![]]);
        let named = stored.of_image(&symbols.images[1], &[0x10]).unwrap();
        assert_eq!(named, [symbols.places[1].functions.clone()]);
        let other = Image {
            build_id: vec![1],
            ..symbols.images[0].clone()
        };
        assert_eq!(stored.of_image(&other, &[0x1234]), None);
        assert_eq!(stored.of_kernel(&[0x1234]), None);
    }

    #[test]
    fn whatever_else_is_there_is_no_name() {
        let whole = documents(&Recording::default(), &symbols()).remove(0);
        for cut in 0..whole.len() {
            let mut all = HashMap::default();
            let _ = read(&whole[..cut], &mut all);
        }
        for text in [
            "[]",
            "{}",
            r#"{"strings":[],"images":[],"places":[[0,1,[]],[null,2,[[9,0,0,0,true,0]]],3]}"#,
            r#"{"strings":["a"],"images":[[]],"places":[[0,1,[[0,null,null,-1,true,0]]]]}"#,
        ] {
            let mut deflated = Vec::new();
            let mut encoder = ZlibEncoder::new(text.as_bytes(), Compression::default());
            encoder.read_to_end(&mut deflated).unwrap();
            let mut all = HashMap::default();
            let _ = read(&deflated, &mut all);
            assert!(all.is_empty(), "{text}: {all:?}");
        }
    }
}
