//! Blobs.

use crate::harness::{Answer, Server};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use sha2::{Digest, Sha256};
use turnwire_log::store::{BLOB_PIECE_BYTES, Blob, Retention};
use turnwire_server::Scope;

/// Stores bytes past the checks of an upload, as an earlier version did.
async fn put_unchecked(server: &Server, media_type: &str, bytes: &'static [u8]) -> String {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    let blob = Blob { media_type: media_type.to_owned(), bytes: Bytes::from_static(bytes) };
    server.app.log.store().put_blob("default", hash, blob).await.unwrap();
    format!("/v1/blobs/{}", turnwire_server::blobs::blob_id(&hash))
}

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
    // Whoever comes later finds what is there, and cannot make a page of it.
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

fn assert_protected(headers: &HeaderMap, case: &str) {
    assert_eq!(headers["x-content-type-options"], "nosniff", "{case}");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert_eq!(policy, "default-src 'none'; sandbox", "{case}");
    assert_eq!(headers["cross-origin-resource-policy"], "same-origin", "{case}");
}

#[tokio::test]
async fn a_page_that_was_stored_cannot_act_here() {
    let server = Server::new();
    for kind in [
        "text/html",
        "tExT/hTmL",
        "text/html;charset=utf-7",
        "image/svg+xml",
        "text/xml",
        "application/xhtml+xml",
        "application/javascript",
        "application/pdf",
        "application/pdf;x=y, text/html",
        "multipart/x-mixed-replace; boundary=x",
    ] {
        let stored = put(&server, Some(kind), format!("<script>{kind}")).await.expect(201);
        let essence = kind.split(';').next().unwrap().to_ascii_lowercase();
        assert_eq!(stored["media_type"], essence, "{kind}");
        let blob = server.get(&format!("/v1/blobs/{}", stored["id"].as_str().unwrap())).await;
        assert_eq!(blob.headers["content-disposition"], "attachment", "{kind}");
        let is_script = essence.ends_with("javascript");
        let expected = if is_script { "application/octet-stream" } else { &essence };
        assert_eq!(blob.headers["content-type"], expected, "{kind}");
        assert_protected(&blob.headers, kind);
    }
}

#[tokio::test]
async fn types_that_were_stored_unchecked_are_checked_when_they_are_served() {
    let server = Server::new();
    for (kind, bytes, served, disposition) in [
        ("application/pdf;x=y, text/html", &b"1"[..], "application/pdf", "attachment"),
        ("image/png, text/html", b"2", "application/octet-stream", "attachment"),
        ("Image/PNG;x=\"", b"3", "image/png", "inline"),
        ("text/html\r\nx: y", b"4", "application/octet-stream", "attachment"),
        ("", b"5", "application/octet-stream", "attachment"),
    ] {
        let path = put_unchecked(&server, kind, bytes).await;
        let blob = server.get(&path).await;
        assert_eq!(blob.headers["content-type"], served, "{kind}");
        assert_eq!(blob.headers["content-disposition"], disposition, "{kind}");
        assert_protected(&blob.headers, kind);
    }
}

#[tokio::test]
async fn every_answer_about_a_blob_is_protected() {
    let server = Server::new();
    put(&server, Some("image/png"), "hello").await.expect(201);
    let path = format!("/v1/blobs/{HELLO}");
    let tag = format!("\"{HELLO}\"");
    for (status, method, path, header) in [
        (200, "GET", path.as_str(), ("accept", "*/*")),
        (200, "HEAD", &path, ("accept", "*/*")),
        (206, "GET", &path, ("range", "bytes=1-2")),
        (304, "GET", &path, ("if-none-match", &tag)),
        (416, "GET", &path, ("range", "bytes=9-")),
        (404, "GET", &format!("/v1/blobs/{}", "0".repeat(64)), ("accept", "*/*")),
        (400, "GET", "/v1/blobs/<script>", ("accept", "*/*")),
    ] {
        let answer = get(&server, method, &path.replace(['<', '>'], "%3C"), &[header]).await;
        assert_eq!(answer.status, status, "{path}");
        assert_protected(&answer.headers, path);
    }
}

#[tokio::test]
async fn pages_of_other_origins_that_are_let_in_may_show_blobs() {
    let server = Server::with("origins = [\"https://app.example\"]");
    put(&server, Some("image/png"), "hello").await.expect(201);
    let blob = server.get(&format!("/v1/blobs/{HELLO}")).await;
    assert_eq!(blob.headers["cross-origin-resource-policy"], "cross-origin");
}

#[tokio::test]
async fn a_content_type_that_is_not_one_media_type_is_refused() {
    let server = Server::new();
    for wrong in [
        &b"png"[..],
        b"",
        b" ",
        b";",
        b"image/",
        b"/png",
        b"a b/c",
        b"image/png, text/html",
        b"image/png,text/html;x=y",
        b"image/p\xe4ng",
        b"image/\"png\"",
        b"*/*",
        &[b'x'; 300],
        &[b"image/".as_slice(), &[b'x'; 300]].concat(),
    ] {
        let value = HeaderValue::from_bytes(wrong).unwrap();
        let request = Request::post("/v1/blobs").header("content-type", value);
        let answer = server.send(request.body("x".into()).unwrap()).await;
        let error = answer.expect(400)["error"].clone();
        assert!(error["hint"].as_str().unwrap().contains("image/png"), "{error}");
    }
    let twice = Request::post("/v1/blobs")
        .header("content-type", "image/png")
        .header("content-type", "text/html");
    server.send(twice.body("x".into()).unwrap()).await.expect(400);
    // What recorders in browsers send.
    let recorded = put(&server, Some("video/webm;codecs=vp8,opus"), "x").await.expect(201);
    assert_eq!(recorded["media_type"], "video/webm");
}

#[tokio::test]
async fn a_wrong_type_that_came_first_does_not_stay() {
    let server = Server::new();
    assert_eq!(
        put(&server, None, "hello").await.expect(201)["media_type"],
        "application/octet-stream"
    );
    for (sent_type, expected) in [
        ("text/html", "text/html"),
        ("text/csv", "text/html"),
        ("image/png", "image/png"),
        ("text/html", "image/png"),
        ("image/gif", "image/png"),
    ] {
        assert_eq!(
            put(&server, Some(sent_type), "hello").await.expect(200)["media_type"],
            expected
        );
        let blob = server.get(&format!("/v1/blobs/{HELLO}")).await;
        assert_eq!(blob.headers["content-type"], expected, "{sent_type}");
    }
}

#[tokio::test]
async fn a_limited_token_does_not_learn_what_others_have_stored() {
    let (empty, used) = (Server::new(), Server::new());
    put(&used, Some("image/png"), "hello").await.expect(201);
    let mut answers = Vec::new();
    for server in [&empty, &used] {
        let limited = server.seen_by(Some(&["s*"]), [Scope::Chat].into_iter().collect());
        answers.push(put(&limited, Some("text/html"), "hello").await.expect(201));
    }
    assert_eq!(answers[0], answers[1]);
}

/// A blob of three pieces and a bit.
fn large() -> Bytes {
    (0..=250).cycle().take(3 * BLOB_PIECE_BYTES + 100).collect()
}

fn path_of(bytes: &[u8]) -> String {
    format!("/v1/blobs/{}", turnwire_server::blobs::blob_id(&Sha256::digest(bytes).into()))
}

#[tokio::test]
async fn a_large_blob_comes_back_whole_and_in_parts() {
    let server = Server::new();
    let (bytes, path) = (large(), path_of(&large()));
    let chunks: Vec<Result<Bytes, std::io::Error>> =
        bytes.chunks(100_000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    let body = Body::from_stream(futures_util::stream::iter(chunks));
    let stored = put(&server, Some("image/png"), body).await.expect(201);
    assert_eq!(stored["size"], bytes.len());
    let again = put(&server, Some("image/png"), bytes.clone()).await.expect(200);
    assert_eq!(again, stored);
    let whole = server.get(&path).await;
    assert!(whole.bytes == bytes && whole.headers["content-length"] == bytes.len().to_string());
    let head = get(&server, "HEAD", &path, &[]).await;
    assert!(head.bytes.is_empty() && head.headers["content-length"] == bytes.len().to_string());
    let (start, end) = (BLOB_PIECE_BYTES - 10, 2 * BLOB_PIECE_BYTES + 10);
    let range = format!("bytes={start}-{end}");
    let part = get(&server, "GET", &path, &[("range", &range)]).await;
    assert_eq!(part.status, 206);
    assert!(part.bytes == bytes[start..=end], "other bytes than were asked for");
    assert_eq!(part.headers["content-length"], (end - start + 1).to_string());
    let last = get(&server, "GET", &path, &[("range", "bytes=-5")]).await;
    assert_eq!(last.bytes, bytes[bytes.len() - 5..]);
}

#[tokio::test]
async fn a_deleted_blob_is_gone() {
    let server = Server::new();
    let path = path_of(&large());
    put(&server, None, large()).await.expect(201);
    let delete = async |server: &Server, path: &str| server.call("DELETE", path, "").await;
    let reader = server.seen_by(None, [Scope::Read].into_iter().collect());
    delete(&reader, &path).await.expect(403);
    // Sessions that it does not reach may use the blob.
    let limited = server.seen_by(Some(&["s*"]), [Scope::Chat, Scope::Read].into_iter().collect());
    delete(&limited, &path).await.expect(403);
    delete(&server, "/v1/blobs/zz").await.expect(400);
    assert_eq!(server.get(&path).await.status, 200);
    delete(&server, &path).await.expect(204);
    delete(&server, &path).await.expect(404);
    assert_eq!(server.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_tenant_over_its_quota_is_told_before_its_bytes_are_read() {
    let server = Server::with("[limits]\nblobs = \"1 MiB\"");
    let half = Bytes::from(vec![1; 500_000]);
    put(&server, None, half.clone()).await.expect(201);
    put(&server, None, half.clone()).await.expect(200);
    let endless = || Body::from_stream(futures_util::stream::pending::<std::io::Result<Bytes>>());
    let announced = Request::post("/v1/blobs").header("content-length", "600000");
    let error = server.send(announced.body(endless()).unwrap()).await.expect(507);
    assert_eq!(error["error"]["type"], "quota_exceeded");
    assert!(error["error"]["hint"].as_str().unwrap().contains("limits.blobs"));
    // One that announces nothing is stopped as soon as it is too much.
    let chunks =
        futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![2; 50_000])));
    put(&server, None, Body::from_stream(chunks)).await.expect(507);
    // So is what a message brings.
    server.make("s").await;
    let data = "QUJD".repeat(200_000);
    let source = serde_json::json!({"type": "base64", "data": data, "media_type": "image/png"});
    let message = serde_json::json!({"content": [{"type": "data", "source": source}]}).to_string();
    server.post("/v1/sessions/s/messages", &message).await.expect(507);
    assert_eq!(server.session("s").await.head_state().head.get(), 0);
    assert_eq!(server.app.log.store().blob_bytes_used("default").await.unwrap(), 500_000);
    server.call("DELETE", &path_of(&half), "").await.expect(204);
    server.post("/v1/sessions/s/messages", &message).await.expect(202);
}

#[tokio::test]
async fn a_quota_of_nothing_is_no_quota() {
    let server = Server::with("[limits]\nblobs = 0");
    put(&server, None, large()).await.expect(201);
}

#[tokio::test]
async fn blobs_go_with_the_sessions_that_use_them() {
    let server = Server::new();
    let (used, unused) = (Bytes::from(vec![1; 1000]), Bytes::from(vec![2; 1000]));
    let url = put(&server, None, used.clone()).await.expect(201)["url"].clone();
    put(&server, None, unused.clone()).await.expect(201);
    server.make("s").await;
    let source = serde_json::json!({"type": "url", "url": url});
    let message = serde_json::json!({"content": [{"type": "data", "source": source}]}).to_string();
    server.post("/v1/sessions/s/messages", &message).await.expect(202);
    server.post("/v1/sessions/s/fork", r#"{"id": "fork"}"#).await.expect(201);
    let sweep = async || {
        let all = Retention { blobs_before_ms: Some(i64::MAX), ..Retention::default() };
        server.app.log.apply_retention(all).await.unwrap().blobs
    };
    assert_eq!(sweep().await, 1);
    assert_eq!(server.get(&path_of(&unused)).await.status, 404);
    server.call("DELETE", "/v1/sessions/s", "").await.expect(204);
    assert_eq!(sweep().await, 0, "the fork refers to it");
    assert_eq!(server.get(&path_of(&used)).await.status, 200);
    server.call("DELETE", "/v1/sessions/fork", "").await.expect(204);
    assert_eq!(sweep().await, 1);
    assert_eq!(server.get(&path_of(&used)).await.status, 404);
}

#[tokio::test]
async fn what_is_wrong_with_a_blob_is_said() {
    let server = Server::with("[limits]\nblob = \"1 KiB\"");
    put(&server, None, "x".repeat(1025)).await.expect(413);
    put(&server, None, "x".repeat(1024)).await.expect(201);
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
