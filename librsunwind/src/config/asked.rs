//! Events that are asked for beside CPU time, as the setting `events=KIND.CONFIG.PERIOD.FLAGS+…`
//! names them: type and config of `perf_event_attr` and the period, decimal; of the flags `u`
//! leaves kernel mode out, `s` makes the thread unwind itself at each sample, and with `f` the
//! period is a rate in Hz. They are numbered from 1 in that order ([`Source::event`]). Their names
//! are the collector's business.

use super::source::Source;
use crate::text::parse_decimal;
use engine::wire::offer::MAX_EVENTS;

/// Most events beside CPU time.
pub const MOST: usize = MAX_EVENTS - 1;

/// The events asked for.
pub type Asked = [Option<Source>; MOST];

/// None.
pub const NONE: Asked = [None; MOST];

/// Reads the setting; `None` if it is wrong.
pub fn parse(text: &[u8]) -> Option<Asked> {
    let mut asked = NONE;
    let mut slots = asked.iter_mut().zip(1u32..);
    for one in text.split(|byte| *byte == b'+') {
        let (slot, event) = slots.next()?;
        let mut parts = one.split(|byte| *byte == b'.');
        let mut number = || parse_decimal(parts.next()?);
        let (kind, config, period) = (number()?, number()?, number()?);
        let flags = parts.next()?;
        if period == 0 || parts.next().is_some() {
            return None;
        }
        *slot = Some(Source {
            event,
            kind: u32::try_from(kind).ok()?,
            config,
            period,
            kernel: !flags.contains(&b'u'),
            raises_signal: flags.contains(&b's'),
            is_rate: flags.contains(&b'f'),
        });
    }
    Some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_numbered() {
        let asked = parse(b"1.2.100.s+2.314.1.u+0.0.1000003.us").unwrap();
        let first = asked[0].unwrap();
        assert_eq!((first.event, first.kind, first.config), (1, 1, 2));
        assert_eq!(
            (first.period, first.kernel, first.raises_signal),
            (100, true, true)
        );
        let third = asked[2].unwrap();
        assert_eq!(
            (third.event, third.kernel, third.raises_signal),
            (3, false, true)
        );
        assert!(!asked[1].unwrap().raises_signal && asked[3].is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "1", "1.2.3", "1.2.0.s", "x.2.3.s", "1.2.3.s.4"] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
        let many = ["1.2.3.s"; MOST + 1].join("+");
        assert!(parse(many.as_bytes()).is_none());
    }
}
