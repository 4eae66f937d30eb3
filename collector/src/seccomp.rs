//! Seccomp filters: one that we run under may kill who asks for perf events, and us with our
//! program.

/// Whether a filter is in force for us, and so for everything that we start.
#[must_use]
pub fn is_in_force() -> bool {
    is_in_force_for(std::process::id().cast_signed())
}

/// Whether a filter is in force for a process.
#[must_use]
pub fn is_in_force_for(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mode = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}
