//! What the log must never hold. It is a program of its own: who listens to the log of one test beside
//! others, on other threads, misses lines now and then.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

#[path = "../infra/harness.rs"]
#[expect(dead_code, reason = "its neighbours need more of it")]
mod harness;
#[path = "../test_store/mod.rs"]
mod test_store;

use harness::{start, token};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Captured {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

// The server runs on this test's own thread, so that all it logs is caught and nothing else is.
#[tokio::test]
async fn secrets_never_appear_in_logs() {
    let captured = Captured::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(captured.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = start(&token("tw_topsecret", "acme", "read,chat"));
    let bearer = ("authorization", "Bearer tw_topsecret");
    let answer = server.send("POST", "/v1/tickets", &[bearer]).await;
    let ticket = answer.json()["ticket"].as_str().unwrap().to_owned();
    for path in ["/v1/agents", "/v1/nothing", "/v1/sessions/s1"] {
        server.send("GET", &format!("{path}?ticket={ticket}&x=tw_inquery"), &[]).await;
        server.send("GET", path, &[("x-api-key", "tw_topsecret")]).await;
        server.send("GET", path, &[("authorization", "Bearer tw_wrongsecret")]).await;
    }
    server.stop().await;
    let log = String::from_utf8(captured.0.lock().clone()).unwrap();
    assert!(
        log.contains("turnwire::access") && log.contains("/v1/agents"),
        "requests are logged: {log}"
    );
    for secret in [ticket.as_str(), "tw_topsecret", "tw_wrongsecret", "tw_inquery"] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}
