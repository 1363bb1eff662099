//! TLS, and HTTP/2 if the client asks for it.

use crate::harness::{Running, read_answer, start, within};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

struct Authority {
    folder: tempfile::TempDir,
    roots: RootCertStore,
}

fn authority() -> Authority {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    Authority { folder, roots }
}

impl Authority {
    fn start(&self) -> Running {
        let folder = self.folder.path().display();
        start(&format!("[tls]\ncert = '{folder}/cert.pem'\nkey = '{folder}/key.pem'\n"))
    }

    async fn connect(
        &self,
        server: &Running,
        protocols: &[&str],
    ) -> TlsStream<tokio::net::TcpStream> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = "localhost".try_into().unwrap();
        let stream = server.connect().await;
        within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
    }
}

#[tokio::test]
async fn http1_works_over_tls() {
    let authority = authority();
    let server = authority.start();
    for protocols in [&[][..], &["http/1.1"]] {
        let mut stream = authority.connect(&server, protocols).await;
        let request = server.request("GET", "/healthz", &[("host", "localhost")]);
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(within(read_answer(&mut stream)).await.unwrap().status, 200);
    }
    server.stop().await;
}

/// One frame of HTTP/2: length, type, flags, stream, payload.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// The head of a GET, with the indexes of HPACK's static table and no compression.
fn get(path: &str, host: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    [&[0x82, 0x87, 0x04][..], &text(path), &[0x01], &text(host)].concat()
}

/// Status 200 in HPACK's static table.
const STATUS_200: u8 = 0x88;

/// The first byte of the head of the answer: an index of HPACK's static table, or a literal.
async fn h2_status(stream: &mut TlsStream<tokio::net::TcpStream>, head: &[u8]) -> u8 {
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    stream.write_all(&frame(HEADERS, 5, 1, head)).await.unwrap();
    loop {
        let mut start = [0; 9];
        within(stream.read_exact(&mut start)).await.unwrap();
        let length = usize::from(start[1]) * 256 + usize::from(start[2]);
        let mut payload = vec![0; length];
        within(stream.read_exact(&mut payload)).await.unwrap();
        if start[3] == HEADERS {
            return payload[0];
        }
    }
}

#[tokio::test]
async fn http2_is_chosen_where_the_client_has_it() {
    let authority = authority();
    let server = authority.start();
    let mut stream = authority.connect(&server, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(h2_status(&mut stream, &get("/healthz", "localhost")).await, STATUS_200);
    drop(stream);
    let mut stream = authority.connect(&server, &["h2"]).await;
    // 421 is in no table: whatever it is, it is not 200.
    assert_ne!(h2_status(&mut stream, &get("/healthz", "rebound.example")).await, STATUS_200);
    // A graceful end would wait for responses that this client does not send.
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn http2_frames_that_bring_nothing_close_the_connection() {
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    let authority = authority();
    let server = authority.start();
    for (kind, payload) in [(PING, &[0; 8][..]), (SETTINGS, &[])] {
        let mut stream = authority.connect(&server, &["h2"]).await;
        assert_eq!(h2_status(&mut stream, &get("/healthz", "localhost")).await, STATUS_200);
        let (mut from, mut to) = tokio::io::split(stream);
        let flood = frame(kind, 0, 0, payload).repeat(100);
        let flooding = async {
            while to.write_all(&flood).await.is_ok() {}
            std::future::pending::<()>().await;
        };
        let mut received = Vec::new();
        let over = async {
            tokio::select! {
                () = flooding => {}
                _ = from.read_to_end(&mut received) => {}
            }
        };
        within(over).await;
        // It answers each frame that it accepts, and 1,000 more for each second that this takes.
        assert!(received.len() / (9 + payload.len()) < 35_000, "{kind}: {} bytes", received.len());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_file_that_is_no_certificate_is_said_with_its_name() {
    let authority = authority();
    let folder = authority.folder.path();
    std::fs::write(folder.join("bad.pem"), "nothing").unwrap();
    for (cert, key, named) in [
        ("bad.pem", "key.pem", "bad.pem"),
        ("none.pem", "key.pem", "none.pem"),
        ("cert.pem", "bad.pem", "bad.pem"),
        ("cert.pem", "none.pem", "none.pem"),
    ] {
        let (cert, key) = (folder.join(cert), folder.join(key));
        let settings = format!(
            "listen = \"127.0.0.1:0\"\n[tls]\ncert = '{}'\nkey = '{}'",
            cert.display(),
            key.display()
        );
        let config = turnwire_server::config::Config::parse("test", &settings).unwrap();
        let app =
            turnwire_server::App::new(config, crate::harness::log(), BTreeMap::new()).unwrap();
        let error = turnwire_server::Server::bind(app).err().unwrap().to_string();
        assert!(error.contains(named) && error.contains("PEM"), "{error}");
    }
}
