//! Responses that break off, stall, or are no event stream.

use crate::bodies::{Scene, TEXT, WIRES, body, says, says_all};
use crate::fake_provider::{
    FakeProvider, LAST_CHUNK, ServerStep, chunk, open_stream, status_response, stream_head,
    whole_stream,
};
use crate::scenes::{ask, collect_events, folded, model_at, reason, types};
use futures_util::StreamExt;
use std::time::Duration;
use turnwire_agent::Agent;
use turnwire_core::{ErrorType, EventKind, FinishedReason, Msg};

/// The body up to the first text delta.
fn half(wire: &str) -> String {
    let whole = body(wire, Scene::Text);
    let text = whole.find(TEXT[0]).unwrap();
    let end = whole[text..].find('\n').unwrap();
    format!("{}\n\n", &whole[..text + end])
}

#[tokio::test]
async fn a_stream_without_its_end_is_truncated_never_complete() {
    for wire in WIRES {
        for end in [ServerStep::Send(LAST_CHUNK.to_vec()), ServerStep::HangUp] {
            let fake =
                FakeProvider::start([[open_stream(&half(wire), 30), vec![end]].concat()]).await;
            let (events, error) = collect_events(&model_at(wire, &fake).build().unwrap()).await;
            assert_eq!((reason(&events), error), (FinishedReason::Truncated, None), "{wire}");
            assert_eq!(folded(&events).text("").as_deref(), Some(TEXT[0]), "{wire}");
            let types = types(&events);
            assert_eq!(types[types.len() - 2], "TEXT_BLOCK_END", "{wire}: what is open is closed");
            let EventKind::ModelCallEnd(end) = &events.last().unwrap().kind else { panic!() };
            assert_eq!(end.error.as_ref().unwrap().r#type, ErrorType::Connection, "{wire}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_behind_the_end_has_broken_nothing() {
    for wire in WIRES {
        let steps = [open_stream(&body(wire, Scene::Text), 30), vec![ServerStep::HangUp]].concat();
        let fake = FakeProvider::start([steps]).await;
        let (events, error) = collect_events(&model_at(wire, &fake).build().unwrap()).await;
        assert_eq!((reason(&events), error), (FinishedReason::Completed, None), "{wire}");
    }
}

#[tokio::test]
async fn silence_between_tokens_ends_the_call_and_closes_the_connection() {
    let fake =
        FakeProvider::start([[open_stream(&says(&["one"]), 99), vec![ServerStep::Hold]].concat()])
            .await;
    let limit = Duration::from_millis(50);
    let model = model_at("openai", &fake).token_gap_limit(limit).build().unwrap();
    let (events, error) = collect_events(&model).await;
    assert_eq!(types(&events), ["MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA"]);
    let error = error.unwrap();
    assert_eq!((error.kind.clone(), error.is_transient), (ErrorType::Upstream, true));
    assert!(error.message.contains("sent nothing for 50ms"), "{error}");
    fake.wait_for_disconnect().await;
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn dropping_an_answer_closes_the_connection() {
    let fake =
        FakeProvider::start([[open_stream(&says(&["one"]), 99), vec![ServerStep::Hold]].concat()])
            .await;
    let model = model_at("openai", &fake).build().unwrap();
    let mut answer = ask(&model).await.unwrap();
    answer.next().await.unwrap().unwrap();
    drop(answer);
    fake.wait_for_disconnect().await;
}

#[tokio::test]
async fn dropping_a_question_closes_the_connection() {
    let fake = FakeProvider::start([vec![ServerStep::Hold]]).await;
    let model = model_at("openai", &fake).build().unwrap();
    let mut question = Box::pin(ask(&model));
    while fake.requests().is_empty() {
        tokio::select! {
            _ = &mut question => panic!("there is an answer"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    drop(question);
    fake.wait_for_disconnect().await;
}

#[tokio::test]
async fn stopping_a_reply_closes_the_connection_to_the_model() {
    let fake =
        FakeProvider::start([[open_stream(&says(&["one"]), 99), vec![ServerStep::Hold]].concat()])
            .await;
    let agent = Agent::builder("friday", model_at("openai", &fake).build().unwrap()).build();
    let mut events = agent.reply([Msg::user("ann", "Hi!")]);
    while let Some(event) = events.next().await {
        if event.unwrap().kind.type_name() == "TEXT_BLOCK_DELTA" {
            break;
        }
    }
    drop(events);
    fake.wait_for_disconnect().await;
}

#[tokio::test]
async fn an_error_in_the_middle_is_the_last_event() {
    let failed =
        "data: {\"error\":{\"message\":\"sk-secret is busy\",\"type\":\"server_error\"}}\n\n";
    let fake = FakeProvider::start([whole_stream(&format!("{}{failed}", says(&["one"])), 9)]).await;
    let (events, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
    assert_eq!((reason(&events), error), (FinishedReason::Error, None));
    let EventKind::ModelCallEnd(end) = &events.last().unwrap().kind else { panic!() };
    assert_eq!(end.error.as_ref().unwrap().message, "[key] is busy");
    let json: String = events.iter().map(turnwire_core::Event::to_json).collect();
    assert!(!json.contains("sk-secret"), "{json}");
}

#[tokio::test]
async fn a_response_that_is_not_a_stream_is_reported_and_not_retried() {
    for (media_type, body, expected) in [
        ("text/html; charset=utf-8", "<html>Log in</html>", "check the base URL"),
        ("text/plain", "Hello, I am a wiki.", "Hello, I am a wiki."),
        ("application/json", "{\n  \"detail\": \"no\n  such thing\"\n}", "an invalid response"),
        (
            "application/json",
            "{\n  \"error\": {\n    \"message\": \"not here\"\n  }\n}",
            "(not here)",
        ),
        ("text/event-stream", "data: {\"id\": \n\ndata: x\n\n", "an invalid response"),
        ("text/event-stream", "data: [1]\n\n", "an invalid response"),
        ("application/octet-stream", "\u{0}\u{1}\u{2}", "an invalid response"),
    ] {
        for cut in [1, 1000] {
            let pieces = body.as_bytes().chunks(cut).map(|piece| ServerStep::Send(chunk(piece)));
            let steps = std::iter::once(ServerStep::Send(stream_head(media_type)))
                .chain(pieces)
                .chain([ServerStep::Send(LAST_CHUNK.to_vec())]);
            let fake = FakeProvider::start([steps.collect()]).await;
            let (events, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
            assert!(events.is_empty());
            let error = error.unwrap();
            assert_eq!(error.kind, ErrorType::Upstream, "{body}");
            assert!(error.message.contains(expected), "{error}");
            assert!(!error.message.contains('\n'), "{error}");
            assert_eq!(fake.requests().len(), 1, "{body}");
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_no_answer() {
    let fake = FakeProvider::start([vec![
        ServerStep::Send(stream_head("text/event-stream")),
        ServerStep::Send(chunk(
            b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xfe\"}}]}\n\n",
        )),
        ServerStep::Send(LAST_CHUNK.to_vec()),
    ]])
    .await;
    let (_, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
    assert!(error.unwrap().message.contains("UTF-8"));
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_is_not_passed_over_in_silence() {
    let lines = format!("{}data: {{oh\n\n{}", says(&["one"]), says_all(&["two"]));
    for cut in [5, usize::MAX] {
        let fake =
            FakeProvider::start([[open_stream(&lines, cut), vec![ServerStep::Hold]].concat()])
                .await;
        let (events, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
        assert_eq!(types(&events), ["MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA"]);
        let error = error.unwrap();
        assert_eq!((error.kind.clone(), error.is_transient), (ErrorType::Upstream, false));
        assert!(error.message.contains("an invalid event"), "{error}");
        fake.wait_for_disconnect().await;
    }
}

#[tokio::test]
async fn an_event_has_a_limit() {
    let long = "x".repeat(2000);
    let fake =
        FakeProvider::start([
            [open_stream(&says(&["one", &long]), 500), vec![ServerStep::Hold]].concat()
        ])
        .await;
    let model = model_at("openai", &fake).event_limit(1000).build().unwrap();
    let (events, error) = collect_events(&model).await;
    assert_eq!(events.len(), 3);
    assert!(error.unwrap().message.contains("more than 1000 bytes"));
    fake.wait_for_disconnect().await;
}

#[tokio::test]
async fn a_refusal_without_an_end_of_its_body_is_enough() {
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-length: 100000\r\n\r\n{\"error\":\"cut";
    let fake = FakeProvider::start([vec![ServerStep::Send(head.into()), ServerStep::HangUp]]).await;
    let (_, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
    assert_eq!(error.unwrap().kind, ErrorType::InvalidRequest);
    let endless = "x".repeat(200_000);
    let fake = FakeProvider::start([status_response("400 Bad Request", "", &endless)]).await;
    let (_, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
    assert!(error.unwrap().message.len() < 1000);
}

#[tokio::test]
async fn a_response_without_streaming_is_accepted() {
    let whole = r#"{"id":"x","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5}}"#;
    let fake = FakeProvider::start([status_response(
        "200 OK",
        "content-type: application/json\r\n",
        whole,
    )])
    .await;
    let (events, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
    assert_eq!((reason(&events), error), (FinishedReason::Completed, None));
    assert_eq!(folded(&events).text("").as_deref(), Some("hello"));
}
