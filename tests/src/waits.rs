//! What the victim `off_cpu.c` says that it measured.

/// A line of its output.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The function, or the thread.
    pub name: String,
    /// The thread's number.
    pub tid: u32,
    /// How long it took, ns.
    pub wall_ns: u64,
    /// How much of that it was on a CPU, ns.
    pub cpu_ns: u64,
    /// Calls made in it.
    pub calls: u64,
    /// Calls that were interrupted.
    pub interrupted: u64,
    /// Waits that took less than was asked for.
    pub too_short: u64,
}

/// Reads its output.
///
/// # Panics
/// At any other.
#[must_use]
#[track_caller]
pub fn read(printed: &str) -> Vec<Measured> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, tid, numbers @ ..] = &words[..] else {
            panic!("{printed}");
        };
        let numbers: Vec<u64> = numbers.iter().map(|n| n.parse().expect(printed)).collect();
        let [wall_ns, cpu_ns, calls, interrupted, too_short] = numbers[..] else {
            panic!("{printed}");
        };
        Measured {
            name: (*name).to_owned(),
            tid: tid.parse().expect(printed),
            wall_ns,
            cpu_ns,
            calls,
            interrupted,
            too_short,
        }
    };
    printed.lines().map(line).collect()
}
