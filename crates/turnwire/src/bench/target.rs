//! The measured server: its address and the requests of its protocol.

use super::error::{BenchError, Result};
use clap::ValueEnum;
use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use url::Url;

/// The protocol of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Protocol {
    Turnwire,
    /// Electric's server: the same bytes in its own protocol, for comparison
    DurableStreams,
}

/// A server and how to ask it.
pub(super) struct BenchTarget {
    pub(super) address: SocketAddr,
    /// As given, for messages.
    pub(super) url: String,
    token: Option<String>,
    target: Protocol,
    /// The prefix of every path.
    prefix: String,
    /// The header lines of every request.
    common: String,
}

impl BenchTarget {
    pub(super) fn new(url: &str, token: Option<&str>, target: Protocol) -> Result<Self> {
        let wrong = |why: &str| BenchError::new(format!("cannot measure {url}: {why}"));
        let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if parsed.scheme() != "http" {
            return Err(wrong(
                "only http:// can be measured; use the address of the server itself, without TLS",
            ));
        }
        let host = parsed.host_str().ok_or_else(|| wrong("it has no host"))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        let address = (host.trim_matches(['[', ']']), port)
            .to_socket_addrs()
            .map_err(|error| wrong(&error.to_string()))?
            .next()
            .ok_or_else(|| wrong("the host has no address"))?;
        let mut common = format!("Host: {host}:{port}\r\n");
        if let Some(token) = token {
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(BenchError::new(
                    "the token contains characters that are invalid in a header",
                ));
            }
            let _ = write!(common, "Authorization: Bearer {token}\r\n");
        }
        let prefix = parsed.path().trim_end_matches('/').to_owned();
        let token = token.map(str::to_owned);
        Ok(Self { address, url: url.to_owned(), token, target, prefix, common })
    }

    /// Another node of the same cluster, if there is a URL of it.
    pub(super) fn node_at(self: &Arc<Self>, url: Option<&str>) -> Result<Arc<Self>> {
        match url {
            Some(url) => Self::new(url, self.token.as_deref(), self.target).map(Arc::new),
            None => Ok(Arc::clone(self)),
        }
    }

    /// A request without a body.
    pub(super) fn bodyless_request(&self, method: &str, path: &str, headers: &str) -> Vec<u8> {
        let Self { prefix, common, .. } = self;
        format!("{method} {prefix}{path} HTTP/1.1\r\n{common}{headers}\r\n").into_bytes()
    }

    pub(super) fn get_request(&self, path: &str) -> Vec<u8> {
        self.bodyless_request("GET", path, "")
    }

    /// A request with a JSON body.
    pub(super) fn post_request(&self, path: &str, body: &str) -> Vec<u8> {
        let mut request = Vec::new();
        self.write_request_head(path, "application/json", "", &mut request);
        finish_request(&mut request, body.as_bytes());
        request
    }

    /// Creates a session.
    pub(super) fn create_request(&self, session: &str, agent: &str) -> Vec<u8> {
        match self.target {
            Protocol::Turnwire => {
                let body = serde_json::json!({"id": session, "agent": agent}).to_string();
                self.post_request("/v1/sessions", &body)
            }
            Protocol::DurableStreams => {
                let headers = format!("Content-Type: {NDJSON}\r\nContent-Length: 0\r\n");
                self.bodyless_request("PUT", &format!("/{session}"), &headers)
            }
        }
    }

    /// Deletes a session.
    pub(super) fn delete_request(&self, session: &str) -> Vec<u8> {
        self.bodyless_request("DELETE", &self.session_path(session), "")
    }

    /// The head of a request that appends events, up to the number of bytes: [`finish_request`] ends it.
    pub(super) fn append_request_head(&self, session: &str, producer: &str) -> Vec<u8> {
        let mut head = Vec::new();
        match self.target {
            Protocol::Turnwire => {
                let producer = format!("Turnwire-Producer: {producer}.1\r\n");
                self.write_request_head(
                    &format!("/v1/sessions/{session}/events"),
                    NDJSON,
                    &producer,
                    &mut head,
                );
            }
            Protocol::DurableStreams => {
                self.write_request_head(&self.session_path(session), NDJSON, "", &mut head);
            }
        }
        head
    }

    /// Follows a session.
    pub(super) fn watch_request(&self, session: &str, query: &str) -> Vec<u8> {
        let path = format!("/v1/sessions/{session}/events?{query}");
        self.bodyless_request("GET", &path, "Accept: text/event-stream\r\n")
    }

    /// Whether a status says that events are stored.
    pub(super) fn is_stored(&self, status: u16) -> bool {
        match self.target {
            Protocol::Turnwire => status == 200,
            Protocol::DurableStreams => matches!(status, 200 | 204),
        }
    }

    fn session_path(&self, session: &str) -> String {
        match self.target {
            Protocol::Turnwire => format!("/v1/sessions/{session}"),
            Protocol::DurableStreams => format!("/{session}"),
        }
    }

    fn write_request_head(&self, path: &str, content: &str, headers: &str, out: &mut Vec<u8>) {
        let Self { prefix, common, .. } = self;
        out.extend_from_slice(
            format!(
                "POST {prefix}{path} HTTP/1.1\r\n{common}Content-Type: {content}\r\n{headers}Content-Length: "
            )
            .as_bytes(),
        );
    }
}

const NDJSON: &str = "application/x-ndjson";

/// Completes a request head with the content length and the body.
pub(super) fn finish_request(request: &mut Vec<u8>, body: &[u8]) {
    request.extend_from_slice(body.len().to_string().as_bytes());
    request.extend_from_slice(b"\r\n\r\n");
    request.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_carry_host_token_and_length() {
        let server =
            BenchTarget::new("http://127.0.0.1:4747/", Some("abc"), Protocol::Turnwire).unwrap();
        let mut request = server.append_request_head("s", "bench-1");
        finish_request(&mut request, b"{}\n");
        assert_eq!(
            to_text(request),
            "POST /v1/sessions/s/events HTTP/1.1\r\nHost: 127.0.0.1:4747\r\n\
             Authorization: Bearer abc\r\nContent-Type: application/x-ndjson\r\n\
             Turnwire-Producer: bench-1.1\r\nContent-Length: 3\r\n\r\n{}\n"
        );
    }

    #[test]
    fn the_other_protocol_gets_the_same_body_at_its_own_path() {
        let url = "http://[::1]:4437";
        let server = BenchTarget::new(url, None, Protocol::DurableStreams).unwrap();
        assert!(
            to_text(server.create_request("s", "external"))
                .starts_with("PUT /s HTTP/1.1\r\nHost: [::1]:4437\r\n")
        );
        assert!(to_text(server.append_request_head("s", "p")).starts_with("POST /s HTTP/1.1\r\n"));
    }

    #[test]
    fn an_unsupported_url_is_reported() {
        for url in ["https://example.com", "4747", "http://"] {
            assert!(BenchTarget::new(url, None, Protocol::Turnwire).is_err(), "{url}");
        }
        assert!(BenchTarget::new("http://127.0.0.1", Some("a\r\nb"), Protocol::Turnwire).is_err());
    }
}
