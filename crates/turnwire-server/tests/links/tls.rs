//! Links behind TLS. Whom the system trusts is read once, so each case is a process of its own: this very
//! program, told to run [`fetches`] alone.

use crate::fake_site::{FakeSite, PNG};
use crate::harness::TestServer;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls_pki_types::PrivateKeyDer;
use std::io::Write;
use std::process::Output;
use std::sync::Arc;
use tempfile::NamedTempFile;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

/// A site with a certificate of its own, and the file that vouches for it.
async fn secure() -> (FakeSite, NamedTempFile) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(cert.pem().as_bytes()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (FakeSite::open_with(Some(TlsAcceptor::from(Arc::new(config)))).await, file)
}

/// What a process of its own says of a link, where the system trusts whom this file has.
async fn fetched_elsewhere(host: &str, path: &str, trusted: &NamedTempFile) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "tls::fetches", "--nocapture"]);
    command.env("TEST_HOST", host).env("TEST_URL", format!("https://{host}{path}"));
    // No proxy is asked for a link, whatever the environment says.
    command.env("HTTPS_PROXY", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1");
    command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", trusted.path());
    let Output { stdout, stderr, .. } = command.output().await.unwrap();
    let output =
        format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(output.contains("the answer was: "), "{output}");
    output
}

#[tokio::test]
#[ignore = "the other tests here run it, each in an environment of its own"]
async fn fetches() {
    let [host, url] = ["TEST_HOST", "TEST_URL"].map(|name| std::env::var(name).unwrap());
    let server = TestServer::open(&format!("[links]\nprivate_hosts = [\"{host}\"]\n"));
    server.wait_until_idle("s").await;
    let answer = server.send_links("s", &[&url]).await;
    let mut output = answer.text();
    if answer.status == 202 {
        let files = server.files("s").await;
        let source = &files[0]["source"];
        let (_, blob) = source["url"].as_str().unwrap().split_once("/v1/").unwrap();
        let is_png = server.get(&format!("/v1/{blob}")).await.body == PNG;
        output = format!("{} is a picture: {is_png}", source["original_url"]);
    }
    println!("the answer was: {output}");
}

#[tokio::test]
async fn a_site_that_the_system_trusts_is_asked() {
    let (site, file) = secure().await;
    let host = format!("localhost:{}", site.address.port());
    let output = fetched_elsewhere(&host, "/cat.png", &file).await;
    assert!(output.contains(&format!("\"https://{host}/cat.png\" is a picture: true")), "{output}");
    assert_eq!(site.requested_paths(), ["/cat.png"]);
    let output = fetched_elsewhere(&host, "/to?/cat.png", &file).await;
    assert!(output.contains("is a picture: true"), "{output}");
}

#[tokio::test]
async fn a_site_that_nobody_vouches_for_is_not() {
    let (site, _) = secure().await;
    let (_, other) = secure().await;
    let host = format!("localhost:{}", site.address.port());
    let output = fetched_elsewhere(&host, "/cat.png", &other).await;
    assert!(output.contains("link_failed") && output.contains("cannot be reached"), "{output}");
    // Nor one whose certificate is for another name.
    let (site, file) = secure().await;
    let output = fetched_elsewhere(&site.address.to_string(), "/cat.png", &file).await;
    assert!(output.contains("link_failed") && output.contains("cannot be reached"), "{output}");
    assert_eq!(site.requested_paths(), [""; 0]);
}
