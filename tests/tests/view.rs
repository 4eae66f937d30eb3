//! `rsunwind view` from outside: what a browser would get, and others would not.

use rsunwind_tests::command::{BUSY, Bench, output, rsunwind, status, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A page that is served, until it is dropped.
struct Served {
    child: Child,
    host: String,
    path: String,
}

impl Served {
    fn of(bench: &Bench, file: &str) -> Self {
        let mut command = Command::new(rsunwind());
        command.current_dir(bench.path("")).args(["view", file]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("http://").expect(&line);
        let (host, path) = address.split_once('/').unwrap();
        let (host, path) = (host.to_owned(), format!("/{path}"));
        Self { child, host, path }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        text(&answer)
    }

    fn get(&self, path: &str, host: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_recording_is_served_to_whoever_has_the_address() {
    let bench = Bench::new();
    let program = bench.compile("gcc", &["-O1"], BUSY);
    assert_eq!(status(bench.record(&["-q"]).arg(program)), 3);
    let mut export = Command::new(rsunwind());
    let export = export.current_dir(bench.path(""));
    let exported = output(export.args(["export", "profile.rsu", "-o", "page.html"]));
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let page = fs::read_to_string(bench.path("page.html")).unwrap();
    for file in ["profile.rsu", "page.html"] {
        let served = Served::of(&bench, file);
        assert!(served.host.starts_with("127.0.0.1:"), "{}", served.host);
        // A connection that says nothing keeps nobody else waiting.
        let _silent = TcpStream::connect(&served.host).unwrap();
        let answer = served.get(&served.path, &served.host);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("frame-ancestors 'none'"), "{head}");
        assert_eq!(body, page, "{file}");
        let other = served.get("/0123456789abcdef0123456789abcdef/", &served.host);
        assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
        let other = served.get(&served.path, "evil.example");
        assert!(other.starts_with("HTTP/1.1 403 "), "{other}");
        let other = served.ask("\0\0\0\0");
        assert!(other.starts_with("HTTP/1.1 400 "), "{other}");
    }
    let addresses = [0, 1].map(|_| Served::of(&bench, "page.html").path.clone());
    assert!(addresses[0].len() > 32 && addresses[0] != addresses[1]);
}

#[test]
fn what_cannot_be_served_is_told() {
    let bench = Bench::new();
    for file in ["missing.rsu", "missing.html"] {
        let mut command = Command::new(rsunwind());
        let result = output(command.current_dir(bench.path("")).args(["view", file]));
        assert_eq!(result.status.code(), Some(1));
        assert!(text(&result.stderr).contains(file), "{file}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = Command::new(rsunwind());
    let result = output(command.args(["view", "-P", &port, "any.html"]));
    assert_eq!(result.status.code(), Some(1));
    let told = text(&result.stderr);
    assert!(told.contains(&port) && told.contains("-P"), "{told}");
}
