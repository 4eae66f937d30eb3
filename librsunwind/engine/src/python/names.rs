//! What `threading` calls a thread: the outermost function of one that it has begun is
//! `Thread._bootstrap`, whose first variable is the `Thread`, which has the name.
//!
//! ```text
//! outermost frame ─► its first variable ─► its class ─► names of its values ─► place of "_name"
//!                                     └► its values, or its dictionary ─► the value at that place
//! ```
//!
//! Others change all that while it is read, and take it away, so each word of it is copied by who
//! can tell. What is half changed has no name; a name is a string under that name, or it is none.

use super::layout::{Attributes, Layout};
use super::strings::Text;
use super::threads::word;
use crate::interpreter::memory::Memory;

/// Bytes of a thread's name that are told, at most.
pub const LONGEST: usize = 256;

/// Of every object: its type.
const TYPE: u64 = 8;
/// Of a type: the size of its instances, what it is, and where they have a dictionary.
const INSTANCE: u64 = 32;
const FLAGS: u64 = 168;
const DICTIONARY: u64 = 288;
/// Of a type's flags: instances have their values behind them, have their attributes where
/// [`Attributes`] says, and the type is a class.
const HAS_VALUES_BEHIND: u64 = 1 << 2;
const IS_MANAGED: u64 = 1 << 4;
const IS_CLASS: u64 = 1 << 9;
/// Before an instance: its values, and its dictionary.
const VALUES_BEFORE: u64 = 32;
const DICTIONARY_BEFORE: u64 = 24;
/// Of a dictionary: its keys, and its values if they are apart.
const KEYS: u64 = 32;
const VALUES: u64 = 40;
/// Of values, from 3.13 on: bytes before the first.
const HEAD: u64 = 8;
/// Keys that are looked through, at most: what is set first comes first.
const MOST_KEYS: usize = 64;

/// The attributes of an instance: a table of keys, and the values of these if they are not in it.
#[derive(Clone, Copy)]
struct Instance {
    keys: u64,
    values: Option<u64>,
}

/// A table of keys.
struct Table {
    entries: u64,
    count: usize,
    /// Of an entry, bytes; where in it the key is, and behind that the value.
    size: u64,
    key: u64,
}

/// Reads nothing but by copies.
struct Copied<'m, M>(&'m M);

impl<M: Memory> Memory for Copied<'_, M> {
    fn load(&self, address: u64) -> Option<u64> {
        word(self.0, address, 0)
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        self.0.copy(address, to)
    }
}

impl Layout {
    /// The name of the thread whose outermost frame that is; `None` if it is not one of
    /// `threading`'s, or cannot be read now.
    pub fn thread_name<'t>(
        &self,
        memory: &impl Memory,
        frame: u64,
        to: &'t mut [u8; LONGEST],
    ) -> Option<&'t [u8]> {
        const TAGS: u64 = 7;
        let code = self.place(memory, frame)?.code;
        let kind = self.is_of_threading(memory, code)?;
        let memory = &Copied(memory);
        let thread = memory.at(frame, self.variables)? & !TAGS;
        let instance = self.attributes_of(memory, thread)?;
        let name = self.attribute(memory, instance, kind)?;
        let name = self.text(memory, name, kind)?.read(memory, to)?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether a code object is that of `Thread._bootstrap`; gives what is the type of strings.
    fn is_of_threading(&self, memory: &impl Memory, code: u64) -> Option<u64> {
        const NAMES: [&[u8]; 2] = [b"_bootstrap", b"Thread._bootstrap"];
        const FILES: [&[u8]; 2] = [b"threading.py", b"<frozen threading>"];
        let mut end = [0; 24];
        let name = self.end_of(memory, code, self.name, &mut end)?;
        if !NAMES.contains(&name) {
            return None;
        }
        let file = self.end_of(memory, code, self.file, &mut end)?;
        if !FILES.iter().any(|name| file.ends_with(name)) {
            return None;
        }
        memory.at(memory.at(code, self.name)?, self.of_object(TYPE))
    }

    /// The last bytes of a text of a code object.
    fn end_of<'t>(
        &self,
        memory: &impl Memory,
        code: u64,
        text: u64,
        to: &'t mut [u8],
    ) -> Option<&'t [u8]> {
        let text = Text::at(memory, self, memory.at(code, text)?)?;
        let size = text.size.min(to.len() as u64);
        let end = to.get_mut(..size as usize)?;
        let before = text.size.checked_sub(size)?;
        memory.copy(text.start.checked_add(before)?, end)?;
        Some(end)
    }

    fn attributes_of(&self, memory: &impl Memory, object: u64) -> Option<Instance> {
        let class = memory.at(object, self.of_object(TYPE))?;
        let flags = memory.at(class, self.of_object(FLAGS))?;
        if flags & IS_CLASS == 0 {
            return None;
        }
        let before = |distance| memory.load(object.checked_sub(distance)?);
        // What a collector has before objects is part of their head in a free-threaded build.
        let dictionary_before = DICTIONARY_BEFORE.wrapping_sub(self.head);
        let of_class = |values| {
            let keys = memory.at(class, self.value_names)?;
            let values = Some(values);
            Some(Instance { keys, values })
        };
        let head = match self.attributes {
            Attributes::Behind => HEAD,
            _ => 0,
        };
        let dictionary = match self.attributes {
            Attributes::Dictionary => self.dictionary_of(memory, object, class)?,
            _ if flags & IS_MANAGED == 0 => self.dictionary_of(memory, object, class)?,
            Attributes::Apart => match before(VALUES_BEFORE)? {
                0 => before(dictionary_before)?,
                values => return of_class(values),
            },
            Attributes::Either => match before(dictionary_before)? {
                values if values & 1 == 1 => return of_class(values.checked_add(1)?),
                dictionary => dictionary,
            },
            Attributes::Behind => {
                let behind = object.checked_add(memory.at(class, self.of_object(INSTANCE))?)?;
                let is_valid = |word: u64| word >> 24 & 0xff == 1;
                if flags & HAS_VALUES_BEHIND != 0 && is_valid(memory.load(behind)?) {
                    return of_class(behind.checked_add(head)?);
                }
                before(dictionary_before)?
            }
        };
        let values = memory.at(dictionary, self.of_object(VALUES))?;
        Some(Instance {
            keys: memory.at(dictionary, self.of_object(KEYS))?,
            values: match values {
                0 => None,
                values => Some(values.checked_add(head)?),
            },
        })
    }

    fn dictionary_of(&self, memory: &impl Memory, object: u64, class: u64) -> Option<u64> {
        const FAR: u64 = 1 << 16;
        let offset = memory.at(class, self.of_object(DICTIONARY))?;
        memory.at(object, Some(offset).filter(|offset| *offset < FAR)?)
    }

    /// The attribute `_name`.
    fn attribute(&self, memory: &impl Memory, instance: Instance, kind: u64) -> Option<u64> {
        const NAME: &[u8] = b"_name";
        let table = self.table(memory, instance.keys)?;
        let entry = |index: usize| {
            let offset = table.size.checked_mul(index as u64)?;
            table.entries.checked_add(offset)
        };
        let is_name = |index: &usize| {
            let key = memory.at(entry(*index)?, table.key)?;
            let text = self.text(memory, key, kind)?;
            let mut found = [0; NAME.len()];
            let is_so_long = text.size == found.len() as u64;
            memory.copy(text.start, &mut found)?;
            (is_so_long && found == NAME).then_some(())
        };
        let index = (0..table.count).find(|index| is_name(index).is_some())?;
        match instance.values {
            Some(values) => memory.at(values, (index as u64).checked_mul(8)?),
            None => memory.at(entry(index)?, table.key.checked_add(8)?),
        }
    }

    fn table(&self, memory: &impl Memory, keys: u64) -> Option<Table> {
        let (filled, indices, log, entry) = match self.attributes {
            // The number of places is there; places of up to 255 are bytes.
            Attributes::Dictionary => {
                let places = memory.at(keys, 8)?;
                let width = match places {
                    0..=0xff => 0,
                    0x100..=0xffff => 1,
                    _ => 2,
                };
                let log = places.checked_ilog2()?.checked_add(width)?;
                (32, 40, log, (24, 8))
            }
            _ => {
                let word = memory.at(keys, 8)?;
                let is_general = word >> 16 & 0xff == 0;
                let entry = if is_general { (24, 8) } else { (16, 0) };
                (24, 32, (word >> 8 & 0xff) as u32, entry)
            }
        };
        let behind = 1u64.checked_shl(log)?.checked_add(indices)?;
        let count = usize::try_from(memory.at(keys, filled)?).ok()?;
        let (size, key) = entry;
        Some(Table {
            entries: keys.checked_add(behind)?,
            count: count.min(MOST_KEYS),
            size,
            key,
        })
    }

    /// The characters of what is a string, and nothing that was made of it.
    fn text(&self, memory: &impl Memory, object: u64, kind: u64) -> Option<Text> {
        let is_one = object != 0 && memory.at(object, self.of_object(TYPE))? == kind;
        is_one.then(|| Text::at(memory, self, object))?
    }
}
