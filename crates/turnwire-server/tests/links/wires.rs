//! The same door for every protocol.

use crate::fake_site::{FakeSite, PNG};
use crate::harness::TestServer;
use serde_json::{Value, json};
use turnwire_core::{ContentBlock, DataBlock, Source};

/// A request with a picture, and where its answer has the error's words.
fn requests(url: &str) -> [(&'static str, &'static str, Value); 5] {
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    let input = json!({"type": "input_image", "image_url": url});
    let block = json!({"type": "image", "source": {"type": "url", "url": url}});
    let text = |kind: &str| json!({"type": kind, "text": "look"});
    [
        (
            "/v1/chat/completions",
            "/error/message",
            json!({"model": "demo", "messages": [{"role": "user", "content": [text("text"), image]}]}),
        ),
        (
            "/v1/responses",
            "/error/message",
            json!({"model": "demo", "input": [{"role": "user", "content": [text("input_text"), input]}]}),
        ),
        (
            "/v1/messages",
            "/error/message",
            json!({"model": "demo", "max_tokens": 9,
            "messages": [{"role": "user", "content": [text("text"), block]}]}),
        ),
        (
            "/ag-ui/demo",
            "/error/message",
            json!({"threadId": "t", "runId": "r", "messages": [
            {"id": "m", "role": "user", "content": [text("text"),
                {"type": "image", "source": {"type": "url", "value": url, "mimeType": "image/png"}}]}]}),
        ),
        (
            "/ai-sdk/demo",
            "/error/message",
            json!({"id": "c", "trigger": "submit-message", "messages": [
            {"id": "m", "role": "user", "parts": [text("text"),
                {"type": "file", "mediaType": "image/png", "url": url}]}]}),
        ),
    ]
}

#[tokio::test]
async fn a_picture_is_brought_in_whoever_sends_it() {
    let site = FakeSite::open().await;
    let settings = format!("[links]\nprivate_hosts = [\"{}\"]", site.address);
    for (path, _, body) in requests(&site.url("/cat.png")) {
        let server = TestServer::open(&settings);
        let answer = server.post(path, &body).await;
        assert_eq!(answer.status, 200, "{path} {}", answer.text());
        let received = server.received.lock()[0].clone();
        let picture = received.last().unwrap().content().iter().find_map(|block| match block {
            ContentBlock::Data(block) => Some(block.clone()),
            _ => None,
        });
        let picture: DataBlock = picture.expect(path);
        assert!(matches!(picture.source, Source::Base64(_)), "{path} {picture:?}");
        assert_eq!(picture.decoded().unwrap().unwrap(), PNG, "{path}");
        assert_eq!(picture.media_type(), Some("image/png"), "{path}");
    }
    assert_eq!(site.requested_paths(), ["/cat.png"; 5]);
}

#[tokio::test]
async fn a_link_that_is_refused_is_told_in_each_protocols_words() {
    for (path, place, body) in requests("http://169.254.169.254/latest/meta-data/") {
        let server = TestServer::open("");
        let answer = server.post(path, &body).await;
        assert_eq!(answer.status, 422, "{path} {}", answer.text());
        let json = answer.json();
        let message = json.pointer(place).and_then(Value::as_str).expect(path);
        assert!(message.contains("the link http://169.254.169.254/latest/meta-data/"), "{message}");
        assert!(message.contains("not on the public internet"), "{path} {message}");
        if path == "/v1/chat/completions" {
            assert_eq!(json["error"]["code"], "link_refused");
        }
        if path == "/v1/messages" {
            assert_eq!(json["error"]["type"], "invalid_request_error");
        }
        assert!(server.received.lock().is_empty(), "{path}");
        // A thread or a chat has a name, and is tried again; a session without one would be left over.
        assert_eq!(server.sessions().await, usize::from(!path.starts_with("/v1/")), "{path}");
    }
}

#[tokio::test]
async fn the_ai_sdk_knows_its_message_again() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&format!("[links]\nprivate_hosts = [\"{}\"]", site.address));
    let [.., (path, _, mut body)] = requests(&site.url("/cat.png"));
    assert_eq!(server.post(path, &body).await.status, 200);
    // The same message, to be answered again: no other words, so it keeps its id.
    body["messageId"] = json!("m");
    let again = server.post(path, &body).await;
    assert_eq!(again.status, 200, "{}", again.text());
    let received = server.received.lock().clone();
    assert_eq!(received.len(), 2);
    assert_eq!((received[1].len(), received[1][0].id()), (1, "m"));
    assert_eq!(site.requested_paths(), ["/cat.png"]);
}
