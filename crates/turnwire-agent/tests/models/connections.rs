//! Connection reuse, and unexpected bytes on a connection.

use crate::bodies::{says, says_all};
use crate::fake_provider::{
    FakeProvider, LAST_CHUNK, ServerStep, chunk, open_stream, status_response, stream_head,
};
use crate::scenes::{assert_says_hello, collect_events, folded, hello_response, model_at, reason};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use turnwire_agent::model::http::HttpModel;
use turnwire_core::{ErrorType, Fields, FinishedReason};

/// A model without retries.
fn model_without_retries(fake: &FakeProvider) -> HttpModel {
    model_at("openai", fake).retries(0).build().unwrap()
}

/// The connection of each request.
fn connection_ids(fake: &FakeProvider) -> Vec<usize> {
    fake.requests().iter().map(|request| request.connection).collect()
}

/// Lets the background task read the rest of a response. There is one thread: every ready
/// task runs during a sleep.
async fn wait_for_idle_connection() {
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends this many requests, and returns the connection of each.
async fn connections_used(times: usize, fake: &FakeProvider) -> Vec<usize> {
    let model = model_without_retries(fake);
    for _ in 0..times {
        assert_says_hello(&model).await;
        wait_for_idle_connection().await;
    }
    connection_ids(fake)
}

#[tokio::test]
async fn a_connection_is_used_again_behind_every_whole_answer() {
    let body = says_all(&["hello"]);
    let sized = status_response("200 OK", "content-type: text/event-stream\r\n", &body);
    let early =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".to_vec();
    let hinted = [vec![ServerStep::Send(early)], hello_response()].concat();
    let trailed =
        [open_stream(&body, 50), vec![ServerStep::Send(b"0\r\nx-time: 3\r\n\r\n".to_vec())]]
            .concat();
    let fake =
        FakeProvider::start([hello_response(), sized, hinted, trailed, hello_response()]).await;
    assert_eq!(connections_used(5, &fake).await, [0; 5]);
}

#[tokio::test]
async fn a_connection_is_used_again_behind_a_refusal() {
    let refused = status_response("400 Bad Request", "", "no");
    let fake = FakeProvider::start([refused, hello_response()]).await;
    let model = model_without_retries(&fake);
    assert_eq!(collect_events(&model).await.1.unwrap().kind, ErrorType::InvalidRequest);
    assert_says_hello(&model).await;
    assert_eq!(connection_ids(&fake), [0; 2]);
}

#[tokio::test]
async fn a_connection_with_connection_close_is_not_reused() {
    let body = says_all(&["hello"]);
    let close = status_response("200 OK", "connection: close\r\n", &body);
    // Bytes that arrive before a request belong to no request.
    let mut chatty = hello_response();
    chatty.push(ServerStep::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()));
    let fake = FakeProvider::start([close, chatty, hello_response()]).await;
    assert_eq!(connections_used(3, &fake).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_no_retry() {
    let closes = || [hello_response(), vec![ServerStep::HangUp]].concat();
    let fake = FakeProvider::start([closes(), closes(), hello_response()]).await;
    assert_eq!(connections_used(3, &fake).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_connection_closed_on_reuse_costs_no_retry() {
    // It closes the connection as soon as it reads a second request. The client cannot distinguish that
    // from a connection that was closed just before.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let body = says_all(&["hello"]);
    let answer =
        [stream_head("text/event-stream"), chunk(body.as_bytes()), LAST_CHUNK.to_vec()].concat();
    let server = tokio::spawn(async move {
        let mut questions = Vec::new();
        for most in [1, 2] {
            let (mut line, _) = listener.accept().await.unwrap();
            let mut space = [0; 4096];
            for question in 0..=most {
                let read = line.read(&mut space).await.unwrap_or(0);
                questions.push(read > 0);
                if question < most && read > 0 {
                    line.write_all(&answer).await.unwrap();
                }
                if questions.len() == 3 {
                    return questions;
                }
            }
        }
        questions
    });
    let model = HttpModel::builder("openai:m").base_url(base).retries(0).build().unwrap();
    assert_says_hello(&model).await;
    wait_for_idle_connection().await;
    assert_says_hello(&model).await;
    assert_eq!(server.await.unwrap(), [true; 3]);
}

#[tokio::test]
async fn many_answers_at_once_have_a_connection_each() {
    let gate = Arc::new(Semaphore::new(0));
    let waits = || [vec![ServerStep::Wait(Arc::clone(&gate))], hello_response()].concat();
    let fake = FakeProvider::start((0..8).map(|_| waits())).await;
    let model = Arc::new(model_without_retries(&fake));
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let model = Arc::clone(&model);
            tokio::spawn(async move { assert_says_hello(&*model).await })
        })
        .collect();
    while fake.requests().len() < 8 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(8);
    for one in asking {
        one.await.unwrap();
    }
    let mut lines = connection_ids(&fake);
    lines.sort_unstable();
    assert_eq!(lines, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// A request that is larger than the socket buffers.
fn model_with_long_request(base: String) -> HttpModel {
    let mut extra = Fields::default();
    extra.insert("padding", "x".repeat(32 << 20));
    HttpModel::builder("openai:m").base_url(base).extra(extra).retries(0).build().unwrap()
}

#[tokio::test]
async fn an_answer_that_begins_before_the_question_is_read_lets_it_be_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model_with_long_request(format!("http://{}", listener.local_addr().unwrap()));
    let server = tokio::spawn(async move {
        let (mut line, _) = listener.accept().await.unwrap();
        let mut some = vec![0; 1 << 16];
        line.read_exact(&mut some[..100]).await.unwrap();
        line.write_all(&stream_head("text/event-stream")).await.unwrap();
        let (mut read, mut end) = (100, Vec::new());
        while !end.ends_with(b"}") {
            let piece = line.read(&mut some).await.unwrap();
            assert!(piece > 0, "it ends after {read} bytes");
            read += piece;
            end = some[..piece].to_vec();
        }
        let body = says_all(&["hello"]);
        line.write_all(&[chunk(body.as_bytes()), LAST_CHUNK.to_vec()].concat()).await.unwrap();
        read
    });
    assert_says_hello(&model).await;
    assert!(server.await.unwrap() > 32 << 20);
}

#[tokio::test]
async fn a_refusal_before_the_question_is_read_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model_with_long_request(format!("http://{}", listener.local_addr().unwrap()));
    let server = tokio::spawn(async move {
        let (mut line, _) = listener.accept().await.unwrap();
        let mut some = [0; 100];
        line.read_exact(&mut some).await.unwrap();
        let no = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo long";
        line.write_all(no.as_bytes()).await.unwrap();
        // The rest of the request is never read.
        let _ = line.readable().await;
        std::future::pending::<()>().await;
    });
    let error = collect_events(&model).await.1.unwrap();
    assert_eq!(error.kind, ErrorType::InvalidRequest, "{error}");
    assert!(error.message.contains("413") && error.message.contains("too long"), "{error}");
    server.abort();
}

#[tokio::test]
async fn an_invalid_http_response_is_a_connection_error() {
    for (sent, expected) in [
        ("SSH-2.0-OpenSSH_9.6\r\n", "not HTTP/1.1"),
        ("", "closed the connection"),
        ("HTTP/1.1 200 OK\r\n", "closed the connection"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n", "two different values"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "switched the protocol"),
        (&format!("HTTP/1.1 200 OK\r\na: {}\r\n", "b".repeat(70_000)), "head is too long"),
    ] {
        let fake =
            FakeProvider::start([vec![ServerStep::Send(sent.into()), ServerStep::HangUp]]).await;
        let error = collect_events(&model_without_retries(&fake)).await.1.unwrap();
        assert_eq!((error.kind.clone(), error.is_transient), (ErrorType::Connection, true));
        assert!(error.message.contains("closed the connection before it responded"), "{error}");
        assert!(error.message.contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn chunks_that_are_none_break_an_answer_off() {
    for wrong in ["\r\n", "xyz\r\n", "fffffffffffffffff\r\n", &"1;".repeat(2000)] {
        let steps = [
            open_stream(&says(&["one"]), 500),
            vec![ServerStep::Send(wrong.into()), ServerStep::Hold],
        ];
        let fake = FakeProvider::start([steps.concat()]).await;
        let (events, error) = collect_events(&model_without_retries(&fake)).await;
        assert_eq!((reason(&events), error), (FinishedReason::Truncated, None), "{wrong}");
        assert_eq!(folded(&events).text("").as_deref(), Some("one"));
        fake.wait_for_disconnect().await;
    }
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let whole = format!("{head}{}", says_all(&["hello"]));
    let fake = FakeProvider::start([
        vec![ServerStep::Send(whole.into()), ServerStep::HangUp],
        hello_response(),
    ])
    .await;
    let model = model_without_retries(&fake);
    assert_says_hello(&model).await;
    assert_says_hello(&model).await;
    assert_eq!(connection_ids(&fake), [0, 1]);
}
