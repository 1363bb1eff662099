//! `content_urls` over a WebSocket.

use crate::fake_site::FakeSite;
use crate::harness::TestServer;
use crate::running::within;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(server: &TestServer) -> Self {
        let url = format!("ws://{}/v1/ws", server.server.address);
        let (socket, _) = connect_async(url.into_client_request().unwrap()).await.unwrap();
        let mut socket = Self(socket);
        assert_eq!(socket.next().await["type"], "connected");
        socket
    }

    async fn send(&mut self, command: Value) {
        self.0.send(Message::text(command.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        loop {
            match within(self.0.next()).await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => return json!({"type": "closed", "how": format!("{other:?}")}),
            }
        }
    }

    /// The next frames, up to one of this type.
    async fn until(&mut self, word: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            frames.push(self.next().await);
            let last = &frames[frames.len() - 1];
            assert_ne!(last["type"], "closed", "{frames:#?}");
            if last["type"] == word {
                return frames;
            }
        }
    }
}

fn settings(site: &FakeSite) -> String {
    format!("[links]\nprivate_hosts = [\"{}\"]", site.address)
}

#[tokio::test]
async fn files_are_reported_while_they_are_fetched() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site));
    let mut socket = Socket::open(&server).await;
    let url = site.url("/gate.png");
    socket
        .send(json!({"type": "chat", "session_id": "s", "message": "look", "id": 1,
        "content_urls": [url]}))
        .await;
    // The site has not answered yet.
    let start = socket.next().await;
    assert_eq!((&start["type"], &start["session_id"]), (&json!("message_start"), &json!("s")));
    let block = socket.next().await;
    assert_eq!(
        block["content_block"],
        json!({"type": "file_processing", "status": "processing",
        "files": [{"url": url}]})
    );
    assert_eq!((&block["index"], &block["session_id"]), (&json!(0), &json!("s")));
    assert!(start.get("event_id").is_none() && block.get("event_id").is_none());
    assert_eq!(server.sessions().await, 0);
    site.gate.add_permits(1);
    let accepted = socket.next().await;
    assert_eq!((&accepted["type"], &accepted["id"]), (&json!("accepted"), &json!(1)));
    assert_eq!(accepted["message_id"], start["message_id"]);
    // The turn of the log takes the place of the one that was shown.
    let frames = socket.until("message_stop").await;
    let types: Vec<&str> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "message",
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert_eq!(frames[1]["message_id"], start["message_id"]);
    assert_eq!(frames[2]["content_block"], block["content_block"]);
    assert_eq!(frames[3]["delta"], json!({"status": "completed", "message": "Processed 1 file"}));
    let attached = frames[0]["message"]["content"].as_array().unwrap();
    let attached = attached.iter().find(|block| block["type"] == "attachment").unwrap();
    assert!(attached["url"].as_str().unwrap().contains("/v1/blobs/"), "{attached}");
    assert_eq!(
        (&attached["name"], &attached["mime_type"]),
        (&json!("gate.png"), &json!("image/png"))
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_had_ends_the_turn_that_was_shown() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site));
    let mut socket = Socket::open(&server).await;
    for (path, code) in [("/gone.png", "link_failed"), ("/to?http://10.0.0.1/", "link_refused")] {
        let urls = [site.url("/cat.png"), site.url(path)];
        socket
            .send(json!({"type": "chat", "message": "look", "id": 1, "content_urls": urls}))
            .await;
        let frames = socket.until("error").await;
        let types: Vec<&str> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
        assert_eq!(
            types,
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
                "error"
            ]
        );
        let error = &frames[9];
        assert_eq!((&error["code"], &error["id"]), (&json!(code), &json!(1)));
        assert_eq!(frames[2]["delta"], json!({"status": "error", "message": error["message"]}));
        assert_eq!(frames[5]["delta"]["extras"]["block_subtype"], "error");
        assert!(frames.iter().all(|frame| frame.get("event_id").is_none()));
        // No session was made for it.
        assert_eq!(server.sessions().await, 0);
    }
}

#[tokio::test]
async fn who_is_too_late_sees_the_turn_end_that_was_shown() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site));
    server.post("/v1/sessions", &json!({"id": "s", "agent": "never"})).await;
    let mut socket = Socket::open(&server).await;
    let urls = [site.url("/gate.png")];
    let chat = json!({"type": "chat", "session_id": "s", "message": "look", "content_urls": urls});
    socket.send(chat.clone()).await;
    socket.until("content_block_start").await;
    let first = server.post("/v1/sessions/s/messages", &json!({"content": "I was first"})).await;
    assert_eq!(first.status, 202);
    site.gate.add_permits(1);
    let frames = socket.until("error").await;
    assert_eq!(frames[frames.len() - 1]["code"], "busy");
    assert_eq!(frames[frames.len() - 2]["type"], "message_stop");
    // While the other runs nothing is fetched, and nothing is shown.
    socket.send(chat).await;
    assert_eq!(socket.next().await["code"], "busy");
    assert_eq!(site.requested_paths(), ["/gate.png"]);
}

#[tokio::test]
async fn what_needs_no_fetching_is_reported_with_the_turn() {
    let server = TestServer::open("");
    let put = server.post("/v1/blobs", &json!("some text")).await.json();
    let mut socket = Socket::open(&server).await;
    let urls = json!([put["url"], "data:image/png;base64,AAAA"]);
    socket.send(json!({"type": "chat", "message": "look", "content_urls": urls})).await;
    assert_eq!(socket.next().await["type"], "accepted");
    let frames = socket.until("message_stop").await;
    let deltas: Vec<&Value> =
        frames.iter().filter(|frame| frame["type"] == "content_block_delta").collect();
    assert_eq!(deltas[0]["delta"], json!({"status": "completed", "message": "Processed 2 files"}));
    let gone = format!("/v1/blobs/{}", "0".repeat(64));
    socket.send(json!({"type": "chat", "message": "look", "content_urls": [gone]})).await;
    let error = socket.next().await;
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("link_failed")));
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_links() {
    let site = FakeSite::open().await;
    let server = TestServer::open(&settings(&site));
    let mut socket = Socket::open(&server).await;
    let urls = [site.url("/gate.png")];
    socket.send(json!({"type": "chat", "message": "look", "content_urls": urls})).await;
    socket.until("content_block_start").await;
    within(server.server.stop()).await;
    let frames = socket.until("error").await;
    assert_eq!(frames[frames.len() - 1]["code"], "unavailable");
}
