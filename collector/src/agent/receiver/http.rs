//! HTTP, as far as receivers need it.

use super::Outcome;
use crate::visible::{Shown, visible};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Where machines keep whom they trust.
const TRUSTED: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// Of an answer so much is read, bytes.
const LONGEST_ANSWER: u64 = 64 << 10;
/// So much of it is shown.
const SHOWN: usize = 200;

/// Connections to one receiver.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
}

impl Client {
    /// Trusts those in the file, or those whom the machine trusts.
    ///
    /// # Errors
    /// If the file has none.
    pub(super) fn new(certificate: Option<&Path>) -> Result<Self, String> {
        let roots = match certificate {
            Some(path) => certificates(path)?,
            None => trusted(),
        };
        let roots = match roots.is_empty() {
            true => RootCerts::WebPki,
            false => RootCerts::new_with_certs(&roots),
        };
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("rsunwind/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            agent: config.new_agent(),
        })
    }

    /// Sends a body, and gives what became of it and the beginning of the answer.
    pub(super) fn post(
        &self,
        address: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout: Duration,
    ) -> (Outcome, Vec<u8>) {
        let request = self.agent.post(address).config();
        let mut request = request.timeout_global(Some(timeout)).build();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(ureq::Error::Http(error)) => {
                return (Outcome::Refused(error.to_string()), Vec::new());
            }
            Err(error) => return (Outcome::Later(error.to_string(), None), Vec::new()),
        };
        let status = answer.status().as_u16();
        let after = answer.headers().get("Retry-After");
        let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let after = after.map(Duration::from_secs);
        let text = answer.body_mut().with_config().limit(LONGEST_ANSWER);
        let text = text.read_to_vec().unwrap_or_default();
        let shown = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned();
        let says = format!("{status} {}", visible(shown.trim()))
            .trim()
            .to_owned();
        let outcome = match status {
            200..=299 => Outcome::Taken(None),
            408 | 429 | 500.. => Outcome::Later(says, after),
            _ => Outcome::Refused(says),
        };
        (outcome, text)
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
