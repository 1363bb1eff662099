//! The server that is measured: where it is, and the requests that it understands.

use super::failed::{Failed, Result};
use clap::ValueEnum;
use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use url::Url;

/// Which protocol the server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Target {
    Turnwire,
    /// Electric's server: the same bytes into streams of its own protocol, to compare with
    DurableStreams,
}

/// A server and how to ask it.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// As it was given, for people.
    pub(super) url: String,
    target: Target,
    /// What stands before every path.
    prefix: String,
    /// The header lines that every request has.
    common: String,
}

impl Server {
    pub(super) fn new(url: &str, token: Option<&str>, target: Target) -> Result<Self> {
        let wrong = |why: &str| Failed::new(format!("--url {url}: {why}"));
        let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if parsed.scheme() != "http" {
            return Err(wrong(
                "only http:// can be measured; go past the TLS, to the server itself",
            ));
        }
        let host = parsed.host_str().ok_or_else(|| wrong("it names no host"))?;
        let port = parsed.port_or_known_default().unwrap_or(80);
        let address = (host.trim_matches(['[', ']']), port)
            .to_socket_addrs()
            .map_err(|error| wrong(&error.to_string()))?
            .next()
            .ok_or_else(|| wrong("the host has no address"))?;
        let mut common = format!("Host: {host}:{port}\r\n");
        if let Some(token) = token {
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(Failed::new("the token has characters that no header can carry"));
            }
            let _ = write!(common, "Authorization: Bearer {token}\r\n");
        }
        let prefix = parsed.path().trim_end_matches('/').to_owned();
        Ok(Self { address, url: url.to_owned(), target, prefix, common })
    }

    /// A request without a body.
    pub(super) fn bare(&self, method: &str, path: &str, headers: &str) -> Vec<u8> {
        let Self { prefix, common, .. } = self;
        format!("{method} {prefix}{path} HTTP/1.1\r\n{common}{headers}\r\n").into_bytes()
    }

    pub(super) fn get(&self, path: &str) -> Vec<u8> {
        self.bare("GET", path, "")
    }

    /// A request with a body of JSON.
    pub(super) fn post(&self, path: &str, body: &str) -> Vec<u8> {
        let mut request = Vec::new();
        self.with_body(path, "application/json", "", &mut request);
        with_length(&mut request, body.as_bytes());
        request
    }

    /// Makes a session.
    pub(super) fn create(&self, session: &str, agent: &str) -> Vec<u8> {
        match self.target {
            Target::Turnwire => {
                let body = serde_json::json!({"id": session, "agent": agent}).to_string();
                self.post("/v1/sessions", &body)
            }
            Target::DurableStreams => {
                let headers = format!("Content-Type: {NDJSON}\r\nContent-Length: 0\r\n");
                self.bare("PUT", &format!("/{session}"), &headers)
            }
        }
    }

    /// Removes a session.
    pub(super) fn delete(&self, session: &str) -> Vec<u8> {
        self.bare("DELETE", &self.path(session), "")
    }

    /// The head of a request that appends events, up to the number of bytes: [`with_length`] ends it.
    pub(super) fn append(&self, session: &str, producer: &str) -> Vec<u8> {
        let mut head = Vec::new();
        match self.target {
            Target::Turnwire => {
                let producer = format!("Turnwire-Producer: {producer}.1\r\n");
                self.with_body(
                    &format!("/v1/sessions/{session}/events"),
                    NDJSON,
                    &producer,
                    &mut head,
                );
            }
            Target::DurableStreams => self.with_body(&self.path(session), NDJSON, "", &mut head),
        }
        head
    }

    /// Watches a session.
    pub(super) fn watch(&self, session: &str, query: &str) -> Vec<u8> {
        let path = format!("/v1/sessions/{session}/events?{query}");
        self.bare("GET", &path, "Accept: text/event-stream\r\n")
    }

    /// Whether an answer says that events are stored.
    pub(super) fn is_stored(&self, status: u16) -> bool {
        match self.target {
            Target::Turnwire => status == 200,
            Target::DurableStreams => matches!(status, 200 | 204),
        }
    }

    fn path(&self, session: &str) -> String {
        match self.target {
            Target::Turnwire => format!("/v1/sessions/{session}"),
            Target::DurableStreams => format!("/{session}"),
        }
    }

    fn with_body(&self, path: &str, content: &str, headers: &str, out: &mut Vec<u8>) {
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

/// Ends a head that waits for the length of its body, and adds the body.
pub(super) fn with_length(request: &mut Vec<u8>, body: &[u8]) {
    request.extend_from_slice(body.len().to_string().as_bytes());
    request.extend_from_slice(b"\r\n\r\n");
    request.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_carry_host_token_and_length() {
        let server = Server::new("http://127.0.0.1:4747/", Some("abc"), Target::Turnwire).unwrap();
        let mut request = server.append("s", "bench-1");
        with_length(&mut request, b"{}\n");
        assert_eq!(
            text(request),
            "POST /v1/sessions/s/events HTTP/1.1\r\nHost: 127.0.0.1:4747\r\n\
             Authorization: Bearer abc\r\nContent-Type: application/x-ndjson\r\n\
             Turnwire-Producer: bench-1.1\r\nContent-Length: 3\r\n\r\n{}\n"
        );
    }

    #[test]
    fn the_other_protocol_gets_the_same_body_at_its_own_path() {
        let url = "http://[::1]:4437";
        let server = Server::new(url, None, Target::DurableStreams).unwrap();
        assert!(
            text(server.create("s", "external"))
                .starts_with("PUT /s HTTP/1.1\r\nHost: [::1]:4437\r\n")
        );
        assert!(text(server.append("s", "p")).starts_with("POST /s HTTP/1.1\r\n"));
    }

    #[test]
    fn an_address_that_cannot_be_measured_is_told() {
        for url in ["https://example.com", "4747", "http://"] {
            assert!(Server::new(url, None, Target::Turnwire).is_err(), "{url}");
        }
        assert!(Server::new("http://127.0.0.1", Some("a\r\nb"), Target::Turnwire).is_err());
    }
}
