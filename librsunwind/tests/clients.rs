//! A Rust program that uses the crate alone, with no library preloaded or linked: the broker is its
//! own. One test: the broker is the process's, and tests of one binary share it.
#![allow(unsafe_code, reason = "callbacks are given plain pointers, as in C")]

use rsunwind::clients::{Client, Error, Stack, api};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

#[derive(Default)]
struct Seen {
    calls: AtomicUsize,
    nonce: AtomicU64,
    shows_asker: AtomicUsize,
}

unsafe extern "C" fn note(stack: *const Stack, nonce: u64, data: *mut c_void) {
    // SAFETY: what the test registered, and the stack of the entry.
    let (seen, stack) = unsafe { (&*data.cast::<Seen>(), &*stack) };
    seen.calls.fetch_add(1, SeqCst);
    seen.nonce.store(nonce, SeqCst);
    let asker = asker as *const () as u64;
    let shows = |pc: u64| (asker..asker + 512).contains(&pc);
    let shown = stack.frames().iter().any(|frame| shows(frame.pc.0));
    seen.shows_asker
        .fetch_add(usize::from(shown && stack.stop == 0), SeqCst);
}

#[inline(never)]
fn asker(client: &Client) -> u64 {
    let asked = client.request().unwrap();
    assert!(!asked.already);
    std::hint::black_box(asked.nonce)
}

#[test]
fn a_program_that_is_not_recorded_has_clients_of_its_own() {
    let seen: &'static Seen = Box::leak(Box::default());
    let data = std::ptr::from_ref(seen).cast_mut().cast();
    // SAFETY: the callback does what a signal handler may, and `seen` stays.
    let register = || unsafe { Client::register(note, data) };
    let client = register().unwrap();
    assert_ne!(asker(&client), 0);
    let nonce = asker(&client);
    assert_eq!(
        (seen.calls.load(SeqCst), seen.nonce.load(SeqCst)),
        (2, nonce)
    );

    let others: Vec<Client> = (1..62).map(|_| register().unwrap()).collect();
    assert_eq!(register().unwrap_err(), Error::Full);
    others
        .into_iter()
        .for_each(|other| other.unregister().unwrap());

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| assert_ne!(asker(&client), 0)));
        }
    });
    assert_eq!(seen.calls.load(SeqCst), 4002);
    assert_eq!(seen.shows_asker.load(SeqCst), 4002);
    let counts = api::counts();
    assert_eq!((counts.requests, counts.callbacks), (4002, 4002));
    assert_eq!((counts.entries, counts.unwinds), (4002, 4002));

    let other = register().unwrap();
    let later = client.request_later().unwrap();
    assert_eq!((api::nonce(), later.already), (Ok(later.nonce), false));
    assert_eq!(seen.calls.load(SeqCst), 4002, "not yet");
    let both = api::request_all(&[&client, &other]).unwrap();
    assert_eq!((both.nonce, both.already), (later.nonce, false));
    assert_eq!(seen.calls.load(SeqCst), 4004);
    assert_eq!(api::counts().unwinds, 4003);
    client.request_later().unwrap();
    api::answer().unwrap();
    assert_eq!(seen.calls.load(SeqCst), 4005);
    assert_eq!(api::request_all(&[]), Err(Error::Null));
    other.unregister().unwrap();
    client.unregister().unwrap();

    let mut found = [0; 64];
    let count = api::backtrace(&mut found).unwrap();
    let here = a_program_that_is_not_recorded_has_clients_of_its_own as *const () as usize;
    assert!(
        count > 5 && found[0].wrapping_sub(here) < 8192,
        "{found:x?}"
    );
}
