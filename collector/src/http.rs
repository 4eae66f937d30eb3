//! HTTP, as far as those need it who take windows or give profiles.

use crate::resolver::Remembering;
use crate::visible::{Shown, visible};
use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use ureq::Agent;
use ureq::http::uri::InvalidUri;
use ureq::http::{HeaderName, HeaderValue, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;

/// Where machines keep whom they trust.
const TRUSTED: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// How rustls begins to say that a certificate is wrong.
const CERTIFICATE: &str = "invalid peer certificate: ";
/// Of an answer so much is read where nobody needs it, bytes.
pub(crate) const SHORT: u64 = 64 << 10;
/// So much is sent at once, bytes, and so long may a line of a request be ...
const SENT: usize = 64 << 10;
/// ... and so much is read at once of a short answer, whose head may be as long. A connection's
/// buffers are filled with zeros for each one, and by themselves have 256 KB.
const READ: usize = 32 << 10;
/// For so much of a longer one there is room at once.
const AT_ONCE: u64 = 16 << 20;
/// So much of it is shown.
const SHOWN: usize = 200;

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// How long whoever asks again is to wait.
    pub(crate) after: Option<Duration>,
    pub(crate) body: Vec<u8>,
    /// Why that is only its beginning, if it may be.
    pub(crate) cut: Option<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It cannot be asked so.
    Never(String),
    /// Nobody was reached.
    Unreached(String),
    /// It may come another time.
    Later(String),
}

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Client {
    /// For short answers. Connections with other buffers are not shared with it.
    short: Agent,
    long: Agent,
    resolver: Remembering,
}

impl Client {
    /// Trusts those in the file, or those whom the machine trusts.
    ///
    /// # Errors
    /// If the file has none.
    pub(crate) fn new(certificate: Option<&Path>) -> Result<Self, String> {
        let roots = match certificate {
            Some(path) => certificates(path)?,
            None => trusted(),
        };
        let roots = match roots.is_empty() {
            true => RootCerts::WebPki,
            false => RootCerts::new_with_certs(&roots),
        };
        let config = || {
            Agent::config_builder()
                .tls_config(TlsConfig::builder().root_certs(roots.clone()).build())
                .http_status_as_error(false)
                .max_redirects(0)
                .user_agent(concat!("rsunwind/", env!("CARGO_PKG_VERSION")))
        };
        let short = config()
            .input_buffer_size(READ)
            .output_buffer_size(SENT)
            .build();
        let resolver = Remembering::default();
        let agent =
            |config| Agent::with_parts(config, DefaultConnector::default(), resolver.clone());
        Ok(Self {
            short: agent(short),
            long: agent(config().build()),
            resolver,
        })
    }

    /// Sends a body, and gives the answer, of which at most so many bytes are read.
    ///
    /// # Errors
    /// Any [`Failure`].
    pub(crate) fn post(
        &self,
        address: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout: Duration,
        most: u64,
    ) -> Result<Answer, Failure> {
        let agent = match most <= SHORT {
            true => &self.short,
            false => &self.long,
        };
        let request = agent.post(address).config();
        let mut request = request.timeout_global(Some(timeout)).build();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = request.send(body).map_err(|error| match error {
            ureq::Error::Http(error) => Failure::Never(error.to_string()),
            ureq::Error::BadUri(error) => Failure::Never(error),
            error => {
                // It may have moved.
                self.resolver.forget();
                match is_unreached(&error) {
                    true => Failure::Unreached(failure(&error.to_string())),
                    false => Failure::Later(failure(&error.to_string())),
                }
            }
        })?;
        let after = answer.headers().get("Retry-After");
        let after = after.and_then(|after| pause(after.to_str().ok()?.trim(), SystemTime::now()));
        let status = answer.status().as_u16();
        // Else one that is cut looks like a whole one.
        let ends = ["Content-Length", "Transfer-Encoding"];
        let has_end = ends.iter().any(|name| answer.headers().contains_key(*name));
        let length = answer.body().content_length().unwrap_or(0).min(AT_ONCE);
        let mut body = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        let read = answer
            .body_mut()
            .as_reader()
            .take(most)
            .read_to_end(&mut body);
        let cut = match read {
            Err(error) => Some(error.to_string()),
            Ok(_) if body.len() as u64 == most => Some(format!("it is longer than {most} bytes")),
            Ok(_) if !has_end => Some("it does not say where it ends".to_owned()),
            Ok(_) => None,
        };
        Ok(Answer {
            status,
            after,
            body,
            cut,
        })
    }
}

/// What may be shown of an address that is none: without what may be a password.
pub(crate) fn shown(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, host)| host)
}

/// Whether an address and headers are such that a request can be made of them. Otherwise each would
/// fail, and only when there is something to send.
///
/// # Errors
/// What is wrong, without the value of a header, which may be secret.
pub(crate) fn check<'a>(
    address: &str,
    headers: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), String> {
    let wrong = |why: &dyn Display| format!("{} is no address: {why}", shown(address));
    let uri: Uri = address.parse().map_err(|why: InvalidUri| wrong(&why))?;
    let authority = uri.authority().ok_or_else(|| wrong(&"it names no host"))?;
    let has_port = authority.port_u16().is_some() || authority.port().is_none();
    let host = authority.host();
    // What is behind a host and is no port is not in either.
    let is_whole = authority.as_str().len() == host.len() || authority.port().is_some();
    if host.is_empty() || !has_port || !is_whole {
        return Err(wrong(&"give HOST or HOST:PORT"));
    }
    for (name, value) in headers {
        let why = HeaderName::from_bytes(name.as_bytes()).err();
        let why = why.map(|why| why.to_string());
        let why = why.or_else(|| Some(HeaderValue::from_str(value).err()?.to_string()));
        if let Some(why) = why {
            return Err(format!(
                "{address}: the header {name:?} cannot be sent: {why}"
            ));
        }
    }
    Ok(())
}

impl Answer {
    /// Whether it did what was asked.
    pub(crate) const fn is_well(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// The status, and the beginning of the rest.
    pub(crate) fn says(&self) -> String {
        let says = format!("{} {}", self.status, beginning(&self.body));
        says.trim().to_owned()
    }
}

/// As much of a text as is shown of what others say, however long it is.
pub(crate) fn beginning(text: &[u8]) -> String {
    let shown = String::from_utf8_lossy(text.get(..SHOWN).unwrap_or(text));
    visible(shown.trim()).into_owned()
}

/// How long `Retry-After` asks to wait: so many seconds, or until some time.
fn pause(asked: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    // One that has come already by our clock is now.
    Some(until.duration_since(now).unwrap_or_default())
}

/// Whether it came about before anything was sent.
fn is_unreached(error: &ureq::Error) -> bool {
    use io::ErrorKind as Kind;
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::Tls(_) => true,
        ureq::Error::Timeout(during) => {
            matches!(during, ureq::Timeout::Resolve | ureq::Timeout::Connect)
        }
        ureq::Error::Io(error) => {
            let kind = error.kind();
            matches!(
                kind,
                Kind::ConnectionRefused | Kind::HostUnreachable | Kind::NetworkUnreachable
            ) || error.to_string().contains(CERTIFICATE)
        }
        other => other.to_string().contains(CERTIFICATE),
    }
}

/// What an error says, and where it can be helped.
fn failure(why: &str) -> String {
    match why.split_once(CERTIFICATE) {
        Some((_, what)) => format!(
            "its certificate is not to be trusted ({what}): name who has signed it by `certificate`, or SSL_CERT_FILE"
        ),
        None => why.to_owned(),
    }
}

fn trusted() -> Vec<Certificate<'static>> {
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let files = named.into_iter().chain(TRUSTED.map(PathBuf::from));
    let mut found = files.filter_map(|path| certificates(&path).ok());
    found.next().unwrap_or_default()
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.shown()))?;
    let items = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let all: Vec<_> = items.collect();
    match all.is_empty() {
        true => Err(format!("{} has no certificate", path.shown())),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::serve_by_tls;
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn what_may_be_a_password_is_not_shown() {
        for address in [
            "us:secret@h:4318",
            "http://us:sec/ret@h",
            "http://us:se@cret?@h",
        ] {
            assert!(shown(address).starts_with('h'), "{address}");
        }
        assert_eq!(shown("http://h:1/p"), "http://h:1/p");
    }

    #[test]
    fn a_pause_is_so_many_seconds_or_until_some_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let asked = |text| pause(text, now).map(|pause| pause.as_secs());
        assert_eq!(asked("120"), Some(120));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0));
        assert_eq!([asked(""), asked("-1"), asked("soon")], [None; 3]);
    }

    #[test]
    fn what_no_request_can_be_made_of_is_named_and_no_value_is_shown() {
        let address = |address| check(address, std::iter::empty());
        for good in [
            "http://h",
            "https://h:1/p?q",
            "http://[::1]:4318/x",
            "http://[::1]",
        ] {
            assert_eq!(address(good), Ok(()), "{good}");
        }
        for bad in [
            "http://",
            "http://h:99999",
            "http://[::1",
            "http://h h",
            "http://:1",
            "http://h:x",
        ] {
            let why = address(bad).unwrap_err();
            assert!(why.starts_with(&format!("{bad} is no address: ")), "{why}");
        }
        let header = |name, value| check("http://h", [(name, value)].into_iter());
        assert_eq!(header("a", "b c\u{e4}"), Ok(()));
        for (name, value) in [("a", "secret\n"), ("a b", "secret"), ("", "secret")] {
            let why = header(name, value).unwrap_err();
            assert!(why.contains(&format!("{name:?} cannot be sent")), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

    #[test]
    fn what_is_sent_one_after_the_other_has_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            drop(listener); // there is no other
            let mut read = [0; 1024];
            while stream.read(&mut read).is_ok_and(|length| length != 0) {
                let is_whole = read.windows(3).any(|bytes| bytes == b"end");
                if is_whole {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    stream.write_all(answer).unwrap();
                    read.fill(0);
                }
            }
        });
        let client = Client::new(None).unwrap();
        for _ in 0..3 {
            let answer = client.post(&address, &[], b"end", Duration::from_secs(60), SHORT);
            assert_eq!(answer.map(|answer| answer.status), Ok(200));
        }
    }

    #[test]
    fn a_certificate_that_nobody_trusts_is_refused_and_one_that_is_named_is_not() {
        let (address, heads, file) = serve_by_tls(&[OK]);
        let post = |certificate, address: &str| {
            let client = Client::new(certificate).unwrap();
            client.post(address, &[], b"x", Duration::from_secs(60), SHORT)
        };
        let why = |answer| match answer {
            Err(Failure::Unreached(why)) => why,
            other => panic!("{other:?}"),
        };
        let unknown = why(post(None, &address));
        assert!(
            unknown.starts_with("its certificate is not to be trusted (UnknownIssuer): name who"),
            "{unknown}"
        );
        let other = why(post(
            Some(file.path()),
            &address.replace("127.0.0.1", "localhost"),
        ));
        assert!(
            other.contains("not to be trusted (certificate not valid for name"),
            "{other}"
        );
        assert!(heads.try_recv().is_err(), "nothing was said to them");
        assert_eq!(
            post(Some(file.path()), &address).map(|answer| answer.status),
            Ok(200)
        );
        assert_eq!(heads.recv().unwrap()[0], "POST / HTTP/1.1");
        let none = Client::new(Some(Path::new("/dev/null"))).unwrap_err();
        assert_eq!(none, "/dev/null has no certificate");
    }
}
