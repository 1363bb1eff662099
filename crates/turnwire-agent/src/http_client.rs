//! The HTTP client for MCP servers and links, and the TLS settings of all outgoing connections.

use reqwest::ClientBuilder;
use reqwest::redirect::Policy;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::sync::Arc;

/// What we call ourselves.
pub(crate) const USER_AGENT: &str = concat!("turnwire/", env!("CARGO_PKG_VERSION"));

/// Builds a client for plain http or for https.
///
/// Redirects are not followed, so that a key is sent to no other host. A proxy of the environment
/// (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`) is used for https, where it sees only the host's name. Plain
/// http never uses a proxy, because it would see the key. HTTP/1.1 has one response per connection:
/// dropping the response closes the connection, and responses do not wait for each other.
pub fn client_builder(is_plain: bool) -> Result<ClientBuilder, rustls::Error> {
    let builder = builder_with_tls(tls_config(is_plain)?);
    Ok(if is_plain { builder.no_proxy() } else { builder })
}

/// The same with other rules of trust.
pub fn builder_with_tls(tls: ClientConfig) -> ClientBuilder {
    ClientBuilder::new()
        .redirect(Policy::none())
        .http1_only()
        .referer(false)
        .user_agent(USER_AGENT)
        .tls_backend_preconfigured(tls)
}

/// TLS with the system's trusted certificates. For plain http it has none, so that a machine without
/// certificates can use a local model.
pub fn tls_config(is_plain: bool) -> Result<ClientConfig, rustls::Error> {
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    if is_plain {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let verifier: Arc<dyn ServerCertVerifier> = Arc::new(Verifier::new(provider)?);
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
