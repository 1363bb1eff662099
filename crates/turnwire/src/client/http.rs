//! HTTP requests, each on its own connection. Called by `api` and `event_stream`.
//!
//! A conversation sends a request every few seconds: a pool would save nothing, and would have to
//! detect which connections a restart has broken.

use super::error::ClientError;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use url::Url;

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a response's head. The server syncs writes before it responds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response that is read as a whole.
const MAX_BODY: usize = 256 << 20;

/// A server's URL, token and TLS settings.
#[derive(Clone)]
pub(crate) struct Endpoint {
    url: Url,
    token: Option<String>,
    tls: Option<Arc<ClientConfig>>,
}

/// A request.
pub(super) struct ApiRequest<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'static str, &'a str)],
    pub(super) body: Bytes,
}

impl Endpoint {
    /// Parses a URL; its path becomes the prefix of every request.
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self, String> {
        let with_scheme =
            if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let wrong = |why: &str| {
            format!(
                "invalid server URL \"{url}\": {why}; expected for example http://127.0.0.1:4747"
            )
        };
        let parsed = Url::parse(&with_scheme).map_err(|error| wrong(&error.to_string()))?;
        if parsed.host_str().is_none() {
            return Err(wrong("it has no host"));
        }
        let tls = match parsed.scheme() {
            "http" => None,
            "https" => Some(tls_config()?),
            _ => return Err(wrong("only http and https are supported")),
        };
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err("the token contains invalid characters".to_owned());
        }
        Ok(Self { url: parsed, token, tls })
    }

    /// The URL, for messages.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    fn transient_error(&self, what: &str, error: impl std::fmt::Display) -> ClientError {
        ClientError::Transient(format!("{what} {}: {error}", self.url()))
    }

    /// Sends a request, and returns the response as soon as its head arrives.
    pub(super) async fn send(
        &self,
        ask: ApiRequest<'_>,
    ) -> Result<Response<Incoming>, ClientError> {
        let request =
            self.build_request(ask).map_err(|error| ClientError::Unexpected(error.to_string()))?;
        let (host, port) = (
            self.url.host_str().unwrap_or_default(),
            self.url.port_or_known_default().unwrap_or(80),
        );
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((bare, port)))
            .await
            .map_err(|_| self.transient_error("cannot reach", "no answer"))?
            .map_err(|error| self.transient_error("cannot reach", error))?;
        // A failure only adds latency.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.send_on(stream, request).await };
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| {
            ClientError::Unexpected(format!("invalid host name {host}: {error}"))
        })?;
        let stream = TlsConnector::from(Arc::clone(tls))
            .connect(name, stream)
            .await
            .map_err(|error| self.transient_error("TLS handshake failed with", error))?;
        self.send_on(stream, request).await
    }

    async fn send_on<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let lost = |error: hyper::Error| self.transient_error("lost the connection to", error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // It ends with the response's body, which also reports a broken connection.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        match timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await {
            Ok(answer) => answer.map_err(lost),
            Err(_) => Err(self.transient_error("lost the connection to", "no answer")),
        }
    }

    fn build_request(&self, ask: ApiRequest<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
        let path = format!("{}{}", self.url.path().trim_end_matches('/'), ask.path);
        let host = self.url.host_str().unwrap_or_default();
        let host = match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let mut request = Request::builder()
            .method(ask.method)
            .uri(path)
            .header("host", host)
            .header("user-agent", concat!("turnwire/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(ask.body))
    }

    /// Sends a request, and returns the body of a successful response.
    pub(super) async fn send_and_collect(&self, ask: ApiRequest<'_>) -> Result<Bytes, ClientError> {
        let (head, body) = self.send(ask).await?.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body =
            body.map_err(|error| self.transient_error("lost the connection to", error))?.to_bytes();
        if head.status.is_success() {
            Ok(body)
        } else {
            Err(ClientError::from_response(head.status.as_u16(), &body))
        }
    }
}

/// TLS with the root certificates of this machine.
fn tls_config() -> Result<Arc<ClientConfig>, String> {
    let config = turnwire_agent::http_client::tls_config(false).map_err(|error| {
        format!("https cannot be verified: {error}; install ca-certificates or set SSL_CERT_FILE")
    })?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_url_is_checked_before_anything_is_sent() {
        let endpoint = Endpoint::new("127.0.0.1:4747", None).unwrap();
        assert_eq!(endpoint.url(), "http://127.0.0.1:4747");
        for (url, why) in [("ftp://x", "only http"), ("http://", "invalid server URL")] {
            let error = Endpoint::new(url, None).err().unwrap();
            assert!(error.contains(why), "{error}");
        }
        let error = Endpoint::new("localhost:1", Some("secret\n".to_owned())).err().unwrap();
        assert!(!error.contains("secret"), "{error}");
    }
}
