//! The connection to a model.

use super::provider::setup;
use crate::model::ModelError;
use crate::web;
use std::time::Duration;
use url::Url;

/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A client for one address.
pub(super) fn client(address: &Url, connect: Duration) -> Result<reqwest::Client, ModelError> {
    let builder = web::client(address.scheme() == "http")
        .map_err(|error| setup(format!("TLS cannot be used: {error}")))?;
    let client = builder.connect_timeout(connect).tcp_keepalive(KEEPALIVE).build();
    client.map_err(|error| setup(format!("there is no HTTP client: {error}")))
}
