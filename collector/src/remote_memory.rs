//! Memory of another process, read by the kernel without a word to that process. What is not
//! mapped there is not read; what its threads write meanwhile may be seen in part.

use engine::interpreter::memory::Memory;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt as _;

/// Where glibc's structure of a thread, to which `pthread_self()` points, has the thread's number.
pub(crate) const THREAD_NUMBER: u64 = 720;

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteMemory(pub(crate) u32);

impl RemoteMemory {
    /// Reads from an address on, as far as there is memory; gives how many bytes that was.
    pub(crate) fn read(self, address: u64, to: &mut [u8]) -> usize {
        let Ok(base) = usize::try_from(address) else {
            return 0;
        };
        let remote = [RemoteIoVec {
            base,
            len: to.len(),
        }];
        let pid = Pid::from_raw(self.0.cast_signed());
        match process_vm_readv(pid, &mut [IoSliceMut::new(to)], &remote) {
            Err(Errno::ENOSYS) => self.read_file(address, to),
            read => read.unwrap_or(0),
        }
    }

    /// The same where the kernel was built without that call, as Ubuntu's for virtual machines is.
    fn read_file(self, address: u64, to: &mut [u8]) -> usize {
        let file = File::open(format!("/proc/{}/mem", self.0));
        file.and_then(|file| file.read_at(to, address)).unwrap_or(0)
    }

    /// A number of four bytes.
    pub(crate) fn half(self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.copy(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// A stack from its pointer on, at most so many bytes; behind its end may be what lies there.
    pub(crate) fn stack(self, sp: u64, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        let read = self.read(sp, &mut bytes);
        bytes.truncate(read);
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl Memory for RemoteMemory {
    fn load(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.copy(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    fn copy(&self, address: u64, to: &mut [u8]) -> Option<()> {
        (self.read(address, to) == to.len()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_no_more() {
        let own = RemoteMemory(std::process::id());
        let there = [1u64, 2, 3];
        let address = there.as_ptr() as u64;
        assert_eq!(
            (own.load(address), own.half(address + 16)),
            (Some(1), Some(3))
        );
        assert_eq!(own.stack(address, 24).map(|bytes| bytes.len()), Some(24));
        let mut bytes = [0; 16];
        assert_eq!(own.read_file(address, &mut bytes), 16);
        assert_eq!((bytes[0], bytes[8]), (1, 2));
        assert_eq!(own.read_file(8, &mut bytes), 0);
        assert_eq!((own.load(8), own.stack(u64::MAX, 8)), (None, None));
    }
}
