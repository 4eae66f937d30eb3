//! A server that answers what is posted to it, for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Answers requests with those, in this order, each on a connection of its own, and gives the lines
/// of their heads. It ends with the process.
pub(super) fn serve(answers: &[&'static str]) -> (String, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (requests, posted) = channel();
    let answers = answers.to_vec();
    thread::spawn(move || {
        for (stream, answer) in listener.incoming().flatten().zip(answers) {
            let mut reader = BufReader::new(&stream);
            let lines = reader.by_ref().lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let length = head.iter().find_map(|line| {
                let line = line.to_ascii_lowercase();
                line.strip_prefix("content-length: ")?.parse().ok()
            });
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = reader.read_exact(&mut body);
            let _ = (&stream).write_all(answer.as_bytes());
            let _ = requests.send(head);
        }
    });
    (address, posted)
}
