//! TLS and proxies. The environment is read once per process, so each case starts this test binary again,
//! to run only [`asks_in_child_process`].

use crate::bodies::says_all;
use crate::fake_provider::{FakeProvider, status_response, whole_stream};
use crate::scenes::{collect_events, folded, model_at};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls_pki_types::PrivateKeyDer;
use std::io::Write;
use std::process::Output;
use std::sync::Arc;
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use turnwire_agent::model::http::{ApiKey, HttpModel};
use turnwire_core::ErrorType;

/// A server with a self-signed certificate, and the file of its root certificate.
fn tls() -> (TlsAcceptor, NamedTempFile) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
    (TlsAcceptor::from(Arc::new(config)), file)
}

async fn secure_provider() -> (FakeProvider, NamedTempFile) {
    let (tls, file) = tls();
    (FakeProvider::start_with(Some(tls), [whole_stream(&says_all(&["hello"]), 9)]).await, file)
}

/// Calls the model at this address in a child process with this environment, and returns its output.
async fn ask_in_child_process(base: &str, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "tls::asks_in_child_process", "--nocapture"])
        .env("TEST_BASE_URL", base);
    for name in
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"]
    {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    let Output { stdout, stderr, .. } =
        command.envs(environment.iter().copied()).output().await.unwrap();
    let output =
        format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(output.contains("the result: "), "{output}");
    output
}

#[tokio::test]
#[ignore = "the other tests here run it, each in an environment of its own"]
async fn asks_in_child_process() {
    let model = HttpModel::builder("openai:m")
        .base_url(std::env::var("TEST_BASE_URL").unwrap())
        .key(ApiKey::from_text("sk-secret"))
        .retries(0)
        .build();
    let output = match model {
        Ok(model) => {
            let (events, error) = collect_events(&model).await;
            format!("{}{error:?}", folded(&events).text("").unwrap_or_default())
        }
        Err(error) => format!("{error:?}"),
    };
    println!("the result: {output}");
}

#[tokio::test]
async fn a_server_that_the_system_trusts_is_called() {
    let (fake, file) = secure_provider().await;
    let path = file.path().display().to_string();
    let output = ask_in_child_process(&fake.base, &[("SSL_CERT_FILE", &path)]).await;
    assert!(output.contains("the result: helloNone"), "{output}");
    assert_eq!(fake.requests()[0].header("authorization"), Some("Bearer sk-secret"));
}

#[tokio::test]
async fn an_untrusted_server_gets_no_request() {
    let (fake, _) = secure_provider().await;
    let (_, other) = tls();
    let path = other.path().display().to_string();
    let output = ask_in_child_process(&fake.base, &[("SSL_CERT_FILE", &path)]).await;
    assert!(output.contains("could not be reached") && output.contains("certificate"), "{output}");
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn without_root_certificates_http_works_and_https_does_not() {
    let nothing = [("SSL_CERT_FILE", "/no/such/file"), ("SSL_CERT_DIR", "/no/such/folder")];
    let fake = FakeProvider::start([whole_stream(&says_all(&["hello"]), 9)]).await;
    let output = ask_in_child_process(&fake.base, &nothing).await;
    assert!(output.contains("the result: helloNone"), "{output}");
    let output = ask_in_child_process("https://localhost:1", &nothing).await;
    assert!(output.contains("TLS cannot be used") && output.contains("Setup"), "{output}");
}

#[tokio::test]
async fn a_plain_address_is_reached_without_a_proxy() {
    let fake = FakeProvider::start([whole_stream(&says_all(&["hello"]), 9)]).await;
    // No server listens there.
    let nowhere = "http://127.0.0.1:1";
    let proxies = [("HTTP_PROXY", nowhere), ("http_proxy", nowhere), ("ALL_PROXY", nowhere)];
    let output = ask_in_child_process(&fake.base, &proxies).await;
    assert!(output.contains("the result: helloNone"), "{output}");
}

/// Serves one CONNECT request, and returns its head.
async fn run_proxy(mut client: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let place = head.split_whitespace().nth(1).unwrap().to_owned();
    let mut server = TcpStream::connect(place).await.unwrap();
    client.write_all(b"HTTP/1.1 200 Go ahead\r\n\r\n").await.unwrap();
    // Ends when either side closes its connection.
    let _ = copy_bidirectional(&mut client, &mut server).await;
    head
}

#[tokio::test]
async fn a_proxy_of_the_environment_leads_to_a_secure_address_and_sees_no_key() {
    for scheme in ["http", "https"] {
        let (tls, file) = tls();
        let answers = [whole_stream(&says_all(&["hello"]), 9)];
        let fake = FakeProvider::start_with(Some(tls.clone()), answers).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("{scheme}://localhost:{}", listener.local_addr().unwrap().port());
        let seen = tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            match scheme {
                "http" => run_proxy(client).await,
                _ => run_proxy(tls.accept(client).await.unwrap()).await,
            }
        });
        let path = file.path().display().to_string();
        let environment = [("SSL_CERT_FILE", &*path), ("HTTPS_PROXY", &proxy)];
        let output = ask_in_child_process(&fake.base, &environment).await;
        assert!(output.contains("the result: helloNone"), "{scheme}: {output}");
        let head = seen.await.unwrap();
        let host = fake.base.strip_prefix("https://").unwrap();
        assert!(head.starts_with(&format!("CONNECT {host} ")), "{head}");
        assert!(!head.contains("sk-secret"), "{head}");
    }
}

#[tokio::test]
async fn a_proxy_gets_its_credentials_and_errors_name_it_without_them() {
    let proxy =
        FakeProvider::start([status_response("407 Proxy Authentication Required", "", "no")]).await;
    let place = proxy.base.strip_prefix("http://").unwrap();
    let (fake, file) = secure_provider().await;
    let path = file.path().display().to_string();
    let with_name = format!("http://ann:pass-1@{place}");
    let environment = [("SSL_CERT_FILE", &*path), ("ALL_PROXY", &with_name)];
    let output = ask_in_child_process(&fake.base, &environment).await;
    assert!(output.contains(&format!("the proxy {place} answered 407")), "{output}");
    assert!(!output.contains("pass-1"), "{output}");
    let [request] = &proxy.requests()[..] else { panic!("one request") };
    assert_eq!(request.header("proxy-authorization"), Some("Basic YW5uOnBhc3MtMQ=="));
    assert!(fake.requests().is_empty());
    // Hosts in NO_PROXY are reached directly.
    let direct = [&environment[..], &[("NO_PROXY", "localhost")]].concat();
    let output = ask_in_child_process(&fake.base, &direct).await;
    assert!(output.contains("the result: helloNone"), "{output}");
}

#[tokio::test]
async fn a_server_of_ones_own_making_is_not_trusted() {
    let (fake, _) = secure_provider().await;
    let Ok(model) = model_at("openai", &fake).retries(0).build() else {
        // An empty trust store.
        return;
    };
    let (_, error) = collect_events(&model).await;
    assert_eq!(error.unwrap().kind, ErrorType::Connection);
    assert!(fake.requests().is_empty());
}
