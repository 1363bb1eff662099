//! A producer's name and fences belong to whoever holds its credentials.

use crate::checked_http::send_http;
use crate::harness::{ADMIN, Server, token};
use crate::running::within;
use serde_json::json;
use turnwire_log::store::{Producer, SessionKey};
use turnwire_log::{Error, Transaction};
use turnwire_testkit::net::HttpResponse;

const SCOPES: &str = r#""publish","chat","read""#;
const HIGHEST: &str = "p.9223372036854775807";

async fn server() -> Server {
    let tokens = [
        token(ADMIN, "acme", "\"admin\"", ""),
        token("tw_ada", "acme", SCOPES, "subject = \"ada\"\n"),
        token("tw_ada_2", "acme", SCOPES, "subject = \"ada\"\n"),
        token("tw_bob", "acme", SCOPES, "subject = \"bob\"\n"),
    ];
    let server = Server::start(&tokens.concat(), Vec::new());
    let made = json!({"id": "s", "agent": "external"}).to_string();
    assert_eq!(server.call("POST", "/v1/sessions", ADMIN, &made).await.status, 201);
    server
}

async fn send(
    server: &Server,
    route: &str,
    token: &str,
    producer: &str,
    body: &str,
) -> HttpResponse {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("turnwire-producer", producer)];
    let path = format!("/v1/sessions/s/{route}");
    within(send_http(server.address(), "POST", &path, &headers, body.as_bytes())).await.unwrap()
}

/// Publishes, and says with which status and which word it was answered.
async fn publish(server: &Server, token: &str, producer: &str, body: &str) -> (u16, String) {
    let answer = send(server, "events", token, producer, body).await;
    (answer.status, answer.error_type())
}

fn start(reply: &str) -> String {
    format!(r#"{{"id":"{reply}-1","reply_id":"{reply}","type":"REPLY_START","name":"x"}}"#)
}

fn end(reply: &str) -> String {
    format!(r#"{{"id":"{reply}-9","reply_id":"{reply}","type":"REPLY_END"}}"#)
}

fn custom(id: &str) -> String {
    format!(r#"{{"id":"{id}","reply_id":"","type":"CUSTOM","name":"x","value":1}}"#)
}

fn accepted() -> (u16, String) {
    (200, String::new())
}

fn refused(word: &str) -> (u16, String) {
    (409, word.to_owned())
}

#[tokio::test]
async fn another_holder_neither_takes_over_nor_locks_out() {
    let server = server().await;
    assert_eq!(publish(&server, "tw_ada", "p.5", &start("r")).await, accepted());
    for producer in ["p.6", HIGHEST, "p.5", "p.1"] {
        assert_eq!(publish(&server, "tw_bob", producer, &end("r")).await, refused("busy"));
        assert_eq!(publish(&server, "tw_bob", producer, &custom("c")).await, refused("busy"));
    }
    // Another worker with credentials of the same subject takes over.
    assert_eq!(publish(&server, "tw_ada_2", "p.6", &custom("c1")).await, accepted());
    assert_eq!(publish(&server, "tw_ada", "p.5", &end("r")).await, refused("fenced"));
    // So does an administrator, and the worker before is fenced out.
    assert_eq!(publish(&server, ADMIN, "p.5", &custom("c2")).await, refused("fenced"));
    assert_eq!(publish(&server, ADMIN, "p.7", &custom("c3")).await, accepted());
    assert_eq!(publish(&server, "tw_ada_2", "p.6", &end("r")).await, refused("fenced"));
    assert_eq!(publish(&server, "tw_ada", "p.8", &end("r")).await, accepted());
    // Where nothing is open the other may publish, under the same name and with any fence.
    let reply = [start("b"), end("b")].join("\n");
    assert_eq!(publish(&server, "tw_bob", HIGHEST, &reply).await, accepted());
    assert_eq!(publish(&server, "tw_bob", "p.1", &custom("c4")).await, refused("fenced"));
    // That fences nobody else out, and nobody else back in.
    assert_eq!(publish(&server, "tw_ada", "p.7", &custom("c5")).await, refused("fenced"));
    assert_eq!(publish(&server, "tw_ada", "p.8", &custom("c6")).await, accepted());
    server.stop().await;
}

#[tokio::test]
async fn a_piped_reply_is_its_holders_too() {
    let server = server().await;
    let reply = |id: &str| [start(id), end(id)].join("\n");
    assert_eq!(send(&server, "replies", "tw_ada", "p.5", &reply("a")).await.status, 200);
    assert_eq!(send(&server, "replies", "tw_bob", HIGHEST, &reply("b")).await.status, 200);
    let stale = send(&server, "replies", "tw_ada", "p.4", &reply("c")).await;
    assert_eq!((stale.status, stale.error_type().as_str()), (409, "fenced"));
    assert_eq!(send(&server, "replies", "tw_ada", "p.5", &reply("c")).await.status, 200);
    // While a reply is open that somebody else publishes.
    assert_eq!(publish(&server, "tw_ada", "p.5", &start("d")).await, accepted());
    let other = send(&server, "replies", "tw_bob", HIGHEST, &reply("e")).await;
    assert_eq!((other.status, other.error_type().as_str()), (409, "busy"));
    server.stop().await;
}

#[tokio::test]
async fn a_fence_beyond_the_highest_is_refused() {
    let server = server().await;
    for fence in ["9223372036854775808", "18446744073709551615", "18446744073709551616"] {
        for (route, body) in [("events", start("r")), ("replies", start("r"))] {
            let answer = send(&server, route, "tw_ada", &format!("p.{fence}"), &body).await;
            assert_eq!(
                (answer.status, answer.error_type().as_str()),
                (400, "bad_request"),
                "{fence}"
            );
            assert!(answer.text().contains("ID.FENCE"), "{}", answer.text());
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn many_names_of_one_holder_make_nobody_elses_fence_forgotten() {
    let server = server().await;
    assert_eq!(publish(&server, "tw_ada", "p.5", &custom("c")).await, accepted());
    for number in 0..50 {
        let producer = format!("n{number}.9");
        let answer = publish(&server, "tw_bob", &producer, &custom(&producer)).await;
        assert_eq!(answer, accepted());
    }
    assert_eq!(publish(&server, "tw_ada", "p.4", &custom("c2")).await, refused("fenced"));
    server.stop().await;
}

#[tokio::test]
async fn a_producer_that_was_stored_without_a_holder_is_the_first_ones_that_goes_on() {
    let server = server().await;
    assert_eq!(publish(&server, "tw_ada", "p.5", &start("r")).await, accepted());
    let session =
        server.app.log.open_session(&SessionKey::new("acme", "s")).await.unwrap().unwrap();
    let forget = |tx: &mut Transaction<'_>| {
        tx.set_producer(Producer { id: "p".to_owned(), fence: 5, holder: String::new() });
        Ok::<_, Error>(())
    };
    session.transact(&[], forget).await.unwrap();
    assert_eq!(publish(&server, "tw_bob", "p.4", &custom("c1")).await, refused("fenced"));
    assert_eq!(publish(&server, "tw_bob", "p.5", &custom("c2")).await, accepted());
    assert_eq!(publish(&server, "tw_ada", "p.6", &custom("c3")).await, refused("busy"));
    server.stop().await;
}
