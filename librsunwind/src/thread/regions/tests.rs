//! Regions in memory of their own, without a thread.

use super::*;

/// Regions in memory of their own.
fn regions() -> (Vec<u64>, Regions) {
    let mut memory = vec![0u64; ROOM / UNIT];
    let below = HANDLER_STACK + ROOM;
    let regions = Regions::new(memory.as_mut_ptr() as usize + below);
    (memory, regions)
}

fn label(key: &'static str, value: &'static str) -> RawLabel {
    RawLabel {
        key: key.as_ptr(),
        key_length: key.len(),
        value: value.as_ptr(),
        value_length: value.len(),
    }
}

fn begin(regions: &Regions, labels: &[RawLabel]) -> Result<u64, Error> {
    // SAFETY: static text.
    unsafe { regions.begin(labels) }
}

fn text(regions: &Regions) -> String {
    let (length, pieces) = regions.labels(regions.now());
    let all: Vec<u8> = pieces.flatten().copied().collect();
    assert_eq!(all.len(), length);
    let set = engine::wire::label::LabelSet {
        labels: &all,
        ..Default::default()
    };
    let text = |bytes| String::from_utf8(Vec::from(bytes)).unwrap();
    let all = set.iter().map(|(k, v)| text(k) + "=" + &text(v));
    all.collect::<Vec<_>>().join(" ")
}

#[test]
fn regions_nest_and_end_with_those_in_them() {
    let (_memory, regions) = regions();
    assert_eq!(
        (text(&regions), regions.now().changes()),
        (String::new(), 0)
    );
    let outer = begin(&regions, &[label("route", "/a"), label("user", "")]).unwrap();
    let inner = begin(&regions, &[label("step", "parse")]).unwrap();
    assert_eq!(text(&regions), "route=/a user= step=parse");
    regions.end(inner).unwrap();
    assert_eq!(text(&regions), "route=/a user=");
    assert_eq!(regions.end(inner), Err(Error::NoClient), "twice");
    begin(&regions, &[label("step", "1")]).unwrap();
    let lost = begin(&regions, &[label("step", "2")]).unwrap();
    regions.end(outer).unwrap();
    assert!(regions.now().is_outside() && text(&regions).is_empty());
    assert_eq!(regions.end(lost), Err(Error::NoClient));
    assert_eq!(regions.now().changes(), 6);
}

#[test]
fn what_is_wrong_or_too_much_is_refused_and_cut_at_a_letter() {
    let (memory, regions) = regions();
    let long = Box::leak("ä".repeat(2000).into_boxed_str());
    let key = Box::leak("k".repeat(64).into_boxed_str());
    assert_eq!(begin(&regions, &[]), Err(Error::Null));
    assert_eq!(begin(&regions, &[label("", "x")]), Err(Error::Null));
    assert_eq!(begin(&regions, &[label(key, "x")]), Err(Error::Null));
    assert_eq!(begin(&regions, &[label("k", "x"); 17]), Err(Error::Null));
    let cut = CUT.load(Relaxed);
    begin(&regions, &[label(&key[1..], long)]).unwrap();
    assert!(CUT.load(Relaxed) > cut);
    assert_eq!(text(&regions).len(), 63 + 1 + 254);
    let mut count = 1;
    while begin(&regions, &[label("k", "v"); 3]).is_ok() {
        count += 1;
    }
    assert_eq!(begin(&regions, &[label("k", "v"); 16]), Err(Error::Budget));
    assert!(count > 80, "{count}");
    assert!(text(&regions).len() > 80 * 3 * 4);
    drop(memory);
}

#[test]
fn a_handler_between_any_two_steps_leaves_what_it_found() {
    // What an interrupted begin or end has not yet stored, it stores when nothing came between.
    let (_memory, regions) = regions();
    let outer = begin(&regions, &[label("a", "1")]).unwrap();
    let now = regions.now();
    let inner = begin(&regions, &[label("b", "2")]).unwrap();
    regions.end(inner).unwrap();
    assert!(!regions.change(now, now.next(FIRST)), "begun anew");
    assert_eq!(text(&regions), "a=1");
    regions.end(outer).unwrap();
}

#[test]
fn a_fork_child_goes_on_in_the_regions_of_who_forked() {
    let ((memory, parent), (_own, child)) = (regions(), regions());
    let region = begin(&parent, &[label("route", "/b")]).unwrap();
    let below = HANDLER_STACK + ROOM;
    let top = memory.as_ptr() as usize + below;
    // SAFETY: (both) that memory.
    unsafe { child.inherit(top, sys::getpid() + 1) };
    assert!(child.now().is_outside(), "left by another process's thread");
    // SAFETY: as above.
    unsafe { child.inherit(top, sys::getpid()) };
    assert_eq!(text(&child), "route=/b");
    child.end(region).unwrap();
    assert_eq!((text(&child), &*text(&parent)), (String::new(), "route=/b"));
    parent.reset();
    assert!(parent.now().is_outside());
}
