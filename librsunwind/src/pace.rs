//! How far samples are apart in this process: what one really costs is seen at each, and where that
//! is more than it may be they come at several periods each.
//!
//! A period stays the unit of all weights, which come from the thread's CPU clock: a sample that
//! stands for several says so. A thread changes to another pace by being armed anew
//! ([`crate::thread`]).
//!
//! What a sample costs:
//!
//! | | |
//! |---|---|
//! | from the event's sample to the handler's walk: the rest of the interrupt, the signal's delivery | seen here: the sample has its time, where it was taken in user mode and the thread has not got on since; for one taken while the handler ran, from that one's end |
//! | the handler, to its end | seen here |
//! | before and after that: the interrupt's entry, the way back | what the event costs on this machine, without what can be seen of it |
//! | what it displaced from the caches | estimated by what of it the handler had to fetch |
//! | the event, at each context switch | counted by the kernel, at its price, if a share was said |
//!
//! Walks that take longer than the kernel's part are not waited for by all: they are made for
//! several signals each ([`crate::budget`]).
//!
//! Where somebody has said what samples may take, there is an account beside these prices: what the
//! process is allowed by the CPU time that it uses, and what was taken of it, the preparation of
//! the program and of its threads included. What is owed makes samples rarer until it is paid back.
//! That makes context switches no cheaper: a thread whose switches alone take more than they may
//! has a timer until all is paid back, which costs nothing at a switch.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use engine::affordable::{self, Beginning};
use engine::wire::offer::MOST_PERIODS;
use engine::wire::session::Orders;

/// What is known of samples, for all threads. They write it without regard for each other: of two
/// at once one is forgotten.
#[derive(Debug)]
pub struct Pace {
    /// Sampling period, ns: the unit of weights.
    period_ns: AtomicU64,
    /// So many are the shortest pace.
    least: AtomicU64,
    /// What samples may take, of [`affordable::WHOLE`].
    share: AtomicU64,
    /// The kernel's part that cannot be seen, ns.
    unseen_ns: AtomicU64,
    /// What an event adds to a context switch of its thread, ns; 0 where that is not counted.
    switch_ns: AtomicU64,
    /// The part that can be seen.
    seen: Median,
    /// The handler's.
    handler: Average,
    /// What of that it waited for memory.
    fetched: Average,
    /// Periods that samples are apart by what they cost.
    periods: AtomicU64,
    /// What was taken and not allowed, ns.
    owed_ns: AtomicI64,
    /// What the session asks for, packed.
    orders: AtomicU32,
}

/// A sample, as far as it was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// CPU time that the thread has used since its last one, ns.
    pub used_ns: u64,
    /// Context switches that its event has taken part in since then.
    pub switches: u64,
    /// What was seen of the kernel's part, if it was.
    pub kernel_ns: Option<u64>,
    /// What the handler took.
    pub handler_ns: u64,
    /// How many frames it walked anew, if nothing else took it time that is not known.
    pub frames: Option<u64>,
    /// What is to be put to the account: what the one before took, so that a long walk is paid for
    /// by the time that it is made for.
    pub due_ns: u64,
}

/// What is owed is paid back in about so much CPU time.
const PAID_BACK_NS: u64 = 250_000_000;
/// No more is owed than is paid back in so many times that: the rest is forgiven, and said by the
/// summary alone. The start of some thousand threads is not.
const MOST_OWED: u64 = 40;
/// So much of it may be saved for later.
const MOST_SAVED: u64 = 4;
/// The pace changes when it is off by more than this part of it: an event that another takes the
/// place of goes on for a while.
const OFF: u64 = 8;

/// One sample in so many decides the averages.
const MEMORY: u64 = 16;
/// A value moves the median by this part of it.
const STEP: u64 = 32;
/// A part that took more than this many times its average was put off the processor in between.
/// With more than twice, a quarter of such samples would drive the average ever higher.
const BELIEVABLE: u64 = 2;
/// So long the handler takes in programs that leave it the caches, ns, and for each frame.
const WORK_NS: u64 = 6_000;
const FRAME_NS: u64 = 30;
/// So much more than the handler fetches the program has to: the kernel's part displaces more than
/// the handler's. `tests/budget_samples` shows both.
const DISPLACED: u64 = 2;
/// What is always believed, and all that a first value is, ns.
const FLOOR_NS: u64 = 20_000;

impl Pace {
    /// Before anything is known.
    pub const fn new() -> Self {
        Self {
            period_ns: AtomicU64::new(1_000_000_000),
            least: AtomicU64::new(1),
            share: AtomicU64::new(affordable::QUARTER),
            unseen_ns: AtomicU64::new(0),
            switch_ns: AtomicU64::new(0),
            seen: Median::new(),
            handler: Average::new(),
            fetched: Average::new(),
            periods: AtomicU64::new(1),
            owed_ns: AtomicI64::new(0),
            orders: AtomicU32::new(0),
        }
    }

    /// Begins so. `cost_ns` is what an event costs on this machine, if that is known, of which
    /// `seen_ns` can be seen, or 0.
    pub fn begin(&self, first: Beginning, share: u64, cost_ns: Option<u64>, seen_ns: u64) {
        let cost_ns = cost_ns.unwrap_or(0);
        let seen_ns = if seen_ns == 0 { cost_ns / 2 } else { seen_ns };
        self.period_ns.store(first.period_ns, Relaxed);
        self.least.store(first.least, Relaxed);
        self.periods.store(first.periods, Relaxed);
        self.share.store(share, Relaxed);
        self.unseen_ns
            .store(cost_ns.saturating_sub(seen_ns), Relaxed);
        self.seen.begin(seen_ns);
        self.handler.begin(0);
        self.fetched.begin(0);
        self.forgive();
    }

    /// An event costs that at each context switch, ns.
    pub fn price_switches(&self, switch_ns: u64) {
        self.switch_ns.store(switch_ns, Relaxed);
    }

    /// Whether context switches are to be counted: they are known to cost something, and somebody
    /// has said what samples may take.
    pub fn counts_switches(&self) -> bool {
        self.switch_ns.load(Relaxed) > 0 && affordable::is_exact(self.share())
    }

    /// Whether a thread is to have no event because of so many context switches in that CPU time of
    /// its: they alone take more than samples may, and that cannot be paid back in a moment.
    pub fn spares(&self, used_ns: u64, switches: u64) -> bool {
        let may_take = part(used_ns, self.share(), affordable::WHOLE);
        self.switches_ns(used_ns, switches) > may_take && self.is_overdrawn()
    }

    /// What so many context switches took of that CPU time, ns; never more than all.
    pub fn switches_ns(&self, used_ns: u64, switches: u64) -> u64 {
        let each = self.switch_ns.load(Relaxed);
        switches.saturating_mul(each).min(used_ns)
    }

    /// Whether nothing is owed.
    pub fn is_paid_back(&self) -> bool {
        self.owed_ns.load(Relaxed) <= 0
    }

    /// Periods that samples are to be apart.
    pub fn periods(&self) -> u64 {
        let by_cost = self.periods.load(Relaxed);
        let asked = u64::from(self.orders().periods).saturating_mul(self.least());
        by_cost.max(asked).min(MOST_PERIODS)
    }

    /// Of how many periods the one asked for is: samples are never less apart.
    pub fn least(&self) -> u64 {
        self.least.load(Relaxed)
    }

    /// What samples may take, of [`affordable::WHOLE`].
    pub fn share(&self) -> u64 {
        match self.orders().share {
            0 => self.share.load(Relaxed),
            share => u64::from(share),
        }
    }

    /// The session asks for this from now on.
    ///
    /// # Signal safety
    /// A store.
    pub fn obey(&self, orders: Orders) {
        self.orders.store(orders.pack(), Relaxed);
    }

    fn orders(&self) -> Orders {
        Orders::unpack(self.orders.load(Relaxed))
    }

    /// The kernel's part of a sample, ns.
    pub fn kernel_ns(&self) -> u64 {
        let unseen = self.unseen_ns.load(Relaxed);
        self.seen.get().saturating_add(unseen)
    }

    /// What was mostly seen of that, ns.
    pub fn seen_ns(&self) -> u64 {
        self.seen.get()
    }

    /// What the handler may take of each signal that stands for `periods`, ns; what is owed is not
    /// its.
    pub fn allowance_ns(&self, periods: u64) -> u64 {
        let time_ns = self.period_ns.load(Relaxed).saturating_mul(periods);
        let (all, owed) = self.as_if_owed();
        let time_ns = match owed > all {
            true => part(time_ns, all, owed),
            false => time_ns,
        };
        affordable::allowance_ns(time_ns, self.share(), self.kernel_ns())
    }

    /// This was taken of the account, ns.
    ///
    /// # Signal safety
    /// Atomics and arithmetic only.
    pub fn spend(&self, ns: u64) {
        self.settle(0, ns);
    }

    /// A thread ends that has used so much CPU time since its last sample, ns, and has not paid for
    /// that one, nor for its context switches since.
    pub fn ended(&self, used_ns: u64, due_ns: u64) {
        self.settle(used_ns, due_ns);
    }

    /// Nothing is owed: of a process that begins.
    pub fn forgive(&self) {
        self.owed_ns.store(0, Relaxed);
    }

    /// Whether more than is paid back in a moment was taken already.
    pub fn is_overdrawn(&self) -> bool {
        let (all, owed) = self.as_if_owed();
        affordable::is_exact(self.share()) && owed > all.saturating_mul(2)
    }

    fn settle(&self, used_ns: u64, spent_ns: u64) {
        let paid_back = paid_back_ns(self.share());
        let [saved, most, allowed, spent] = [
            paid_back / MOST_SAVED,
            paid_back.saturating_mul(MOST_OWED),
            part(used_ns, self.share(), affordable::WHOLE),
            spent_ns,
        ]
        .map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let owed = self.owed_ns.load(Relaxed);
        let owed = owed.saturating_add(spent).saturating_sub(allowed);
        self.owed_ns.store(owed.min(most).max(-saved), Relaxed);
    }

    /// By which part samples are to be rarer: the second of the first.
    fn as_if_owed(&self) -> (u64, u64) {
        let all = paid_back_ns(self.share()).max(1);
        (all, all.saturating_add_signed(self.owed_ns.load(Relaxed)))
    }

    /// A sample was taken for which no walk is made: the next one's stands for it. `seen_ns` is
    /// what was seen of the kernel's part, if it was.
    ///
    /// # Signal safety
    /// Atomics and arithmetic only.
    pub fn passed(&self, seen_ns: Option<u64>) {
        self.see(seen_ns);
        self.spend(self.kernel_ns().saturating_add(self.displaced_ns()));
        self.decide();
    }

    /// A sample was taken. Gives the pace from now on, if it is another.
    ///
    /// # Signal safety
    /// Atomics and arithmetic only.
    pub fn sampled(&self, seen: Seen) -> Option<u64> {
        self.see(seen.kernel_ns);
        self.handler.add(seen.handler_ns);
        if let Some(frames) = seen.frames {
            self.fetched.add(fetched_ns(seen.handler_ns, frames));
        }
        let switches_ns = self.switches_ns(seen.used_ns, seen.switches);
        let taken_ns = self.kernel_ns().saturating_add(seen.due_ns);
        let taken_ns = taken_ns.saturating_add(self.displaced_ns());
        let taken_ns = taken_ns.saturating_add(switches_ns);
        self.settle(seen.used_ns, taken_ns);
        self.decide()
    }

    fn see(&self, seen_ns: Option<u64>) {
        if let Some(seen_ns) = seen_ns {
            self.seen.add(seen_ns);
        }
    }

    /// What a sample makes the program itself take more, if a share was said: it finds what it used
    /// displaced. That is [`DISPLACED`] times what the handler took to fetch its own, but a walk
    /// that takes longer than the kernel is a slow one for other reasons.
    fn displaced_ns(&self) -> u64 {
        match affordable::is_exact(self.share()) {
            true => self.fetched.get().saturating_mul(DISPLACED),
            false => 0,
        }
        .min(self.kernel_ns())
    }

    fn decide(&self) -> Option<u64> {
        let kernel_ns = self.kernel_ns();
        let handler_ns = self.handler.get().min(kernel_ns);
        let cost_ns = kernel_ns.saturating_add(handler_ns);
        let cost_ns = cost_ns.saturating_add(self.displaced_ns());
        let next = match affordable::is_exact(self.share()) {
            true => self.next_exact(cost_ns),
            false => self.next(cost_ns),
        };
        next.inspect(|periods| self.periods.store(*periods, Relaxed))
    }

    fn wanted(&self, cost_ns: u64) -> u64 {
        affordable::periods(cost_ns, self.period_ns.load(Relaxed), self.share())
    }

    /// The pace at which samples take what they may, with what is owed; `None`: as it is.
    fn next_exact(&self, cost_ns: u64) -> Option<u64> {
        let (all, owed) = self.as_if_owed();
        let wanted = self.wanted(part(cost_ns, owed, all));
        let wanted = wanted.max(self.least()).min(MOST_PERIODS);
        let now = self.periods.load(Relaxed);
        (wanted.abs_diff(now).saturating_mul(OFF) > now).then_some(wanted)
    }

    /// One at which they take no more than a share that nobody has asked for.
    fn next(&self, cost_ns: u64) -> Option<u64> {
        let now = self.periods.load(Relaxed);
        // Not to and fro: up with some room, down when it is worth while and there is room.
        let wanted = self.wanted(cost_ns);
        let is_due = wanted > now || self.wanted(with_room(cost_ns)) <= now / 2;
        is_due.then(|| match wanted {
            1 => 1,
            wanted => with_room(wanted),
        })
    }
}

/// What of the handler's time was none of its work, which takes so little where all is at hand.
const fn fetched_ns(handler_ns: u64, frames: u64) -> u64 {
    let work_ns = frames.saturating_mul(FRAME_NS);
    let work_ns = work_ns.saturating_add(WORK_NS);
    handler_ns.saturating_sub(work_ns)
}

/// What samples may take of the time in which what is owed is paid back, ns.
const fn paid_back_ns(share: u64) -> u64 {
    part(PAID_BACK_NS, share, affordable::WHOLE)
}

/// As many of `whole` as are `some` of `all`: of times below 50 hours of CPU, and of shares, the
/// product is a number of 64 bits.
const fn part(whole: u64, some: u64, all: u64) -> u64 {
    match whole.saturating_mul(some).checked_div(all) {
        Some(part) => part,
        None => u64::MAX,
    }
}

const fn with_room(value: u64) -> u64 {
    value.saturating_add(value / 8)
}

/// What something takes mostly, ns: more than one half of the values and less than the other. A
/// thread that is put off the processor between a sample and its signal, or a guest whose
/// interrupts come late, makes some values many times too large, and those were not taken from the
/// program.
#[derive(Debug)]
struct Median(AtomicU64);

impl Median {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn begin(&self, value_ns: u64) {
        self.0.store(value_ns, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// A step towards it, as far each way: where it stays, as many are above as below. It begins
    /// with the first value, which is one of those that are too large as likely as any other.
    fn add(&self, value_ns: u64) {
        let now = self.get();
        let step = (now / STEP).saturating_add(STEP);
        let next = match value_ns > now {
            true if now == 0 => value_ns.min(FLOOR_NS),
            true => now.saturating_add(step),
            false => now.saturating_sub(step),
        };
        // 0 says that nothing is known.
        self.0.store(next.max(1), Relaxed);
    }
}

/// What something takes on the average, ns: so many times that, as all that came before counts a
/// little less each time.
#[derive(Debug)]
struct Average(AtomicU64);

impl Average {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn begin(&self, value_ns: u64) {
        self.0.store(value_ns.saturating_mul(MEMORY), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed) / MEMORY
    }

    fn add(&self, value_ns: u64) {
        let before = self.get();
        let believable = before.saturating_mul(BELIEVABLE).max(FLOOR_NS);
        let sum = self.0.load(Relaxed).saturating_sub(before);
        let sum = sum.saturating_add(value_ns.min(believable));
        self.0.store(sum, Relaxed);
    }
}

#[cfg(test)]
mod tests;
