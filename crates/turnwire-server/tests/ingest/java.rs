//! The stream of a Java agent, split over any number of requests.

use crate::harness::{Server, lines};

const STREAM: [&str; 12] = [
    r#"{"type":"AGENT_START","id":"1","createdAt":"2026-01-01T00:00:00Z","replyId":"r","name":"friday","role":"assistant"}"#,
    r#"{"type":"MODEL_CALL_START","id":"2","createdAt":"2026-01-01T00:00:00Z","replyId":"r"}"#,
    r#"{"type":"TEXT_BLOCK_START","id":"3","createdAt":"2026-01-01T00:00:00Z","replyId":"r","blockId":"text"}"#,
    r#"{"type":"TEXT_BLOCK_DELTA","id":"4","createdAt":"2026-01-01T00:00:00Z","replyId":"r","blockId":"text","delta":"One"}"#,
    r#"{"type":"TEXT_BLOCK_END","id":"5","createdAt":"2026-01-01T00:00:00Z","replyId":"r","blockId":"text"}"#,
    r#"{"type":"MODEL_CALL_START","id":"6","createdAt":"2026-01-01T00:00:00Z","replyId":"r"}"#,
    r#"{"type":"TEXT_BLOCK_START","id":"7","createdAt":"2026-01-01T00:00:00Z","replyId":"r","blockId":"text"}"#,
    r#"{"type":"TEXT_BLOCK_DELTA","id":"8","createdAt":"2026-01-01T00:00:00Z","replyId":"r","blockId":"text","delta":"Two"}"#,
    r#"{"type":"TEXT_BLOCK_START","id":"9","createdAt":"2026-01-01T00:00:00Z","replyId":"step-3","blockId":"text"}"#,
    r#"{"type":"TEXT_BLOCK_DELTA","id":"10","createdAt":"2026-01-01T00:00:00Z","replyId":"step-3","blockId":"text","delta":"Three"}"#,
    r#"{"type":"AGENT_RESULT","id":"11","createdAt":"2026-01-01T00:00:00Z","result":{"id":"r","name":"friday","role":"ASSISTANT","content":[],"metadata":{"_structured_output":{"a":1}},"generateReason":"MODEL_STOP"}}"#,
    r#"{"type":"AGENT_END","id":"12","createdAt":"2026-01-01T00:00:00Z","replyId":"r"}"#,
];

fn sse(lines: &[&str]) -> String {
    format!("data: {}\n\n", lines.join("\n\ndata: "))
}

async fn send(server: &Server, session: &str, body: &str, stored: u64, repeated: u64) {
    let path = format!("/v1/sessions/{session}/events?wire=agentscope-java");
    let answer = server.post(&path, "turnwire-producer: p.1\r\n", body.as_bytes()).await;
    answer.assert_stored(stored, repeated);
}

#[tokio::test]
async fn every_way_to_cut_a_stream_into_requests_gives_the_same_log() {
    let server = Server::new().await;
    let whole = server.session("whole").await;
    send(&server, "whole", &STREAM.join("\n"), 12, 0).await;
    let expected = lines(&whole).await;
    let message = whole.find_message("r").await.unwrap().unwrap();
    assert_eq!(message.text.split_whitespace().collect::<Vec<_>>(), ["One", "Two", "Three"]);
    for size in 1..STREAM.len() {
        let id = format!("cut-{size}");
        let session = server.session(&id).await;
        for part in STREAM.chunks(size) {
            let body = part.join("\n");
            let count = part.len() as u64;
            send(&server, &id, &body, count, 0).await;
            // The response was lost, so it is sent again.
            send(&server, &id, &body, 0, count).await;
        }
        assert_eq!(lines(&session).await, expected, "{size} a request");
        assert_eq!(session.find_message("r").await.unwrap().unwrap().json, message.json);
    }
}

#[tokio::test]
async fn a_request_that_overlaps_what_was_sent_adds_only_what_is_new() {
    let server = Server::new().await;
    let whole = server.session("whole").await;
    send(&server, "whole", &STREAM.join("\n"), 12, 0).await;
    let session = server.session("s").await;
    send(&server, "s", &STREAM[..7].join("\n"), 7, 0).await;
    send(&server, "s", &STREAM[4..].join("\n"), 5, 3).await;
    assert_eq!(lines(&session).await, lines(&whole).await);
}

#[tokio::test]
async fn a_list_and_server_sent_events_of_java_are_read() {
    let server = Server::new().await;
    server.session("list").await;
    send(&server, "list", &format!("[\n{}\n]", STREAM.join(",\n")), 12, 0).await;
    server.session("sse").await;
    send(&server, "sse", &sse(&STREAM), 12, 0).await;
    // Also from the middle on.
    server.session("cut").await;
    send(&server, "cut", &STREAM[..3].join("\n"), 3, 0).await;
    send(&server, "cut", &sse(&STREAM[3..]), 9, 0).await;
}
