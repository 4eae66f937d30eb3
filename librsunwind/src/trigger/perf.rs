//! The perf events of a thread, which raise a signal on that thread at every sample: first the one
//! on its own CPU clock.
//!
//! The position behind the newest record in their common ring is the nonce: it names the samples
//! that this signal stands for. Only the mapping of the ring is kept, no descriptor shifts the
//! program's numbers or is lost to closefrom: it keeps the first event alive. Where there is a
//! collector it is sent the descriptors ([`super::handover`]): it can empty the ring, and keeps
//! further events alive.
//!
//! Events that the collector holds outlive this value, until it sees that they were let go of:
//! before an exec they must be put to rest ([`rest_all`]), or a late signal of theirs kills the
//! next program.
//!
//! **To add an event**, put a [`Source`] into the list given to [`PerfEvent::open`], with a number
//! of its own ([`Source::event`], which comes back in `KernelHead::event`). It writes into the
//! first one's ring: same cursor, same nonce, no unwind of its own. Its samples of user mode are
//! written as kernel samples without frames (CPU time's are only counted, since the user stack
//! carries their weight). `raises_signal` says whether the thread is to unwind itself for it (never
//! for events that happen while the thread goes to sleep). Further events need a collector: nothing
//! else keeps them alive.
//!
//! # Safety
//! System calls on our own structures.
#![allow(unsafe_code)]

use super::event;
use super::event_request;
use super::handover::{self, Recipient};
use super::ring::{Drained, Ring};
use super::thread::{Outlook, Thread};
use crate::config::source::Source;
use crate::sys::{self, Errno, File, call};
use core::cell::Cell;
use engine::perf_event::Attributes;
use engine::wire::kernel::KernelHead;
use engine::wire::offer::{CPU_EVENT, EventId, MAX_EVENTS, Offer};
use engine::wire::ring::{FirstSample, RingSample};

/// Pages of ring data where kernel mode is sampled: some 200 samples with kernel stacks can wait
/// while the thread is in one long system call, or the collector sleeps.
const DATA_PAGES: usize = 16;
const DATA_PAGES_SCARCE: usize = 1;
/// With a collector there is room for this many nanoseconds of samples, and more for higher rates.
const RESERVE_NS: u64 = 250_000_000;
/// What a sample with a deep kernel stack takes, bytes.
const AMPLE_SAMPLE: u64 = 256;
/// The collector comes sooner to rings that fill fast; each page costs a program that begins most
/// of a microsecond.
const MOST_PAGES: usize = 128;
/// In its first moments, which many a thread does not outlive, its ring has room for so many
/// nanoseconds of samples.
const FIRST_NS: u64 = 64_000_000;
const MOST_FIRST_PAGES: usize = 16;
/// A program that begins may end at once, but its first call may be a long one too: the collector
/// comes as soon as a ring of that size needs it.
const PROGRAM_PAGES: usize = 32;
/// At shorter periods it would be full before the collector can come, ns.
const SHORTEST_PROGRAM_PERIOD: u64 = 50_000;
/// Until the first signal of a fork child: the event costs every fork some thirty microseconds, up
/// to 16 pages a few more, and beyond that each page one.
const EARLY_PAGES: usize = 16;
/// The same where locked memory is limited.
const EARLY_PAGES_SCARCE: usize = 4;
/// Events beside CPU time may come tens of thousands of times a second.
const EVENT_PAGES: usize = 128;

/// Armed perf events of this thread, with their ring.
#[derive(Debug)]
pub struct PerfEvent {
    ring: Ring,
    /// What a collector is told of the ring.
    offer: Offer,
    /// The descriptors' numbers while they were open: what `si_fd` of their signals says; -1 in
    /// unused slots.
    descriptors: [i32; MAX_EVENTS],
    kernel: bool,
    /// The thread, and what they raise on it.
    tid: u32,
    signal: i32,
    /// The collector may hold the events and take records out.
    lent: bool,
    /// The ring is for the first moments.
    is_first: Cell<bool>,
}

impl PerfEvent {
    /// Opens events on the calling thread, running; the first is the one whose ring is used, the
    /// others are left out where they are refused. A thread that has just begun gets a small ring,
    /// which nobody else empties: most of what arming costs is the ring and its way to the
    /// collector. A program that begins gets one of middle size, at most.
    ///
    /// # Errors
    /// Of the first: `EACCES` or `EPERM` where not permitted, `EMFILE`, `ENOMEM` (also when locked
    /// memory is used up), ….
    pub fn open(sources: &[Source], thread: &Thread<'_>) -> Result<Self, Errno> {
        let recipient = thread.recipient;
        let (first, others) = sources.split_first().ok_or(Errno(libc::EINVAL))?;
        let mut files = [const { None }; MAX_EVENTS];
        // Where nothing is in force that it takes the place of, it runs from the start: what is
        // sampled before there is a ring is this very work.
        let runs = others.is_empty() && thread.outlook != Outlook::Lasting;
        let file = open_source(first, runs)?;
        let sparing = recipient.is_none_or(|recipient| recipient.sparing);
        let is_new = matches!(thread.outlook, Outlook::Unknown | Outlook::Brief);
        let is_first = is_new && others.is_empty() && first.kernel;
        let wanted = wanted_pages(first, sparing);
        let pages = match thread.outlook {
            _ if is_first => first_pages(first.period),
            _ if !others.is_empty() && !sparing => wanted.max(EVENT_PAGES),
            Outlook::Program if first.period >= SHORTEST_PROGRAM_PERIOD => {
                wanted.min(PROGRAM_PAGES)
            }
            _ => wanted,
        };
        let mut made = Self::around(&file, first, thread, pages)?;
        made.is_first.set(is_first);
        if let Some(recipient) =
            recipient.filter(|_| !is_first && (first.kernel || !others.is_empty()))
        {
            let mut slots = files.iter_mut();
            for source in others {
                let joined = made.join(slots.len(), source, &file);
                if let (Ok(joined), Some(slot)) = (joined, slots.next()) {
                    *slot = Some(joined);
                }
            }
            made.lend(recipient, &file, &files);
        }
        if !runs {
            for file in core::iter::once(&file).chain(files.iter().flatten()) {
                event::enable(file)?;
            }
        }
        Ok(made)
    }

    /// Opens the event on the thread's CPU time with kernel mode, running, so that it raises no
    /// signal: its small ring is looked at once.
    ///
    /// # Errors
    /// As [`PerfEvent::open`].
    pub fn open_early(period_ns: u64, thread: &Thread<'_>) -> Result<Self, Errno> {
        let source = Source {
            raises_signal: false,
            ..Source::cpu_time(period_ns, true)
        };
        let file = open_source(&source, true)?;
        let pages = match sys::is_root() {
            true => EARLY_PAGES,
            false => EARLY_PAGES_SCARCE,
        };
        Self::around(&file, &source, thread, pages)
    }

    /// Has a collector with more rights open the event on the thread's CPU time with kernel mode,
    /// and enables it.
    ///
    /// # Errors
    /// `EACCES` if there is none, and as [`PerfEvent::open`].
    pub fn ask(
        period_ns: u64,
        thread: &Thread<'_>,
        recipient: &Recipient<'_>,
    ) -> Result<Self, Errno> {
        let source = Source::cpu_time(period_ns, true);
        let file = event_request::ask(period_ns, recipient)?;
        let made = Self::around(&file, &source, thread, wanted_pages(&source, true))?;
        event::enable(&file)?;
        Ok(made)
    }

    /// Maps the ring of an event that is open.
    fn around(
        file: &File,
        source: &Source,
        thread: &Thread<'_>,
        pages: usize,
    ) -> Result<Self, Errno> {
        let mut made = Self {
            ring: map_largest(file, pages)?,
            offer: Offer {
                base: thread.nonce,
                periods: thread.periods,
                ..Offer::default()
            },
            descriptors: [-1; MAX_EVENTS],
            kernel: source.kernel,
            tid: thread.tid,
            signal: thread.signal,
            lent: false,
            is_first: Cell::new(false),
        };
        made.remember(0, source, file)?;
        Ok(made)
    }

    /// Opens another event that writes into the first one's ring; `left` slots are left.
    fn join(&mut self, left: usize, source: &Source, first: &File) -> Result<File, Errno> {
        let index = MAX_EVENTS.wrapping_sub(left).wrapping_add(1);
        let file = open_source(source, false)?;
        event::write_into(&file, first)?;
        self.remember(index, source, &file)?;
        Ok(file)
    }

    fn lend(
        &mut self,
        recipient: Recipient<'_>,
        first: &File,
        others: &[Option<File>; MAX_EVENTS],
    ) {
        self.offer = Offer {
            base: self.offer.base,
            periods: self.offer.periods,
            events: self.offer.events,
            data_size: self.ring.data_size() as u64,
            ..recipient.offer
        };
        self.ring.lend();
        let files = core::iter::once(first).chain(others.iter().flatten());
        self.lent = handover::offer(&self.offer, files, recipient.directory).is_ok();
    }

    fn remember(&mut self, index: usize, source: &Source, file: &File) -> Result<(), Errno> {
        if source.raises_signal {
            deliver_to(file, self.tid, self.signal)?;
        }
        let id = event::id(file)?;
        let (event, descriptor) = (
            self.offer.events.get_mut(index),
            self.descriptors.get_mut(index),
        );
        if let (Some(event), Some(descriptor)) = (event, descriptor) {
            *event = EventId {
                id,
                event: source.event,
            };
            *descriptor = file.raw();
        }
        Ok(())
    }

    /// Whether kernel mode is sampled too.
    pub fn samples_kernel(&self) -> bool {
        self.kernel
    }

    /// What `si_fd` of its signals says.
    pub fn descriptors(&self) -> [i32; MAX_EVENTS] {
        self.descriptors
    }

    /// Whether a signal with this `si_fd` can be one of its events'.
    pub fn raised(&self, descriptor: i32) -> bool {
        descriptor >= 0 && self.descriptors.contains(&descriptor)
    }

    /// Whether the collector may hold the events, so that they outlive this value.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// Whether its ring is for the first moments of its thread.
    pub fn is_first(&self) -> bool {
        self.is_first.get()
    }

    /// It stays although it is.
    pub fn stays(&self) {
        self.is_first.set(false);
    }

    /// Whether what found no room in its ring, if anything, is known, so that nothing more is to be
    /// told of it.
    pub fn has_told_all(&self) -> bool {
        !self.ring.may_have_to_tell()
    }

    /// Whether nothing is lost where it stands in the place of another.
    pub fn is_as_good_as(&self, other: &Self) -> bool {
        self.kernel == other.kernel && (self.lent || !other.lent)
    }

    /// Another is in its place from here on, which samples already.
    pub fn give_way(&self) {
        self.ring.give_way();
    }

    /// A nonce behind all that its ring can still get while the thread is in its handler.
    pub fn beyond(&self) -> u64 {
        self.cursor().wrapping_add(self.ring.data_size() as u64)
    }

    /// Whether the kernel may have found no room for a sample since the last [`PerfEvent::drain`].
    ///
    /// # Signal safety
    /// Reads the mapped ring.
    pub fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    /// The nonce that a sample taken now would be named by.
    ///
    /// # Signal safety
    /// Reads the mapped ring.
    pub fn cursor(&self) -> u64 {
        self.ring.cursor().wrapping_add(self.offer.base)
    }

    /// A signal has come that is left to the next walk, with what is in the ring. Gives the sample
    /// that raised it, if it is of CPU time and can be said.
    ///
    /// # Signal safety
    /// Reads the mapped ring.
    pub fn pass(&self) -> Option<FirstSample> {
        self.of_cpu_time(self.ring.pass())
    }

    /// Takes everything out of the ring, and shows what is to be recorded of it: samples of kernel
    /// mode, and all samples of other events than CPU time; of CPU time in user mode those that no
    /// user stack was taken for at once. Where the collector does that, it only looks for the
    /// cursor.
    ///
    /// # Signal safety
    /// Reads and writes the mapped ring; bounded by its size.
    pub fn drain(&self, mut visit: impl FnMut(&KernelHead, &[u64])) -> Drained {
        let (offer, kernel) = (&self.offer, self.kernel);
        // The newest sample of user mode is the one whose stack is about to be taken; those before
        // it were held back.
        let mut before: Option<KernelHead> = None;
        let mut drained = self.ring.look(self.lent, |sample: &RingSample, frames| {
            if let (true, Some(head)) = (kernel, before.take()) {
                visit(&head, &[]);
            }
            before = sample.unserved(offer);
            let counted = |place, count| self.ring.count(place, count);
            if let Some(head) = sample
                .recorded(offer, counted)
                .filter(|head| kernel || head.event != CPU_EVENT)
            {
                visit(&head, frames);
            }
        });
        drained.cursor = drained.cursor.wrapping_add(offer.base);
        drained.first = self.of_cpu_time(drained.first);
        drained
    }

    fn of_cpu_time(&self, first: Option<FirstSample>) -> Option<FirstSample> {
        let event = |first: &FirstSample| Offer::find(&self.offer.events, first.event_id);
        first.filter(|first| event(first).is_some_and(|(_, event)| event == CPU_EVENT))
    }
}

/// Puts to rest all events that the calling thread has opened, which may be held by the collector:
/// no more signals come of them. The kernel knows no finer way without a descriptor, so events of
/// the program's own rest, too.
///
/// # Signal safety
/// One system call.
pub fn rest_all() {
    const PR_TASK_PERF_EVENTS_DISABLE: usize = 31;
    // SAFETY: no memory involved.
    let _ = unsafe { call!(libc::SYS_prctl, PR_TASK_PERF_EVENTS_DISABLE) };
}

/// Opens an event, which `runs` from the start or is to be enabled.
fn open_source(source: &Source, runs: bool) -> Result<File, Errno> {
    let every = Attributes::of_thread(source.kind, source.config, source.period, source.kernel);
    let every = match source.is_rate {
        true => every.at_a_rate(),
        false => every,
    };
    event::open(&match runs {
        true => every.running(),
        false => every,
    })
}

fn wanted_pages(source: &Source, sparing: bool) -> usize {
    match (source.kernel, sparing) {
        (false, _) => DATA_PAGES_SCARCE,
        (true, true) => DATA_PAGES,
        (true, false) => pages_for(source.period),
    }
}

/// A power of two.
fn first_pages(period_ns: u64) -> usize {
    pages_of(FIRST_NS, period_ns).clamp(1, MOST_FIRST_PAGES)
}

/// As many pages as are wanted, or fewer where memory is scarce.
fn map_largest(file: &File, mut pages: usize) -> Result<Ring, Errno> {
    loop {
        match Ring::map(file, pages) {
            Err(_) if pages > DATA_PAGES => pages = DATA_PAGES,
            Err(_) if pages > DATA_PAGES_SCARCE => pages = DATA_PAGES_SCARCE,
            result => return result,
        }
    }
}

/// A power of two.
fn pages_for(period_ns: u64) -> usize {
    pages_of(RESERVE_NS, period_ns).clamp(DATA_PAGES, MOST_PAGES)
}

fn pages_of(reserve_ns: u64, period_ns: u64) -> usize {
    let samples = reserve_ns.checked_div(period_ns).unwrap_or(0);
    let pages = samples.saturating_mul(AMPLE_SAMPLE) / sys::PAGE as u64;
    let pages = usize::try_from(pages).unwrap_or(MOST_PAGES);
    pages.clamp(1, MOST_PAGES).next_power_of_two()
}

fn deliver_to(file: &File, tid: u32, signal: i32) -> Result<(), Errno> {
    const F_SETSIG: usize = 10;
    const F_SETOWN_EX: usize = 15;
    let owner = [0u32 /* F_OWNER_TID */, tid];
    // SAFETY: the kernel reads two words.
    unsafe {
        call!(libc::SYS_fcntl, file.raw(), F_SETSIG, signal)?;
        call!(libc::SYS_fcntl, file.raw(), F_SETOWN_EX, owner.as_ptr())?;
        call!(
            libc::SYS_fcntl,
            file.raw(),
            libc::F_SETFL,
            libc::O_ASYNC | libc::O_NONBLOCK
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Text;
    use engine::perf_event::{kind, software};

    #[test]
    fn events_share_a_ring_and_a_cursor() {
        let session = std::env::temp_dir().join(format!("rsunwind-test-{}", std::process::id()));
        std::fs::create_dir_all(&session).expect("a directory");
        // Whoever listens need not take anything: descriptors on their way keep their events alive.
        let path = session.join(engine::wire::offer::SOCKET_FILE);
        let listening = listen(path.to_str().expect("a plain path"));
        let directory = Text::new().then(session.to_str().expect("a plain path").as_bytes());
        let recipient = Recipient {
            directory: &directory,
            offer: Offer::default(),
            sparing: false,
        };
        let quiet = Source {
            event: 0,
            kind: kind::SOFTWARE,
            config: software::DUMMY,
            period: 1 << 40,
            is_rate: false,
            kernel: false,
            raises_signal: false,
        };
        let faults = Source {
            event: 5,
            config: software::PAGE_FAULTS,
            period: 1,
            ..quiet
        };
        let thread = Thread {
            tid: sys::gettid(),
            tag: 0,
            signal: libc::SIGPROF,
            nonce: 1000,
            recipient: Some(recipient),
            periods: 1,
            outlook: Outlook::Unknown,
        };
        let event = PerfEvent::open(&[quiet, faults], &thread).expect("allowed to anyone");
        assert!(event.is_lent());
        let pages = sys::map_anonymous(8 * sys::PAGE).expect("memory");
        for page in 0..8 {
            // SAFETY: fresh memory of eight pages.
            unsafe { pages.add(page * sys::PAGE).write_volatile(1) };
        }
        let mut seen = Vec::new();
        let drained = event.drain(|head, _| seen.push(*head));
        assert!(seen.len() >= 8, "{} page faults", seen.len());
        assert_eq!((drained.samples, drained.lost), (seen.len() as u64, 0));
        for head in &seen {
            assert_eq!((head.event, head.value), (5, 1));
            assert!(head.cursor > 1000 && head.user_ip != 0 && head.user_sp != 0);
        }
        assert_eq!(seen.last().map(|head| head.cursor), Some(drained.cursor));
        drop(listening);
        let _ = std::fs::remove_dir_all(session);
    }

    fn listen(path: &str) -> File {
        // SAFETY: all zeros is a valid address; the calls read it.
        unsafe {
            let mut address: libc::sockaddr_un = core::mem::zeroed();
            address.sun_family = libc::AF_UNIX as u16;
            for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
                *to = from as libc::c_char;
            }
            let fd = call!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
            let socket = File::from_raw(fd.expect("a socket") as i32);
            let bound = call!(
                libc::SYS_bind,
                socket.raw(),
                &raw const address,
                size_of_val(&address)
            );
            bound.expect("a fresh path");
            call!(libc::SYS_listen, socket.raw(), 8).expect("a socket that listens");
            socket
        }
    }

    #[test]
    fn rings_grow_with_the_rate_within_bounds() {
        assert_eq!(pages_for(1_000_000_000), 16);
        assert_eq!(pages_for(1_000_000), 16);
        assert_eq!(pages_for(250_000), 64);
        assert_eq!(pages_for(1), 128);
        assert_eq!((first_pages(1_000_000), first_pages(1_000)), (4, 16));
    }
}
