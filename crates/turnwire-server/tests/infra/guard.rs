//! Hosts, origins, request ids, and unknown routes.

use crate::harness::{read_answer, start, within};
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn an_unknown_host_is_refused() {
    let server = start("hosts = [\"chat.example\"]");
    let status = async |host: &str| server.send("GET", "/healthz", &[("host", host)]).await.status;
    assert_eq!(status("chat.example").await, 200);
    assert_eq!(status("localhost").await, 200);
    assert_eq!(status("rebound.example").await, 421);
    assert_eq!(status("").await, 421);
    server.stop().await;
}

#[tokio::test]
async fn a_request_has_one_host() {
    let server = start("");
    for request in [
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
        "GET /healthz HTTP/1.0\r\n\r\n",
    ] {
        let mut stream = server.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(within(read_answer(&mut stream)).await.unwrap().status, 400, "{request}");
    }
    // The URI of a request wins over its header, so the URI is checked.
    let mut stream = server.connect().await;
    let request = "GET http://rebound.example/healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(within(read_answer(&mut stream)).await.unwrap().status, 421);
    server.stop().await;
}

#[tokio::test]
async fn pages_elsewhere_are_refused_unless_they_are_configured() {
    let server = start("origins = [\"https://app.example\"]");
    let own = format!("http://{}", server.address);
    let send = async |method: &str, origin: &str| {
        server
            .send(
                method,
                "/v1/agents",
                &[("origin", origin), ("access-control-request-method", "POST")],
            )
            .await
    };
    let answer = send("GET", "https://app.example").await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(answer.header("vary"), Some("origin"));
    let answer = send("GET", &own).await;
    assert_ne!(answer.status, 403);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    for method in ["GET", "POST", "OPTIONS"] {
        let answer = send(method, "https://evil.example").await;
        assert_eq!(answer.status, 403, "{method}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let answer = send("OPTIONS", "https://app.example").await;
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(answer.header("access-control-allow-headers").unwrap().contains("last-event-id"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_a_request_id() {
    let server = start("");
    let given = server.send("GET", "/healthz", &[("x-request-id", "my-1")]).await;
    assert_eq!(given.header("x-request-id"), Some("my-1"));
    let bad = server.send("GET", "/healthz", &[("x-request-id", "a b<c>")]).await;
    assert_eq!(bad.header("x-request-id").map(str::len), Some(23));
    let refused = server.send("GET", "/healthz", &[("host", "evil.example")]).await;
    assert!(refused.header("x-request-id").is_some());
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_said_in_the_same_form() {
    let server = start("");
    let answer = server.get("/v1/nothing").await;
    assert_eq!((answer.status, answer.kind().as_str()), (404, "not_found"));
    let answer = server.send("DELETE", "/v1/agents", &[]).await;
    assert_eq!((answer.status, answer.kind().as_str()), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    for status in [404, 405] {
        let name =
            format!("turnwire_http_requests_total{{method=\"\",route=\"\",status=\"{status}\"}}");
        assert_eq!(server.metric(&name), 1);
    }
    let answer = server.get("/v1/sessions/%ff").await;
    assert!((400..=501).contains(&answer.status) && answer.json()["error"].is_object());
    server.stop().await;
}

#[tokio::test]
async fn every_path_of_the_description_is_there() {
    let server = start("");
    let document = server.get("/openapi.json").await.json();
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path =
                path.replace("{s}", "s1").replace("{id}", "m1").replace("{hash}", &"0".repeat(64));
            let answer = server.send(&method.to_uppercase(), &path, &[]).await;
            let unrouted = answer.status == 405 || answer.body.contains("no such path");
            assert!(!unrouted, "{method} {path}: {answer:?}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
    server.stop().await;
}

#[tokio::test]
async fn no_answer_may_be_taken_for_something_else_than_it_says() {
    let server = start(&crate::harness::token("tw_good", "acme", "read,chat"));
    let good = ("authorization", "Bearer tw_good");
    for (method, path, headers, status) in [
        ("GET", "/healthz", &[][..], 200),
        ("GET", "/openapi.json", &[], 200),
        ("GET", "/", &[], 200),
        ("GET", "/metrics", &[], 200),
        ("GET", "/v1/sessions", &[good], 200),
        ("GET", "/v1/sessions", &[], 401),
        ("GET", "/v1/sessions/none", &[good], 404),
        ("POST", "/v1/sessions/s/events", &[good], 404),
        ("POST", "/v1/sessions/s/events", &[], 401),
        ("GET", "/v1/messages", &[good], 405),
        ("GET", "/v1/models/none", &[good], 404),
        ("GET", "/nowhere", &[], 404),
        ("GET", "/healthz", &[("host", "evil.example")], 421),
        ("GET", "/healthz", &[("origin", "https://evil.example")], 403),
    ] {
        let answer = server.send(method, path, headers).await;
        assert_eq!(answer.status, status, "{path} {answer:?}");
        let sniffing = answer.header("x-content-type-options");
        assert_eq!(sniffing, Some("nosniff"), "{method} {path} {headers:?}: {answer:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_console_may_load_nothing_but_what_is_here() {
    let server = start("");
    let page = server.get("/").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'),
        "{policy}"
    );
    // The page itself is revalidated; its assets have hashed names.
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    let named: Vec<&str> =
        page.body.split('"').filter_map(|part| part.strip_prefix("./assets/")).collect();
    assert!(!named.is_empty(), "{}", page.body);
    for name in named {
        let file = server.get(&format!("/assets/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(server.get("/favicon.svg").await.header("content-type"), Some("image/svg+xml"));
    server.stop().await;
}

#[tokio::test]
async fn the_console_is_compressed_for_who_reads_that_and_sent_once() {
    let server = start("");
    let page = server.get("/").await;
    assert_eq!(
        (page.header("content-encoding"), page.header("vary")),
        (None, Some("accept-encoding"))
    );
    for (accepts, expected) in [
        ("gzip, deflate, br", Some("gzip")),
        ("br;q=1.0, GZIP;q=0.5", Some("gzip")),
        ("gzip;q=0", None),
        ("br", None),
    ] {
        let answer = server.send("GET", "/", &[("accept-encoding", accepts)]).await;
        assert_eq!(answer.header("content-encoding"), expected, "{accepts}");
    }
    let etag = page.header("etag").unwrap();
    for known in [etag.to_owned(), format!("W/{etag}"), format!("\"other\", {etag}")] {
        let again = server.send("GET", "/", &[("if-none-match", &known)]).await;
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{known}");
    }
    assert_eq!(server.send("GET", "/", &[("if-none-match", "\"other\"")]).await.status, 200);
    let gone = server.get("/assets/index-old.js").await;
    assert_eq!(gone.status, 404);
    assert!(gone.json()["error"]["hint"].as_str().unwrap().contains("reload the page"));
    server.stop().await;
}
