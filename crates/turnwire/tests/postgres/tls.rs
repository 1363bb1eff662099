//! TLS between the server and its database.

use crate::harness::{Running, run};
use rcgen::{CertificateParams, KeyPair};
use std::path::Path;
use turnwire_testkit::postgres::PostgresServer;

/// A Postgres whose certificate is for this name. The certificate, which signs itself, is written to `ca.pem`.
fn start(folder: &Path, name: &str) -> Option<PostgresServer> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(folder.join("ca.pem"), certificate.pem()).unwrap();
    PostgresServer::start_with_tls("TLS to Postgres", &certificate.pem(), &key.serialize_pem())
}

#[test]
fn the_database_is_reached_with_tls_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(server) = start(folder, "127.0.0.1") else { return };
    let database = server.create_database();
    let url = format!("{}?sslmode=require", server.url(&database));
    let (status, _, error) = run(folder, &["serve", "--listen", "127.0.0.1:0", "--store", &url]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("with TLS") && error.contains("sslrootcert"), "{error}");

    let running = Running::start(folder, &format!("{url}&sslrootcert=ca.pem"));
    assert!(running.request("GET", "/readyz", "").starts_with("HTTP/1.1 200"));
    let connections =
        "SELECT bool_and(ssl), count(*) > 1 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(server.run(&database, connections), "t|t");
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(server) = start(folder, "db.example") else { return };
    let url = format!("{}?sslmode=verify-full&sslrootcert=ca.pem", server.url("postgres"));
    let (status, _, error) = run(folder, &["serve", "--listen", "127.0.0.1:0", "--store", &url]);
    assert_eq!(status, 2, "{error}");
    assert!(error.contains("with TLS") && error.contains("check its certificate"), "{error}");
}
