//! Make, list, look at, change, delete.

use crate::harness::{Server, asking, publish, reply, user_message};
use serde_json::{Value, json};
use turnwire_server::auth::Scopes;

fn ids(page: &Value) -> Vec<&str> {
    let sessions = page["sessions"].as_array().unwrap();
    sessions.iter().map(|session| session["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_session_is_made_once_and_found_again() {
    let server = Server::new();
    let body = r#"{"id":"s.1","title":"First","metadata":{"n":1.10}}"#;
    let made = server.post("/v1/sessions", body).await.expect(201);
    let epoch = made["epoch"].as_str().unwrap();
    let mut expected = json!({
        "id": "s.1", "agent": "demo", "title": "First", "status": "idle", "epoch": epoch,
        "last_seq": 0, "last_event_id": format!("{epoch}.0"), "pending": [], "queued": [],
        "usage": made["usage"], "created_at": made["created_at"],
        "updated_at": made["created_at"], "metadata": {"n": 1.10},
    });
    assert_eq!(made, expected);
    assert!(made["created_at"].as_str().unwrap().ends_with('Z'));
    let again = server.post("/v1/sessions", r#"{"id":"s.1","title":"Other"}"#).await.expect(200);
    assert_eq!(again, made);
    publish(&server.session("s.1").await, &[user_message("u", "hi")]).await;
    expected["last_seq"] = json!(1);
    expected["last_event_id"] = json!(format!("{epoch}.1"));
    let changed = server.get("/v1/sessions/s.1").await.expect(200);
    assert!(changed["updated_at"].as_str() >= made["updated_at"].as_str(), "{changed}");
    expected["updated_at"] = changed["updated_at"].clone();
    assert_eq!(changed, expected);
}

#[tokio::test]
async fn without_an_id_each_session_gets_one_of_its_own() {
    let server = Server::new();
    let first = server.post("/v1/sessions", "").await.expect(201);
    let second = server.post("/v1/sessions", "{}").await.expect(201);
    assert_eq!(first["id"].as_str().unwrap().len(), 32);
    assert_eq!(first["title"], Value::Null);
    assert_ne!(first["id"], second["id"]);
}

#[tokio::test]
async fn what_is_wrong_with_a_new_session_is_named() {
    let server = Server::new();
    let long = format!(r#"{{"title":"{}"}}"#, "x".repeat(1001));
    let heavy = format!(r#"{{"metadata":{{"x":"{}"}}}}"#, "x".repeat(70_000));
    for (body, status, word) in [
        (r#"{"id":"a/b"}"#, 400, "A-Z"),
        (r#"{"id":""}"#, 400, "A-Z"),
        (r#"{"id":7}"#, 400, "string"),
        (r#"{"titel":"x"}"#, 400, "titel"),
        (r#"{"metadata":[]}"#, 400, "object"),
        ("[", 400, "JSON"),
        ("\u{0}", 400, "JSON"),
        (r#"{"agent":"nobody"}"#, 422, "demo, external"),
        (&long, 422, "title"),
        (&heavy, 422, "metadata"),
    ] {
        let answer = server.post("/v1/sessions", body).await;
        let error = answer.expect(status)["error"].to_string();
        assert!(error.contains(word), "{body}: {error}");
    }
    let none = server.get("/v1/sessions").await.expect(200);
    assert_eq!(none, json!({"sessions": [], "next_cursor": null}));
}

#[tokio::test]
async fn title_and_metadata_can_be_changed_and_nothing_else() {
    let server = Server::new();
    server.make("s").await;
    let path = "/v1/sessions/s";
    let patched = server.call("PATCH", path, r#"{"title":"New","metadata":{"a":1}}"#).await;
    assert_eq!(patched.expect(200)["title"], "New");
    let patched = server.call("PATCH", path, r#"{"title":null}"#).await.expect(200);
    assert_eq!((&patched["title"], &patched["metadata"]), (&Value::Null, &json!({"a": 1})));
    let wrong = server.call("PATCH", path, r#"{"agent":"demo"}"#).await.expect(400);
    assert!(wrong["error"]["message"].as_str().unwrap().contains("agent"));
    server.call("PATCH", "/v1/sessions/none", "{}").await.expect(404);
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_another_of_its_name_is_another() {
    let server = Server::new();
    let old = server.make("s").await;
    publish(&old, &reply("r", "Hello")[..3]).await;
    server.call("DELETE", "/v1/sessions/s", "").await.expect(204);
    for (method, path) in [
        ("GET", "/v1/sessions/s"),
        ("DELETE", "/v1/sessions/s"),
        ("GET", "/v1/sessions/s/messages"),
        ("GET", "/v1/sessions/s/messages/r"),
        ("POST", "/v1/sessions/s/fork"),
    ] {
        let error = server.call(method, path, "").await.expect(404);
        assert_eq!(error["error"]["type"], "not_found", "{method} {path}");
    }
    let new = server.make("s").await;
    assert_ne!(new.epoch(), old.epoch());
    assert_eq!(server.get("/v1/sessions/s").await.expect(200)["last_seq"], 0);
}

#[tokio::test]
async fn what_waits_shows_in_the_session_and_in_the_list() {
    let server = Server::with("[agents.friday]\nmodel = \"demo\"\napproval_timeout = \"90s\"");
    server.make("idle").await;
    let key = turnwire_log::store::SessionKey::new("default", "s");
    let new = turnwire_log::store::NewSession {
        key,
        agent: "friday".to_owned(),
        title: String::new(),
        metadata: turnwire_core::Fields::default(),
        now_ms: 0,
    };
    let (session, _) = server.app.log.create_session(new).await.unwrap();
    publish(&session, &asking("r")).await;
    let one = server.get("/v1/sessions/s").await.expect(200);
    assert_eq!(one["status"], "waiting");
    let pending = &one["pending"][0];
    assert_eq!(pending["confirm"][0]["name"], "trade");
    assert_eq!(pending["since"], "2026-01-01T00:00:00.000Z");
    assert_eq!(pending["expires_at"], "2026-01-01T00:01:30.000Z");
    assert_eq!((&pending["reply_id"], &pending["external"]), (&json!("r"), &json!([])));
    assert!(pending.get("agent_path").is_none());
    let page = server.get("/v1/sessions?status=waiting").await.expect(200);
    assert_eq!(page["sessions"], json!([one]));
    server.get("/v1/sessions?status=asleep").await.expect(400);
}

#[tokio::test]
async fn pages_have_every_session_once_the_latest_first() {
    let server = Server::new();
    for n in 0..25 {
        server.make(&format!("s{n}")).await;
    }
    let (mut seen, mut path) = (Vec::new(), "/v1/sessions?limit=10".to_owned());
    let mut sizes = Vec::new();
    loop {
        let page = server.get(&path).await.expect(200);
        sizes.push(ids(&page).len());
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/sessions?limit=10&cursor={cursor}");
    }
    assert_eq!(sizes, [10, 10, 5]);
    let expected: Vec<String> = (0..25).rev().map(|n| format!("s{n}")).collect();
    assert_eq!(seen, expected);
    let all = server.get("/v1/sessions?limit=25").await.expect(200);
    assert_eq!(all["next_cursor"], Value::Null);
    for wrong in ["cursor=x", "cursor=", "limit=-1", "limit=x"] {
        server.get(&format!("/v1/sessions?{wrong}")).await.expect(400);
    }
    assert_eq!(ids(&server.get("/v1/sessions?limit=0").await.expect(200)).len(), 1);
    assert_eq!(ids(&server.get("/v1/sessions?limit=9999").await.expect(200)).len(), 25);
}

#[tokio::test]
async fn a_search_finds_what_was_said() {
    let server = Server::new();
    publish(&server.make("a").await, &[user_message("u", "the quick fox")]).await;
    publish(&server.make("b").await, &reply("r", "a lazy dog")).await;
    assert_eq!(ids(&server.get("/v1/sessions?q=lazy").await.expect(200)), ["b"]);
    assert_eq!(ids(&server.get("/v1/sessions?q=fox+quick").await.expect(200)), ["a"]);
    assert_eq!(ids(&server.get("/v1/sessions?q=cat").await.expect(200)).len(), 0);
    assert_eq!(ids(&server.get("/v1/sessions?q=").await.expect(200)).len(), 2);
}

#[tokio::test]
async fn who_reaches_only_some_sessions_sees_only_those() {
    let server = Server::new();
    for id in ["a", "team:1", "b", "team:2"] {
        server.make(id).await;
    }
    let bound = server.seen_by(Some(&["b", "team:*"]), Scopes::all());
    let page = bound.get("/v1/sessions").await.expect(200);
    assert_eq!(ids(&page), ["team:2", "b", "team:1"]);
    bound.get("/v1/sessions/a").await.expect(404);
    bound.call("DELETE", "/v1/sessions/a", "").await.expect(404);
    bound.post("/v1/sessions", r#"{"id":"c"}"#).await.expect(404);
    bound.post("/v1/sessions", "").await.expect(403);
    bound.post("/v1/sessions", r#"{"id":"team:3"}"#).await.expect(201);
    bound.post("/v1/sessions/b/fork", r#"{"id":"c"}"#).await.expect(404);
    // Many that are out of reach do not hide those behind them.
    for n in 0..450 {
        server.make(&format!("x{n}")).await;
    }
    let page = bound.get("/v1/sessions?limit=2").await.expect(200);
    assert_eq!(ids(&page), ["team:3", "team:2"]);
    let next = format!("/v1/sessions?limit=2&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(ids(&bound.get(&next).await.expect(200)), ["b", "team:1"]);
}

#[tokio::test]
async fn reading_does_not_allow_to_change() {
    let server = Server::new();
    server.make("s").await;
    let reader = server.seen_by(None, [turnwire_server::Scope::Read].into_iter().collect());
    reader.get("/v1/sessions/s").await.expect(200);
    reader.get("/v1/sessions").await.expect(200);
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("PATCH", "/v1/sessions/s"),
        ("DELETE", "/v1/sessions/s"),
        ("POST", "/v1/sessions/s/fork"),
        ("POST", "/v1/blobs"),
    ] {
        reader.call(method, path, "").await.expect(403);
    }
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_with_those_that_the_route_has() {
    let server = Server::new();
    server.make("s").await;
    for (method, path, name, hint) in [
        ("GET", "/v1/sessions?limt=1", "limt", "this route has: q, status, cursor, limit"),
        ("GET", "/v1/sessions/s?x", "x", "this route has no query parameters"),
        ("POST", "/v1/sessions/s/events?tolerent=true", "tolerent", "tolerant"),
        ("GET", "/v1/sessions/s/messages?limit=1&befor=m", "befor", "before"),
        ("GET", "/healthz?verbose", "verbose", "no query parameters"),
    ] {
        let error = server.call(method, path, "").await.expect(400);
        assert_eq!(error["error"]["type"], "unknown_parameter", "{path}");
        let message = format!("unknown query parameter `{name}`");
        assert_eq!(error["error"]["message"], message.as_str(), "{path}");
        let given_hint = error["error"]["hint"].as_str().unwrap();
        for word in hint.split(", ") {
            assert!(given_hint.contains(word), "{path}: {given_hint}");
        }
    }
    // Clients of other protocols add parameters of their own, such as `beta`.
    server.get("/v1/models?beta=true&limit=20").await.expect(200);
    let refused = server.post("/v1/messages?beta=true", "{}").await;
    assert!(!refused.json().to_string().contains("query parameter"));
}
