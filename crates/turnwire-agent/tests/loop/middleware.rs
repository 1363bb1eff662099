//! Middleware.

use crate::fake_model::{FakeModel, RecordedRequest, crash_everywhere, find_result};
use crate::harness::Harness;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use turnwire_agent::middleware::{EditableRequest, Middleware, Next, ReplyContext, Verdict};
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolContext, ToolError, ToolOutput, function};
use turnwire_agent::{Agent, AgentBuilder};
use turnwire_core::{
    Event, EventKind, FinishedReason, HintBlock, Msg, ThinkingBlock, ToolCall, ToolResultState,
};

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

fn call(id: &str, tool: &str) -> ScriptStep {
    ScriptStep::call(id, tool, r#"{"city":"Rome"}"#)
}

fn agent(model: &Arc<FakeModel>) -> AgentBuilder {
    let weather = |City { city }: City| async move { Ok::<_, ToolError>(format!("{city}: sunny")) };
    let forever = |_: City| async move {
        tokio::time::sleep(Duration::from_hours(1)).await;
        Ok::<_, ToolError>("late")
    };
    Agent::builder("friday", model.clone())
        .tool(function("weather", "The weather", weather))
        .tool(function("forever", "Takes long", forever))
}

fn with_a_tool() -> Arc<FakeModel> {
    FakeModel::new(|request: &RecordedRequest| match request.result_count() {
        0 => vec![ScriptStep::thinking("Hm."), call("c", "weather")],
        _ => vec![ScriptStep::Text(vec!["It is ".to_owned(), "sunny.".to_owned()])],
    })
}

/// Records when it is called.
struct RecordingMiddleware {
    name: &'static str,
    notes: Arc<Mutex<Vec<String>>>,
}

impl RecordingMiddleware {
    fn note(&self, what: &str) {
        self.notes.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

#[async_trait]
impl Middleware for RecordingMiddleware {
    async fn before_model(&self, request: &mut EditableRequest, _: &ReplyContext) {
        self.note("model");
        request.tools.retain(|tool| tool.name != "forever");
        request.messages.push(Msg::user("", format!("(from {})", self.name)));
        request.settings.temperature = Some(0.5);
    }

    async fn around_tool(
        &self,
        mut call: ToolCall,
        out: ToolContext,
        next: Next<'_>,
        context: &ReplyContext,
    ) -> Result<ToolOutput, ToolError> {
        self.note(&format!("before {} of {}", next.spec().name, context.agent()));
        call.input = call.input.replace("Rome", &format!("Rome {}", self.name));
        let given = next.run(call, out).await;
        self.note("after");
        given
    }
}

#[tokio::test]
async fn several_stand_around_each_other_in_their_order() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let model = with_a_tool();
    let friday = agent(&model)
        .middleware(RecordingMiddleware { name: "a", notes: notes.clone() })
        .middleware(RecordingMiddleware { name: "b", notes: notes.clone() })
        .build();
    let mut harness = Harness::new("weather?");
    // The answer depends on the reply, which is not the last message here.
    harness.run(&friday).await.unwrap();
    let request = &model.requests()[0];
    assert_eq!(request.tools, ["weather"]);
    assert_eq!(request.tuning.temperature, Some(0.5));
    assert!(request.text().contains("(from a)") && request.text().contains("(from b)"));
    let notes = notes.lock().unwrap();
    assert_eq!(
        notes[..6],
        [
            "a model",
            "b model",
            "a before weather of friday",
            "b before weather of friday",
            "b after",
            "a after"
        ]
    );
    assert_eq!(find_result(&harness.reply(), "c").1, "Rome b a: sunny");
    // What middleware adds to a request is not in the log.
    assert!(!harness.reply().to_json().contains("(from"));
}

/// Changes text, drops thinking, and tries changes that are not allowed.
struct EditingMiddleware;

impl Middleware for EditingMiddleware {
    fn on_event(&self, event: &mut Event<'static>, _: &ReplyContext) -> Verdict {
        match &mut event.kind {
            EventKind::TextBlockDelta(delta) => {
                delta.delta = delta.delta.to_uppercase().into();
                Verdict::Keep
            }
            EventKind::TextBlockStart(start) => {
                start.block_id = "mine".into();
                Verdict::Keep
            }
            EventKind::ThinkingBlockStart(_)
            | EventKind::ToolResultStart(_)
            | EventKind::TextBlockEnd(_)
            | EventKind::ReplyEnd(_) => Verdict::Drop,
            _ => Verdict::Keep,
        }
    }
}

#[tokio::test]
async fn events_are_changed_before_anybody_sees_them() {
    let model = with_a_tool();
    let friday = agent(&model).middleware(EditingMiddleware).build();
    let mut harness = Harness::new("weather?");
    harness.run(&friday).await.unwrap();
    let reply = harness.reply();
    assert_eq!(reply.text("").as_deref(), Some("IT IS SUNNY."));
    assert!(!reply.has::<ThinkingBlock>(), "with the start all of it goes");
    assert_eq!(find_result(&reply, "c").0, ToolResultState::Success);
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed), "a frame stays");
    assert!(!model.requests()[1].text().contains("Hm."), "the model reads what the log has");
}

/// Adds a time to each request.
struct HintingMiddleware;

#[async_trait]
impl Middleware for HintingMiddleware {
    async fn hints(&self, reply: &Msg, _: &ReplyContext) -> Vec<HintBlock> {
        vec![HintBlock::new(format!("{} blocks so far", reply.content().len()))]
    }
}

#[tokio::test]
async fn hints_are_logged_and_delivered_once_despite_crashes() {
    let choose = |request: &RecordedRequest| match request.result_count() {
        0 => vec![call("c", "weather")],
        _ => vec![ScriptStep::text("Sunny.")],
    };
    let crashes = crash_everywhere(
        || Harness::new("weather?"),
        || agent(&FakeModel::new(choose)).middleware(HintingMiddleware).build(),
        |crashed, _| {
            let reply = crashed.reply();
            assert_eq!(reply.blocks::<HintBlock>().count(), 2, "{:?}", crashed.types());
            assert_eq!(reply.text("").as_deref(), Some("Sunny."));
        },
    )
    .await;
    assert!(crashes > 6, "{crashes}");
    let model = FakeModel::new(choose);
    let mut harness = Harness::new("weather?");
    harness.run(&agent(&model).middleware(HintingMiddleware).build()).await.unwrap();
    assert_eq!(
        harness.types()[..3],
        ["REPLY_START", "HINT_BLOCK", "MODEL_CALL_START"].map(str::to_owned)
    );
    assert!(model.requests()[0].text().contains("0 blocks so far"));
}

#[derive(Clone, Copy, PartialEq)]
enum When {
    Asking,
    Saying,
    Running,
    Ending,
}

struct StoppingMiddleware(When);

#[async_trait]
impl Middleware for StoppingMiddleware {
    async fn before_model(&self, _: &mut EditableRequest, context: &ReplyContext) {
        if self.0 == When::Asking {
            context.stop("enough");
        }
    }

    async fn around_tool(
        &self,
        call: ToolCall,
        out: ToolContext,
        next: Next<'_>,
        context: &ReplyContext,
    ) -> Result<ToolOutput, ToolError> {
        if self.0 == When::Running {
            context.stop("enough");
        }
        next.run(call, out).await
    }

    fn on_event(&self, event: &mut Event<'static>, context: &ReplyContext) -> Verdict {
        match event.kind {
            EventKind::TextBlockDelta(_) if self.0 == When::Saying => context.stop("enough"),
            EventKind::ReplyEnd(_) if self.0 == When::Ending => context.stop("enough"),
            _ => {}
        }
        Verdict::Keep
    }
}

#[tokio::test]
async fn a_reply_can_be_stopped_anywhere_and_is_closed() {
    let lines =
        || vec![ScriptStep::text("Let me"), ScriptStep::Wait(Duration::ZERO), call("c", "forever")];
    for (when, types) in [
        (When::Asking, vec!["REPLY_START", "REQUEST_STOP", "REPLY_END"]),
        (
            When::Saying,
            vec![
                "REPLY_START",
                "MODEL_CALL_START",
                "TEXT_BLOCK_START",
                "TEXT_BLOCK_DELTA",
                "TEXT_BLOCK_END",
                "MODEL_CALL_END",
                "REQUEST_STOP",
                "REPLY_END",
            ],
        ),
        (
            When::Running,
            vec![
                "REPLY_START",
                "MODEL_CALL_START",
                "TEXT_BLOCK_START",
                "TEXT_BLOCK_DELTA",
                "TEXT_BLOCK_END",
                "TOOL_CALL_START",
                "TOOL_CALL_DELTA",
                "TOOL_CALL_END",
                "MODEL_CALL_END",
                "TOOL_RESULT_START",
                "REQUEST_STOP",
                "TOOL_RESULT_TEXT_DELTA",
                "TOOL_RESULT_END",
                "REPLY_END",
            ],
        ),
    ] {
        let friday =
            agent(&FakeModel::new(move |_| lines())).middleware(StoppingMiddleware(when)).build();
        let mut harness = Harness::new("go");
        harness.run(&friday).await.unwrap();
        assert_eq!(harness.types(), types);
        assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Interrupted));
        let stop = harness.events.iter().find_map(|event| match &event.kind {
            EventKind::RequestStop(stop) => stop.reason.clone(),
            _ => None,
        });
        assert_eq!(stop.as_deref(), Some("enough"));
    }
    // Too late: the reply has ended.
    let friday = agent(&with_a_tool()).middleware(StoppingMiddleware(When::Ending)).build();
    let mut harness = Harness::new("go");
    harness.run(&friday).await.unwrap();
    assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Completed));
}
