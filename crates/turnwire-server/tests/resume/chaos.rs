use crate::client::{self, ClientPlan, ResumeMethod, messages, sorted};
use crate::running::{Running, within};
use crate::socket;
use crate::test_store::test_store;
use crate::writers::{publish_replies, send_messages};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_testkit::net::{Proxy, send_http};
use turnwire_testkit::{Rng, check_property};

/// Each socket watches two sessions.
const SOCKETS: usize = 50;
const WATCHERS: usize = 200;
const SESSIONS: usize = 6;

fn scale() -> usize {
    std::env::var("TURNWIRE_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

#[test]
fn whoever_is_cut_off_anywhere_has_in_the_end_what_the_server_has() {
    check_property("whoever_is_cut_off_anywhere_has_in_the_end_what_the_server_has", 1, |rng| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(run_chaos(rng.fork()));
    });
}

async fn run_chaos(mut rng: Rng) {
    let begun = Instant::now();
    let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(2000.0));
    let (server, _) = Running::start(test_store(), "", [("demo", demo)]);
    let proxy = Proxy::start(server.address, rng.u64(..)).await.unwrap();
    let to = proxy.address;
    let (mut writers, mut ends) = (Vec::new(), Vec::new());
    for at in 0..SESSIONS {
        let id = format!("s{at}");
        let agent = if at % 3 == 0 { "demo" } else { "external" };
        let body = json!({"id": id, "agent": agent}).to_string();
        let made = send_http(server.address, "POST", "/v1/sessions", &[], body.as_bytes()).await;
        assert_eq!(made.unwrap().status, 201);
        let (rng, end) = (rng.fork(), watch::Sender::new(None));
        ends.push(end.clone());
        let address = server.address;
        writers.push(tokio::spawn(async move {
            match agent {
                "demo" => send_messages(to, id.clone(), rng, 3 * scale()).await,
                _ => publish_replies(to, id.clone(), rng, 4 * scale()).await,
            }
            let session = json_of(address, &format!("/v1/sessions/{id}")).await;
            end.send_replace(session["last_seq"].as_u64());
        }));
    }
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|at| {
            let plan = ClientPlan::random(&mut rng, format!("s{}", at % SESSIONS));
            let end = ends[at % SESSIONS].subscribe();
            tokio::spawn(client::watch(to, plan, end))
        })
        .collect();
    let sockets: Vec<_> = (0..SOCKETS)
        .map(|at| {
            let wire = if rng.u8(..4) == 0 { "agentscope" } else { "turnwire" };
            let plans = [at % SESSIONS, (at + 1) % SESSIONS].map(|at| {
                let (session, end) = (format!("s{at}"), ends[at].subscribe());
                (
                    ClientPlan {
                        session,
                        method: ResumeMethod::LastEventId,
                        raw: rng.bool(),
                        wire,
                    },
                    end,
                )
            });
            tokio::spawn(socket::watch(to, wire, plans.into()))
        })
        .collect();
    for writer in writers {
        within(writer).await.unwrap();
    }
    let mut expected = Vec::new();
    for at in 0..SESSIONS {
        let path = format!("/v1/sessions/s{at}/messages?agents=all&limit=500");
        let page = json_of(server.address, &path).await;
        assert_eq!(page["has_more"], false);
        expected.push(sorted(page["messages"].as_array().unwrap().clone()));
    }
    let mut all = Vec::new();
    for (at, watcher) in watchers.into_iter().enumerate() {
        all.push((at % SESSIONS, within(watcher).await.unwrap()));
    }
    for (at, socket) in sockets.into_iter().enumerate() {
        let places = [at % SESSIONS, (at + 1) % SESSIONS];
        all.extend(places.into_iter().zip(within(socket).await.unwrap()));
    }
    let (mut connections, mut frames) = (0, 0);
    for (session, seen) in &all {
        assert_eq!(messages(&seen.folder), expected[*session]);
        connections += seen.connections;
        frames += seen.frames;
    }
    let events: u64 = ends.iter().filter_map(|end| *end.borrow()).sum();
    eprintln!(
        "{} watchers of {events} events took {frames} frames over {connections} connections; \
         {} connections were cut, in {:?}",
        all.len(),
        proxy.cuts(),
        begun.elapsed()
    );
    assert!(connections > all.len(), "nobody was cut off");
    server.stop().await;
}

async fn json_of(server: SocketAddr, path: &str) -> Value {
    send_http(server, "GET", path, &[], b"").await.unwrap().json()
}
