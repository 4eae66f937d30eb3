use super::*;
use crate::agent::receiver::Kind;
use crate::test_server::serve;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

#[test]
fn a_folder_is_of_one_service() {
    let name_at = |address: &str, header: (&str, &str), service| {
        let receiver = Receiver {
            kind: Kind::Otlp,
            address: address.into(),
            headers: [(header.0.to_owned(), header.1.to_owned())].into(),
            certificate: None,
            timeout: Duration::ZERO,
        };
        spool_name(&receiver, service)
    };
    let name = |header, service| name_at("http://a", header, service);
    let shop = name(("tenant", "x"), "shop");
    assert!(shop.starts_with("otlp-http___a-"), "{shop}");
    assert_eq!(shop, name(("tenant", "y"), "shop"));
    assert_ne!(shop, name(("token", "x"), "shop"));
    assert_ne!(shop, name(("tenant", "x"), "bank"));
    let long = ["x", "y"].map(|end| "http://a/".to_owned() + &"b".repeat(300) + end);
    let [one, other] = long.map(|address| name_at(&address, ("tenant", "x"), "shop"));
    assert!(one.len() < 200 && one != other, "{one} {other}");
}

const LIMITS: Limits = Limits {
    memory: 100,
    disk: 0,
};

/// A sender with one window for that address, whose token is "old".
fn sender(address: String) -> Sender {
    let sender = sender_to(Kind::Otlp, address);
    sender.push(&window(0));
    sender
}

fn sender_to(kind: Kind, address: String) -> Sender {
    let receiver = Receiver {
        kind,
        address,
        headers: [("token".to_owned(), "old".to_owned())].into(),
        certificate: None,
        timeout: Duration::from_secs(60),
    };
    let prepared = Prepared::new(&receiver, "shop", LIMITS, None, None).unwrap();
    Sender::begin(prepared).unwrap()
}

fn window(from_ns: u64) -> Message {
    Message {
        bytes: [1, 2].into(),
        attributes: Arc::default(),
        from_ns,
        to_ns: from_ns + 1,
    }
}

/// From now on its token is "new".
fn change_token(sender: &mut Sender) {
    let mut receiver = sender.receiver.clone();
    receiver.headers.insert("token".into(), "new".into());
    let prepared = Prepared::new(&receiver, "shop", LIMITS, None, Some(sender)).unwrap();
    sender.change(prepared).unwrap();
}

/// The token of the next request.
fn token(posted: &mpsc::Receiver<Vec<String>>) -> String {
    let head = posted.recv_timeout(Duration::from_secs(60)).unwrap();
    let token = head.iter().find_map(|line| line.strip_prefix("token: "));
    token.unwrap().to_owned()
}

const NOT_NOW: &str =
    "HTTP/1.1 503 No\r\nRetry-After: 300\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
fn what_waits_is_sent_by_new_settings_at_once() {
    let (address, posted) = serve(&[NOT_NOW, TAKEN]);
    let mut sender = sender(address);
    assert_eq!(token(&posted), "old");
    change_token(&mut sender);
    assert_eq!(token(&posted), "new", "it does not rest for 300 s");
    sender.end_by(Instant::now() + Duration::from_secs(60));
    while !sender.is_over() {
        thread::yield_now();
    }
    let state = sender.shared.state();
    assert_eq!((state.counts.taken, state.queue.len()), (1, 0));
}

#[test]
fn settings_that_change_while_a_window_is_sent_are_tried_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = sender(format!("http://{}", listener.local_addr().unwrap()));
    let (mut sent_by_old, _) = listener.accept().unwrap();
    change_token(&mut sender);
    sent_by_old.write_all(NOT_NOW.as_bytes()).unwrap();
    let (sent_by_new, _) = listener.accept().unwrap();
    let mut head = BufReader::new(sent_by_new).lines().map_while(Result::ok);
    assert!(head.any(|line| line == "token: new"));
}

#[test]
fn one_that_a_receiver_fails_on_does_not_hold_up_the_rest() {
    const FAILS: &str =
        "HTTP/1.1 500 No\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let sender = sender_to(Kind::Parca, address);
    (0..3).for_each(|at| sender.push(&window(at)));
    // Closed with what nobody has read, they would lose the answers.
    let mut streams = Vec::new();
    for answer in [FAILS, TAKEN, TAKEN] {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        streams.push(stream);
    }
    // It is tried again, alone.
    let (_stream, _) = listener.accept().unwrap();
    let mut state = sender.shared.state();
    assert_eq!((state.counts.taken, state.counts.refused), (2, 0));
    let (_, left) = state.queue.first().unwrap();
    assert_eq!((state.queue.len(), left.from_ns), (1, 0));
}

#[test]
fn a_receiver_that_asks_for_no_rest_is_not_asked_without_end() {
    let paused = |failures, seconds| pause(failures, Some(Duration::from_secs(seconds)));
    assert_eq!(paused(1, 0), Duration::ZERO);
    assert_eq!(paused(1, 120), Duration::from_secs(120));
    assert_eq!(paused(1, u64::MAX), LONGEST_ASKED);
    assert_eq!(paused(AT_ONCE, 0), Duration::ZERO);
    assert_eq!(paused(AT_ONCE + 1, 0), FIRST_PAUSE);
    assert!(pause(1, None) >= FIRST_PAUSE / 2 && pause(u32::MAX, None) <= LONGEST_PAUSE);
}
