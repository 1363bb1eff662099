//! The running replies of one tenant do not delay another tenant.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[path = "../turns/fake_agent.rs"]
mod fake_agent;
#[path = "../resume/running.rs"]
mod running;
#[path = "../test_store/mod.rs"]
mod test_store;

use fake_agent::FakeAgent;
use running::{Running, within};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use test_store::test_store;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use turnwire_agent::Replier;
use turnwire_testkit::net::{HttpResponse, http, send_http};

/// How many replies of one tenant run.
const HELD: usize = 400;

fn token(name: &str) -> String {
    let hash = Sha256::digest(name).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!(
        "[[auth.tokens]]\ntenant = \"{name}\"\nsha256 = \"{hash}\"\nscopes = [\"chat\", \"read\"]\n"
    )
}

fn question(words: &str) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": words}]);
    json!({"model": "actor", "messages": messages}).to_string().into_bytes()
}

async fn ask(to: SocketAddr, tenant: &str, words: &str) -> HttpResponse {
    let headers = [("x-api-key", tenant)];
    let body = question(words);
    let answer = send_http(to, "POST", "/v1/chat/completions", &headers, &body);
    within(answer).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_one_tenant_that_never_end_do_not_hold_up_another() {
    let actor = FakeAgent::new();
    let agent: Arc<dyn Replier> = actor.clone();
    let settings =
        format!("[limits]\nstop_timeout = \"50ms\"\n{}{}", token("many"), token("other"));
    let store = test_store();
    let (server, _) = Running::start(store, &settings, [("actor", agent)]);
    let to = server.address;
    let mut open = Vec::new();
    let headers = [("x-api-key", "many")];
    let request = http::request(to, "POST", "/v1/chat/completions", &headers, &question("hold"));
    for _ in 0..HELD {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(&request).await.unwrap();
        open.push(stream);
    }
    let all_run = async {
        while actor.calls.lock().len() < HELD {
            tokio::task::yield_now().await;
        }
    };
    within(all_run).await;
    let answer = ask(to, "other", "hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("re: hello"), "{}", answer.text());
    drop(open);
    server.stop().await;
}
