//! Programs started by this one. An armed perf event would kill the next program with our signal,
//! so the calling thread is disarmed just before, and armed again if exec fails; `posix_spawn` and
//! vfork children have no events of their own and only get the environment.

use crate::environment::Environment;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use rsunwind::environment::{Strings, environ, variable};
use rsunwind::life::process;
use rsunwind::process::PROCESS;
use rsunwind::signal;
use rsunwind::sys::{self, KernelAction};
use rsunwind::text::copy;
use rsunwind::thread::ThreadState;
use rsunwind::wire::event::EventKind;
use rsunwind::wire::thread::ThreadEndReason;
use rsunwind::{program_signal, shim};

type Path = *const c_char;

mod real {
    use super::{Path, Strings, c_int, c_void};
    crate::next! {
        fn execve(path: Path, arguments: Strings, environment: Strings) -> c_int = super::without_host(path, arguments, environment);
        fn execvpe(file: Path, arguments: Strings, environment: Strings) -> c_int = -1;
        fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int = -1;
        fn execveat(fd: c_int, path: Path, arguments: Strings, environment: Strings, flags: c_int) -> c_int = -1;
        fn posix_spawn(pid: *mut c_int, path: Path, actions: *const c_void, attributes: *const c_void, arguments: Strings, environment: Strings) -> c_int = libc::ENOSYS;
        fn posix_spawnp(pid: *mut c_int, file: Path, actions: *const c_void, attributes: *const c_void, arguments: Strings, environment: Strings) -> c_int = libc::ENOSYS;
    }
}

/// `execve` by the kernel, where the program's cannot be found.
fn without_host(path: Path, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the arguments of `execve(2)`, from our caller.
    unsafe { sys::execve(path.cast(), arguments.cast(), environment.cast()) }
}

/// Puts the calling thread to rest, if it is one of ours, runs `exec`, and undoes it all if that
/// comes back.
fn around(path: &CStr, exec: impl FnOnce() -> c_int) -> c_int {
    if !PROCESS.is_active() {
        return exec();
    }
    // In a vfork child this is none: the thread whose memory it borrows is not touched.
    let Some(this) = ThreadState::current() else {
        return exec();
    };
    this.event(EventKind::Exec, 0, path.to_bytes());
    process::end(ThreadEndReason::Exec);
    this.disarm_for_good();
    let blocked = this.belief.is_blocked();
    if blocked {
        sys::signal_mask(libc::SIG_BLOCK, sys::bit(this.signal()));
    }
    let ignored = signal::BY_INDEX.map(ignore_for_real);
    let result = exec();
    for signal in ignored.into_iter().flatten() {
        let _ = shim::install(signal);
    }
    if blocked {
        sys::signal_mask(libc::SIG_UNBLOCK, sys::bit(this.signal()));
    }
    let errno = rsunwind::errno::get() as u64;
    this.event(EventKind::ExecFailed, errno, path.to_bytes());
    this.arm_again();
    result
}

/// What the program ignores the next one ignores, too: of our signals the kernel does not know
/// that. Gives the signal if it had to be told.
fn ignore_for_real(signal: c_int) -> Option<c_int> {
    let is_ignored = program_signal::action(signal).handler == libc::SIG_IGN;
    (signal::is_taken(signal) && is_ignored).then(|| {
        let ignored = KernelAction {
            handler: libc::SIG_IGN,
            ..KernelAction::default()
        };
        let _ = sys::signal_action(signal, Some(&ignored));
        signal
    })
}

/// # Safety
/// As `execve(2)`.
pub unsafe fn by_path(path: Path, arguments: Strings, environment: Strings) -> c_int {
    if !sys::is_path(path.cast()) {
        // SAFETY: the caller's arguments, of which the kernel says what is wrong.
        return unsafe { real::execve(path, arguments, environment) };
    }
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(path) };
    // SAFETY: the caller's arguments.
    let environment = unsafe { Environment::for_program(environment, Some(name)) };
    // SAFETY: the caller's arguments, with our environment.
    around(name, || unsafe {
        real::execve(path, arguments, environment.strings())
    })
}

/// # Safety
/// As `execvpe(3)`.
unsafe fn exec_searched(file: Path, arguments: Strings, environment: Strings) -> c_int {
    if !sys::is_path(file.cast()) {
        // SAFETY: as above.
        return unsafe { real::execvpe(file, arguments, environment) };
    }
    // SAFETY: a C string.
    let name = unsafe { CStr::from_ptr(file) };
    let mut buffer = [0u8; 1024];
    // SAFETY: the caller's arguments.
    let environment = unsafe { Environment::for_program(environment, search(name, &mut buffer)) };
    // SAFETY: the caller's arguments, with our environment.
    around(name, || unsafe {
        real::execvpe(file, arguments, environment.strings())
    })
}

/// Where `PATH` leads for that name, as the exec functions follow it.
fn search<'b>(name: &'b CStr, buffer: &'b mut [u8; 1024]) -> Option<&'b CStr> {
    let bytes = name.to_bytes();
    if bytes.contains(&b'/') {
        return Some(name);
    }
    let path = variable(b"PATH=").map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    let length = path.split(|byte| *byte == b':').find_map(|directory| {
        let length = directory.len().checked_add(bytes.len())?.checked_add(2)?;
        let place = buffer.get_mut(..length)?;
        let (start, rest) = place.split_at_mut_checked(directory.len())?;
        copy(start, directory);
        let (slash, rest) = rest.split_first_mut()?;
        *slash = b'/';
        let (zero, middle) = rest.split_last_mut()?;
        *zero = 0;
        copy(middle, bytes);
        sys::is_executable(place).then_some(length)
    })?;
    CStr::from_bytes_with_nul(buffer.get(..length)?).ok()
}

/// `execve(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: Path, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { by_path(path, arguments, environment) }
}

/// `execv(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: Path, arguments: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { by_path(path, arguments, environ()) }
}

/// `execvp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: Path, arguments: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { exec_searched(file, arguments, environ()) }
}

/// `execvpe(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: Path, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { exec_searched(file, arguments, environment) }
}

/// `fexecve(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's arguments.
    let environment = unsafe { Environment::for_program(environment, None) };
    // SAFETY: the caller's arguments, with our environment.
    around(c"(file descriptor)", || unsafe {
        real::fexecve(fd, arguments, environment.strings())
    })
}

/// `execveat(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    fd: c_int,
    path: Path,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { by_place(fd, path, arguments, environment, flags) }
}

/// # Safety
/// As `execveat(2)`.
pub unsafe fn by_place(
    fd: c_int,
    path: Path,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    if !sys::is_path(path.cast()) {
        // SAFETY: as above.
        return unsafe { real::execveat(fd, path, arguments, environment, flags) };
    }
    // SAFETY: the caller's arguments.
    let (name, environment) = unsafe {
        (
            CStr::from_ptr(path),
            Environment::for_program(environment, None),
        )
    };
    // SAFETY: the caller's arguments, with our environment.
    around(name, || unsafe {
        real::execveat(fd, path, arguments, environment.strings(), flags)
    })
}

/// `posix_spawn(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: Path,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    if !sys::is_path(path.cast()) {
        // SAFETY: the caller's arguments, of which the kernel says what is wrong.
        return unsafe {
            real::posix_spawn(pid, path, actions, attributes, arguments, environment)
        };
    }
    // SAFETY: the caller's arguments, with our environment.
    let environment = unsafe { Environment::for_program(environment, Some(CStr::from_ptr(path))) };
    let environment = environment.strings();
    // SAFETY: as above.
    inheriting(|| unsafe {
        real::posix_spawn(pid, path, actions, attributes, arguments, environment)
    })
}

/// The new program has our signal blocked if this one believes that it is.
fn inheriting(spawn: impl FnOnce() -> c_int) -> c_int {
    process::show_belief();
    let result = spawn();
    process::hide_belief();
    result
}

/// `posix_spawnp(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: Path,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    if !sys::is_path(file.cast()) {
        // SAFETY: as above.
        return unsafe {
            real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
        };
    }
    let mut buffer = [0u8; 1024];
    // SAFETY: the caller's arguments, with our environment.
    let environment =
        unsafe { Environment::for_program(environment, search(CStr::from_ptr(file), &mut buffer)) };
    let environment = environment.strings();
    // SAFETY: as above.
    inheriting(|| unsafe {
        real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
    })
}

/// Which variadic function was called.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
enum ListKind {
    Path,
    Searched,
    WithEnvironment,
}

/// Arguments that the caller gave one by one: in registers first, then on the stack.
struct Listed {
    registers: *const usize,
    stack: *const usize,
    index: usize,
}

impl Listed {
    const IN_REGISTERS: usize = 5;

    /// # Safety
    /// There is another argument.
    unsafe fn next(&mut self) -> usize {
        let index = self.index;
        self.index += 1;
        // SAFETY: the caller's promise; the shim saved five registers, and the rest lies on the
        // stack in order.
        unsafe {
            match index.checked_sub(Self::IN_REGISTERS) {
                None => *self.registers.add(index),
                Some(beyond) => *self.stack.add(beyond),
            }
        }
    }
}

/// The variadic functions arrive here from their shims: `registers` holds the arguments after the
/// first, `stack` those that follow.
///
/// # Safety
/// Only from the shims.
unsafe extern "C" fn exec_list(
    path: Path,
    registers: *const usize,
    stack: *const usize,
    kind: ListKind,
) -> c_int {
    let mut few = [ptr::null::<c_char>(); 64];
    // SAFETY: the caller ends its arguments with a null.
    unsafe {
        let mut count = 1usize;
        let mut listed = Listed {
            registers,
            stack,
            index: 0,
        };
        while listed.next() != 0 {
            count += 1;
        }
        let environment = if kind == ListKind::WithEnvironment {
            listed.next() as Strings
        } else {
            environ()
        };
        let mut mapping = None;
        let arguments = if count <= few.len() {
            few.as_mut_ptr()
        } else {
            let size = count * size_of::<usize>();
            match sys::map_anonymous(size) {
                Ok(memory) => mapping.insert((memory, size)).0.cast(),
                Err(error) => {
                    rsunwind::errno::set(error.0);
                    return -1;
                }
            }
        };
        let mut listed = Listed {
            registers,
            stack,
            index: 0,
        };
        for index in 0..count {
            *arguments.add(index) = listed.next() as *const c_char;
        }
        let result = match kind {
            ListKind::Searched => exec_searched(path, arguments, environment),
            _ => by_path(path, arguments, environment),
        };
        if let Some((memory, size)) = mapping {
            sys::unmap(memory, size);
        }
        result
    }
}

/// A variadic function cannot be written in Rust: the shim lays its register arguments out in
/// memory and passes on where the others lie.
macro_rules! variadic {
    ($($(#[$doc:meta])* $name:ident: $kind:expr;)*) => {
        $(
            $(#[$doc])*
            #[cfg(target_arch = "x86_64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "endbr64",
                    "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                    ".cfi_adjust_cfa_offset 40",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 48]",
                    "mov ecx, {kind}",
                    "call {exec_list}",
                    "add rsp, 40",
                    ".cfi_adjust_cfa_offset -40",
                    "ret",
                    ".cfi_endproc",
                    kind = const $kind as i32,
                    exec_list = sym exec_list,
                )
            }
        )*
    };
}

variadic! {
    /// `execl(3)`.
    execl: ListKind::Path;
    /// `execlp(3)`.
    execlp: ListKind::Searched;
    /// `execle(3)`.
    execle: ListKind::WithEnvironment;
}
