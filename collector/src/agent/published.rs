//! The payload of a process context ([`super::process_context`]): a message with the resource of
//! the process, and attributes beside it.
//!
//! ```text
//! ProcessContext: 1: Resource, 2: KeyValue …
//! ```

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::BTreeMap;

/// Longer ones are not read, bytes.
pub(super) const LONGEST_PAYLOAD: usize = 64 << 10;
/// So many attributes are taken.
const MOST_ATTRIBUTES: usize = 128;
/// Longer keys and values are left out, bytes.
const LONGEST_KEY: usize = 256;
/// See there.
const LONGEST_VALUE: usize = 4096;
/// How keys begin that are for readers of thread contexts (proposal 4947), and say nothing of the
/// process.
const FOR_READERS: &str = "threadlocal.";

#[derive(Clone, PartialEq, Message)]
struct ProcessContext {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    attributes: Vec<KeyValue>,
}

/// Attributes with a value that is one word, the resource's first; of one key the first. `None` if
/// it is no such message.
pub(super) fn attributes(payload: &[u8]) -> Option<BTreeMap<String, String>> {
    let context = ProcessContext::decode(payload).ok()?;
    let of_resource = context.resource.unwrap_or_default().attributes;
    let all = of_resource.into_iter().chain(context.attributes);
    let mut found = BTreeMap::new();
    for KeyValue { key, value, .. } in all.take(MOST_ATTRIBUTES) {
        let value = value.and_then(|value| text(value.value?));
        let fits = |value: &String| value.len() <= LONGEST_VALUE;
        if let Some(value) = value.filter(fits)
            && (1..=LONGEST_KEY).contains(&key.len())
            && !key.starts_with(FOR_READERS)
        {
            found.entry(key).or_insert(value);
        }
    }
    Some(found)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::StringValue(text) => Some(text),
        Value::BoolValue(value) => Some(value.to_string()),
        Value::IntValue(number) => Some(number.to_string()),
        Value::DoubleValue(number) => Some(number.to_string()),
        Value::ArrayValue(_)
        | Value::KvlistValue(_)
        | Value::BytesValue(_)
        | Value::StringValueStrindex(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};

    fn pair(key: &str, value: Value) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        }
    }

    #[test]
    fn the_resource_counts_more_and_what_is_no_word_or_too_long_is_left_out() {
        let text = |text: &str| Value::StringValue(text.into());
        let long = "x".repeat(LONGEST_VALUE + 1);
        let resource = Resource {
            attributes: vec![
                pair("service.name", text("shop")),
                pair("number", Value::IntValue(-7)),
                pair("list", Value::ArrayValue(ArrayValue::default())),
                pair("long", text(&long)),
                pair("", text("nameless")),
                pair(&long, text("key")),
            ],
            ..Resource::default()
        };
        let context = ProcessContext {
            resource: Some(resource),
            attributes: vec![
                pair("service.name", text("other")),
                pair("threadlocal.schema_version", text("tls_v1")),
                pair("yes", Value::BoolValue(true)),
            ],
        };
        let found = attributes(&context.encode_to_vec()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        let expected = [("number", "-7"), ("service.name", "shop"), ("yes", "true")];
        assert_eq!(found, expected);
        let many = (0..=MOST_ATTRIBUTES).map(|number| pair(&number.to_string(), text("")));
        let context = ProcessContext {
            resource: None,
            attributes: many.collect(),
        };
        let found = attributes(&context.encode_to_vec()).unwrap();
        assert_eq!(found.len(), MOST_ATTRIBUTES);
        assert_eq!(attributes(b"\xff"), None);
    }
}
