//! Puts functions, frames, symbols, resources and libraries into a profile whose frames are labels.
//!
//! Tables are by column, as that format's own documentation and types (`src/types/profile.ts` of
//! firefox-devtools/profiler) have them.

use super::frame_of;
use crate::profile::{Frame, Function, FunctionId, Profile, SourceFrameId};
use crate::symbolize::{Image, ImageId};
use fxprof_processed_profile::debugid::DebugId;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io;

/// Replaces the tables of all threads, and the list of libraries.
pub(super) fn fill(json: &mut Value, profile: &Profile) -> io::Result<()> {
    let images = &profile.symbols.images;
    json["libs"] = images.iter().map(library).collect();
    let threads = json["threads"].as_array_mut();
    for thread in threads.into_iter().flatten() {
        let made = Tables::of(thread, profile)?;
        made.put(thread);
    }
    Ok(())
}

fn library(image: &Image) -> Value {
    let little_endian = true;
    let id = DebugId::from_guid_age(&guid(&image.build_id, little_endian), 0).unwrap_or_default();
    json!({
        "name": image.name(),
        "path": image.path,
        "debugName": image.name(),
        "debugPath": image.path,
        "breakpadId": id.breakpad().to_string(),
        "codeId": if image.build_id.is_empty() { Value::Null } else { json!(image.build_id_text()) },
        "arch": Value::Null,
    })
}

/// The first 16 bytes of a build-id, as Breakpad makes a debug id of them: its first three fields
/// are of the file's byte order.
fn guid(build_id: &[u8], little_endian: bool) -> [u8; 16] {
    let mut guid = [0; 16];
    for (to, from) in guid.iter_mut().zip(build_id) {
        *to = *from;
    }
    if little_endian {
        guid[0..4].reverse();
        guid[4..6].reverse();
        guid[6..8].reverse();
    }
    guid
}

/// A table by columns.
#[derive(Default)]
struct Table {
    columns: Map<String, Value>,
    length: usize,
}

impl Table {
    fn push(&mut self, row: Value) -> usize {
        if let Value::Object(row) = row {
            for (column, value) in row {
                let column = self.columns.entry(column).or_insert_with(|| json!([]));
                column
                    .as_array_mut()
                    .into_iter()
                    .for_each(|all| all.push(value.clone()));
            }
        }
        self.length += 1;
        self.length - 1
    }

    /// With its length, and with the columns there must be even when there are no rows.
    fn finish(mut self, columns: &[&str]) -> Value {
        for column in columns {
            self.columns.entry(*column).or_insert_with(|| json!([]));
        }
        self.columns.insert("length".to_owned(), json!(self.length));
        Value::Object(self.columns)
    }
}

#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    known_strings: HashMap<String, usize>,
    functions: Table,
    known_functions: HashMap<FunctionId, usize>,
    frames: Table,
    symbols: Table,
    known_symbols: HashMap<(ImageId, u64), usize>,
    resources: Table,
    known_resources: HashMap<ImageId, usize>,
    /// The names of markers.
    markers: Vec<usize>,
}

impl Tables {
    fn of(thread: &Value, profile: &Profile) -> io::Result<Self> {
        let mut tables = Self::default();
        let broken = || io::Error::other("a table of the profile is not as expected");
        let column =
            |table: &str, column: &str| thread[table][column].as_array().ok_or_else(broken);
        let functions = column("frameTable", "func")?;
        let names = column("funcTable", "name")?;
        let strings = thread["stringArray"].as_array().ok_or_else(broken)?;
        let at = |all: &'_ [Value], index: &Value| -> Option<Value> {
            all.get(usize::try_from(index.as_u64()?).ok()?).cloned()
        };
        for (row, function) in functions.iter().enumerate() {
            let name = at(names, function).and_then(|name| at(strings, &name));
            let frame = name.as_ref().and_then(Value::as_str).and_then(frame_of);
            let frame = frame.ok_or_else(broken)?;
            let old = |name: &str| thread["frameTable"][name][row].clone();
            tables.frame(profile, frame, old("category"), old("subcategory"));
        }
        for name in column("markers", "name")? {
            let name = at(strings, name).ok_or_else(broken)?;
            let name = tables.string(name.as_str().unwrap_or_default());
            tables.markers.push(name);
        }
        Ok(tables)
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(known) = self.known_strings.get(text) {
            return *known;
        }
        self.strings.push(text.to_owned());
        self.known_strings
            .insert(text.to_owned(), self.strings.len() - 1);
        self.strings.len() - 1
    }

    fn frame(&mut self, profile: &Profile, id: SourceFrameId, category: Value, subcategory: Value) {
        let frame = &profile.frames[id.index()];
        let function = profile.function(frame);
        let func = self.function(profile, frame, function);
        let in_image = function.image.filter(|_| frame.address.is_some());
        let address = in_image.map_or(json!(-1), |_| json!(frame.file_address));
        let symbol = in_image.and_then(|image| self.symbol(profile, image, frame, function));
        let line = Some(frame.line).filter(|line| *line > 0);
        self.frames.push(json!({
            "address": address,
            "inlineDepth": frame.inline_depth,
            "category": category,
            "subcategory": subcategory,
            "func": func,
            "nativeSymbol": symbol,
            "innerWindowID": 0,
            "line": line,
            "column": Value::Null,
        }));
    }

    fn function(&mut self, profile: &Profile, frame: &Frame, function: &Function) -> usize {
        if let Some(known) = self.known_functions.get(&frame.function) {
            return *known;
        }
        let name = self.string(&function.name);
        let file = frame.file.as_ref().map(|file| self.string(file));
        let resource = function.image.map(|image| self.resource(profile, image));
        let row = self.functions.push(json!({
            "name": name,
            "isJS": false,
            "relevantForJS": false,
            "resource": resource.map_or(json!(-1), |resource| json!(resource)),
            "fileName": file,
            "lineNumber": Some(function.begins).filter(|line| *line > 0),
            "columnNumber": Value::Null,
        }));
        self.known_functions.insert(frame.function, row);
        row
    }

    fn symbol(
        &mut self,
        profile: &Profile,
        image: ImageId,
        frame: &Frame,
        function: &Function,
    ) -> Option<usize> {
        let start = frame.function_start?;
        if let Some(known) = self.known_symbols.get(&(image, start)) {
            return Some(*known);
        }
        let _ = self.resource(profile, image);
        let name = self.string(&function.name);
        let row = self.symbols.push(json!({
            "address": start,
            "functionSize": Value::Null,
            "libIndex": image.number(),
            "name": name,
        }));
        self.known_symbols.insert((image, start), row);
        Some(row)
    }

    fn resource(&mut self, profile: &Profile, image: ImageId) -> usize {
        if let Some(known) = self.known_resources.get(&image) {
            return *known;
        }
        let name = self.string(profile.symbols.images[image.index()].name());
        let of_library = 1;
        let row = self.resources.push(json!({
            "lib": image.number(),
            "name": name,
            "host": Value::Null,
            "type": of_library,
        }));
        self.known_resources.insert(image, row);
        row
    }

    fn put(self, thread: &mut Value) {
        thread["stringArray"] = json!(self.strings);
        thread["markers"]["name"] = json!(self.markers);
        thread["funcTable"] = self.functions.finish(&[
            "name",
            "isJS",
            "relevantForJS",
            "resource",
            "fileName",
            "lineNumber",
            "columnNumber",
        ]);
        thread["frameTable"] = self.frames.finish(&[
            "address",
            "inlineDepth",
            "category",
            "subcategory",
            "func",
            "nativeSymbol",
            "innerWindowID",
            "line",
            "column",
        ]);
        let symbols = ["address", "functionSize", "libIndex", "name"];
        thread["nativeSymbols"] = self.symbols.finish(&symbols);
        thread["resourceTable"] = self.resources.finish(&["lib", "name", "host", "type"]);
    }
}
