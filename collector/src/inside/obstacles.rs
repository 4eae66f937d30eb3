//! What forbids to bring anything into a process, as far as it can be seen without touching it.

use super::Refusal;
use crate::gentle::is_filtered;
use crate::processes::{self, Stat};
use std::fs;
use std::io::Read;

/// Looks for obstacles.
///
/// # Errors
/// The first that is found.
pub(super) fn look(pid: u32) -> Result<(), Refusal> {
    let stat = Stat::read(pid).ok_or(Refusal::Ended)?;
    match stat.state() {
        'Z' | 'X' => return Err(Refusal::Zombie),
        'T' | 't' => return Err(Refusal::Stopped),
        _ => {}
    }
    if let Some(tracer) = tracer(pid) {
        return Err(Refusal::Traced(tracer));
    }
    let threads = processes::threads(pid.cast_signed());
    let mut threads = threads.into_iter().map(i32::cast_unsigned);
    if threads.any(|tid| is_filtered(pid, tid)) {
        return Err(Refusal::Filtered);
    }
    if !is_of_64_bits(pid) {
        return Err(Refusal::Machine);
    }
    let mappings = processes::mappings(pid.cast_signed());
    if mappings.iter().any(processes::is_library) {
        return Err(Refusal::Preloaded);
    }
    Ok(())
}

fn tracer(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

/// An ELF file of x86-64.
fn is_of_64_bits(pid: u32) -> bool {
    const START: [u8; 5] = [0x7f, b'E', b'L', b'F', 2];
    const X86_64: [u8; 2] = [62, 0];
    let mut head = [0; 20];
    let file = fs::File::open(format!("/proc/{pid}/exe"));
    let read = file.and_then(|mut file| file.read_exact(&mut head));
    cfg!(target_arch = "x86_64")
        && read.is_ok()
        && head.starts_with(&START)
        && head.ends_with(&X86_64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_is_stopped_or_gone_is_refused() {
        assert!(matches!(look(u32::MAX >> 1), Err(Refusal::Ended)));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let kill = |name: &str| {
            let sent = Command::new("kill")
                .args(["-s", name, &pid.to_string()])
                .status();
            assert!(sent.unwrap().success());
        };
        let wait_for = |state: char| {
            while Stat::read(pid).unwrap().state() != state {
                std::thread::yield_now();
            }
        };
        assert!(look(pid).is_ok());
        kill("STOP");
        wait_for('T');
        assert!(matches!(look(pid), Err(Refusal::Stopped)));
        kill("KILL");
        wait_for('Z');
        assert!(matches!(look(pid), Err(Refusal::Zombie)));
        child.wait().unwrap();
    }
}
