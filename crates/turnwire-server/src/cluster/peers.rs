//! Requests to other nodes. They are sent over TLS, and carry a secret that all nodes read from the database.

use super::tls;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::Duration;
use turnwire_agent::http_client;
use turnwire_log::store::cluster::Node;

/// How long it may take to reach a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a node may take to answer. An operation may fetch links before it stores a message.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// Why a node did not answer.
#[derive(Debug)]
pub(super) enum PeerError {
    /// It was not reached: nothing was done.
    Unreachable(String),
    /// The connection broke off, or the answer makes no sense: it may have been done, or not.
    NoAnswer(String),
}

/// The clients of other nodes.
pub(super) struct Peers {
    authorization: HeaderValue,
    /// By the hash of the certificate.
    clients: Mutex<HashMap<String, reqwest::Client>>,
}

impl Peers {
    pub(super) fn new(secret: &[u8]) -> Self {
        let secret = crate::auth::hex(secret, secret.len());
        let mut authorization = HeaderValue::try_from(format!("Bearer {secret}"))
            .unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        authorization.set_sensitive(true);
        Self { authorization, clients: Mutex::default() }
    }

    /// What a request of a node must have.
    pub(super) fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }

    /// Forgets nodes that are gone.
    pub(super) fn retain(&self, nodes: &[Node]) {
        let is_there =
            |certificate: &String| nodes.iter().any(|node| node.certificate == *certificate);
        self.clients.lock().retain(|certificate, _| is_there(certificate));
    }

    /// Sends a request to a node.
    pub(super) async fn post<A: DeserializeOwned>(
        &self,
        node: &Node,
        path: &str,
        body: &impl Serialize,
    ) -> Result<A, PeerError> {
        let body =
            serde_json::to_vec(body).map_err(|error| PeerError::Unreachable(error.to_string()))?;
        let client = self.client(node).map_err(PeerError::Unreachable)?;
        let request = client
            .post(format!("https://{}{path}", node.address))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        let response = request.send().await.map_err(|error| {
            let why = explain(&error);
            if error.is_connect() { PeerError::Unreachable(why) } else { PeerError::NoAnswer(why) }
        })?;
        let status = response.status();
        let bytes: Bytes =
            response.bytes().await.map_err(|error| PeerError::NoAnswer(explain(&error)))?;
        if !status.is_success() {
            return Err(PeerError::NoAnswer(format!("it answered {status}")));
        }
        serde_json::from_slice(&bytes).map_err(|error| PeerError::NoAnswer(error.to_string()))
    }

    fn client(&self, node: &Node) -> Result<reqwest::Client, String> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&node.certificate) {
            return Ok(client.clone());
        }
        let tls = tls::client_config(&node.certificate).map_err(|error| error.to_string())?;
        let client = http_client::builder_with_tls(tls)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .build()
            .map_err(|error| explain(&error))?;
        clients.insert(node.certificate.clone(), client.clone());
        Ok(client)
    }
}

/// The error with its causes: reqwest's own text names only the URL.
fn explain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
