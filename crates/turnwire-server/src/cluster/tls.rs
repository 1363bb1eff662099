//! Certificates of nodes. Each node makes one when it starts, and stores its hash in the database; the others accept no
//! other certificate. So whoever can write the database decides who is a node, and nothing has to be configured.

use crate::StartError;
use crate::auth::{hex, sha256};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
};

/// The name in the certificates. Nobody checks it.
const NAME: &str = "turnwire-node";

/// The certificate of this node.
pub(super) struct NodeIdentity {
    pub(super) acceptor: TlsAcceptor,
    /// The SHA-256 of the certificate.
    pub(super) fingerprint: String,
}

impl NodeIdentity {
    pub(super) fn generate() -> Result<Self, StartError> {
        let failed = |why: &dyn std::fmt::Display| {
            StartError::new(format!("cannot make a certificate for other nodes: {why}"))
        };
        let made =
            rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(|why| failed(&why))?;
        let certificate = made.cert.der().clone();
        let fingerprint = hex(&sha256(&certificate), 32);
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate], key.into())
            })
            .map_err(|why| failed(&why))?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint })
    }
}

/// A client that accepts only this certificate.
pub(super) fn client_config(fingerprint: &str) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        PinnedCertificate { fingerprint: fingerprint.to_owned(), provider: provider.clone() };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

#[derive(Debug)]
struct PinnedCertificate {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = hex(&sha256(certificate), 32);
        if bool::from(found.as_bytes().ct_eq(self.fingerprint.as_bytes())) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("nodes speak TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
