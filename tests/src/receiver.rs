//! An HTTP server that takes what is posted to it, answers as it is told, and keeps everything; and
//! what is in the messages.

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With that status and those headers, each with `\r\n`.
    Status(u16, &'static str),
    /// The connection is cut.
    Cut,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Posted {
    /// What stands behind POST.
    pub path: String,
    /// Header lines, in small letters.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether it was answered with success.
    pub taken: bool,
}

/// The server; it ends with the process.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// `http://127.0.0.1:PORT`.
    pub address: String,
    posted: Arc<Mutex<Vec<Posted>>>,
}

impl Receiver {
    /// Begins. The first requests get those answers, all others are taken.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn new(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a port");
        let receiver = Self {
            address: format!("http://{address}"),
            posted: Arc::default(),
        };
        let posted = Arc::clone(&receiver.posted);
        let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (posted, answers) = (Arc::clone(&posted), Arc::clone(&answers));
                thread::spawn(move || while serve(&stream, &posted, &answers).is_some() {});
            }
        });
        receiver
    }

    /// Everything so far.
    ///
    /// # Panics
    /// If the server has.
    #[must_use]
    pub fn posted(&self) -> Vec<Posted> {
        self.posted.lock().expect("it lives").clone()
    }

    /// Those to a path that were taken.
    #[must_use]
    pub fn taken(&self, path: &str) -> Vec<Posted> {
        let mut all = self.posted();
        all.retain(|one| one.taken && one.path.starts_with(path));
        all
    }
}

fn serve(
    stream: &TcpStream,
    posted: &Mutex<Vec<Posted>>,
    answers: &Mutex<VecDeque<Answer>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim() {
            "" => break,
            header => headers.push(header.to_ascii_lowercase()),
        }
    }
    let length = headers
        .iter()
        .find_map(|header| header.strip_prefix("content-length: "));
    let mut body = vec![0; length?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let answer = answers.lock().ok()?.pop_front();
    let answer = answer.unwrap_or(Answer::Status(200, ""));
    let taken = matches!(answer, Answer::Status(200, _));
    posted.lock().ok()?.push(Posted {
        path,
        headers,
        body,
        taken,
    });
    let Answer::Status(status, headers) = answer else {
        stream.shutdown(std::net::Shutdown::Both).ok()?;
        return None;
    };
    let answer = format!("HTTP/1.1 {status} So\r\n{headers}Content-Length: 0\r\n\r\n");
    (&mut &*stream).write_all(answer.as_bytes()).ok()
}

/// What gzip has compressed.
///
/// # Panics
/// If it is something else.
#[must_use]
pub fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = GzDecoder::new(bytes).read_to_end(&mut plain);
    read.expect("it is compressed with gzip");
    plain
}

/// What an OTLP message says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Otlp {
    /// Sum of the values, ns.
    pub cpu_ns: i64,
    /// The period, ns.
    pub period_ns: i64,
    /// When the profile begins and ends, ns since 1970.
    pub from_ns: u64,
    /// See there.
    pub to_ns: u64,
    /// Names of functions.
    pub functions: Vec<String>,
    /// Of the resource.
    pub attributes: Vec<(String, String)>,
}

/// Reads an OTLP message, and checks all that the definition asks of it.
///
/// # Panics
/// If it asks for something else.
#[must_use]
pub fn otlp(bytes: &[u8]) -> Otlp {
    let request = ExportProfilesServiceRequest::decode(bytes).expect("a request");
    let tables = request.dictionary.expect("a dictionary");
    let strings = &tables.string_table;
    assert_eq!(strings[0], "");
    assert_eq!(tables.mapping_table[0], Default::default());
    assert_eq!(tables.location_table[0], Default::default());
    assert_eq!(tables.function_table[0], Default::default());
    assert_eq!(tables.link_table[0], Default::default());
    assert_eq!(tables.attribute_table[0], Default::default());
    assert_eq!(tables.stack_table[0], Default::default());
    let text = |index: i32| &*strings[usize::try_from(index).expect("an index")];
    let within = |index: i32, length: usize| {
        let is_there = usize::try_from(index).is_ok_and(|index| index < length);
        assert!(is_there, "{index} of {length}");
    };
    let mut distinct = std::collections::HashSet::new();
    assert!(
        strings.iter().all(|one| distinct.insert(one)),
        "a string is there twice"
    );
    let attributes = |indices: &[i32]| {
        let mut keys = std::collections::HashSet::new();
        for index in indices {
            within(*index, tables.attribute_table.len());
            assert_ne!(*index, 0);
            let found = &tables.attribute_table[usize::try_from(*index).expect("an index")];
            assert!(!text(found.key_strindex).is_empty() && found.value.is_some());
            assert!(keys.insert(found.key_strindex), "a key is there twice");
        }
    };
    for mapping in &tables.mapping_table {
        text(mapping.filename_strindex);
        attributes(&mapping.attribute_indices);
    }
    for function in &tables.function_table {
        text(function.name_strindex);
        text(function.system_name_strindex);
        text(function.filename_strindex);
    }
    for location in &tables.location_table {
        within(location.mapping_index, tables.mapping_table.len());
        for line in &location.lines {
            within(line.function_index, tables.function_table.len());
            assert_ne!(line.function_index, 0);
        }
    }
    for stack in &tables.stack_table {
        for index in &stack.location_indices {
            within(*index, tables.location_table.len());
            assert_ne!(*index, 0);
        }
    }
    let [resource] = &request.resource_profiles[..] else {
        panic!("{} resources", request.resource_profiles.len());
    };
    let [scope] = &resource.scope_profiles[..] else {
        panic!("{} scopes", resource.scope_profiles.len());
    };
    let [profile] = &scope.profiles[..] else {
        panic!("{} profiles", scope.profiles.len());
    };
    assert!(profile.profile_id.len() == 16 && profile.profile_id != [0; 16]);
    let kind = profile.sample_type.expect("a type");
    assert_eq!(
        (text(kind.type_strindex), text(kind.unit_strindex)),
        ("cpu", "nanoseconds")
    );
    let mut cpu_ns = 0;
    for sample in &profile.samples {
        within(sample.stack_index, tables.stack_table.len());
        assert_ne!(sample.stack_index, 0);
        assert_eq!(sample.link_index, 0);
        attributes(&sample.attribute_indices);
        let [value] = sample.values[..] else {
            panic!("{} values", sample.values.len());
        };
        cpu_ns += value;
    }
    let functions = tables.function_table.iter().skip(1);
    let resource = resource.resource.as_ref().expect("a resource");
    Otlp {
        cpu_ns,
        period_ns: profile.period,
        from_ns: profile.time_unix_nano,
        to_ns: profile.time_unix_nano + profile.duration_nano,
        functions: functions
            .map(|function| text(function.name_strindex).to_owned())
            .collect(),
        attributes: resource.attributes.iter().filter_map(pair).collect(),
    }
}

fn pair(found: &KeyValue) -> Option<(String, String)> {
    match &found.value {
        Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }) => Some((found.key.clone(), value.clone())),
        _ => None,
    }
}

/// As much of pprof's message as is compared.
#[derive(Clone, PartialEq, Message)]
struct Pprof {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<PprofSample>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofSample {
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

/// When a pprof file begins, and the sums of its columns.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn pprof(file: &[u8]) -> (i64, [i64; 2]) {
    let read = Pprof::decode(&*unzipped(file)).expect("a pprof file");
    let sum = |column: usize| {
        read.samples
            .iter()
            .map(|sample| sample.values[column])
            .sum()
    };
    (read.time_nanos, [sum(0), sum(1)])
}
