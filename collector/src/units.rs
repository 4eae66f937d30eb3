//! Numbers with units, as people type them: rates, times, sizes.
//!
//! Not here: which of them is in force (the program may lower a rate; a session keeps
//! both).

use engine::affordable;
use std::fmt;
use std::time::Duration;

/// A sampling rate, in thousandths of a Hz: exact, and what a recording stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Thousandths of a Hz; never 0.
    pub millihertz: u64,
}

/// Lowest and highest rate that the runtime takes, Hz.
const RATES: std::ops::RangeInclusive<f64> = 0.1..=100_000.0;

impl Rate {
    /// Reads `99`, `1k`, `0.5`, `2.5kHz`.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "hz" => 1.0,
            "k" | "khz" => 1e3,
            _ => {
                return Err(format!(
                    "`{text}` is no rate: give a number of Hz, such as 99 or 1k (100k is the most)"
                ));
            }
        };
        let hertz = positive(number, "a rate, such as 99 or 1k")? * factor;
        if !RATES.contains(&hertz) {
            let (low, high) = (RATES.start(), RATES.end());
            return Err(format!(
                "give {low} to {high} samples a second, such as 99 or 1k"
            ));
        }
        Ok(Self {
            millihertz: (hertz * 1e3).round() as u64,
        })
    }

    /// The sampling period, ns.
    #[must_use]
    pub const fn period_ns(self) -> u64 {
        1_000_000_000_000 / self.millihertz
    }
}

impl fmt::Display for Rate {
    /// Hz, with as many decimals as it takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.millihertz as f64 / 1e3)
    }
}

/// A share of CPU time, in thousandths of a percent, of which [`affordable::WHOLE`] is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub u64);

impl Default for Share {
    fn default() -> Self {
        Self(affordable::QUARTER)
    }
}

impl Share {
    /// Reads `1%`, `2.5%`, `0.5`.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        const REMEDY: &str = "a share of 0.1% to 25%, such as 1%";
        let (number, unit) = split(text);
        if !matches!(unit, "" | "%") {
            return Err(format!("`{unit}` is not a unit of shares: give {REMEDY}"));
        }
        let share = (positive(number, REMEDY)? * 1e3).round() as u64;
        match (100..=affordable::QUARTER).contains(&share) {
            true => Ok(Self(share)),
            false => Err(format!("give {REMEDY}")),
        }
    }
}

impl fmt::Display for Share {
    /// Percent, with as many decimals as it takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as f64 / 1e3)
    }
}

/// No time is longer: it is added to others, which must not overflow.
const LONGEST: Duration = Duration::from_hours(10_000);

/// Reads `10`, `10s`, `500ms`, `2m`, `1h`, `1.5s`.
///
/// # Errors
/// A sentence with the remedy.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of time: give seconds (10, 10s), or 500ms, 2m, 1h"
            ));
        }
    };
    let number = positive(number, "a time, such as 10s or 500ms")?;
    let time = Duration::try_from_secs_f64(number * seconds).ok();
    time.filter(|time| *time <= LONGEST)
        .ok_or_else(|| "that is too long: give 10000h at most".into())
}

/// Reads a time as [`duration`] does, or 0.
///
/// # Errors
/// A sentence with the remedy.
pub fn patience(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => duration(text),
    }
}

/// Reads bytes: `1048576`, `512K`, `64M`, `1G`.
///
/// # Errors
/// A sentence with the remedy.
pub fn size(text: &str) -> Result<u64, String> {
    const LOWEST: u64 = 64 << 10;
    let (number, unit) = split(text);
    let shift = match unit
        .to_ascii_lowercase()
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of sizes: give bytes, or 512K, 64M, 1G"
            ));
        }
    };
    let bytes = positive(number, "a size, such as 64M")? * (1u64 << shift) as f64;
    if bytes < LOWEST as f64 || bytes > (1u64 << 40) as f64 {
        return Err("give 64K to 1024G".into());
    }
    Ok(bytes as u64)
}

/// The number and the unit behind it.
fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '-' | '+'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

fn positive(number: &str, what: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        Ok(_) => Err(format!("it must be above 0: give {what}")),
        Err(_) => Err(format!("`{number}` is not a number: give {what}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_type_them() {
        for (text, millihertz) in [
            ("99", 99_000),
            ("1k", 1_000_000),
            ("0.5", 500),
            ("2.5kHz", 2_500_000),
            ("100000", 100_000_000),
        ] {
            assert_eq!(Rate::parse(text), Ok(Rate { millihertz }), "{text}");
        }
        assert_eq!(Rate { millihertz: 500 }.to_string(), "0.5");
        assert_eq!(
            Rate {
                millihertz: 999_000
            }
            .to_string(),
            "999"
        );
        assert_eq!(
            Rate {
                millihertz: 1_000_000
            }
            .period_ns(),
            1_000_000
        );
    }

    #[test]
    fn absurd_rates_are_refused_with_the_remedy() {
        for text in [
            "0", "-1", "0.01", "100001", "1M", "nan", "inf", "", "k", "1e9",
        ] {
            let error = Rate::parse(text).unwrap_err();
            assert!(error.contains("99"), "{text}: {error}");
        }
    }

    #[test]
    fn shares_are_read_as_people_type_them() {
        for (text, share) in [
            ("1%", 1_000),
            ("2.5 %", 2_500),
            ("0.1", 100),
            ("25%", 25_000),
        ] {
            assert_eq!(Share::parse(text), Ok(Share(share)), "{text}");
        }
        assert_eq!(Share(2_500).to_string(), "2.5");
        for text in ["0", "-1%", "26%", "0.05%", "1k", "", "%", "nan"] {
            let error = Share::parse(text).unwrap_err();
            assert!(error.contains("1%"), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_read_as_people_type_them() {
        for (text, ms) in [
            ("10", 10_000),
            ("10s", 10_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1.5s", 1_500),
            ("10000h", 36_000_000_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "0",
            "-5",
            "10 years",
            "",
            "s",
            "10001h",
            "5e15h",
            "5000000000000000h",
            "99999999999999999999",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_type_them() {
        for (text, bytes) in [
            ("65536", 65536),
            ("512K", 512 << 10),
            ("64M", 64 << 20),
            ("1G", 1 << 30),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["0", "1", "64X", "2000G"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
