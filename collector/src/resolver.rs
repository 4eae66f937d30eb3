//! Where hosts are, asked for once in a while: a window may take several requests, for each of
//! which a thread would be started that asks.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::http::uri::{Authority, Scheme};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// So long is an answer believed.
const BELIEVED: Duration = Duration::from_secs(60);

/// Remembers where the last host is; copies share that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembering(Arc<Mutex<Option<Known>>>);

#[derive(Debug)]
struct Known {
    host: (Option<Scheme>, Option<Authority>),
    addresses: Vec<SocketAddr>,
    since: Instant,
}

impl Remembering {
    /// Asks anew the next time: it was not reached where it was.
    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        // Nothing is left half done by who panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver for Remembering {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = (uri.scheme().cloned(), uri.authority().cloned());
        if let Some(known) = &*self.lock()
            && known.host == host
            && known.since.elapsed() < BELIEVED
        {
            let mut addresses = self.empty();
            for address in &known.addresses {
                addresses.push(*address);
            }
            return Ok(addresses);
        }
        let addresses = match stated(uri) {
            Some(address) => {
                let mut addresses = self.empty();
                addresses.push(address);
                addresses
            }
            None => DefaultResolver::default().resolve(uri, config, timeout)?,
        };
        *self.lock() = Some(Known {
            host,
            addresses: addresses.to_vec(),
            since: Instant::now(),
        });
        Ok(addresses)
    }
}

/// The address that is there in place of a host's name, for which nobody needs to be asked.
fn stated(uri: &Uri) -> Option<SocketAddr> {
    let host = uri.host()?.trim_matches(['[', ']']);
    let port = match uri.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let address = host.parse().ok()?;
    Some(SocketAddr::new(address, uri.port_u16().unwrap_or(port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::Agent;
    use ureq::unversioned::transport::DefaultConnector;

    #[test]
    fn what_is_an_address_already_is_asked_of_nobody() {
        let stated = |uri: &str| stated(&uri.parse().unwrap()).map(|it| it.to_string());
        let of = |uri| stated(uri).unwrap();
        assert_eq!(of("http://10.0.0.1/x"), "10.0.0.1:80");
        assert_eq!(of("https://[::1]"), "[::1]:443");
        assert_eq!(of("https://10.0.0.1:8443"), "10.0.0.1:8443");
        assert_eq!(stated("http://localhost:80"), None);
        assert_eq!(stated("socks5://10.0.0.1:1080"), None);
    }

    #[test]
    fn a_host_is_asked_for_once_and_anew_when_it_is_forgotten() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for connection in server.incoming() {
                let answer = b"HTTP/1.1 204 No\r\nConnection: close\r\n\r\n";
                std::io::Write::write_all(&mut connection.unwrap(), answer).unwrap();
            }
        });
        let resolver = Remembering::default();
        let config = Agent::config_builder().build();
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver.clone());
        let get = |host: &str| agent.get(format!("http://{host}:{port}/")).call().is_ok();
        assert!(get("localhost"));
        let first = resolver.lock().as_ref().unwrap().since;
        assert!(get("localhost"));
        assert_eq!(resolver.lock().as_ref().unwrap().since, first);
        // Another host is another place.
        assert!(get("127.0.0.1"));
        assert_ne!(resolver.lock().as_ref().unwrap().since, first);
        // What is believed is used.
        resolver.lock().as_mut().unwrap().addresses = vec!["127.0.0.1:1".parse().unwrap()];
        assert!(!get("127.0.0.1"));
        resolver.forget();
        assert!(get("127.0.0.1"));
    }
}
