//! Responses of providers as events: on every wire, with the bytes cut anywhere.

use crate::bodies::{SCENES, Scene, TEXT, THOUGHT, WIRES, body, says_all};
use crate::fake_provider::{FakeProvider, ServerStep, chunk, open_stream, whole_stream};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use turnwire_agent::Agent;
use turnwire_agent::model::http::{ApiKey, Backoff, HttpModel, HttpModelBuilder};
use turnwire_agent::model::{Model, ModelError, ModelRequest, ModelSettings, ModelStream};
use turnwire_agent::tool::{ToolError, function};
use turnwire_core::{Event, EventKind, FinishedReason, Msg, TextBlock, ThinkingBlock, ToolCall};
use turnwire_wires::model_request::{OutputFormat, ToolChoice, ToolDefinition};

pub const REPLY: &str = "reply";

/// A model at a fake provider, with short time limits.
pub fn model_at(wire: &str, fake: &FakeProvider) -> HttpModelBuilder {
    HttpModel::builder(format!("{wire}:m"))
        .base_url(&fake.base)
        .key(ApiKey::from_text("sk-secret"))
        .backoff(Backoff { first: Duration::from_millis(1), ..Backoff::default() })
}

pub async fn ask(model: &dyn Model) -> Result<ModelStream, ModelError> {
    let messages = [Msg::user("ann", "Hi!")];
    let ask = ModelRequest {
        reply_id: REPLY,
        block_prefix: "reply-1-",
        messages: &messages,
        tools: &[],
        tool_choice: &ToolChoice::Auto,
        output: None,
        settings: &ModelSettings::default(),
        options: &turnwire_wires::ModelOptions::default(),
    };
    model.stream(ask).await
}

/// All events, and the error that ended the stream, if any.
pub async fn collect_events(model: &dyn Model) -> (Vec<Event<'static>>, Option<ModelError>) {
    let mut events = Vec::new();
    match ask(model).await {
        Err(error) => return (events, Some(error)),
        Ok(mut answer) => {
            while let Some(event) = answer.next().await {
                match event {
                    Ok(event) => events.push(event),
                    Err(error) => {
                        assert!(answer.next().await.is_none(), "an error is the last");
                        return (events, Some(error));
                    }
                }
            }
        }
    }
    (events, None)
}

pub fn types<'e>(events: &'e [Event<'static>]) -> Vec<&'e str> {
    events.iter().map(|event| event.kind.type_name()).collect()
}

/// Folds the events strictly.
pub fn folded(events: &[Event<'static>]) -> Msg {
    let mut msg = Msg::reply(REPLY, "");
    for event in events {
        let fits = msg.append_event(event);
        assert!(fits.is_ok(), "{} does not fit: {fits:?}", event.to_json());
    }
    msg
}

pub fn reason(events: &[Event<'static>]) -> FinishedReason {
    match &events.last().unwrap().kind {
        EventKind::ModelCallEnd(end) => end.finished_reason.clone(),
        other => panic!("the last event is {}", other.type_name()),
    }
}

fn check(wire: &str, scene: Scene, events: &[Event<'static>]) {
    let msg = folded(events);
    let thought: String = msg.blocks::<ThinkingBlock>().map(|it| it.thinking.as_str()).collect();
    let text: String = msg.blocks::<TextBlock>().map(|it| it.text.as_str()).collect();
    assert_eq!(thought, if scene.thinks() { THOUGHT } else { "" }, "{wire} {scene:?}");
    assert_eq!(
        text,
        if scene.speaks() { TEXT.concat() } else { String::new() },
        "{wire} {scene:?}"
    );
    let found: Vec<(String, Value)> = msg
        .blocks::<ToolCall>()
        .map(|call| (call.name.clone(), serde_json::from_str(&call.input).unwrap()))
        .collect();
    let wanted: Vec<(String, Value)> =
        scene.calls().into_iter().map(|(_, name, input)| (name.to_owned(), input)).collect();
    assert_eq!(found, wanted, "{wire} {scene:?}");

    assert_eq!(types(events).first(), Some(&"MODEL_CALL_START"));
    let EventKind::ModelCallStart(start) = &events[0].kind else { panic!("no start") };
    assert_eq!(start.model_name, "m", "{wire}");
    let EventKind::ModelCallEnd(end) = &events.last().unwrap().kind else { panic!("no end") };
    assert_eq!((end.usage.input_tokens, end.usage.output_tokens), (3, 5), "{wire} {scene:?}");
    let reason =
        if wanted.is_empty() { FinishedReason::Completed } else { FinishedReason::ToolCalls };
    assert_eq!(end.finished_reason, reason, "{wire} {scene:?}");
    assert!(events.iter().all(|event| event.reply_id == REPLY), "{wire}");
}

#[tokio::test]
async fn every_provider_decodes_every_scene_however_its_bytes_are_split() {
    for wire in WIRES {
        for scene in SCENES {
            let lines = body(wire, scene);
            let answers = [
                whole_stream(&lines, usize::MAX),
                whole_stream(&lines, 1),
                whole_stream(&lines, 7),
                whole_stream(&lines.replace('\n', "\r\n"), 3),
                whole_stream(&lines.replace('\n', "\r\n"), usize::MAX),
            ];
            let count = answers.len();
            let fake = FakeProvider::start(answers).await;
            let model = model_at(wire, &fake).build().unwrap();
            let mut first: Option<Vec<String>> = None;
            for _ in 0..count {
                let (events, error) = collect_events(&model).await;
                assert_eq!(error, None, "{wire} {scene:?}");
                check(wire, scene, &events);
                let json: Vec<String> = events.iter().map(Event::to_json).collect();
                assert_eq!(first.get_or_insert_with(|| json.clone()), &json, "{wire} {scene:?}");
            }
        }
    }
}

#[tokio::test]
async fn blocks_have_the_requested_id_prefix() {
    let fake = FakeProvider::start([whole_stream(&body("gemini", Scene::Reasoning), 9)]).await;
    let (events, _) = collect_events(&model_at("gemini", &fake).build().unwrap()).await;
    let ids: Vec<String> =
        folded(&events).content().iter().map(|block| block.id().to_owned()).collect();
    assert!(ids.iter().all(|id| id.starts_with("reply-1-")), "{ids:?}");
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_complete_answer() {
    // The end of the body arrives after the last event.
    let gate = Arc::new(Semaphore::new(0));
    let mut steps = open_stream(&body("openai-chat", Scene::Text), 50);
    steps.extend([
        ServerStep::Wait(Arc::clone(&gate)),
        ServerStep::Send(crate::fake_provider::LAST_CHUNK.to_vec()),
    ]);
    let fake = FakeProvider::start(vec![steps; 20]).await;
    let model = model_at("openai", &fake).build().unwrap();
    for _ in 0..20 {
        let (events, _) = collect_events(&model).await;
        assert_eq!(reason(&events), FinishedReason::Completed);
        gate.add_permits(1);
        // The rest is read in the background: the next call may start before that is done.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let requests = fake.requests();
    assert_eq!(requests.len(), 20);
    assert!(requests.last().unwrap().connection < 19, "each call had a connection of its own");
}

#[tokio::test]
async fn an_answer_is_over_at_its_end_also_where_the_provider_does_not_hang_up() {
    for wire in ["openai-chat", "openai-responses", "anthropic"] {
        let mut steps = open_stream(&body(wire, Scene::Text), 100);
        steps.push(ServerStep::Hold);
        let fake = FakeProvider::start([steps]).await;
        let (events, error) = collect_events(&model_at(wire, &fake).build().unwrap()).await;
        assert_eq!((reason(&events), error), (FinishedReason::Completed, None), "{wire}");
        fake.wait_for_disconnect().await;
    }
}

#[tokio::test]
async fn events_after_the_end_are_dropped() {
    let twice = format!("{0}{0}", body("anthropic", Scene::Text));
    let fake = FakeProvider::start([whole_stream(&twice, usize::MAX)]).await;
    let (events, _) = collect_events(&model_at("anthropic", &fake).build().unwrap()).await;
    check("anthropic", Scene::Text, &events);
}

#[tokio::test]
async fn tokens_are_passed_on_as_they_come() {
    let mut steps = open_stream(&crate::bodies::says(&["one"]), usize::MAX);
    steps.push(ServerStep::Hold);
    let fake = FakeProvider::start([steps]).await;
    let mut answer = ask(&model_at("openai", &fake).build().unwrap()).await.unwrap();
    for expected in ["MODEL_CALL_START", "TEXT_BLOCK_START", "TEXT_BLOCK_DELTA"] {
        let event = answer.next().await.unwrap().unwrap();
        assert_eq!(event.kind.type_name(), expected);
    }
}

#[tokio::test]
async fn the_request_has_the_messages_and_the_settings() {
    let fake = FakeProvider::start([whole_stream(&body("openai-chat", Scene::Text), 99)]).await;
    let mut extra = turnwire_core::Fields::default();
    extra.insert("seed", 7);
    let model =
        model_at("openai", &fake).max_tokens(8).temperature(0.5).extra(extra).build().unwrap();
    let messages = [Msg::system("", "Be brief."), Msg::user("ann", "Plan!")];
    let schema = turnwire_core::Json::parse(r#"{"type":"object","properties":{}}"#).unwrap();
    let tool = ToolDefinition {
        name: "t".into(),
        description: "d".into(),
        input_schema: schema.clone(),
        ..ToolDefinition::default()
    };
    let ask = ModelRequest {
        reply_id: REPLY,
        block_prefix: "p-",
        messages: &messages,
        tools: &[tool],
        tool_choice: &ToolChoice::Tool("t".to_owned()),
        output: Some(&OutputFormat::new("plan", schema)),
        settings: &ModelSettings { max_tokens: Some(9), ..ModelSettings::default() },
        options: &turnwire_wires::ModelOptions::default(),
    };
    drop(model.stream(ask).await.unwrap());
    let request = fake.requests().remove(0);
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    let body = request.body;
    assert_eq!(body["messages"][1]["content"], "Plan!");
    assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
    assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(9), &json!(0.5)));
    assert_eq!(body["seed"], 7);
    assert_eq!(body["tool_choice"]["function"]["name"], "t");
    assert_eq!(body["response_format"]["json_schema"]["name"], "plan");
}

#[tokio::test]
async fn the_next_request_is_the_fold_of_the_emitted_events() {
    for wire in WIRES {
        let answers = [
            whole_stream(&body(wire, Scene::Parallel), 11),
            whole_stream(&body(wire, Scene::Text), 11),
        ];
        let fake = FakeProvider::start(answers).await;
        let agent = Agent::builder("friday", model_at(wire, &fake).build().unwrap())
            .tool(function("get_weather", "Of a city", async |_: Value| {
                Ok::<_, ToolError>("sunny")
            }))
            .tool(function("get_time", "Somewhere", async |_: Value| Ok::<_, ToolError>("noon")))
            .build();
        let reply = agent.call([Msg::user("ann", "Weather and time?")]).await.unwrap();
        assert_eq!(reply.text("").unwrap(), TEXT.concat(), "{wire}");
        let second = fake.requests().remove(1).body.to_string();
        for expected in ["Weather and time?", "get_weather", "Paris", "get_time", "sunny", "noon"] {
            assert!(second.contains(expected), "{wire}: no {expected} in {second}");
        }
    }
}

#[tokio::test]
async fn a_character_split_across_chunks_is_read() {
    let lines = says_all(&["🌍"]);
    let at_globe = lines.find('🌍').unwrap();
    for cut in 1..4 {
        let (one, two) = lines.as_bytes().split_at(at_globe + cut);
        let mut steps = open_stream("", 1);
        steps.extend([one, two].map(|piece| ServerStep::Send(chunk(piece))));
        steps.push(ServerStep::Send(crate::fake_provider::LAST_CHUNK.to_vec()));
        let fake = FakeProvider::start([steps]).await;
        let (events, _) = collect_events(&model_at("openai", &fake).build().unwrap()).await;
        assert_eq!(folded(&events).text("").as_deref(), Some("🌍"));
    }
}

/// A short response.
pub fn hello_response() -> Vec<ServerStep> {
    whole_stream(&says_all(&["hello"]), 20)
}

/// Calls a model that sends it.
pub async fn assert_says_hello(model: &dyn Model) {
    let (events, error) = collect_events(model).await;
    assert_eq!(error, None);
    assert_eq!(folded(&events).text("").as_deref(), Some("hello"));
}
