//! A server that answers what is posted to it, for tests.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use tempfile::NamedTempFile;

/// A certificate for 127.0.0.1 that nobody has signed but its own key, until 2120, and that key.
const CERTIFICATE: &str = include_str!("test_server.pem");

/// Answers requests with those, in this order, each on a connection of its own, and gives the lines
/// of their heads. Others wait until the process ends.
pub(crate) fn serve(answers: &[impl AsRef<[u8]>]) -> (String, Receiver<Vec<String>>) {
    listen("http", answers, Some)
}

/// The same by TLS, and a file with its certificate.
pub(crate) fn serve_by_tls(
    answers: &[impl AsRef<[u8]>],
) -> (String, Receiver<Vec<String>>, NamedTempFile) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(CERTIFICATE.as_bytes()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(provider.into());
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
    let config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let (address, posted) = listen("https", answers, move |stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        // Who does not trust us says nothing.
        stream.flush().ok().map(|()| stream)
    });
    (address, posted, file)
}

fn listen<S: Read + Write>(
    scheme: &str,
    answers: &[impl AsRef<[u8]>],
    open: impl Fn(TcpStream) -> Option<S> + Send + 'static,
) -> (String, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{scheme}://{}", listener.local_addr().unwrap());
    let (requests, posted) = channel();
    let answers: Vec<Vec<u8>> = answers.iter().map(|one| one.as_ref().to_vec()).collect();
    thread::spawn(move || {
        let (mut answers, mut waiting) = (answers.into_iter(), Vec::new());
        for stream in listener.incoming().flatten().filter_map(open) {
            let Some(answer) = answers.next() else {
                waiting.push(stream);
                continue;
            };
            let mut reader = BufReader::new(stream);
            let lines = reader.by_ref().lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let length = head.iter().find_map(|line| {
                let line = line.to_ascii_lowercase();
                line.strip_prefix("content-length: ")?.parse().ok()
            });
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = reader.read_exact(&mut body);
            let _ = reader.get_mut().write_all(&answer);
            let _ = requests.send(head);
        }
    });
    (address, posted)
}
