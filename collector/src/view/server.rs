//! One page over HTTP/1.1: a request for each connection, answered by a thread of its own.
//!
//! A page of another site must not get at it even if it makes its own name lead here, so the host
//! that is asked for must be this machine.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The longest request that is read, bytes.
const LONGEST: usize = 16 << 10;
/// How long a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// More at once are closed.
const MOST: usize = 32;

/// Serves the page at `/token/` for ever.
///
/// # Errors
/// If no more connections can be taken; those of single connections end these.
pub(super) fn serve(listener: &TcpListener, token: &str, page: Vec<u8>) -> io::Result<()> {
    let served = Arc::new((format!("/{token}/"), page));
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if is_of_connection(&error) => continue,
            Err(error) => return Err(error),
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MOST {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (served, open) = (served.clone(), open.clone());
        thread::spawn(move || {
            // Whoever went away does not want an answer.
            let _ = converse(stream, &served.0, &served.1);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Whether an error is that of one connection that went away again.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

fn converse(mut stream: TcpStream, path: &str, page: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    let answer = loop {
        let read = stream.read(&mut buffer)?;
        request.extend_from_slice(&buffer[..read]);
        match answer_to(&request, path) {
            None if read == 0 => return Ok(()),
            None if request.len() > LONGEST => break Answer::Malformed,
            None => {}
            Some(answer) => break answer,
        }
    };
    let body = match answer {
        Answer::Page { .. } => page,
        _ => answer.status().as_bytes(),
    };
    write!(
        stream,
        "HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n{HEADERS}\r\n",
        answer.status(),
        if matches!(answer, Answer::Page { .. }) {
            "text/html"
        } else {
            "text/plain"
        },
        body.len(),
    )?;
    if answer != (Answer::Page { whole: false }) {
        stream.write_all(body)?;
    }
    stream.flush()
}

/// No other site may show it in itself, and nobody keeps it.
const HEADERS: &str = "Connection: close\r\nCache-Control: no-store\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
    Content-Security-Policy: frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// With it, or only what there is to say of it.
    Page {
        whole: bool,
    },
    Malformed,
    OtherHost,
    Nothing,
    OtherMethod,
}

impl Answer {
    const fn status(self) -> &'static str {
        match self {
            Self::Page { .. } => "200 OK",
            Self::Malformed => "400 Bad Request",
            Self::OtherHost => "403 Forbidden",
            Self::Nothing => "404 Not Found",
            Self::OtherMethod => "405 Method Not Allowed",
        }
    }
}

/// What is answered; `None` as long as the request is not whole.
fn answer_to(request: &[u8], path: &str) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some(Answer::Malformed),
    }
    let mut hosts = head.headers.iter();
    let host = hosts.find(|header| header.name.eq_ignore_ascii_case("host"));
    if !host.is_some_and(|host| is_here(host.value)) {
        return Some(Answer::OtherHost);
    }
    if head.path != Some(path) {
        return Some(Answer::Nothing);
    }
    Some(match head.method {
        Some("GET") => Answer::Page { whole: true },
        Some("HEAD") => Answer::Page { whole: false },
        _ => Answer::OtherMethod,
    })
}

/// Whether a host is this machine; the port may be that of a tunnel.
fn is_here(host: &[u8]) -> bool {
    let host = String::from_utf8_lossy(host);
    let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
    matches!(name, "127.0.0.1" | "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &str) -> Option<Answer> {
        answer_to(request.as_bytes(), "/secret/")
    }

    #[test]
    fn only_whoever_knows_the_address_gets_the_page() {
        let page = |whole| Some(Answer::Page { whole });
        let get =
            |path: &str, host: &str| answer(&format!("GET {path} HTTP/1.1\r\n{host}\r\n\r\n"));
        assert_eq!(get("/secret/", "Host: 127.0.0.1:8000"), page(true));
        assert_eq!(get("/secret/", "host: localhost"), page(true));
        for path in [
            "/",
            "/secret",
            "/secret/x",
            "/Secret/",
            "//secret/",
            "/secret/?",
        ] {
            assert_eq!(
                get(path, "Host: 127.0.0.1:1"),
                Some(Answer::Nothing),
                "{path}"
            );
        }
        for host in [
            "Host: evil.example",
            "Host: 127.0.0.1.evil.example:8000",
            "Accept: */*",
        ] {
            assert_eq!(get("/secret/", host), Some(Answer::OtherHost), "{host}");
        }
        let other = |method| {
            answer(&format!(
                "{method} /secret/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
            ))
        };
        assert_eq!(other("HEAD"), page(false));
        assert_eq!(other("POST"), Some(Answer::OtherMethod));
    }

    #[test]
    fn what_is_no_request_is_told_from_what_is_not_whole() {
        let whole = "GET /secret/ HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length]), None, "{length}");
        }
        for wrong in [
            "\0",
            "GET\r\n\r\n",
            "GET / HTTP/9\r\n\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert_eq!(answer(wrong), Some(Answer::Malformed), "{wrong:?}");
        }
        let many = "a: b\r\n".repeat(101);
        let many = format!("GET /secret/ HTTP/1.1\r\n{many}\r\n");
        assert_eq!(answer(&many), Some(Answer::Malformed));
    }
}
