//! A window as OpenTelemetry's request to export profiles (`opentelemetry.proto` 1.10, package
//! `v1development`). It has pprof's tables: numbers there begin with 1, and 0 is nothing, as here.

use crate::intern::{HashMap, Strings};
use crate::output::pprof::field::Field;
use crate::output::pprof::proto;
use crate::output::pprof::tables::{Sink, Span, hand_over};
use crate::profile::{CallId, Profile};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otel;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
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
pub(super) fn encode(
    window: &Profile,
    span: Span,
    attributes: &BTreeMap<String, String>,
) -> Vec<u8> {
    let mut tables = Tables::new();
    let rest = hand_over(window, Some(span), &mut tables);
    let value_type = |found: &proto::ValueType| otel::ValueType {
        type_strindex: index(found.r#type),
        unit_strindex: index(found.unit),
    };
    let profile = otel::Profile {
        sample_type: rest.sample_type.get(CPU_TIME).map(value_type),
        time_unix_nano: rest.time_nanos.cast_unsigned(),
        duration_nano: rest.duration_nanos.cast_unsigned(),
        period_type: rest.period_type.as_ref().map(value_type),
        period: rest.period,
        profile_id: profile_id(&rest, attributes),
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
    let of_resource = otel::ResourceProfiles {
        resource: Some(resource),
        scope_profiles: Vec::new(),
        schema_url: SCHEMA.into(),
    };
    let of_scope = otel::ScopeProfiles {
        scope: Some(scope),
        profiles: Vec::new(),
        schema_url: String::new(),
    };
    // Each in the one behind it: `profiles`, `scope_profiles`, `resource_profiles`, and beside that
    // the `dictionary`.
    let [mut profiles, mut scopes, mut request] = [2, 2, 1].map(Field::new);
    profiles.push_encoded(&[&profile.encode_to_vec(), tables.samples.bytes()]);
    scopes.push_encoded(&[&of_scope.encode_to_vec(), profiles.bytes()]);
    request.push_encoded(&[&of_resource.encode_to_vec(), scopes.bytes()]);
    let strings = otel::ProfilesDictionary {
        string_table: rest.string_table,
        ..otel::ProfilesDictionary::default()
    };
    let mut dictionary = Field::new(2);
    dictionary.push_encoded(&[
        tables.mappings.bytes(),
        tables.locations.bytes(),
        tables.functions.bytes(),
        tables.links.bytes(),
        tables.attributes.bytes(),
        tables.stacks.bytes(),
        &strings.encode_to_vec(),
    ]);
    [request.bytes(), dictionary.bytes()].concat()
}

/// The same for the same window of the same host, however often it is sent: 16 bytes, never all
/// zero.
fn profile_id(window: &proto::Profile, attributes: &BTreeMap<String, String>) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, window.time_nanos, window.duration_nanos, attributes).hash(&mut hasher);
        hasher.finish() | 1
    };
    [half(1).to_le_bytes(), half(2).to_le_bytes()].concat()
}

/// What samples refer to, and they themselves.
struct Tables {
    mappings: Field,
    locations: Field,
    functions: Field,
    links: Field,
    attributes: Field,
    stacks: Field,
    samples: Field,
    /// By key, text, and number if it is one.
    known_attributes: HashMap<(i32, i64, Option<i64>), i32>,
    /// The attributes of labels, likewise.
    labels: HashMap<(i64, i64, i64), i32>,
    known_stacks: HashMap<CallId, i32>,
    /// By trace and span.
    known_links: HashMap<(Vec<u8>, Vec<u8>), i32>,
    /// What is added next.
    stack: otel::Stack,
    location: otel::Location,
    sample: otel::Sample,
}

impl Tables {
    /// The first entry of each is nothing.
    fn new() -> Self {
        // Of `ProfilesDictionary`, and of `Profile`.
        let [
            mappings,
            locations,
            functions,
            links,
            attributes,
            stacks,
            samples,
        ] = [1, 2, 3, 4, 6, 7, 2].map(Field::new);
        let mut tables = Self {
            mappings,
            locations,
            functions,
            links,
            attributes,
            stacks,
            samples,
            known_attributes: HashMap::default(),
            labels: HashMap::default(),
            known_stacks: HashMap::default(),
            known_links: HashMap::default(),
            stack: otel::Stack::default(),
            location: otel::Location::default(),
            sample: otel::Sample::default(),
        };
        tables.mappings.push(&otel::Mapping::default());
        tables.locations.push(&otel::Location::default());
        tables.functions.push(&otel::Function::default());
        tables.links.push(&otel::Link::default());
        let nothing = otel::KeyValueAndUnit::default();
        tables.attributes.push(&nothing);
        tables.stacks.push(&otel::Stack::default());
        tables
    }

    fn label(&mut self, label: &proto::Label, strings: &mut Strings) -> i32 {
        let name = (label.key, label.str, label.num);
        if let Some(known) = self.labels.get(&name) {
            return *known;
        }
        // Any other is a text, and may be empty.
        let number = matches!(strings.at(label.key), "pid" | "tid").then_some(label.num);
        let key = match strings.at(label.key) {
            "process" => place(strings.place("process.executable.name")),
            "thread" => place(strings.place("thread.name")),
            "pid" => place(strings.place("process.pid")),
            "tid" => place(strings.place("thread.id")),
            _ => index(label.key),
        };
        let attribute = self.attribute(key, label.str, number, strings);
        self.labels.insert(name, attribute);
        attribute
    }

    /// The span that a sample was taken in, if its labels say both.
    fn link(&mut self, found: &proto::Sample, strings: &Strings) -> Option<i32> {
        let value = |key: &str| {
            let mut labels = found.label.iter();
            let label = labels.find(|label| strings.at(label.key) == key)?;
            bytes_of(strings.at(label.str))
        };
        let trace_id = value(TRACE_ID).filter(|id| id.len() == 16)?;
        let span_id = value(SPAN_ID).filter(|id| id.len() == 8)?;
        let name = (trace_id, span_id);
        let links = &mut self.links;
        Some(
            *self
                .known_links
                .entry(name)
                .or_insert_with_key(|(trace_id, span_id)| {
                    place(links.push(&otel::Link {
                        trace_id: trace_id.clone(),
                        span_id: span_id.clone(),
                    }))
                }),
        )
    }

    fn attribute(
        &mut self,
        key_strindex: i32,
        string: i64,
        number: Option<i64>,
        of: &Strings,
    ) -> i32 {
        let attributes = &mut self.attributes;
        let name = (key_strindex, string, number);
        *self.known_attributes.entry(name).or_insert_with(|| {
            let value = match number {
                Some(number) => AnyValue {
                    value: Some(Value::IntValue(number)),
                },
                None => text(of.at(string)),
            };
            place(attributes.push(&otel::KeyValueAndUnit {
                key_strindex,
                value: Some(value),
                unit_strindex: 0,
            }))
        })
    }
}

impl Sink for Tables {
    fn mapping(&mut self, found: &proto::Mapping, strings: &mut Strings) {
        let attribute_indices = match strings.at(found.build_id) {
            "" => Vec::new(),
            _ => {
                let key = place(strings.place("process.executable.build_id.gnu"));
                vec![self.attribute(key, found.build_id, None, strings)]
            }
        };
        self.mappings.push(&otel::Mapping {
            memory_start: found.memory_start,
            memory_limit: found.memory_limit,
            file_offset: found.file_offset,
            filename_strindex: index(found.filename),
            attribute_indices,
        });
    }

    fn function(&mut self, found: &proto::Function) {
        self.functions.push(&otel::Function {
            name_strindex: index(found.name),
            system_name_strindex: index(found.system_name),
            filename_strindex: index(found.filename),
            start_line: found.start_line,
        });
    }

    fn location(&mut self, found: &proto::Location) {
        let line = |found: &proto::Line| otel::Line {
            function_index: number(found.function_id),
            line: found.line,
            column: 0,
        };
        self.location.mapping_index = number(found.mapping_id);
        self.location.address = found.address;
        self.location.lines.clear();
        self.location.lines.extend(found.line.iter().map(line));
        self.locations.push(&self.location);
    }

    fn sample(&mut self, found: &proto::Sample, stack: CallId, strings: &mut Strings) {
        let link = self.link(found, strings);
        let mut sample = std::mem::take(&mut self.sample);
        sample.attribute_indices.clear();
        for label in &found.label {
            let is_of_link = matches!(strings.at(label.key), TRACE_ID | SPAN_ID);
            if link.is_none() || !is_of_link {
                let attribute = self.label(label, strings);
                sample.attribute_indices.push(attribute);
            }
        }
        let (next, stacks) = (&mut self.stack, &mut self.stacks);
        sample.stack_index = *self.known_stacks.entry(stack).or_insert_with(|| {
            next.location_indices.clear();
            let locations = found.location_id.iter().map(|id| number(*id));
            next.location_indices.extend(locations);
            place(stacks.push(next))
        });
        sample.link_index = link.unwrap_or(0);
        sample.values.clear();
        sample.values.extend(found.value.get(CPU_TIME));
        self.samples.push(&sample);
        self.sample = sample;
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

fn place(of_element: u32) -> i32 {
    i32::try_from(of_element).unwrap_or(0)
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
    use crate::profile::tests::example;
    use crate::recording::LabelsId;
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    /// The request for the example, of whose samples each has one of these labels, in turns.
    fn request(labels: &[&[(&str, &str)]]) -> (otel::Profile, otel::ProfilesDictionary) {
        let mut profile = example();
        let mut sample = profile.samples[0];
        profile.samples.clear();
        profile.aside.clear();
        profile.remainders.clear();
        for (labels, at) in labels.iter().zip(2..) {
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            profile.recording.labels.list().push(labels.collect());
            sample.labels = LabelsId::new(at);
            profile.samples.push(sample);
        }
        let span = Span {
            from_ns: 7,
            to_ns: 9,
        };
        let attributes = [("host.name".to_owned(), "h".to_owned())].into();
        let bytes = encode(&profile, span, &attributes);
        let request = ExportProfilesServiceRequest::decode(&bytes[..]).unwrap();
        assert_eq!(request.encoded_len(), bytes.len(), "it has all of it");
        let mut of_resource = request.resource_profiles;
        let mut of_scope = of_resource.remove(0).scope_profiles;
        let profile = of_scope.remove(0).profiles.remove(0);
        assert_eq!((profile.time_unix_nano, profile.duration_nano), (7, 2));
        (profile, request.dictionary.unwrap())
    }

    #[test]
    fn ids_of_spans_become_a_link_and_other_labels_attributes() {
        let (zeros, no_digits) = ("0000000000000000", "zz");
        let (profile, tables) = request(&[
            &[("trace_id", TRACE), ("span_id", SPAN), ("route", "/a")],
            &[("span_id", SPAN), ("trace_id", TRACE)],
            &[("trace_id", TRACE), ("span_id", no_digits)],
            &[("trace_id", TRACE), ("span_id", zeros)],
            &[("trace_id", TRACE), ("span_id", TRACE)],
        ]);
        let mut samples = profile.samples.iter();
        let mut next = || {
            let sample = samples.next().unwrap();
            let keys = sample.attribute_indices.iter().map(|at| {
                let attribute = &tables.attribute_table[usize::try_from(*at).unwrap()];
                let key = usize::try_from(attribute.key_strindex).unwrap();
                &*tables.string_table[key]
            });
            (sample.link_index, keys.collect::<Vec<_>>())
        };
        let own = ["process.executable.name", "thread.name"];
        let of_thread = ["process.pid", "thread.id"];
        let with = |more: &[&'static str]| [&own[..], more, &of_thread].concat();
        assert_eq!(next(), (1, with(&["route"])));
        let link = &tables.link_table[1];
        assert_eq!((link.trace_id[0], link.trace_id.len()), (0x4b, 16));
        assert_eq!((link.span_id[7], link.span_id.len()), (0xb7, 8));
        assert_eq!(next(), (1, with(&[])));
        for _ in 0..3 {
            assert_eq!(next(), (0, with(&["trace_id", "span_id"])));
        }
    }

    #[test]
    fn a_label_that_says_nothing_is_a_text_all_the_same() {
        let (profile, tables) = request(&[&[("a", "")]]);
        let values = profile.samples[0].attribute_indices.iter().map(|at| {
            let attribute = &tables.attribute_table[usize::try_from(*at).unwrap()];
            let value = attribute.value.as_ref().unwrap().value.as_ref();
            matches!(value, Some(Value::StringValue(_)))
        });
        assert_eq!(values.collect::<Vec<_>>(), [true, true, true, false, false]);
    }

    /// Whatever refers to nothing refers to the first entry.
    #[test]
    fn the_first_entry_of_each_table_is_nothing_and_a_stack_is_there_once() {
        let (profile, tables) = request(&[&[("a", "1")], &[("a", "2")], &[("a", "2")]]);
        assert_eq!(tables.mapping_table[0], otel::Mapping::default());
        assert_eq!(tables.location_table[0], otel::Location::default());
        assert_eq!(tables.function_table[0], otel::Function::default());
        assert_eq!(tables.link_table, [otel::Link::default()]);
        let nothing = otel::KeyValueAndUnit::default();
        assert_eq!(tables.attribute_table[0], nothing);
        assert_eq!(tables.stack_table[0], otel::Stack::default());
        assert_eq!(
            (&*tables.string_table[0], tables.stack_table.len()),
            ("", 2)
        );
        let attributes = profile.samples.iter().map(|one| &one.attribute_indices);
        let attributes: Vec<_> = attributes.collect();
        assert!(attributes[0] != attributes[1] && attributes[1] == attributes[2]);
        let stack = &tables.stack_table[1].location_indices;
        let names = stack.iter().map(|at| {
            let location = &tables.location_table[usize::try_from(*at).unwrap()];
            let function = usize::try_from(location.lines[0].function_index).unwrap();
            let name = usize::try_from(tables.function_table[function].name_strindex).unwrap();
            &*tables.string_table[name]
        });
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["leaf", "work; more", "main", "_start"]
        );
    }
}
