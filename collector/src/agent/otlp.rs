//! A window as OpenTelemetry's request to export profiles (`opentelemetry.proto` 1.10, package
//! `v1development`). It is made of pprof's message, whose tables it shares: numbers there begin
//! with 1, and 0 is nothing, as here.

use crate::intern::HashMap;
use crate::output::pprof::proto::{self, Profile};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otel;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Which of pprof's columns is sent: CPU time.
const CPU_TIME: usize = 1;

/// Labels that say which span of a trace it was, in hexadecimal digits.
const TRACE_ID: &str = "trace_id";
/// See there.
const SPAN_ID: &str = "span_id";

/// The conventions that names of attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// Bytes of the request for a window. `attributes` are those of the resource.
pub(super) fn encode(window: &Profile, attributes: &BTreeMap<String, String>) -> Vec<u8> {
    let mut tables = Tables::of(window);
    let samples = window.sample.iter().map(|sample| tables.sample(sample));
    let samples = samples.collect();
    let value_type = |found: &proto::ValueType| otel::ValueType {
        type_strindex: index(found.r#type),
        unit_strindex: index(found.unit),
    };
    let profile = otel::Profile {
        sample_type: window.sample_type.get(CPU_TIME).map(value_type),
        samples,
        time_unix_nano: window.time_nanos.cast_unsigned(),
        duration_nano: window.duration_nanos.cast_unsigned(),
        period_type: window.period_type.as_ref().map(value_type),
        period: window.period,
        profile_id: profile_id(window, attributes),
        ..otel::Profile::default()
    };
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    };
    let resource = Resource {
        attributes: attributes
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.clone(),
                value: Some(text(value)),
                ..KeyValue::default()
            })
            .collect(),
        ..Resource::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![otel::ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![otel::ScopeProfiles {
                scope: Some(scope),
                profiles: vec![profile],
                schema_url: String::new(),
            }],
            schema_url: SCHEMA.into(),
        }],
        dictionary: Some(tables.dictionary),
    };
    request.encode_to_vec()
}

/// The same for the same window of the same host, however often it is sent: 16 bytes, never all
/// zero.
fn profile_id(window: &Profile, attributes: &BTreeMap<String, String>) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, window.time_nanos, window.duration_nanos, attributes).hash(&mut hasher);
        hasher.finish() | 1
    };
    [half(1).to_le_bytes(), half(2).to_le_bytes()].concat()
}

/// What samples refer to.
struct Tables<'a> {
    window: &'a Profile,
    dictionary: otel::ProfilesDictionary,
    strings: HashMap<Cow<'a, str>, i32>,
    /// By key, text and number.
    attributes: HashMap<(i32, i64, i64), i32>,
    /// The attributes of labels, likewise.
    labels: HashMap<(i64, i64, i64), i32>,
    /// The keys of labels that say which span it was, if there are any.
    trace_keys: [Option<i64>; 2],
    /// By pprof's locations.
    stacks: HashMap<&'a [u64], i32>,
    /// By trace and span.
    links: HashMap<(Vec<u8>, Vec<u8>), i32>,
}

impl<'a> Tables<'a> {
    fn of(window: &'a Profile) -> Self {
        let mut tables = Self {
            window,
            dictionary: otel::ProfilesDictionary {
                mapping_table: vec![otel::Mapping::default()],
                location_table: vec![otel::Location::default()],
                function_table: vec![otel::Function::default()],
                link_table: vec![otel::Link::default()],
                string_table: window.string_table.clone(),
                attribute_table: vec![otel::KeyValueAndUnit::default()],
                stack_table: vec![otel::Stack::default()],
            },
            strings: HashMap::default(),
            attributes: HashMap::default(),
            labels: HashMap::default(),
            trace_keys: [None; 2],
            stacks: [(&[][..], 0)].into_iter().collect(),
            links: HashMap::default(),
        };
        let numbered = window.string_table.iter().zip(0..);
        tables.strings = numbered
            .map(|(text, at)| (Cow::Borrowed(&**text), at))
            .collect();
        let key = |key| tables.strings.get(key).copied().map(i64::from);
        tables.trace_keys = [TRACE_ID, SPAN_ID].map(key);
        for found in &window.mapping {
            let mapping = tables.mapping(found);
            tables.dictionary.mapping_table.push(mapping);
        }
        let functions = window.function.iter().map(|found| otel::Function {
            name_strindex: index(found.name),
            system_name_strindex: index(found.system_name),
            filename_strindex: index(found.filename),
            start_line: found.start_line,
        });
        tables.dictionary.function_table.extend(functions);
        let line = |found: &proto::Line| otel::Line {
            function_index: number(found.function_id),
            line: found.line,
            column: 0,
        };
        let locations = window.location.iter().map(|found| otel::Location {
            mapping_index: number(found.mapping_id),
            address: found.address,
            lines: found.line.iter().map(line).collect(),
            attribute_indices: Vec::new(),
        });
        tables.dictionary.location_table.extend(locations);
        tables
    }

    fn mapping(&mut self, found: &proto::Mapping) -> otel::Mapping {
        let build_id = self.string_at(found.build_id);
        let attribute_indices = match build_id.is_empty() {
            true => Vec::new(),
            false => {
                let key = self.string("process.executable.build_id.gnu");
                vec![self.attribute(key, found.build_id, 0)]
            }
        };
        otel::Mapping {
            memory_start: found.memory_start,
            memory_limit: found.memory_limit,
            file_offset: found.file_offset,
            filename_strindex: index(found.filename),
            attribute_indices,
        }
    }

    fn sample(&mut self, found: &'a proto::Sample) -> otel::Sample {
        let link = self.link(found);
        let is_said =
            |label: &&proto::Label| link.is_none() || !self.trace_keys.contains(&Some(label.key));
        let labels: Vec<_> = found.label.iter().filter(is_said).collect();
        let attribute_indices = labels.into_iter().map(|label| self.label(label)).collect();
        let table = &mut self.dictionary.stack_table;
        let stack = self.stacks.entry(&found.location_id);
        let stack_index = *stack.or_insert_with_key(|locations| {
            table.push(otel::Stack {
                location_indices: locations.iter().map(|id| number(*id)).collect(),
            });
            last(table)
        });
        otel::Sample {
            stack_index,
            attribute_indices,
            link_index: link.unwrap_or(0),
            values: found.value.get(CPU_TIME).copied().into_iter().collect(),
            timestamps_unix_nano: Vec::new(),
        }
    }

    fn label(&mut self, label: &proto::Label) -> i32 {
        let name = (label.key, label.str, label.num);
        if let Some(known) = self.labels.get(&name) {
            return *known;
        }
        let key = self.string(match self.string_at(label.key) {
            "process" => "process.executable.name",
            "thread" => "thread.name",
            "pid" => "process.pid",
            "tid" => "thread.id",
            other => other,
        });
        let attribute = self.attribute(key, label.str, label.num);
        self.labels.insert(name, attribute);
        attribute
    }

    /// The span that a sample was taken in, if its labels say both.
    fn link(&mut self, found: &proto::Sample) -> Option<i32> {
        let [trace_key, span_key] = self.trace_keys;
        let value = |key: i64| {
            let label = found.label.iter().find(|label| label.key == key)?;
            bytes_of(self.string_at(label.str))
        };
        let trace_id = value(trace_key?).filter(|id| id.len() == 16)?;
        let span_id = value(span_key?).filter(|id| id.len() == 8)?;
        let table = &mut self.dictionary.link_table;
        let name = (trace_id, span_id);
        Some(*self.links.entry(name).or_insert_with_key(|name| {
            table.push(otel::Link {
                trace_id: name.0.clone(),
                span_id: name.1.clone(),
            });
            last(table)
        }))
    }

    fn attribute(&mut self, key_strindex: i32, string: i64, number: i64) -> i32 {
        let written = self.string_at(string);
        let table = &mut self.dictionary.attribute_table;
        let name = (key_strindex, string, number);
        *self.attributes.entry(name).or_insert_with(|| {
            let value = match string {
                0 => AnyValue {
                    value: Some(Value::IntValue(number)),
                },
                _ => text(written),
            };
            table.push(otel::KeyValueAndUnit {
                key_strindex,
                value: Some(value),
                unit_strindex: 0,
            });
            last(table)
        })
    }

    fn string_at(&self, at: i64) -> &'a str {
        let at = usize::try_from(at).unwrap_or(0);
        self.window.string_table.get(at).map_or("", String::as_str)
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        self.dictionary.string_table.push(text.to_owned());
        let at = last(&self.dictionary.string_table);
        self.strings.insert(Cow::Owned(text.to_owned()), at);
        at
    }
}

fn text(value: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(value.to_owned())),
    }
}

/// What hexadecimal digits say; an id of zeros is none.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    (rest.is_empty() && bytes.iter().any(|byte| *byte != 0)).then_some(bytes)
}

fn last<T>(table: &[T]) -> i32 {
    number(table.len().saturating_sub(1) as u64)
}

fn index(of_pprof: i64) -> i32 {
    i32::try_from(of_pprof).unwrap_or(0)
}

fn number(of_pprof: u64) -> i32 {
    i32::try_from(of_pprof).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_spans_become_a_link_and_other_labels_attributes() {
        let texts = ["", TRACE_ID, SPAN_ID, "route", "/a", "00f067aa0ba902b7"];
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let mut window = Profile::default();
        let all = texts.into_iter().chain([trace, "zz", "0000000000000000"]);
        window.string_table = all.map(str::to_owned).collect();
        let sample = |labels: &[(i64, i64)]| proto::Sample {
            label: labels
                .iter()
                .map(|(key, str)| proto::Label {
                    key: *key,
                    str: *str,
                    num: 0,
                })
                .collect(),
            ..proto::Sample::default()
        };
        let mut tables = Tables::of(&window);
        let whole = sample(&[(1, 6), (2, 5), (3, 4)]);
        let linked = tables.sample(&whole);
        assert_eq!((linked.link_index, linked.attribute_indices.len()), (1, 1));
        let link = &tables.dictionary.link_table[1];
        assert_eq!((link.trace_id[0], link.trace_id.len()), (0x4b, 16));
        assert_eq!((link.span_id[7], link.span_id.len()), (0xb7, 8));
        let same = sample(&[(2, 5), (1, 6)]);
        assert_eq!(tables.sample(&same).link_index, 1);
        let others = [7, 8, 6].map(|span| sample(&[(1, 6), (2, span)]));
        for other in &others {
            let other = tables.sample(other);
            assert_eq!((other.link_index, other.attribute_indices.len()), (0, 2));
        }
    }
}
