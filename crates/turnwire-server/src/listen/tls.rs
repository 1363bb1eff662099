//! Reads the certificate and its key.

use crate::StartError;
use crate::config::TlsConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

pub(crate) const H2: &[u8] = b"h2";

pub(crate) fn acceptor(tls: &TlsConfig) -> Result<TlsAcceptor, StartError> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| {
        StartError::new(format!("{} cannot be used for TLS: {why}", path.display()))
            .hint("it must be a PEM file that this user can read")
    };
    let certs = CertificateDer::pem_file_iter(&tls.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|why| wrong(&tls.cert, &why))?;
    if certs.is_empty() {
        return Err(wrong(&tls.cert, &"it contains no certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|why| wrong(&tls.key, &why))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
        .map_err(|why| wrong(&tls.cert, &why))?;
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
