//! Slow links of one tenant, and links of another.

use crate::checked_http::send_http;
use crate::fake_site::FakeSite;
use crate::harness::TestServer;
use crate::running::within;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use turnwire_testkit::net::HttpResponse;

/// Settings with a token for each of two tenants.
fn settings(site: &FakeSite, links: &str) -> String {
    let mut settings = format!("[links]\nprivate_hosts = [\"{}\"]\n{links}\n", site.address);
    for tenant in ["a", "b"] {
        let hash = turnwire_server::blobs::blob_id(&Sha256::digest(tenant).into());
        let token = format!("tenant = \"{tenant}\"\nsha256 = \"{hash}\"\nscopes = [\"chat\"]");
        writeln!(settings, "[[auth.tokens]]\n{token}").unwrap();
    }
    settings
}

async fn post(server: &TestServer, tenant: &str, path: &str, body: &Value) -> HttpResponse {
    let token = format!("Bearer {tenant}");
    let headers = [("content-type", "application/json"), ("authorization", token.as_str())];
    let body = body.to_string();
    within(send_http(server.server.address, "POST", path, &headers, body.as_bytes())).await.unwrap()
}

/// A message with links, in a session of its own.
async fn say(server: &TestServer, tenant: &str, session: &str, urls: &[String]) -> HttpResponse {
    let new = json!({"id": session, "agent": "external"});
    assert_eq!(post(server, tenant, "/v1/sessions", &new).await.status, 201);
    let links =
        urls.iter().map(|url| json!({"type": "data", "source": {"type": "url", "url": url}}));
    let content = json!({"content": links.collect::<Vec<_>>()});
    post(server, tenant, &format!("/v1/sessions/{session}/messages"), &content).await
}

#[tokio::test]
async fn slow_links_of_one_tenant_do_not_delay_those_of_another() {
    for (links, share) in [("at_once = 4", 1), ("at_once = 4\nat_once_per_tenant = 3", 3)] {
        let site = FakeSite::open().await;
        let server = TestServer::open(&settings(&site, links));
        let slow: Vec<String> = (0..4).map(|at| site.url(&format!("/gate.png?{at}"))).collect();
        let held = async { say(&server, "a", "slow", &slow).await };
        let beside = async {
            site.wait_for_requests(share).await;
            let answer = say(&server, "b", "fast", &[site.url("/cat.png")]).await;
            // All slow links still wait, and no more of them were asked for than the tenant's share.
            let asked =
                site.requested_paths().iter().filter(|path| path.starts_with("/gate.png")).count();
            assert_eq!(asked, share);
            site.gate.add_permits(slow.len());
            answer
        };
        let (slow, fast) = tokio::join!(held, beside);
        assert_eq!((slow.status, fast.status), (202, 202), "{}", slow.text());
    }
}

#[tokio::test]
async fn a_tenant_with_too_many_links_that_wait_is_told_to_come_again() {
    let site = FakeSite::open().await;
    let links = "at_once = 2\nat_once_per_tenant = 1\nper_message = 64";
    let server = TestServer::open(&settings(&site, links));
    let messages = (0..12).map(|message| {
        let urls: Vec<String> =
            (0..4).map(|at| site.url(&format!("/gate.png?{message}.{at}"))).collect();
        let (server, site) = (&server, &site);
        async move {
            let answer = say(server, "a", &format!("s{message}"), &urls).await;
            if answer.status == 429 {
                // From here on nobody is kept.
                site.gate.add_permits(100);
            }
            answer
        }
    });
    let answers = futures_util::future::join_all(messages).await;
    let refused: Vec<&HttpResponse> =
        answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty());
    for answer in &answers {
        assert!([202, 429].contains(&answer.status), "{}", answer.text());
    }
    assert!(refused.iter().all(|answer| answer.header("retry-after").is_some()));
}
