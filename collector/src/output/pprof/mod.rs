//! The format of pprof: a protocol buffer, compressed with gzip. `go tool pprof`, Pyroscope,
//! Grafana and speedscope read it.
//!
//! Fields and their numbers are those of `profile.proto` of github.com/google/pprof. Addresses are
//! those of the first process that had the binary mapped, so that pprof can find the binary's code;
//! names are complete, nothing needs to be looked up again.
//!
//! Start at [`write_message`]. What the tables have is found out in [`tables`].

pub(crate) mod field;
pub(crate) mod proto;
pub(crate) mod tables;

use super::{Format, Holds, Options};
use crate::intern::Strings;
use crate::profile::{CallId, Profile};
use field::Field;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use std::io::{self, Write};
use tables::{Sink, Span, hand_over};

pub(super) struct Pprof;

impl Format for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn about(&self) -> &'static str {
        "for go tool pprof, speedscope, Pyroscope"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &[".pb.gz", ".pprof", ".pb"]
    }

    fn holds(&self) -> Holds {
        Holds::EveryEvent
    }

    fn write(&self, profile: &Profile, _: &Options, out: &mut dyn Write) -> io::Result<()> {
        write_message(profile, None, out)
    }
}

/// Writes a profile as files of the format are. `span`: from when to when it is, if that is not
/// what the profile itself says.
pub(crate) fn write_message(
    profile: &Profile,
    span: Option<Span>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tables = Tables::default();
    let rest = hand_over(profile, span, &mut tables);
    let mut gzip = GzEncoder::new(out, Compression::default());
    for table in [
        &tables.samples,
        &tables.mappings,
        &tables.locations,
        &tables.functions,
    ] {
        gzip.write_all(table.bytes())?;
    }
    gzip.write_all(&rest.encode_to_vec())?;
    gzip.finish()?.flush()
}

/// The tables as they are written.
#[derive(Debug)]
struct Tables {
    samples: Field,
    mappings: Field,
    locations: Field,
    functions: Field,
}

impl Default for Tables {
    /// Of [`proto::Profile`].
    fn default() -> Self {
        Self {
            samples: Field::new(2),
            mappings: Field::new(3),
            locations: Field::new(4),
            functions: Field::new(5),
        }
    }
}

impl Sink for Tables {
    fn mapping(&mut self, mapping: &proto::Mapping, _: &mut Strings) {
        self.mappings.push(mapping);
    }

    fn function(&mut self, function: &proto::Function) {
        self.functions.push(function);
    }

    fn location(&mut self, location: &proto::Location) {
        self.locations.push(location);
    }

    fn sample(&mut self, sample: &proto::Sample, _: CallId, _: &mut Strings) {
        self.samples.push(sample);
    }
}

/// The sum of the last column, of a profile.
#[cfg(test)]
pub(super) fn last_sum(profile: &Profile) -> i64 {
    let made = tests::made(profile);
    made.sample.iter().filter_map(|one| one.value.last()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;
    use crate::recording::LabelsId;
    use std::io::Read as _;

    pub(super) fn made(profile: &Profile) -> proto::Profile {
        let (mut packed, mut bytes) = (Vec::new(), Vec::new());
        write_message(profile, None, &mut packed).unwrap();
        let mut unpacking = flate2::read::GzDecoder::new(&packed[..]);
        unpacking.read_to_end(&mut bytes).unwrap();
        proto::Profile::decode(&bytes[..]).unwrap()
    }

    #[test]
    fn samples_of_a_stack_with_other_labels_are_other_samples() {
        let mut profile = example();
        let plain = made(&profile);
        let labels = [("route", "/a"), ("thread", "mine")];
        let labels = labels.map(|(key, value)| (key.into(), value.into()));
        profile.recording.labels.list().push(labels.to_vec());
        let mut more = profile.samples[0];
        more.labels = LabelsId::new(2);
        profile.samples.push(more);
        let made = made(&profile);
        assert_eq!(made.sample.len(), plain.sample.len() + 1);
        let text = |index: i64| &made.string_table[usize::try_from(index).unwrap()][..];
        let labelled = made.sample.iter().find(|sample| sample.label.len() > 4);
        let labels = labelled.unwrap().label.iter();
        let labels: Vec<_> = labels.map(|l| (text(l.key), text(l.str))).collect();
        assert_eq!(labels[2..4], [("route", "/a"), ("label.thread", "mine")]);
    }

    #[test]
    fn what_is_written_is_read_back_with_the_same_weights() {
        let profile = example();
        let read = made(&profile);
        let sum = |column: usize| {
            read.sample
                .iter()
                .map(|sample| sample.value[column])
                .sum::<i64>()
        };
        assert_eq!((sum(0), sum(1)), (7, 7_000_000));
        assert_eq!(read.string_table[0], "");
        let text = |index: i64| &read.string_table[usize::try_from(index).unwrap()][..];
        let name = |location: u64| {
            let location = read.location.iter().find(|l| l.id == location).unwrap();
            let function = location.line[0].function_id;
            text(
                read.function
                    .iter()
                    .find(|f| f.id == function)
                    .unwrap()
                    .name,
            )
        };
        let first: Vec<&str> = read.sample[0]
            .location_id
            .iter()
            .map(|id| name(*id))
            .collect();
        assert_eq!(first, ["leaf", "work; more", "main", "_start"]);
        let labels: Vec<_> = read.sample[3]
            .label
            .iter()
            .map(|label| (text(label.key), text(label.str), label.num))
            .collect();
        assert_eq!(
            labels,
            [
                ("process", "prog", 0),
                ("thread", "worker", 0),
                ("pid", "", 10),
                ("tid", "", 11)
            ]
        );
        assert_eq!(read.time_nanos, 1_700_000_000_001_000_000);
    }
}
