//! What a request with events costs from the router to the answer, without sockets and without a
//! disk: `cargo bench -p turnwire-server --bench ingest`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement that cannot go on has failed, and its figures are what it is for"
)]

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;
use tower::Service;
use turnwire_core::Fields;
use turnwire_log::store::{NewSession, SessionKey};
use turnwire_log::{Log, MemoryStore};
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;
use turnwire_server::{App, router};

const SESSIONS: usize = 1000;
/// How many requests are measured together.
const SPAN: usize = 20;

/// Deltas of about 200 bytes, as a model streams them.
fn body(session: usize, round: usize, events: usize) -> String {
    let mut body = String::new();
    for n in 0..events {
        let id = format!("{session:08x}{round:016x}{n:08x}");
        let _ = writeln!(
            body,
            r#"{{"id":"{id}","created_at":"2026-01-01T00:00:00.000Z","metadata":{{}},"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"a few words of text "}}"#
        );
    }
    body
}

async fn post(router: &mut Router, session: usize, body: String) {
    let request = Request::post(format!("/v1/sessions/s{session}/events"))
        .header("turnwire-producer", "bench.1")
        .body(Body::from(body))
        .unwrap();
    let response = Service::<Request<Body>>::call(router, request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

async fn measure(events: usize, rounds: usize) {
    let config = Config::default();
    let caller = Auth::without_credentials(&config.limits).authenticate_token("").unwrap();
    let log = Arc::new(Log::new(Arc::new(MemoryStore::default()), "bench"));
    let app = App::new(config, log.clone(), BTreeMap::new()).unwrap();
    let mut router = router(app).layer(axum::Extension(caller));
    let begin = concat!(
        r#"{"id":"1","type":"REPLY_START","reply_id":"r","name":"friday"}"#,
        "\n",
        r#"{"id":"2","type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#
    );
    for session in 0..SESSIONS {
        let key = SessionKey::new("default", format!("s{session}"));
        let new = NewSession {
            key,
            agent: "external".to_owned(),
            title: String::new(),
            metadata: Fields::default(),
            now_ms: 0,
        };
        log.create_session(new).await.unwrap();
        post(&mut router, session, begin.to_owned()).await;
    }
    let mut best = f64::MAX;
    for round in 0..rounds {
        let bodies: Vec<String> =
            (0..SESSIONS).map(|session| body(session, round, events)).collect();
        let mut start = Instant::now();
        for (session, body) in bodies.into_iter().enumerate() {
            post(&mut router, session, body).await;
            // Short spans: what else runs on the machine does not fall into every one of them.
            if (session + 1) % SPAN == 0 {
                best = best.min(start.elapsed().as_nanos() as f64 / SPAN as f64);
                start = Instant::now();
            }
        }
    }
    println!(
        "{events:>4} events a request: {best:>8.0} ns a request, {:>6.0} ns an event",
        best / events as f64
    );
}

fn main() {
    // `cargo test --all-targets` starts this program too: unoptimized, and without `--bench`.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("nothing was measured; start it with `cargo bench`");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (events, rounds) in [(1, 100), (64, 20)] {
        runtime.block_on(measure(events, rounds));
    }
}
