//! Retries, and the fallback model.

use crate::bodies::{Scene, body, says};
use crate::fake_provider::{FakeProvider, ServerStep, open_stream, status_response, whole_stream};
use crate::scenes::{
    ask, assert_says_hello, collect_events, folded, hello_response, model_at, reason,
};
use std::time::Duration;
use tokio::net::TcpListener;
use turnwire_agent::model::http::{Backoff, HttpModel};
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::model::{Model, ModelError};
use turnwire_core::{ErrorType, FinishedReason};

async fn fails(model: &dyn Model) -> ModelError {
    let (events, error) = collect_events(model).await;
    assert!(events.is_empty(), "{events:?}");
    error.unwrap()
}

#[tokio::test]
async fn transient_failures_are_retried_with_the_same_request() {
    for failure in [
        status_response("408 Request Timeout", "", ""),
        status_response("409 Conflict", "", ""),
        status_response("429 Too Many Requests", "retry-after: 0\r\n", "{}"),
        status_response("500 Oh", "", "<html>"),
        status_response("503 Busy", "retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", ""),
        status_response("529 Overloaded", "", r#"{"error":{"message":"busy"}}"#),
        // The connection closes: at once, in the head, before the body, in a frame, after the first frame.
        // Then an error event before any output.
        vec![ServerStep::HangUp],
        vec![ServerStep::Send(b"HTTP/1.1 200 OK\r\ncontent-".to_vec()), ServerStep::HangUp],
        [open_stream("", 1), vec![ServerStep::HangUp]].concat(),
        [open_stream("data: {\"id\":\"x\",\"cho", 99), vec![ServerStep::HangUp]].concat(),
        [open_stream(&says(&[""]), 99), vec![ServerStep::HangUp]].concat(),
        whole_stream(&says(&[""]), 99),
        whole_stream("data: {\"error\":{\"message\":\"busy\",\"type\":\"server_error\"}}\n\n", 99),
    ] {
        let case = format!("{failure:?}");
        let fake = FakeProvider::start([failure.clone(), failure, hello_response()]).await;
        let model = model_at("openai", &fake).build().unwrap();
        assert_says_hello(&model).await;
        let requests = fake.requests();
        assert_eq!(requests.len(), 3, "{case}");
        assert_eq!(requests[0].body, requests[2].body);
    }
}

#[tokio::test]
async fn a_line_that_breaks_off_is_tried_again() {
    let whole = body("ollama", Scene::Text);
    let cut = whole.get(..20).unwrap();
    let fake = FakeProvider::start([
        [open_stream(cut, 99), vec![ServerStep::HangUp]].concat(),
        whole_stream(cut, 99),
        whole_stream(&whole, 99),
    ])
    .await;
    let (events, error) = collect_events(&model_at("ollama", &fake).build().unwrap()).await;
    assert_eq!((reason(&events), error), (FinishedReason::Completed, None));
}

#[tokio::test]
async fn an_overload_error_inside_the_stream_is_retried() {
    let busy = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\
                \"message\":\"Overloaded\"}}\n\n";
    let begun = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"a\",\"model\":\"m\"}}\n\n";
    let fake = FakeProvider::start([
        whole_stream(busy, 9),
        whole_stream(&format!("{begun}{busy}"), 9),
        whole_stream(&body("anthropic", Scene::Text), 9),
    ])
    .await;
    let (events, error) = collect_events(&model_at("anthropic", &fake).build().unwrap()).await;
    assert_eq!((reason(&events), error), (FinishedReason::Completed, None));
    assert_eq!(fake.requests().len(), 3);
}

#[tokio::test]
async fn permanent_failures_are_not_retried() {
    for (line, kind) in [
        ("400 Bad Request", ErrorType::InvalidRequest),
        ("401 Unauthorized", ErrorType::Authentication),
        ("403 Forbidden", ErrorType::Permission),
        ("404 Not Found", ErrorType::InvalidRequest),
        ("413 Too Large", ErrorType::InvalidRequest),
        ("422 Unprocessable", ErrorType::InvalidRequest),
    ] {
        let no = status_response(line, "", r#"{"error":{"message":"no, thanks"}}"#);
        let fake = FakeProvider::start([no, hello_response()]).await;
        let error = fails(&model_at("openai", &fake).build().unwrap()).await;
        assert_eq!(error.kind, kind, "{line}");
        assert!(error.message.contains("no, thanks"), "{error}");
        assert_eq!(fake.requests().len(), 1, "{line}");
    }
}

#[tokio::test]
async fn it_is_tried_as_often_as_it_may_be() {
    let busy = || status_response("503 Busy", "", "busy");
    let fake = FakeProvider::start([busy(), busy(), busy(), busy(), hello_response()]).await;
    let error = fails(&model_at("openai", &fake).retries(3).build().unwrap()).await;
    assert_eq!((error.kind, error.is_transient), (ErrorType::Upstream, true));
    assert_eq!(fake.requests().len(), 4);
    let error = fails(
        &model_at("openai", &FakeProvider::start([busy()]).await).retries(0).build().unwrap(),
    )
    .await;
    assert!(error.message.ends_with("answered 503 (Service Unavailable): busy"), "{error}");
}

#[tokio::test]
async fn a_long_retry_after_is_obeyed() {
    let later = status_response("429 Too Many Requests", "retry-after: 3600\r\n", "");
    let fake = FakeProvider::start([later, hello_response()]).await;
    let error = fails(&model_at("openai", &fake).build().unwrap()).await;
    assert_eq!(error.kind, ErrorType::RateLimit);
    assert_eq!(error.retry_after, Some(Duration::from_hours(1)));
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_tried_again_and_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let model = HttpModel::builder("ollama:m")
        .base_url(&base)
        .backoff(Backoff { first: Duration::from_millis(1), longest: Duration::from_secs(1) })
        .build()
        .unwrap();
    let error = fails(&model).await;
    assert_eq!((error.kind.clone(), error.is_transient), (ErrorType::Connection, true));
    assert!(error.message.contains(&format!("could not be reached at {base}: ")), "{error}");
}

#[tokio::test]
async fn once_something_was_passed_on_nothing_is_tried_again() {
    let steps = [open_stream(&says(&["hel"]), 99), vec![ServerStep::HangUp]].concat();
    let fake = FakeProvider::start([steps, hello_response()]).await;
    let (events, error) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
    assert_eq!((reason(&events), error), (FinishedReason::Truncated, None));
    assert_eq!(folded(&events).text("").as_deref(), Some("hel"));
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn the_fallback_answers_when_the_model_does_not() {
    for failure in
        [status_response("503 Busy", "", ""), status_response("401 Unauthorized", "", "")]
    {
        let fake = FakeProvider::start(vec![failure; 2]).await;
        let other = FakeProvider::start([whole_stream(&body("anthropic", Scene::Text), 20)]).await;
        let spare = model_at("anthropic", &other).build().unwrap();
        let model = model_at("openai", &fake).retries(1).fallback(spare).build().unwrap();
        let (events, error) = collect_events(&model).await;
        assert_eq!((reason(&events), error), (FinishedReason::Completed, None));
        assert_eq!(other.requests().len(), 1);
        assert!(other.requests()[0].head.starts_with("POST /v1/messages"));
    }
}

#[tokio::test]
async fn an_unneeded_fallback_is_not_called_and_any_model_can_be_one() {
    let fake = FakeProvider::start([hello_response(), status_response("503 Busy", "", "")]).await;
    let spare = ScriptedModel::new([vec![ScriptStep::text("spare")]]);
    let model = model_at("openai", &fake).retries(0).fallback(spare).build().unwrap();
    assert_says_hello(&model).await;
    let (events, _) = collect_events(&model).await;
    assert_eq!(folded(&events).text("").as_deref(), Some("spare"));
}

#[tokio::test]
async fn where_both_fail_both_are_named() {
    let fake = FakeProvider::start([status_response("401 Unauthorized", "", "first")]).await;
    let other = FakeProvider::start([status_response("400 Bad Request", "", "second")]).await;
    let spare = model_at("anthropic", &other).build().unwrap();
    let error = fails(&model_at("openai", &fake).fallback(spare).build().unwrap()).await;
    assert_eq!(error.kind, ErrorType::InvalidRequest);
    assert!(error.message.contains("second") && error.message.contains("first"), "{error}");
}

#[tokio::test]
async fn a_silent_model_is_retried_and_its_connections_are_closed() {
    let beats = ": still there\n\n".repeat(3);
    let silent = [
        vec![ServerStep::Hold],
        [open_stream("", 1), vec![ServerStep::Hold]].concat(),
        // Keep-alive comments are not output.
        [open_stream(&beats, 15), vec![ServerStep::Hold]].concat(),
    ];
    let fake = FakeProvider::start(silent).await;
    let limit = Duration::from_millis(400);
    let error = fails(&model_at("openai", &fake).first_token_limit(limit).build().unwrap()).await;
    assert_eq!((error.kind.clone(), error.is_transient), (ErrorType::Upstream, true));
    assert!(error.message.contains("no output within 400ms"), "{error}");
    assert_eq!(fake.requests().len(), 3);
    for _ in 0..3 {
        fake.wait_for_disconnect().await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_provider_that_does_not_take_connections_is_given_up() {
    use tokio::net::{TcpSocket, TcpStream};
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // When its accept queue is full, further connections hang.
    let mut queue = Vec::new();
    let limit = Duration::from_millis(200);
    while let Ok(stream) = tokio::time::timeout(limit, TcpStream::connect(address)).await {
        queue.push(stream.unwrap());
        assert!(queue.len() < 100, "the queue has no end");
    }
    let model = HttpModel::builder("ollama:m")
        .base_url(format!("http://{address}"))
        .connect_limit(Duration::from_millis(50))
        .retries(0)
        .build()
        .unwrap();
    let Err(error) = ask(&model).await else { panic!("there is an answer") };
    assert_eq!(error.kind, ErrorType::Connection);
    assert!(error.message.contains("within the time limit"), "{error}");
}
