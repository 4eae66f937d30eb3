//! A program that says what it does, by labels of regions.

use rsunwind::regions::{Label, Region};
use std::hint::black_box;
use std::time::Duration;

fn spin(time: Duration) {
    let clock = || {
        let now = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now();
        Duration::from(now.expect("a thread has a clock"))
    };
    let until = clock() + time;
    while clock() < until {
        (0..2000).for_each(|step| _ = black_box(step));
    }
}

#[inline(never)]
fn in_request() {
    spin(Duration::from_millis(40));
    black_box("in_request");
}

#[inline(never)]
fn in_query() {
    spin(Duration::from_millis(40));
    black_box("in_query");
}

#[inline(never)]
fn behind() {
    spin(Duration::from_millis(40));
    black_box("behind");
}

fn main() {
    let serve = |number: usize| {
        let number = number.to_string();
        {
            let _request = Region::begin(&[Label::new("request", &number)]);
            in_request();
            let query = Region::begin(&[Label::new("table", "users")]);
            in_query();
            drop(query);
        }
        behind();
    };
    std::thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(move || serve(number));
        }
    });
}
