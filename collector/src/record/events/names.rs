//! Names of events, as perf has them: `cycles`, `page-faults`, `LLC-load-misses`, `r1a8`,
//! `syscalls:sys_enter_read`, with `:u` for user mode only and `/period=N/` for a sample every N.

use super::Event;
use crate::visible::Shown;
use engine::perf_event::kind::{CACHE, HARDWARE, RAW, SOFTWARE, TRACEPOINT};
use std::fs;
use std::path::Path;

/// What an event is to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// `perf_event_attr.type` ([`engine::perf_event::kind`]).
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// Whether a thread can unwind itself when it happens. Not for what happens while it goes to
    /// sleep: the signal would wake it.
    pub signals: bool,
    /// Each is worth a sample, unless a period is given.
    pub each: bool,
}

/// Where the kernel describes tracepoints.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl Named {
    const fn sampled(kind: u32, config: u64) -> Self {
        Self {
            kind,
            config,
            signals: true,
            each: false,
        }
    }

    /// Whether it is CPU time, which is sampled anyway.
    #[must_use]
    pub const fn is_cpu_time(&self) -> bool {
        self.kind == SOFTWARE && self.config <= 1
    }
}

/// Events with a name of their own, and a second one: type, config.
const FIXED: &[(&str, &str, u32, u64)] = &[
    ("cpu-cycles", "cycles", HARDWARE, 0),
    ("instructions", "", HARDWARE, 1),
    ("cache-references", "", HARDWARE, 2),
    ("cache-misses", "", HARDWARE, 3),
    ("branch-instructions", "branches", HARDWARE, 4),
    ("branch-misses", "", HARDWARE, 5),
    ("bus-cycles", "", HARDWARE, 6),
    (
        "stalled-cycles-frontend",
        "idle-cycles-frontend",
        HARDWARE,
        7,
    ),
    ("stalled-cycles-backend", "idle-cycles-backend", HARDWARE, 8),
    ("ref-cycles", "", HARDWARE, 9),
    ("cpu-clock", "", SOFTWARE, 0),
    ("task-clock", "", SOFTWARE, 1),
    ("page-faults", "faults", SOFTWARE, 2),
    ("context-switches", "cs", SOFTWARE, 3),
    ("cpu-migrations", "migrations", SOFTWARE, 4),
    ("minor-faults", "", SOFTWARE, 5),
    ("major-faults", "", SOFTWARE, 6),
    ("alignment-faults", "", SOFTWARE, 7),
    ("emulation-faults", "", SOFTWARE, 8),
];

/// What happens in the scheduler: context switches and migrations.
const SCHEDULING: [u64; 2] = [3, 4];

const CACHES: [&str; 7] = [
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];
const OPERATIONS: [(&str, &str); 3] = [
    ("loads", "load-misses"),
    ("stores", "store-misses"),
    ("prefetches", "prefetch-misses"),
];

/// The names in a list, which commas separate, but not those between slashes.
pub fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    list.split(move |letter| {
        inside ^= letter == '/';
        letter == ',' && !inside
    })
}

/// Reads one event.
///
/// # Errors
/// What is wrong, with the remedy.
pub fn parse(text: &str) -> Result<Event, String> {
    let wrong = |what: &str| format!("event syntax error: '{text}': {what}");
    let (rest, user_only) = match text.strip_suffix(":u") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (name, period) = match rest.split_once('/') {
        None => (rest, None),
        Some((name, term)) => {
            let number = term
                .strip_suffix('/')
                .and_then(|t| t.strip_prefix("period="));
            let period = number.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            (name, Some(period.ok_or_else(|| wrong("of the terms between slashes only period=N is known, N a number of events per sample"))?))
        }
    };
    let named = lookup(name).map_err(|what| wrong(&what))?;
    if user_only && !named.signals {
        return Err(wrong("it happens in the kernel only: leave :u out"));
    }
    Ok(Event {
        name: format!("{name}{}", if user_only { ":u" } else { "" }),
        named,
        user_only,
        period: period.or(named.each.then_some(1)),
    })
}

fn lookup(name: &str) -> Result<Named, String> {
    if name.is_empty() {
        return Err("an event is missing: -e page-faults,cycles".into());
    }
    let fixed = FIXED
        .iter()
        .find(|(first, second, ..)| *first == name || *second == name);
    if let Some((.., kind, config)) = fixed {
        let scheduling = *kind == SOFTWARE && SCHEDULING.contains(config);
        return Ok(Named {
            signals: !scheduling,
            each: scheduling,
            ..Named::sampled(*kind, *config)
        });
    }
    if let Some(named) = cache(name).or_else(|| raw(name)) {
        return Ok(named);
    }
    if let Some((system, event)) = name.split_once(':') {
        return match lookup(system) {
            Ok(_) => Err(format!(
                "of modifiers only :u is known, user mode only: {system}:u"
            )),
            Err(_) => tracepoint(system, event),
        };
    }
    Err(unknown(name))
}

fn cache(name: &str) -> Option<Named> {
    for (cache, at) in CACHES.iter().zip(0u64..) {
        let Some(rest) = name
            .strip_prefix(cache)
            .and_then(|rest| rest.strip_prefix('-'))
        else {
            continue;
        };
        for ((all, misses), operation) in OPERATIONS.iter().zip(0u64..) {
            let result = match rest {
                rest if rest == *all => 0u64,
                rest if rest == *misses => 1,
                _ => continue,
            };
            return Some(Named::sampled(CACHE, at | operation << 8 | result << 16));
        }
    }
    None
}

fn raw(name: &str) -> Option<Named> {
    let digits = name.strip_prefix('r').filter(|digits| digits.len() > 1)?;
    u64::from_str_radix(digits, 16)
        .ok()
        .map(|config| Named::sampled(RAW, config))
}

fn tracepoint(system: &str, event: &str) -> Result<Named, String> {
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    if !plain(system) || !plain(event) {
        return Err("tracepoints are named SYSTEM:EVENT, such as syscalls:sys_enter_read; of modifiers only :u is known".into());
    }
    let Some(events) = TRACING
        .iter()
        .map(|top| Path::new(top).join("events"))
        .find(|path| path.is_dir())
    else {
        return Err("the kernel's tracepoints are not in sight: mount -t tracefs nodev /sys/kernel/tracing, as root".into());
    };
    let directory = events.join(system);
    let text = match fs::read_to_string(directory.join(event).join("id")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(format!(
                "{}: permission denied: run as root, or let root remount tracefs with mode=755",
                events.shown()
            ));
        }
        Err(_) if directory.is_dir() => {
            return Err(format!(
                "there is no such tracepoint: ls {} shows those of {system}",
                directory.shown()
            ));
        }
        Err(_) => {
            return Err(format!(
                "there are no tracepoints of {system}: ls {} shows what there is; probes of functions are made by perf probe",
                events.shown()
            ));
        }
    };
    let config = text
        .trim()
        .parse()
        .map_err(|_| format!("its id is not a number: {text:?}"))?;
    let asleep = system == "sched" && (event == "sched_switch" || event.starts_with("sched_stat_"));
    Ok(Named {
        kind: TRACEPOINT,
        config,
        signals: !asleep,
        each: true,
    })
}

fn unknown(name: &str) -> String {
    let near = |known: &&&str| {
        let same = known
            .bytes()
            .zip(name.bytes())
            .take_while(|(a, b)| a.eq_ignore_ascii_case(b));
        same.count() * 2 >= known.len()
    };
    let all = FIXED.iter().flat_map(|(first, second, ..)| [first, second]);
    let all: Vec<&&str> = all.filter(|name| !name.is_empty()).collect();
    match all.iter().copied().find(|known| near(known)) {
        Some(near) => format!("unknown event; did you mean {near}?"),
        None => format!(
            "unknown event; known are {}, caches such as LLC-load-misses, rHEX, and tracepoints such as sched:sched_switch",
            all.iter().map(|name| **name).collect::<Vec<_>>().join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> (u32, u64) {
        let named = parse(text).unwrap().named;
        (named.kind, named.config)
    }

    #[test]
    fn names_are_perfs() {
        assert_eq!(numbers("cycles"), (HARDWARE, 0));
        assert_eq!(numbers("branches:u"), (HARDWARE, 4));
        assert_eq!(numbers("faults"), (SOFTWARE, 2));
        assert_eq!(numbers("L1-dcache-loads"), (CACHE, 0));
        assert_eq!(numbers("LLC-store-misses"), (CACHE, 0x1_0102));
        assert_eq!(numbers("dTLB-load-misses"), (CACHE, 0x1_0003));
        assert_eq!(numbers("r1a8"), (RAW, 0x1a8));
    }

    #[test]
    fn modifiers_and_periods_are_read() {
        let event = parse("cycles/period=10/:u").unwrap();
        assert_eq!((event.period, event.user_only), (Some(10), true));
        assert_eq!(parse("faults/period=1/").unwrap().period, Some(1));
        assert_eq!(parse("cs").unwrap().period, Some(1));
        assert_eq!(parse("cycles").unwrap().period, None);
        assert!(!parse("cs").unwrap().named.signals);
        let list: Vec<&str> = split("a/period=1,x/,b,c:d").collect();
        assert_eq!(list, ["a/period=1,x/", "b", "c:d"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_the_remedy() {
        for (text, part) in [
            ("cycels", "did you mean cycles?"),
            ("", "an event is missing"),
            ("zzz", "known are"),
            ("cycles/umask=1/", "period=N"),
            ("cycles/period=0/", "period=N"),
            ("cs:u", "leave :u out"),
            ("cycles:pp", "only :u is known"),
            ("a:b:k", "SYSTEM:EVENT"),
            ("..:x", "SYSTEM:EVENT"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(part) && error.contains(&format!("'{text}'")),
                "{error}"
            );
        }
    }
}
