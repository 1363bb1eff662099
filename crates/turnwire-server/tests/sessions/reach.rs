//! Somebody whose credentials reach only some sessions learns nothing of the others: every answer is
//! the same whether or not they are there.

use crate::harness::{Server, asking, publish, reply, user_message};
use serde_json::{Value, json};
use turnwire_server::auth::Scopes;

const REACHED: &[&str] = &["mine", "team:*"];

/// The sessions that are within reach, and what is in them.
async fn make_reached(server: &Server) {
    publish(&server.make("mine").await, &[user_message("u", "a plain word")]).await;
    publish(&server.make("team:1").await, &reply("r", "a plain secret")).await;
    publish(&server.make("team:2").await, &asking("a")).await;
    publish(&server.make("team:3").await, &[user_message("u", "nothing")]).await;
}

/// Sessions that are not, older and newer than the others, with all that an answer could depend on.
async fn make_others(server: &Server, name: &str) {
    for n in 0..60 {
        let session = server.make(&format!("{name}-{n}")).await;
        match n % 3 {
            0 => publish(&session, &[user_message("u", "the secret word plain hunter2")]).await,
            1 => publish(&session, &reply("r", "hunter2 secret")).await,
            _ => publish(&session, &asking("a")).await,
        }
    }
    for id in ["min", "mine2", "team", "teal:1", "team.1", "Mine"] {
        publish(&server.make(id).await, &[user_message("u", "secret hunter2")]).await;
    }
}

/// Two servers that differ in what is out of reach, seen with limited credentials.
async fn two_servers() -> [Server; 2] {
    let (alone, crowded) = (Server::new(), Server::new());
    make_reached(&alone).await;
    make_others(&crowded, "before").await;
    make_reached(&crowded).await;
    for n in 0..60 {
        publish(&crowded.make(&format!("after-{n}")).await, &[user_message("u", "secret hunter2")])
            .await;
    }
    [alone, crowded].map(|server| server.seen_by(Some(REACHED), Scopes::all()))
}

/// An answer without what is random or a time.
fn plain(mut value: Value) -> Value {
    const RANDOM: &[&str] =
        &["epoch", "last_event_id", "created_at", "updated_at", "since", "expires_at"];
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|name, _| !RANDOM.contains(&name.as_str()));
            for field in fields.values_mut() {
                *field = plain(field.take());
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = plain(item.take());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

/// All pages of a list, each without its cursor, but with whether it has one.
async fn pages(server: &Server, path: &str) -> Vec<Value> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut page = server.get(&format!("{path}{cursor}")).await.expect(200);
        let next = page["next_cursor"].take();
        pages.push(json!({"page": plain(page), "has_next": next.is_string()}));
        let Some(next) = next.as_str() else { return pages };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn lists_and_searches_are_the_same_whatever_is_out_of_reach() {
    let [alone, crowded] = two_servers().await;
    for query in [
        "limit=1",
        "limit=2",
        "limit=3",
        "limit=4",
        "limit=50",
        "limit=1&q=secret",
        "limit=1&q=hunter2",
        "limit=1&q=hunt",
        "limit=1&q=hunter",
        "limit=1&q=plain",
        "limit=2&q=pl+wo",
        "limit=1&q=h",
        "limit=1&status=waiting",
        "limit=2&status=idle",
        "limit=1&status=running",
        "limit=1&status=idle&q=secret",
    ] {
        let path = format!("/v1/sessions?{query}");
        let expected = pages(&alone, &path).await;
        assert_eq!(pages(&crowded, &path).await, expected, "{query}");
        let (last, full) = expected.split_last().unwrap();
        assert_eq!(last["has_next"], false);
        for page in full {
            assert!(page["page"]["sessions"].as_array().is_some_and(|list| !list.is_empty()));
        }
    }
}

#[tokio::test]
async fn approvals_agents_and_usage_are_the_same_whatever_is_out_of_reach() {
    let [alone, crowded] = two_servers().await;
    for path in [
        "/v1/approvals",
        "/v1/approvals?limit=1",
        "/v1/agents",
        "/v1/agents?usage=true",
        "/v1/models",
        "/v1/sessions/mine",
        "/v1/sessions/before-0",
        "/v1/sessions/before-0/messages",
        "/v1/sessions/before-0/events",
        "/v2/sessions/before-0/history",
    ] {
        let (one, other) = (alone.get(path).await, crowded.get(path).await);
        assert_eq!((one.status, plain(one.json())), (other.status, plain(other.json())), "{path}");
    }
}

#[tokio::test]
async fn a_name_out_of_reach_is_answered_the_same_whether_or_not_it_is_taken() {
    let server = Server::new();
    make_reached(&server).await;
    make_others(&server, "taken").await;
    let limited = server.seen_by(Some(REACHED), Scopes::all());
    for (method, path, body) in [
        ("POST", "/v1/sessions", r#"{"id":"NAME"}"#),
        ("POST", "/v1/sessions/mine/fork", r#"{"id":"NAME"}"#),
        ("PATCH", "/v1/sessions/NAME", r#"{"title":"x"}"#),
        ("DELETE", "/v1/sessions/NAME", ""),
        ("POST", "/v1/sessions/NAME/messages", r#"{"content":"x"}"#),
        ("POST", "/v1/sessions/NAME/stop", ""),
        ("POST", "/ag-ui/demo", r#"{"threadId":"NAME","runId":"r","messages":[]}"#),
        ("GET", "/v2/sessions/NAME/history", ""),
    ] {
        let ask = async |name: &str| {
            let (path, body) = (path.replace("NAME", name), body.replace("NAME", name));
            let answer = limited.call(method, &path, body).await;
            (answer.status, String::from_utf8_lossy(&answer.bytes).replace(name, "NAME"))
        };
        let taken = ask("taken-0").await;
        assert!(taken.0.is_client_error(), "{method} {path}: {taken:?}");
        assert_eq!(taken, ask("free-0").await, "{method} {path}");
    }
}

#[tokio::test]
async fn a_cursor_tells_only_what_the_page_showed_and_reaches_nothing_else() {
    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
    let server = Server::new();
    make_others(&server, "before").await;
    make_reached(&server).await;
    let limited = server.seen_by(Some(REACHED), Scopes::all());
    let page = limited.get("/v1/sessions?limit=1").await.expect(200);
    let last = &page["sessions"][0];
    let cursor = BASE64.decode(page["next_cursor"].as_str().unwrap()).unwrap();
    let cursor = String::from_utf8(cursor).unwrap();
    let updated: jiff::Timestamp = last["updated_at"].as_str().unwrap().parse().unwrap();
    let id = last["id"].as_str().unwrap();
    assert_eq!(cursor, format!("1.{}.{id}", updated.as_millisecond()));
    // Made by hand.
    let forged = async |text: &str| {
        limited.get(&format!("/v1/sessions?cursor={}", BASE64.encode(text))).await
    };
    let taken = forged("1.5.before-0").await;
    taken.expect(400);
    assert_eq!(taken.bytes, forged("1.5.nobody").await.bytes);
    for within in ["1.99999999999999.mine", "1.99999999999999.team:none", "1.-5.mine"] {
        let page = forged(within).await.expect(200);
        let sessions = page["sessions"].as_array().unwrap();
        let names = sessions.iter().map(|session| session["id"].as_str().unwrap());
        assert!(names.into_iter().all(|id| id == "mine" || id.starts_with("team:")));
    }
}

#[tokio::test]
async fn a_search_with_too_many_words_or_bytes_is_refused() {
    let server = Server::new();
    publish(&server.make("s").await, &[user_message("u", "plain words")]).await;
    let letters: Vec<String> =
        (0..6500).map(|n| char::from(b'a' + u8::try_from(n % 26).unwrap()).to_string()).collect();
    let numbers: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    for query in [letters.join("+"), numbers.join("+"), "x".repeat(513), "%E4%BB%8A".repeat(171)] {
        let answer = server.get(&format!("/v1/sessions?q={query}")).await;
        assert_eq!(answer.expect(400)["error"]["type"], "search_too_long");
    }
    let many = "plain+words+".repeat(30);
    let page = server.get(&format!("/v1/sessions?q={many}")).await.expect(200);
    assert_eq!(page["sessions"][0]["id"], "s");
}
