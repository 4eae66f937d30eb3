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
//!
//! Walks that take longer than the kernel's part are not waited for by all: they are made for
//! several signals each ([`crate::budget`]).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use engine::affordable;
use engine::wire::session::Orders;

/// What is known of samples, for all threads. They write it without regard for each other: of two
/// at once one is forgotten.
#[derive(Debug)]
pub struct Pace {
    /// Sampling period, ns: the shortest pace.
    period_ns: AtomicU64,
    /// What samples may take, of [`affordable::WHOLE`].
    share: AtomicU64,
    /// The kernel's part that cannot be seen, ns.
    unseen_ns: AtomicU64,
    /// The part that can be seen.
    seen: Median,
    /// The handler's.
    handler: Average,
    /// Periods that samples are apart by what they cost.
    periods: AtomicU64,
    /// What the session asks for, packed.
    orders: AtomicU32,
}

/// One sample in so many decides the averages.
const MEMORY: u64 = 16;
/// A value moves the median by this part of it.
const STEP: u64 = 32;
/// A part that took more than this many times its average was put off the processor in between.
/// With more than twice, a quarter of such samples would drive the average ever higher.
const BELIEVABLE: u64 = 2;
/// What is always believed, and all that a first value is, ns.
const FLOOR_NS: u64 = 20_000;

impl Pace {
    /// Before anything is known.
    pub const fn new() -> Self {
        Self {
            period_ns: AtomicU64::new(1_000_000_000),
            share: AtomicU64::new(affordable::QUARTER),
            unseen_ns: AtomicU64::new(0),
            seen: Median::new(),
            handler: Average::new(),
            periods: AtomicU64::new(1),
            orders: AtomicU32::new(0),
        }
    }

    /// Begins with that period. `cost_ns` is what an event costs on this machine, if that is known,
    /// of which `seen_ns` can be seen, or 0.
    pub fn begin(&self, period_ns: u64, share: u64, cost_ns: Option<u64>, seen_ns: u64) {
        let cost_ns = cost_ns.unwrap_or(0);
        let seen_ns = if seen_ns == 0 { cost_ns / 2 } else { seen_ns };
        self.period_ns.store(period_ns, Relaxed);
        self.share.store(share, Relaxed);
        self.unseen_ns
            .store(cost_ns.saturating_sub(seen_ns), Relaxed);
        self.seen.begin(seen_ns);
        self.handler.begin(0);
        self.periods.store(1, Relaxed);
    }

    /// Periods that samples are to be apart.
    pub fn periods(&self) -> u64 {
        let by_cost = self.periods.load(Relaxed);
        by_cost.max(u64::from(self.orders().periods))
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

    /// What the handler may take of each signal that stands for `periods`, ns.
    pub fn allowance_ns(&self, periods: u64) -> u64 {
        let time_ns = self.period_ns.load(Relaxed).saturating_mul(periods);
        affordable::allowance_ns(time_ns, self.share(), self.kernel_ns())
    }

    /// A sample was taken: what was seen of the kernel's part, if it was, and what the handler
    /// took, ns. Gives the pace from now on, if it is another.
    ///
    /// # Signal safety
    /// Atomics and arithmetic only.
    pub fn sampled(&self, seen_ns: Option<u64>, handler_ns: u64) -> Option<u64> {
        if let Some(seen_ns) = seen_ns {
            self.seen.add(seen_ns);
        }
        self.handler.add(handler_ns);
        let kernel_ns = self.kernel_ns();
        let handler_ns = self.handler.get().min(kernel_ns);
        let cost_ns = kernel_ns.saturating_add(handler_ns);
        let wanted =
            |cost_ns| affordable::periods(cost_ns, self.period_ns.load(Relaxed), self.share());
        let now = self.periods.load(Relaxed);
        // Not to and fro: up with some room, down when it is worth while and there is room.
        let is_more = wanted(cost_ns) > now;
        let is_due = is_more || wanted(with_room(cost_ns)) <= now / 2;
        is_due.then(|| {
            let periods = match wanted(cost_ns) {
                1 => 1,
                wanted => with_room(wanted),
            };
            self.periods.store(periods, Relaxed);
            periods
        })
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
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn paced(period_ns: u64, percent: u64) -> Pace {
        let pace = Pace::new();
        pace.begin(
            period_ns,
            percent * affordable::WHOLE / 100,
            Some(12_000),
            4_000,
        );
        pace
    }

    #[test]
    fn samples_that_cost_more_than_they_may_come_less_often() {
        let pace = paced(MS / 10, 25);
        for _ in 0..100 {
            pace.sampled(Some(4_000), 6_000);
        }
        assert_eq!(pace.periods(), 1);
        // In the program at hand the kernel takes three times as long.
        let changes: Vec<u64> = (0..200)
            .filter_map(|_| pace.sampled(Some(30_000), 6_000))
            .collect();
        assert_eq!(changes, [2]);
        assert!((36_900..=39_000).contains(&pace.kernel_ns()));
        // 44 of 200 µs, more or less, are less than a quarter; what is left of it is the handler's.
        assert!((11_000..=13_100).contains(&pace.allowance_ns(2)));
    }

    #[test]
    fn a_small_share_is_kept_and_given_up_again() {
        let pace = paced(MS, 1);
        for _ in 0..200 {
            pace.sampled(Some(20_000), 10_000);
        }
        assert_eq!(pace.periods(), 4);
        for _ in 0..400 {
            pace.sampled(Some(500), 100);
        }
        assert_eq!(pace.periods(), 1);
    }

    #[test]
    fn what_the_session_asks_for_holds_until_it_asks_for_something_else() {
        let pace = paced(MS, 25);
        let asked = |periods, share| Orders { periods, share };
        pace.obey(asked(5, 1000));
        assert_eq!((pace.periods(), pace.share()), (5, 1000));
        // What they cost may make them come more rarely still.
        for _ in 0..200 {
            pace.sampled(Some(60_000), 10_000);
        }
        assert!(pace.periods() > 5, "{pace:?}");
        for _ in 0..400 {
            pace.sampled(Some(500), 100);
        }
        assert_eq!(pace.periods(), 5);
        pace.obey(Orders::default());
        assert_eq!((pace.periods(), pace.share()), (1, affordable::QUARTER));
        let most = asked(Orders::MOST_PERIODS, affordable::WHOLE as u32);
        pace.obey(asked(u32::MAX, most.share));
        assert_eq!(pace.orders(), most);
    }

    #[test]
    fn the_first_one_may_have_been_put_off() {
        // At low rates nobody has measured what an event costs.
        let pace = Pace::new();
        pace.begin(MS, affordable::QUARTER, None, 0);
        let put_off = [Some(8 * MS), None, Some(4_000), None, Some(4 * MS)];
        for seen in put_off {
            assert_eq!(pace.sampled(seen, 6_000), None);
        }
        assert!((4_000..25_000).contains(&pace.seen_ns()), "{pace:?}");
    }

    #[test]
    fn one_that_was_put_off_and_long_walks_change_nothing() {
        let pace = paced(MS / 8, 25);
        for turn in 0..1000 {
            let seen = if turn % 5 >= 3 { 8 * MS } else { 4_000 };
            pace.sampled(Some(seen), 10 * MS);
            assert_eq!(pace.periods(), 1);
        }
    }
}
