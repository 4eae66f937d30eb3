//! Settings, as the `RSUNWIND` variable gives them: `key=value,key=value`.

pub mod asked;
pub mod source;

use crate::text::{PATH_SIZE, Text, parse_decimal};
use asked::Asked;
use engine::affordable;
use engine::wire::file::VERSION;
use engine::wire::sample::Trigger;

/// Where samples go.
#[derive(Clone, Copy, Debug)]
pub enum Destination {
    /// A session directory, with a collector.
    Session(Text<PATH_SIZE>),
    /// A recording of its own; `%p` stands for the pid.
    File(Text<PATH_SIZE>),
}

/// Which trigger to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerChoice {
    /// The best that is permitted.
    Auto,
    /// A perf event or nothing.
    Perf,
    /// A CPU timer.
    Timer,
}

/// Which signal asks a thread to unwind itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalChoice {
    /// SIGURG, until the program takes it for itself.
    Auto,
    /// SIGPROF.
    Prof,
    /// SIGURG.
    Urg,
}

/// Whether walks reuse what the last one of their thread has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// They do.
    Yes,
    /// Each is a full one.
    No,
    /// They do, and each is compared with a full one.
    Check,
}

impl TriggerChoice {
    /// Whether that trigger may be tried.
    #[must_use]
    pub fn allows(self, trigger: Trigger) -> bool {
        match trigger {
            Trigger::PerfKernel | Trigger::PerfUser => self != Self::Timer,
            Trigger::Timer => self != Self::Perf,
            Trigger::None | Trigger::Request => false,
        }
    }
}

/// All settings of a process.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Where samples go.
    pub destination: Destination,
    /// Sampling period asked for, ns.
    pub period_ns: u64,
    /// The measured cost of an event, ns, if somebody measured it already.
    pub event_cost_ns: Option<u64>,
    /// What of that the handler sees, ns, or 0.
    pub event_seen_ns: u64,
    /// What an event adds to a context switch of its thread, ns, or 0.
    pub switch_cost_ns: u64,
    /// What samples may take of the program's time, of [`engine::affordable::WHOLE`].
    pub share: u64,
    /// Which trigger to use.
    pub trigger: TriggerChoice,
    /// Which signal triggers raise.
    pub signal: SignalChoice,
    /// Whether perf events may sample kernel mode.
    pub kernel: bool,
    /// Frames kept of a stack.
    pub max_depth: usize,
    /// Which unwind tables to use.
    pub unwind: engine::table::Preference,
    /// Whether walks reuse frames.
    pub reuse: Reuse,
    /// Bytes that a recording of our own may grow to.
    pub size: u64,
    /// Whether programs started with a fresh environment are profiled too.
    pub follow: bool,
    /// Events sampled beside CPU time; only with a collector, which keeps them alive.
    pub events: Asked,
}

/// What was wrong with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, if it was the value that was wrong.
    pub what: &'static str,
    /// The remedy.
    pub remedy: &'static str,
}

/// What [`crate::process::Process::config`] gives before there are settings.
pub static INACTIVE: Config = Config {
    destination: Destination::File(Text::EMPTY),
    period_ns: 1_000_000_000,
    event_cost_ns: None,
    event_seen_ns: 0,
    switch_cost_ns: 0,
    share: affordable::QUARTER,
    trigger: TriggerChoice::Auto,
    signal: SignalChoice::Auto,
    kernel: false,
    max_depth: DEFAULT_DEPTH,
    unwind: engine::table::Preference::Auto,
    reuse: Reuse::Yes,
    size: DEFAULT_SIZE,
    follow: false,
    events: asked::NONE,
};

/// Default rate, Hz.
pub const DEFAULT_RATE: u64 = 999;
/// Default size limit of a recording, bytes.
pub const DEFAULT_SIZE: u64 = 256 << 20;
/// Default depth limit, frames.
pub const DEFAULT_DEPTH: usize = 4096;

impl Config {
    /// Reads the variable's value.
    ///
    /// # Errors
    /// An unknown key, a value outside its range, or no destination.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let mut config = Self {
            destination: Destination::File(Text::new()),
            period_ns: 1_000_000_000 / DEFAULT_RATE,
            event_cost_ns: None,
            event_seen_ns: 0,
            switch_cost_ns: 0,
            share: affordable::QUARTER,
            trigger: TriggerChoice::Auto,
            signal: SignalChoice::Auto,
            kernel: true,
            max_depth: DEFAULT_DEPTH,
            unwind: engine::table::Preference::Auto,
            reuse: Reuse::Yes,
            size: DEFAULT_SIZE,
            follow: true,
            events: asked::NONE,
        };
        let mut has_destination = false;
        for setting in text
            .split(|byte| *byte == b',')
            .filter(|setting| !setting.is_empty())
        {
            let mut halves = setting.splitn(2, |byte| *byte == b'=');
            let (key, value) = (halves.next().unwrap_or(&[]), halves.next().unwrap_or(&[]));
            has_destination |= matches!(key, b"session" | b"output");
            config.set(key, value)?;
        }
        if !has_destination {
            return Err(ConfigError {
                what: "output",
                remedy: "set RSUNWIND=output=prof.%p.rsu",
            });
        }
        Ok(config)
    }

    /// The depth limit in the variable's value: what of it decides how much memory is needed. A
    /// wrong one is found by [`Config::parse`].
    #[must_use]
    pub fn depth(text: &[u8]) -> usize {
        let settings = text.split(|byte| *byte == b',');
        let mut depths =
            settings.filter_map(|setting| parse_depth(setting.strip_prefix(b"depth=")?));
        depths.next_back().unwrap_or(DEFAULT_DEPTH)
    }

    /// `si_fd` of the signals of events that a collector of this version opens on programs where
    /// nothing stands in front of libc's functions, if it does: `outside=VERSION.NUMBER`.
    #[must_use]
    pub fn outside(text: &[u8]) -> Option<i32> {
        let mut settings = text.split(|byte| *byte == b',');
        let value = settings.find_map(|setting| setting.strip_prefix(b"outside="))?;
        let mut parts = value.split(|byte| *byte == b'.');
        let is_ours = parse_decimal(parts.next()?)? == u64::from(VERSION);
        let number = parse_decimal(parts.next()?)?;
        i32::try_from(number).ok().filter(|_| is_ours)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), ConfigError> {
        let bad = |what, remedy| Err(ConfigError { what, remedy });
        match key {
            b"session" | b"output" if value.is_empty() || value.len() >= PATH_SIZE - 64 => {
                return bad("output", "give a path of 1 to 959 bytes");
            }
            b"session" => self.destination = Destination::Session(Text::new().then(value)),
            b"output" => self.destination = Destination::File(Text::new().then(value)),
            b"rate" => match parse_rate(value) {
                Some(period) => self.period_ns = period,
                None => return bad("rate", "give 0.1 to 100000 samples a second"),
            },
            b"cost" => self.event_cost_ns = parse_decimal(value),
            b"outside" => {} // see `Config::outside`
            b"seen" => self.event_seen_ns = parse_decimal(value).unwrap_or(0),
            b"switch" => self.switch_cost_ns = parse_decimal(value).unwrap_or(0),
            b"overhead" => match parse_share(value) {
                Some(share) => self.share = share,
                None => return bad("overhead", "give 0.1 to 25 percent, such as 1 or 2.5"),
            },
            b"trigger" => {
                self.trigger = match value {
                    b"auto" => TriggerChoice::Auto,
                    b"perf" => TriggerChoice::Perf,
                    b"timer" => TriggerChoice::Timer,
                    _ => return bad("trigger", "give auto, perf or timer"),
                }
            }
            b"signal" => {
                self.signal = match value {
                    b"auto" => SignalChoice::Auto,
                    b"prof" => SignalChoice::Prof,
                    b"urg" => SignalChoice::Urg,
                    _ => return bad("signal", "give auto, prof or urg"),
                }
            }
            b"kernel" => match parse_switch(value) {
                Some(on) => self.kernel = on,
                None => return bad("kernel", "give yes or no"),
            },
            b"follow" => match parse_switch(value) {
                Some(on) => self.follow = on,
                None => return bad("follow", "give yes or no"),
            },
            b"events" => match asked::parse(value) {
                Some(events) => self.events = events,
                None => {
                    return bad(
                        "events",
                        "give KIND.CONFIG.PERIOD.FLAGS, at most 7 joined by +",
                    );
                }
            },
            b"depth" => match parse_depth(value) {
                Some(depth) => self.max_depth = depth,
                None => return bad("depth", "give 8 to 4096 frames"),
            },
            b"unwind" => {
                self.unwind = match value {
                    b"auto" => engine::table::Preference::Auto,
                    b"sframe" => engine::table::Preference::Sframe,
                    b"eh_frame" => engine::table::Preference::EhFrame,
                    b"fp" => engine::table::Preference::FramePointer,
                    _ => return bad("unwind", "give auto, sframe, eh_frame or fp"),
                }
            }
            b"reuse" => {
                self.reuse = match value {
                    b"check" => Reuse::Check,
                    _ => match parse_switch(value) {
                        Some(true) => Reuse::Yes,
                        Some(false) => Reuse::No,
                        None => return bad("reuse", "give yes, no or check"),
                    },
                }
            }
            b"size" => match parse_size(value) {
                Some(size) if size >= 64 << 10 => self.size = size,
                _ => return bad("size", "give at least 64K, with suffix K, M or G"),
            },
            _ => {
                return bad(
                    "key",
                    "known: output session rate overhead trigger signal kernel depth unwind reuse size follow events",
                );
            }
        }
        Ok(())
    }
}

fn parse_switch(value: &[u8]) -> Option<bool> {
    match value {
        b"yes" | b"1" | b"on" => Some(true),
        b"no" | b"0" | b"off" => Some(false),
        _ => None,
    }
}

/// Percent, to what [`engine::affordable::WHOLE`] is all of.
fn parse_share(value: &[u8]) -> Option<u64> {
    let share = parse_thousandths(value)?;
    (100..=affordable::QUARTER)
        .contains(&share)
        .then_some(share)
}

fn parse_depth(value: &[u8]) -> Option<usize> {
    let depth = parse_decimal(value).filter(|depth| (8..=4096).contains(depth))?;
    usize::try_from(depth).ok()
}

/// Hz to a period in ns.
fn parse_rate(value: &[u8]) -> Option<u64> {
    let millihertz = parse_thousandths(value)?;
    (100..=100_000_000)
        .contains(&millihertz)
        .then(|| 1_000_000_000_000u64.checked_div(millihertz))
        .flatten()
}

/// A number with up to three decimals, in thousandths.
fn parse_thousandths(value: &[u8]) -> Option<u64> {
    let mut halves = value.splitn(2, |byte| *byte == b'.');
    let whole = parse_decimal(halves.next()?)?;
    let fraction = halves.next().unwrap_or(b"0");
    let scale = 10u64.checked_pow(3u32.checked_sub(u32::try_from(fraction.len()).ok()?)?)?;
    whole
        .checked_mul(1000)?
        .checked_add(parse_decimal(fraction)?.checked_mul(scale)?)
}

fn parse_size(value: &[u8]) -> Option<u64> {
    let (digits, unit) = match value.split_last()? {
        (b'K' | b'k', digits) => (digits, 1u64 << 10),
        (b'M' | b'm', digits) => (digits, 1 << 20),
        (b'G' | b'g', digits) => (digits, 1 << 30),
        _ => (value, 1),
    };
    parse_decimal(digits)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let config = Config::parse(
            b"rate=99.5,overhead=2.5,output=/tmp/x.%p.rsu,trigger=timer,depth=64,size=2M,follow=no",
        )
        .unwrap();
        assert_eq!((config.period_ns, config.share), (10_050_251, 2_500));
        assert_eq!(
            (config.trigger, config.max_depth, config.size, config.follow),
            (TriggerChoice::Timer, 64, 2 << 20, false)
        );
        assert!(
            matches!(config.destination, Destination::File(path) if path.bytes() == b"/tmp/x.%p.rsu")
        );
        for text in [
            &b"output=x"[..],
            b"output=x,depth=64,depth=9",
            b"depth=8,output=x",
        ] {
            assert_eq!(Config::depth(text), Config::parse(text).unwrap().max_depth);
        }
        assert!(matches!(
            Config::parse(b"session=/dev/shm/a").unwrap().destination,
            Destination::Session(_)
        ));
    }

    #[test]
    fn another_versions_collector_opens_no_events() {
        let own = format!("rate=9,outside={VERSION}.60521,session=/dev/shm/a");
        assert_eq!(Config::outside(own.as_bytes()), Some(60_521));
        assert!(Config::parse(own.as_bytes()).is_ok());
        for other in ["", "9.7", "9", "x.7", "9999999999.7"] {
            let text = format!("outside={other}");
            assert_eq!(Config::outside(text.as_bytes()), None, "{other}");
        }
        assert_eq!(Config::outside(b"rate=9"), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[u8], &str); 13] = [
            (b"overhead=26,output=x", "overhead"),
            (b"overhead=0.09,output=x", "overhead"),
            (b"rate=0,output=x", "rate"),
            (b"rate=1000000,output=x", "rate"),
            (b"rate=1.2345,output=x", "rate"),
            (b"output=", "output"),
            (b"rate=9", "output"),
            (b"depth=1,output=x", "depth"),
            (b"trigger=itimer,output=x", "trigger"),
            (b"signal=usr1,output=x", "signal"),
            (b"size=1,output=x", "size"),
            (b"reuse=maybe,output=x", "reuse"),
            (b"speed=1,output=x", "key"),
        ];
        for (text, what) in cases {
            assert_eq!(Config::parse(text).unwrap_err().what, what);
        }
    }
}
