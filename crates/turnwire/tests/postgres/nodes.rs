//! Two servers over one database: what one does, the other knows.

use crate::harness::{Running, command, run, server};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

/// The body of a response.
fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn sessions_blobs_tickets_and_searches_are_the_same_at_every_node() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = server.url(&server.create_database());
    let (_, settings, _) = run(folder, &["token", "new", "--scopes", "admin"]);
    std::fs::write(folder.join("turnwire.toml"), &settings).unwrap();
    let token = settings.lines().nth(1).unwrap().trim_start_matches("# ");
    let headers = format!("authorization: Bearer {token}\r\n");
    let start = || Running::start_with(folder, &url, &["--config", "turnwire.toml"]);
    let (mut one, mut two) = (start(), start());
    one.headers.clone_from(&headers);
    two.headers.clone_from(&headers);

    let new = r#"{"id":"paris","agent":"demo","title":"Trip"}"#;
    assert!(one.request("POST", "/v1/sessions", new).starts_with("HTTP/1.1 201"));
    assert!(two.request("POST", "/v1/sessions", new).starts_with("HTTP/1.1 200"));
    let sent = one.request("POST", "/v1/sessions/paris/messages", r#"{"content":"rain in Paris"}"#);
    assert!(sent.starts_with("HTTP/1.1 202"), "{sent}");
    let followed = two.request("GET", "/v1/sessions/paris/events?after=0&until=idle", "");
    assert!(followed.contains("REPLY_END"), "{followed}");
    for path in ["/v1/sessions?q=paris", "/v1/sessions/paris/search?q=rain", "/v1/sessions/paris"] {
        let [here, there] = [&one, &two].map(|node| node.request("GET", path, ""));
        assert!(body(&here).contains("paris") || body(&here).contains("excerpt"), "{here}");
        assert_eq!(body(&here), body(&there), "{path}");
    }
    let usage = |node: &Running| node.request("GET", "/v1/agents?usage=true", "");
    assert_eq!(body(&usage(&one)), body(&usage(&two)));
    // The first node owns the session, and the second one changes it.
    let changed = two.request("PATCH", "/v1/sessions/paris", r#"{"title":"Journey"}"#);
    assert!(changed.starts_with("HTTP/1.1 200"), "{changed}");
    assert!(one.request("GET", "/v1/sessions/paris", "").contains("Journey"));

    let stored: Value =
        serde_json::from_str(body(&one.request("POST", "/v1/blobs", "{}"))).unwrap();
    let blob = format!("/v1/blobs/{}", stored["id"].as_str().unwrap());
    assert_eq!(body(&two.request("GET", &blob, "")), "{}");
    assert!(two.request("DELETE", &blob, "").starts_with("HTTP/1.1 204"));
    assert!(one.request("GET", &blob, "").starts_with("HTTP/1.1 404"));

    let ticket: Value =
        serde_json::from_str(body(&one.request("POST", "/v1/tickets", ""))).unwrap();
    let ticket = ticket["ticket"].as_str().unwrap();
    let path = format!("/v1/sessions/paris/events?after=0&until=idle&ticket={ticket}");
    (one.headers, two.headers) = (String::new(), String::new());
    assert!(two.request("GET", &path, "").starts_with("HTTP/1.1 200"));
    let again = [&one, &two].map(|node| node.request("GET", &path, ""));
    assert!(again.iter().all(|answer| answer.starts_with("HTTP/1.1 401")), "{again:?}");
    two.headers = headers;
    assert!(two.request("DELETE", "/v1/sessions/paris", "").starts_with("HTTP/1.1 204"));
    one.headers.clone_from(&two.headers);
    assert!(one.request("GET", "/v1/sessions/paris", "").starts_with("HTTP/1.1 404"));
}

#[test]
fn nodes_that_cannot_reach_each_other_show_everything_and_refuse_what_only_the_owner_can_do() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url(&server.create_database());
    // Connections to it are opened, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!(
        "[cluster]\nlease = \"2s\"\npoll = \"200ms\"\nadvertise = \"{}\"\n",
        silent.local_addr().unwrap()
    );
    std::fs::write(folder.path().join("turnwire.toml"), settings).unwrap();
    let start = || Running::start_with(folder.path(), &url, &["--config", "turnwire.toml"]);
    let (mut one, mut two) = (start(), start());
    for node in [&mut one, &mut two] {
        "turnwire-producer: test.1\r\n".clone_into(&mut node.headers);
    }
    let new = r#"{"id":"s","agent":"external"}"#;
    assert!(two.request("POST", "/v1/sessions", new).starts_with("HTTP/1.1 201"));
    let publish = |node: &Running, id: &str| {
        let event = format!(r#"{{"id":"{id}","type":"CUSTOM","name":"mark","value":1}}"#);
        node.request("POST", "/v1/sessions/s/events", &event)
    };
    let first = publish(&two, "first");
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    let mut seen = one.follow("/v1/sessions/s/events?after=0");
    for id in ["first", "second", "third"] {
        if id != "first" {
            let stored = publish(&two, id);
            assert!(stored.starts_with("HTTP/1.1 200"), "{stored}");
        }
        let wanted = format!("\"id\":\"{id}\"");
        assert!(seen.any(|line| line.contains(&wanted)), "{id} does not come");
    }
    let refused = publish(&one, "fourth");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.to_ascii_lowercase().contains("\r\nretry-after: "), "{refused}");
    let log = one.request("GET", "/v1/sessions/s/events?after=0&until=idle", "");
    assert!(log.contains("third") && !log.contains("fourth"), "{log}");
}

/// What the database is asked while one node publishes and so many subscribers follow at another.
fn count_statements(watchers: &str) -> Option<usize> {
    let server = server()?;
    let folder = tempfile::tempdir().unwrap();
    let database = server.create_database();
    let url = server.url(&database);
    let (one, two) = (Running::start(folder.path(), &url), Running::start(folder.path(), &url));
    let args = ["bench", "--url", &one.url(), "fanout", "--watch-url", &two.url(), "--rate", "50"];
    let args = [&args[..], &["--seconds", "10", "--watchers", watchers]].concat();
    let mut bench = command(folder.path(), &args).stdout(Stdio::null()).spawn().unwrap();
    let streams = || {
        let metrics = two.request("GET", "/metrics", "");
        let open = metrics.lines().filter(|line| line.starts_with("turnwire_streams{"));
        open.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<u32>().ok()).sum::<u32>()
    };
    while streams() < watchers.parse().unwrap() {
        assert!(bench.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let count = server.count_statements(&database, Duration::from_secs(4));
    assert!(bench.wait().unwrap().success(), "events were lost, doubled or reordered");
    Some(count)
}

#[test]
fn hundreds_of_subscribers_of_a_session_cost_the_database_as_much_as_one() {
    let (Some(one), Some(many)) = (count_statements("1"), count_statements("300")) else { return };
    eprintln!("statements: {one} for one subscriber, {many} for 300");
    assert!(many < one * 2 + 100, "{many} statements for 300 subscribers, {one} for one");
}
