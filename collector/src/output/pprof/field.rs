//! A repeated field of a protocol buffer, whose elements are encoded as they come: a message is
//! what its fields are, one behind the other.

use prost::Message;

/// Of the kinds of fields that which has its length before it.
const WITH_LENGTH: u8 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its number and kind.
    key: u8,
    bytes: Vec<u8>,
    elements: u32,
}

impl Field {
    /// Nothing of the field of that number, which is below 16.
    pub(crate) const fn new(number: u8) -> Self {
        Self {
            key: number << 3 | WITH_LENGTH,
            bytes: Vec::new(),
            elements: 0,
        }
    }

    /// Adds an element, and gives how many there were before.
    pub(crate) fn push(&mut self, element: &impl Message) -> u32 {
        self.bytes.push(self.key);
        // It says no where there is no room, and here it is made.
        let _ = element.encode_length_delimited(&mut self.bytes);
        self.elements += 1;
        self.elements - 1
    }

    /// Adds one that is encoded already, in parts.
    #[cfg_attr(not(feature = "agent"), expect(dead_code))]
    pub(crate) fn push_encoded(&mut self, parts: &[&[u8]]) {
        self.bytes.push(self.key);
        let length = parts.iter().map(|part| part.len()).sum();
        let _ = prost::encode_length_delimiter(length, &mut self.bytes);
        parts.iter().for_each(|part| self.bytes.extend(*part));
        self.elements += 1;
    }

    /// The field, as it stands in the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
