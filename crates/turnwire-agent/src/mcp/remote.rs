//! MCP servers over HTTP.

use super::RemoteConfig;
use crate::http_client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::HashMap;
use std::time::Duration;
use url::Url;

/// The time limit to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Creates the transport. Errors contain no secrets.
pub(super) fn transport(
    remote: &RemoteConfig,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let url = Url::parse(&remote.url).map_err(|error| format!("has an invalid URL: {error}"))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("has a URL that is neither http nor https".to_owned());
    }
    let mut headers = HashMap::new();
    for (name, value) in &remote.headers {
        let parsed =
            HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value).ok());
        let Some((name, mut value)) = parsed else {
            return Err(format!("has an invalid header: {name:?}"));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let client = client(&url).map_err(|error| format!("cannot be reached: {error}"))?;
    let config =
        StreamableHttpClientTransportConfig::with_uri(remote.url.as_str()).custom_headers(headers);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn client(url: &Url) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let builder =
        http_client::client_builder(url.scheme() == "http")?.connect_timeout(CONNECT_LIMIT);
    // Of a connection whose answer was not read to its end the system holds back the next answer.
    Ok(builder.pool_max_idle_per_host(0).build()?)
}
