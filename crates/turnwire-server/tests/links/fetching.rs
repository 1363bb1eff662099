//! What is fetched, and what cannot be.

use crate::fake_site::{FakeSite, PNG};
use crate::harness::TestServer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use turnwire_core::{ContentBlock, DataBlock, Fields, Source};
use turnwire_log::store::{NewSession, SessionKey};

fn settings(site: &FakeSite, more: &str) -> String {
    format!("[links]\nprivate_hosts = [\"{}\"]\nsize = \"64 KiB\"\n{more}\n", site.address)
}

#[tokio::test]
async fn a_link_becomes_a_blob_and_is_remembered() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, ""));
    server.wait_until_idle("s").await;
    let url = site.url("/b%C3%A1o.png?sig=1");
    let answer = server.send_links("s", &[&url]).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let files = server.files("s").await;
    assert_eq!(files[0]["name"], "báo.png");
    let source = &files[0]["source"];
    assert_eq!(source["media_type"], "image/png");
    assert_eq!(source["original_url"], url);
    // It is where the server really listens.
    let base = format!("http://{}", server.server.address);
    let path = source["url"].as_str().unwrap().strip_prefix(&base).unwrap();
    let blob = server.get(path).await;
    assert_eq!((blob.status, &blob.body[..]), (200, PNG));
    assert_eq!(blob.header("content-type"), Some("image/png"));
}

#[tokio::test]
async fn the_type_that_a_site_tells_is_stored_only_where_it_is_one() {
    let site = FakeSite::open().await;
    for (sent_type, expected) in [
        ("application/pdf;x=y,%20text/html", "application/pdf"),
        ("image/png,text/html", "text/plain"),
        ("TEXT/html", "text/html"),
        ("image/\"", "text/plain"),
    ] {
        let server = TestServer::open(&settings(&site, ""));
        server.wait_until_idle("s").await;
        let answer = server.send_links("s", &[&site.url(&format!("/as?{sent_type}"))]).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let source = server.files("s").await[0]["source"].clone();
        assert_eq!(source["media_type"], expected, "{sent_type}");
        let (_, id) = source["url"].as_str().unwrap().rsplit_once('/').unwrap();
        let blob = server.get(&format!("/v1/blobs/{id}")).await;
        assert_eq!(blob.header("content-type"), Some(expected), "{sent_type}");
        assert_eq!(blob.header("content-disposition"), Some("attachment"), "{sent_type}");
        assert_eq!(blob.header("content-security-policy"), Some("default-src 'none'; sandbox"));
    }
}

#[tokio::test]
async fn the_type_that_a_message_tells_is_stored_only_where_it_is_one() {
    for (sent_type, expected) in [
        (json!("application/pdf;x=y, text/html"), "application/pdf"),
        (json!("image/png, text/html"), "application/octet-stream"),
        (json!("text/html\r\nx: y"), "application/octet-stream"),
        (json!(""), "application/octet-stream"),
        (json!("Image/SVG+xml;charset=utf-7"), "image/svg+xml"),
        (Value::Null, "application/octet-stream"),
    ] {
        let server = TestServer::open("");
        server.wait_until_idle("s").await;
        let mut source = json!({"type": "base64", "data": "QUJD".repeat(20_000)});
        if !sent_type.is_null() {
            source["media_type"] = sent_type.clone();
        }
        let message = json!({"content": [{"type": "data", "source": source}]});
        let answer = server.post("/v1/sessions/s/messages", &message).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let source = server.files("s").await[0]["source"].clone();
        let (_, id) = source["url"].as_str().unwrap().rsplit_once('/').unwrap();
        let blob = server.get(&format!("/v1/blobs/{id}")).await;
        assert_eq!(blob.header("content-type"), Some(expected), "{sent_type}");
        assert_eq!(blob.header("content-disposition"), Some("attachment"), "{sent_type}");
        assert_eq!(blob.header("x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn the_same_bytes_are_stored_once_and_the_same_link_is_fetched_once() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, ""));
    server.wait_until_idle("s").await;
    let (cat, same) = (site.url("/cat.png"), site.url("/same.png"));
    assert_eq!(server.send_links("s", &[&cat, &same, &cat]).await.status, 202);
    let files = server.files("s").await;
    let urls: Vec<&Value> = files.iter().map(|file| &file["source"]["url"]).collect();
    assert!(urls.iter().all(|url| *url == urls[0]), "{urls:?}");
    assert_eq!(files[1]["source"]["original_url"], same);
    let mut asked = site.requested_paths();
    asked.sort();
    assert_eq!(asked, ["/cat.png", "/same.png"]);
}

#[tokio::test]
async fn what_cannot_be_had_is_named_and_nothing_is_stored() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, "redirects = 3"));
    server.wait_until_idle("s").await;
    for (path, status, kind, why) in [
        ("/large", 413, "link_too_large", "has more than 65536 bytes"),
        ("/endless", 413, "link_too_large", "has more than 65536 bytes"),
        ("/zip", 415, "link_type", "is application/zip, which is not allowed"),
        ("/empty", 422, "link_failed", "is empty"),
        ("/broken", 422, "link_failed", "ended early"),
        ("/gzip", 422, "link_failed", "has a content encoding that was not requested"),
        ("/gone.png", 422, "link_failed", "returned the status 404"),
        ("/rubbish", 422, "link_failed", "does not answer"),
        ("/loop", 422, "link_failed", "redirects more than 3 times"),
        ("/to?http://[", 422, "link_failed", "redirects to an invalid URL"),
    ] {
        let url = site.url(path);
        let answer = server.send_links("s", &[&site.url("/cat.png"), &url]).await;
        assert_eq!((answer.status, answer.error_type().as_str()), (status, kind), "{path}");
        let error = answer.json()["error"].clone();
        let message = error["message"].as_str().unwrap();
        let (shown, _) = url.split_once('?').unwrap_or((&url, ""));
        assert!(message.starts_with(&format!("content[2]: the link {shown} {why}")), "{message}");
        assert!(message.ends_with("nothing was stored"), "{message}");
        assert!(error["hint"].is_string(), "{error}");
    }
    assert_eq!(site.requested_paths().iter().filter(|path| *path == "/loop").count(), 4);
    assert_eq!(server.last_seq("s").await, 0);
}

#[tokio::test]
async fn nothing_is_brought_in_for_what_is_refused() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, ""));
    let bytes = vec![7; 100_000];
    let link = json!({"type": "data", "source": {"type": "url", "url": site.url("/cat.png")}});
    let large = serde_json::to_value(DataBlock::bytes(&bytes, "image/png")).unwrap();
    let refused = async |path: &str, message: Value, status: u16, kind: &str| {
        for file in [&link, &large] {
            let mut message = message.clone();
            message["content"] = json!([{"type": "text", "text": "look"}, file]);
            let answer = server.post(path, &message).await;
            assert_eq!((answer.status, answer.error_type().as_str()), (status, kind), "{path}");
        }
    };
    // A reply runs; and as many messages wait for it as may.
    server.post("/v1/sessions", &json!({"id": "full", "agent": "never"})).await;
    server.post("/v1/sessions/full/messages", &json!({"content": "x"})).await;
    refused("/v1/sessions/full/messages", json!({}), 409, "busy").await;
    for _ in 0..64 {
        let path = "/v1/sessions/full/messages?queue=true";
        assert_eq!(server.post(path, &json!({"content": "x"})).await.status, 202);
    }
    refused("/v1/sessions/full/messages?queue=true", json!({}), 429, "too_many_requests").await;
    // The id is taken.
    server.wait_until_idle("s").await;
    let path = "/v1/sessions/s/messages";
    assert_eq!(server.post(path, &json!({"id": "m", "content": "x"})).await.status, 202);
    refused(path, json!({"id": "m"}), 409, "message_exists").await;
    refused(path, json!({"role": "assistant", "name": "a"}), 422, "wrong_role").await;
    // Nobody is there to answer.
    let gone = NewSession {
        key: SessionKey::new("default", "gone"),
        agent: "nobody".to_owned(),
        title: String::new(),
        metadata: Fields::default(),
        now_ms: 0,
    };
    server.app.log.create_session(gone).await.unwrap();
    refused("/v1/sessions/gone/messages", json!({}), 409, "no_agent").await;
    let image = json!({"type": "image_url", "image_url": {"url": site.url("/cat.png")}});
    let asked = json!({"model": "nobody", "messages": [{"role": "user", "content": [image]}]});
    assert_eq!(server.post("/v1/chat/completions", &asked).await.status, 404);

    assert_eq!(site.requested_paths(), [""; 0], "nothing was fetched");
    let store = server.app.log.store();
    let blob = store.read_blob("default", Sha256::digest(&bytes).into()).await.unwrap();
    assert_eq!(blob, None, "nothing was moved");
}

#[tokio::test]
async fn a_picture_has_to_be_one() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, ""));
    server.wait_until_idle("s").await;
    let say = async |path: &str, kind: &str| {
        let source = json!({"type": "url", "url": site.url(path), "media_type": kind});
        let body = json!({"content": [{"type": "data", "source": source}]});
        server.post("/v1/sessions/s/messages", &body).await
    };
    let answer = say("/page", "image/png").await;
    assert_eq!((answer.status, answer.error_type().as_str()), (415, "link_type"));
    assert!(
        answer.text().contains("is declared as image/png, but is text/html"),
        "{}",
        answer.text()
    );
    let older = json!({"content": [{"type": "image", "source": {"type": "url", "url": site.url("/page")}}]});
    assert_eq!(server.post("/v1/sessions/s/messages", &older).await.error_type(), "link_type");
    // A page is fine where one was meant; and of two kinds of pictures the bytes say which.
    assert_eq!(say("/page", "text/html").await.status, 202);
    assert_eq!(say("/lying.png", "image/*").await.status, 202);
    assert_eq!(server.files("s").await[0]["source"]["media_type"], "image/png");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, "timeout = \"200ms\""));
    server.wait_until_idle("s").await;
    let answer = server.send_links("s", &[&site.url("/slow")]).await;
    assert_eq!((answer.status, answer.error_type().as_str()), (422, "link_failed"));
    assert!(answer.text().contains("took longer than 200ms"), "{}", answer.text());
    assert_eq!(server.last_seq("s").await, 0);
}

#[tokio::test]
async fn links_are_counted() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, "per_message = 2\nat_once = 1"));
    server.wait_until_idle("s").await;
    let urls = ["/cat.png?1", "/cat.png?2", "/cat.png?3"].map(|path| site.url(path));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    assert_eq!(server.send_links("s", &urls).await.error_type(), "too_many_links");
    assert_eq!(site.requested_paths().len(), 0);
    assert_eq!(server.send_links("s", &urls[..2]).await.status, 202);
}

#[tokio::test]
async fn what_the_model_reads_itself_stays_as_it_is() {
    let site = FakeSite::open().await;
    let server = TestServer::open("[links]\nleave = [\"pictures.example\"]");
    server.wait_until_idle("s").await;
    let urls = ["https://pictures.example/a.png", "gs://bucket/a.png", "file-abc123"];
    assert_eq!(server.send_links("s", &urls).await.status, 202);
    let files = server.files("s").await;
    let kept: Vec<&str> =
        files.iter().map(|file| file["source"]["url"].as_str().unwrap()).collect();
    assert_eq!(kept, urls);
    let server = TestServer::open("[links]\nfetch = false");
    server.wait_until_idle("s").await;
    assert_eq!(server.send_links("s", &[&site.url("/cat.png")]).await.status, 202);
    assert_eq!(server.files("s").await[0]["source"]["url"], site.url("/cat.png"));
    assert_eq!(site.requested_paths().len(), 0);
}

#[tokio::test]
async fn a_blob_of_ours_has_to_be_there() {
    let server = TestServer::open("");
    server.wait_until_idle("s").await;
    let put = server.post("/v1/blobs", &json!("some text")).await.json();
    let id = put["id"].as_str().unwrap();
    let (short, there) =
        (format!("/v1/blobs/{id}"), format!("http://{}/v1/blobs/{id}", server.server.address));
    assert_eq!(server.send_links("s", &[&short, &there]).await.status, 202);
    let files = server.files("s").await;
    assert_eq!(
        files[0]["source"],
        json!({"type": "url", "url": put["url"], "media_type": "application/json"})
    );
    assert_eq!(files[1]["source"]["url"], put["url"]);
    let gone = format!("/v1/blobs/{}", "0".repeat(64));
    let answer = server.send_links("s", &[&gone]).await;
    assert_eq!((answer.status, answer.error_type().as_str()), (422, "link_failed"));
    assert!(answer.text().contains("names a blob that does not exist"), "{}", answer.text());
    // On another server it is a link like any other, and that one is not on the internet.
    let elsewhere = format!("http://127.0.0.1:9{gone}");
    assert_eq!(server.send_links("s", &[&elsewhere]).await.error_type(), "link_refused");
    assert_eq!(server.last_seq("s").await, 1);
}

#[tokio::test]
async fn an_agent_is_handed_bytes() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site, ""));
    server.post("/v1/sessions", &json!({"id": "s"})).await;
    assert_eq!(server.send_links("s", &[&site.url("/cat.png"), "gs://bucket/x"]).await.status, 202);
    crate::running::within(async {
        while server.received.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let received = server.received.lock()[0].clone();
    let ContentBlock::Data(block) = &received[0].content()[1] else { unreachable!() };
    assert!(matches!(block.source, Source::Base64(_)), "{block:?}");
    assert_eq!(block.decoded().unwrap().unwrap(), PNG);
    assert_eq!((block.media_type(), block.name.as_deref()), (Some("image/png"), Some("cat.png")));
    let ContentBlock::Data(other) = &received[0].content()[2] else { unreachable!() };
    assert!(matches!(&other.source, Source::Url(source) if source.url == "gs://bucket/x"));
}
