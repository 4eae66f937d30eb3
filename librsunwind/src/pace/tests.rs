//! What samples may take, as it is settled.

use super::*;

const MS: u64 = 1_000_000;

fn plainly(period_ns: u64) -> Beginning {
    Beginning {
        period_ns,
        least: 1,
        periods: 1,
    }
}

fn paced(period_ns: u64, percent: u64) -> Pace {
    let (pace, share) = (Pace::new(), percent * affordable::WHOLE / 100);
    pace.begin(plainly(period_ns), share, Some(12_000), 4_000);
    pace
}

impl Pace {
    fn apart_ns(&self) -> u64 {
        self.period_ns.load(Relaxed).saturating_mul(self.periods())
    }

    /// A sample that stands for the time at this pace.
    fn once(&self, kernel_ns: Option<u64>, handler_ns: u64) -> Option<u64> {
        self.sampled(Seen {
            used_ns: self.apart_ns(),
            switches: 0,
            kernel_ns,
            handler_ns,
            frames: Some(0),
            due_ns: handler_ns,
        })
    }
}

#[test]
fn samples_that_cost_more_than_they_may_come_less_often() {
    let pace = paced(MS / 10, 25);
    for _ in 0..100 {
        pace.once(Some(4_000), 6_000);
    }
    assert_eq!(pace.periods(), 1);
    // In the program at hand the kernel takes three times as long.
    let changes: Vec<u64> = (0..200)
        .filter_map(|_| pace.once(Some(30_000), 6_000))
        .collect();
    assert_eq!(changes, [2]);
    assert!((36_900..=39_000).contains(&pace.kernel_ns()));
    // 44 of 200 µs, more or less, are less than a quarter; what is left of it is the handler's.
    assert!((11_000..=13_100).contains(&pace.allowance_ns(2)));
}

#[test]
fn what_samples_without_a_walk_cost_is_seen_and_decides_too() {
    let pace = paced(MS, 1);
    for _ in 0..400 {
        pace.passed(Some(20_000));
    }
    assert!(pace.periods() > 1, "{pace:?}");
}

#[test]
fn a_small_share_is_kept_and_given_up_again() {
    let pace = paced(MS, 1);
    for _ in 0..400 {
        pace.once(Some(20_000), 10_000);
    }
    assert!((3..=5).contains(&pace.periods()), "{pace:?}");
    for _ in 0..400 {
        pace.once(Some(500), 100);
    }
    assert_eq!(pace.periods(), 1);
}

#[test]
fn a_share_that_was_said_is_used_up_and_no_more() {
    for (percent, asked) in [(1, MS), (1, MS / 10), (5, MS / 10), (20, MS / 100)] {
        let share = percent * affordable::WHOLE / 100;
        let (pace, cost) = (Pace::new(), Some(12_000));
        let first = affordable::beginning(asked, share, || cost);
        pace.begin(first, share, cost, 4_000);
        // What was taken of the program before counts, and so does what a thread took.
        let mut taken = 300_000;
        pace.spend(taken);
        let mut used = 0;
        for turn in 0.. {
            used += pace.apart_ns();
            // Here the kernel takes five times what could be seen.
            let handler = if turn % 20 == 0 { 60_000 } else { 6_000 };
            pace.once(Some(20_000), handler);
            taken += 28_000 + handler;
            if used > 1_500 * MS {
                break;
            }
        }
        let of_budget = taken as f64 / (used as f64 * percent as f64 / 100.0);
        assert!(
            (0.9..1.1).contains(&of_budget),
            "{of_budget} of {percent} %, {pace:?}"
        );
    }
}

#[test]
fn switches_are_paid_for_at_their_price() {
    let pace = paced(MS, 1);
    let sample = |switches| {
        let before = pace.owed_ns.load(Relaxed);
        pace.sampled(Seen {
            used_ns: MS,
            switches,
            kernel_ns: None,
            handler_ns: 1_000,
            frames: Some(0),
            due_ns: 1_000,
        });
        pace.owed_ns.load(Relaxed) - before
    };
    let alone = sample(0);
    assert_eq!(sample(50), alone, "no price is known");
    assert!(!pace.counts_switches());
    pace.price_switches(3_000);
    assert!(pace.counts_switches());
    assert_eq!(sample(50), alone + 150_000);
    assert_eq!(sample(5_000), alone + MS as i64, "never more than all");
    pace.obey(Orders {
        share: affordable::QUARTER as u32,
        ..Orders::default()
    });
    assert!(!pace.counts_switches(), "nobody has said a share");
}

#[test]
fn a_thread_is_spared_for_its_switches_alone_and_until_all_is_paid_back() {
    let pace = paced(MS, 1);
    pace.price_switches(3_000);
    assert!(!pace.spares(MS, 50), "nothing is owed");
    pace.spend(4 * MS);
    assert!(pace.is_overdrawn() && !pace.is_paid_back());
    assert!(pace.spares(MS, 50));
    assert!(!pace.spares(MS, 3), "its switches are within the share");
    pace.ended(350 * MS, 0);
    assert!(!pace.spares(MS, 50) && !pace.is_paid_back());
    pace.ended(60 * MS, 0);
    assert!(pace.is_paid_back());
}

#[test]
fn what_cannot_be_paid_back_is_forgiven() {
    let pace = paced(MS, 1);
    assert!(!pace.is_overdrawn());
    for _ in 0..1000 {
        pace.spend(MS);
    }
    assert!(pace.is_overdrawn());
    assert!(pace.allowance_ns(1000) < 1000 * MS / 100 / 10);
    pace.once(Some(20_000), 10_000);
    let slow = pace.periods();
    assert!(slow > 16, "{pace:?}");
    for _ in 0..1000 {
        pace.once(Some(20_000), 10_000);
    }
    assert!(pace.periods() < 6 && !pace.is_overdrawn(), "{pace:?}");
    pace.spend(100 * MS);
    pace.ended(20_000 * MS, 0);
    assert!(!pace.is_overdrawn());
}

#[test]
fn what_the_session_asks_for_holds_until_it_asks_for_something_else() {
    let pace = paced(MS, 25);
    let asked = |periods, share| Orders { periods, share };
    pace.obey(asked(5, 1000));
    assert_eq!((pace.periods(), pace.share()), (5, 1000));
    // What they cost may make them come more rarely still.
    for _ in 0..200 {
        pace.once(Some(60_000), 10_000);
    }
    assert!(pace.periods() > 5, "{pace:?}");
    for _ in 0..400 {
        pace.once(Some(500), 100);
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
    pace.begin(plainly(MS), affordable::QUARTER, None, 0);
    let put_off = [Some(8 * MS), None, Some(4_000), None, Some(4 * MS)];
    for seen in put_off {
        assert_eq!(pace.once(seen, 6_000), None);
    }
    assert!((4_000..25_000).contains(&pace.seen_ns()), "{pace:?}");
}

#[test]
fn one_that_was_put_off_and_long_walks_change_nothing() {
    let pace = paced(MS / 8, 25);
    for turn in 0..1000 {
        let seen = if turn % 5 >= 3 { 8 * MS } else { 4_000 };
        pace.once(Some(seen), 10 * MS);
        assert_eq!(pace.periods(), 1);
    }
}

#[test]
fn what_a_handler_waits_for_memory_the_program_does_twice() {
    let sample = |pace: &Pace, handler_ns, frames| {
        pace.sampled(Seen {
            used_ns: pace.apart_ns(),
            switches: 0,
            kernel_ns: Some(100_000),
            handler_ns,
            frames: Some(frames),
            due_ns: handler_ns,
        });
    };
    let displaced = |percent, handler_ns, frames| {
        let pace = paced(MS, percent);
        for _ in 0..400 {
            sample(&pace, handler_ns, frames);
        }
        pace.displaced_ns()
    };
    let cold_ns = displaced(1, 3 * WORK_NS, 0);
    assert!(cold_ns > 3 * WORK_NS && cold_ns <= 4 * WORK_NS);
    for (percent, handler_ns, frames) in [
        (1, WORK_NS, 0),
        (1, 3 * WORK_NS, 2 * WORK_NS / FRAME_NS),
        // Nobody has said a share.
        (25, 3 * WORK_NS, 0),
    ] {
        assert_eq!(displaced(percent, handler_ns, frames), 0);
    }
    // A slow walk is no cold one.
    assert!(displaced(1, 10 * MS, 0) <= 100_000 + 8_000);
}
