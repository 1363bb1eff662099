//! Blobs.

use crate::harness::{Answer, Server};
use axum::body::Body;
use http::Request;
use turnwire_server::Scope;

async fn put(server: &Server, media_type: Option<&str>, bytes: impl Into<Body>) -> Answer {
    let mut request = Request::post("/v1/blobs");
    if let Some(media_type) = media_type {
        request = request.header("content-type", media_type);
    }
    server.send(request.body(bytes.into()).unwrap()).await
}

async fn get(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(Body::empty()).unwrap()).await
}

const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

#[tokio::test]
async fn bytes_come_back_as_they_went() {
    let server = Server::new();
    let stored = put(&server, Some("image/png"), "hello").await.expect(201);
    let path = format!("/v1/blobs/{HELLO}");
    let expected = serde_json::json!({
        "id": HELLO, "url": format!("http://127.0.0.1:4747{path}"), "size": 5, "media_type": "image/png",
    });
    assert_eq!(stored, expected);
    // Whoever comes later finds what is there.
    assert_eq!(put(&server, Some("text/html"), "hello").await.expect(200), expected);
    let blob = server.get(&path).await;
    assert_eq!((blob.status.as_u16(), &blob.bytes[..]), (200, &b"hello"[..]));
    assert_eq!(blob.headers["content-type"], "image/png");
    assert_eq!(blob.headers["etag"], format!("\"{HELLO}\""));
    assert_eq!(blob.headers["content-disposition"], "inline");
    assert!(blob.headers["cache-control"].to_str().unwrap().contains("immutable"));
    let head = get(&server, "HEAD", &path, &[]).await;
    assert_eq!((head.status.as_u16(), head.bytes.len()), (200, 0));
    assert_eq!(head.headers["content-length"], "5");
}

#[tokio::test]
async fn a_client_that_has_it_gets_nothing_and_one_that_wants_a_part_gets_that() {
    let server = Server::new();
    put(&server, None, "hello").await.expect(201);
    let path = format!("/v1/blobs/{HELLO}");
    let tag = format!("\"{HELLO}\"");
    for value in [tag.as_str(), "*", &format!("\"x\", W/{tag}")] {
        let same = get(&server, "GET", &path, &[("if-none-match", value)]).await;
        assert_eq!((same.status.as_u16(), same.bytes.len()), (304, 0), "{value}");
        assert_eq!(same.headers["etag"], tag);
    }
    let other = get(&server, "GET", &path, &[("if-none-match", "\"x\"")]).await;
    assert_eq!(other.status, 200);
    let part = get(&server, "GET", &path, &[("range", "bytes=1-3")]).await;
    assert_eq!((part.status.as_u16(), &part.bytes[..]), (206, &b"ell"[..]));
    assert_eq!(part.headers["content-range"], "bytes 1-3/5");
    let beyond = get(&server, "GET", &path, &[("range", "bytes=5-")]).await;
    beyond.expect(416);
    assert_eq!(beyond.headers["content-range"], "bytes */5");
    let stale = get(&server, "GET", &path, &[("range", "bytes=1-3"), ("if-range", "\"x\"")]).await;
    assert_eq!((stale.status.as_u16(), &stale.bytes[..]), (200, &b"hello"[..]));
}

#[tokio::test]
async fn a_page_that_was_stored_cannot_act_here() {
    let server = Server::new();
    for kind in ["text/html", "image/svg+xml", "text/xml", "application/javascript"] {
        let id =
            put(&server, Some(kind), format!("<script>{kind}")).await.expect(201)["id"].clone();
        let blob = server.get(&format!("/v1/blobs/{}", id.as_str().unwrap())).await;
        assert_eq!(blob.headers["content-disposition"], "attachment", "{kind}");
        assert_eq!(blob.headers["x-content-type-options"], "nosniff");
        let policy = blob.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"), "{policy}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_blob_is_said() {
    let server = Server::with("[limits]\nblob = \"1 KiB\"");
    put(&server, None, "x".repeat(1025)).await.expect(413);
    put(&server, None, "x".repeat(1024)).await.expect(201);
    for wrong in ["png", "image/", "/png", "a b/c", "image/p\u{e4}ng", &"x".repeat(300)] {
        put(&server, Some(wrong), "x").await.expect(400);
    }
    server.get("/v1/blobs/zz").await.expect(400);
    server.get(&format!("/v1/blobs/{}", "z".repeat(64))).await.expect(400);
    server.get(&format!("/v1/blobs/{HELLO}")).await.expect(404);
    let publisher = server.seen_by(None, [Scope::Publish].into_iter().collect());
    put(&publisher, None, "published").await.expect(201);
}

#[tokio::test]
async fn a_public_address_makes_whole_urls() {
    let server = Server::with("public_url = \"https://example.org/turnwire/\"");
    let stored = put(&server, None, "hello").await.expect(201);
    assert_eq!(stored["url"], format!("https://example.org/turnwire/v1/blobs/{HELLO}"));
}
