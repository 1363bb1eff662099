//! MCP servers over HTTP.

use super::Remote;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The way to a server, or why there is none. No secret is in that.
pub(super) fn reach(
    remote: &Remote,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let url = Url::parse(&remote.url).map_err(|error| format!("has no valid address: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("has an address that is neither http nor https".to_owned());
    }
    let mut headers = HashMap::new();
    for (name, value) in &remote.headers {
        let parsed =
            HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value).ok());
        let Some((name, mut value)) = parsed else {
            return Err(format!("has a header that cannot be sent: {name:?}"));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let client = client(&url).map_err(|error| format!("cannot be reached: {error}"))?;
    let config =
        StreamableHttpClientTransportConfig::with_uri(remote.url.as_str()).custom_headers(headers);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Redirects are not followed: a key must not travel. A plain address is always reached directly, since
/// a proxy would see the key.
fn client(url: &Url) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let is_plain = url.scheme() == "http";
    let mut builder = reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        // Of a connection whose answer was not read to its end the system holds back the next answer.
        .pool_max_idle_per_host(0)
        .referer(false)
        .user_agent(concat!("turnwire/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured(tls(is_plain)?);
    if is_plain {
        builder = builder.no_proxy();
    }
    Ok(builder.build()?)
}

/// TLS that trusts what the system trusts. Without a need for it, it trusts nobody: a machine that has
/// no certificates can talk to a server of its own.
fn tls(is_plain: bool) -> Result<ClientConfig, rustls::Error> {
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    if is_plain {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let verifier: Arc<dyn ServerCertVerifier> = Arc::new(Verifier::new(provider)?);
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}
