//! Regions as markers: one for each label and each time that a thread was in it, as far as its
//! samples tell, from the first of them to the last.

use crate::profile::{Profile, Sample, is_time};
use engine::wire::offer::CPU_EVENT;
use fxprof_processed_profile as fx;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A time in which a thread had a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) key: Arc<str>,
    pub(super) value: Arc<str>,
    /// `CLOCK_MONOTONIC`, ns.
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

/// Those of one thread, whose samples are in the order of time.
pub(super) fn of_thread(profile: &Profile, samples: &[Sample]) -> Vec<Region> {
    let mut done = Vec::new();
    let mut open: BTreeMap<&str, Region> = BTreeMap::new();
    let mut before = 0;
    for sample in samples {
        let (begin_ns, end_ns) = span(profile, sample);
        let labels = profile.recording.labels.get(sample.labels);
        let is_same = |key: &str, region: &mut Region| {
            let mut same = labels.iter().filter(|(known, _)| **known == *key);
            same.any(|(_, value)| *value == region.value)
        };
        done.extend(
            open.extract_if(.., |key, region| !is_same(key, region))
                .map(|(_, region)| region),
        );
        for (key, value) in labels {
            let region = open.entry(key).or_insert_with(|| Region {
                key: key.clone(),
                value: value.clone(),
                begin_ns: begin_ns.max(before),
                end_ns,
            });
            region.end_ns = region.end_ns.max(end_ns);
        }
        before = end_ns;
    }
    done.extend(open.into_values());
    done
}

/// The time that a sample stands for. CPU time was before it, other time is from then on.
fn span(profile: &Profile, sample: &Sample) -> (u64, u64) {
    let at = sample.time_ns;
    match sample.event {
        CPU_EVENT => (at.saturating_sub(profile.time_ns(sample)), at),
        event if is_time(event) => (at, at.saturating_add(sample.weight)),
        _ => (at, at),
    }
}

/// A region as a marker: its row is the key.
pub(super) struct Marker {
    pub(super) key: fx::StringHandle,
    pub(super) value: fx::StringHandle,
}

impl fx::StaticSchemaMarker for Marker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Region";
    const LOCATIONS: fx::MarkerLocations = fx::MarkerLocations::MARKER_CHART
        .union(fx::MarkerLocations::MARKER_TABLE)
        .union(fx::MarkerLocations::TIMELINE_OVERVIEW);
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.value}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}={marker.data.value}");
    const TOOLTIP_LABEL: Option<&'static str> = Self::TABLE_LABEL;
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[fx::StaticSchemaMarkerField {
        key: "value",
        label: "Value",
        // Of this kind the text itself stands in the file, and no number of it.
        format: fx::MarkerFieldFormat::SanitizedString,
        flags: fx::MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.key
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        fx::CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.value
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::example;
    use crate::recording::LabelsId;

    #[test]
    fn a_region_lasts_from_its_first_sample_to_its_last() {
        let mut profile = example();
        let set = |labels: &[(&str, &str)]| {
            let labels = labels
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()));
            labels.collect()
        };
        let list = profile.recording.labels.list();
        list.push(set(&[("route", "/a")]));
        list.push(set(&[("id", "7"), ("route", "/a")]));
        list.push(set(&[("route", "/b")]));
        let sample = Sample {
            weight: 1,
            event: CPU_EVENT,
            ..profile.samples[0]
        };
        let period = profile.time_ns(&sample);
        let at = |time: u64, labels: usize| Sample {
            time_ns: 10 * period * time,
            labels: LabelsId::next_of(labels),
            ..sample
        };
        let samples = [
            at(1, 0),
            at(2, 2),
            at(3, 3),
            at(4, 2),
            at(5, 4),
            at(6, 1),
            at(7, 4),
        ];
        let found = of_thread(&profile, &samples).into_iter().map(|region| {
            let times = [region.begin_ns, region.end_ns].map(|ns| ns / period);
            (format!("{}={}", region.key, region.value), times)
        });
        let expected = [
            ("id=7", [29, 30]),
            ("route=/a", [19, 40]),
            ("route=/b", [49, 50]),
            ("route=/b", [69, 70]),
        ];
        let expected = expected.map(|(label, times)| (label.to_owned(), times));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_profile_has_them_as_markers_of_their_threads() {
        let mut profile = example();
        let labels = [("route", "/a"), ("user", "7")];
        let labels = labels.map(|(key, value)| (key.into(), value.into()));
        profile.recording.labels.list().push(labels.to_vec());
        profile.samples[1].labels = LabelsId::new(2);
        let mut gzip = Vec::new();
        let options = crate::output::Options::default();
        crate::output::Format::write(&super::super::Firefox, &profile, &options, &mut gzip)
            .unwrap();
        let json: serde_json::Value =
            serde_json::from_reader(flate2::read::GzDecoder::new(&gzip[..])).unwrap();
        let threads = json["threads"].as_array().unwrap().iter();
        let of_threads = threads.map(|thread| {
            let names = thread["markers"]["name"].as_array().unwrap().iter();
            let name = |name: &serde_json::Value| {
                let name = usize::try_from(name.as_u64().unwrap()).unwrap();
                thread["stringArray"][name].as_str().unwrap().to_owned()
            };
            let values = thread["markers"]["data"].as_array().unwrap().iter();
            let values = values.map(|data| data["value"].as_str().unwrap());
            let pairs = names.map(name).zip(values);
            pairs.map(|(key, value)| format!("{key}={value}")).collect()
        });
        let of_threads: Vec<Vec<String>> = of_threads.collect();
        assert_eq!(of_threads, [vec!["route=/a", "user=7"], vec![]]);
    }
}
