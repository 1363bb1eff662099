//! Structured output.

use crate::fake_model::{FakeModel, RecordedRequest, crash_everywhere, find_result};
use crate::harness::Harness;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolError, function};
use turnwire_agent::{Agent, AgentBuilder, CallError, ClientContext};
use turnwire_core::{ErrorType, FinishedReason, HintBlock, Json, Msg, ToolCall, ToolResultState};
use turnwire_testkit::values::doubling_schema;
use turnwire_wires::model_request::ToolChoice;

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct TaskPlan {
    goal: String,
    steps: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

const GOOD: &str = r#"{"goal":"tea","steps":["boil","pour"]}"#;
const BAD: &str = r#"{"goal":"tea","steps":3}"#;

fn schema() -> Json {
    Json::from_value(&schemars::schema_for!(TaskPlan)).unwrap()
}

fn agent(model: &Arc<FakeModel>) -> AgentBuilder {
    Agent::builder("friday", model.clone())
}

fn with_tool(model: &Arc<FakeModel>) -> AgentBuilder {
    let weather = |City { city }: City| async move { Ok::<_, ToolError>(format!("{city}: sunny")) };
    agent(model).tool(function("weather", "The weather", weather))
}

/// An answer through the structured-output tool, in two deltas.
fn by_tool(request: &RecordedRequest, answer: &str) -> Vec<ScriptStep> {
    let name = request.tools.last().unwrap().clone();
    let (head, tail) = answer.split_at(answer.len() / 2);
    let input = vec![head.to_owned(), tail.to_owned()];
    vec![ScriptStep::Call { id: "answer".to_owned(), name, input }]
}

fn is_correction(request: &RecordedRequest) -> bool {
    request.messages.last().is_some_and(Msg::has::<HintBlock>)
}

fn question() -> [Msg; 1] {
    [Msg::user("ann", "How is tea made?")]
}

#[tokio::test]
async fn a_model_with_schema_mode_gets_the_schema() {
    let model = FakeModel::in_schema_mode(|_| vec![ScriptStep::text(GOOD)]);
    let (reply, plan) = agent(&model).build().call_as::<TaskPlan>(question()).await.unwrap();
    assert_eq!(plan.steps, ["boil", "pour"]);
    assert_eq!(reply.structured_output().unwrap().text(), GOOD);
    let request = &model.requests()[0];
    assert!(request.output.as_ref().unwrap().schema.text().contains("goal"));
    assert!(request.tools.is_empty());
}

#[tokio::test]
async fn a_model_without_schema_mode_calls_a_hidden_tool() {
    let model = FakeModel::new(|request| by_tool(request, GOOD));
    let friday = agent(&model).output_schema(schema()).build();
    let mut harness = Harness::new("How is tea made?");
    harness.run(&friday).await.unwrap();
    assert_eq!(
        harness.types(),
        [
            "REPLY_START",
            "MODEL_CALL_START",
            "TEXT_BLOCK_START",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_DELTA",
            "TEXT_BLOCK_END",
            "MODEL_CALL_END",
            "REPLY_END",
        ]
    );
    let reply = harness.reply();
    assert!(!reply.has::<ToolCall>());
    assert_eq!(reply.parse_structured_output::<TaskPlan>().unwrap().unwrap().goal, "tea");
    assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed));
    let request = &model.requests()[0];
    assert_eq!(request.tool_choice, ToolChoice::Tool(request.tools[0].clone()));
    assert!(request.output.is_none());
}

#[tokio::test]
async fn tools_come_first_then_the_answer() {
    for in_schema_mode in [true, false] {
        let choose = move |request: &RecordedRequest| match request.result_count() {
            0 => vec![ScriptStep::call("c", "weather", r#"{"city":"Rome"}"#)],
            _ if in_schema_mode => vec![ScriptStep::text(GOOD)],
            _ => by_tool(request, GOOD),
        };
        let model =
            if in_schema_mode { FakeModel::in_schema_mode(choose) } else { FakeModel::new(choose) };
        let friday = with_tool(&model).build();
        let (reply, plan) = friday.call_as::<TaskPlan>(question()).await.unwrap();
        assert_eq!(plan.goal, "tea");
        assert_eq!(find_result(&reply, "c"), (ToolResultState::Success, "Rome: sunny".to_owned()));
        let requests = model.requests();
        let forced = if in_schema_mode { ToolChoice::Auto } else { ToolChoice::Required };
        assert_eq!(requests[0].tool_choice, forced);
        assert_eq!(requests.len(), 2);
    }
}

#[tokio::test]
async fn the_clients_output_schema_overrides_the_agents() {
    let model = FakeModel::in_schema_mode(|_| vec![ScriptStep::text("3")]);
    let friday = agent(&model).output_schema(schema()).build();
    let mut harness = Harness::new("How many?");
    let wanted = Json::parse(r#"{"type":"integer"}"#).unwrap();
    let context = ClientContext { output_schema: Some(wanted), ..ClientContext::default() };
    harness.history = harness.history.iter().map(|msg| context.attach_to(msg.clone())).collect();
    harness.run(&friday).await.unwrap();
    assert_eq!(harness.reply().structured_output().unwrap().text(), "3");
}

#[tokio::test]
async fn an_invalid_answer_is_corrected_once() {
    for by_a_tool in [true, false] {
        let choose = move |request: &RecordedRequest| {
            let answer = if is_correction(request) { GOOD } else { BAD };
            if by_a_tool { by_tool(request, answer) } else { vec![ScriptStep::text(answer)] }
        };
        let model =
            if by_a_tool { FakeModel::new(choose) } else { FakeModel::in_schema_mode(choose) };
        let friday = agent(&model).output_schema(schema()).build();
        let mut harness = Harness::new("How is tea made?");
        harness.run(&friday).await.unwrap();
        assert_eq!(harness.types().iter().filter(|word| *word == "HINT_BLOCK").count(), 1);
        let reply = harness.reply();
        assert_eq!(reply.structured_output().unwrap().text(), GOOD);
        // The next request has the error and the wrong answer.
        let hint = reply.first::<HintBlock>().unwrap().hint.text("");
        assert!(hint.contains("/steps") && hint.contains("array"), "{hint}");
        assert!(model.requests()[1].text().contains(r#"\"steps\":3"#));
    }
}

#[tokio::test]
async fn an_answer_that_stays_wrong_is_an_error() {
    for (line, why) in [(BAD, "array"), ("Tea is made with water.", "not JSON"), ("", "no answer")]
    {
        let model = FakeModel::in_schema_mode(move |_| vec![ScriptStep::text(line)]);
        let failed = agent(&model).build().call_as::<TaskPlan>(question()).await.unwrap_err();
        let CallError::Failed { reply, why: message } = failed else { panic!("{failed}") };
        assert!(message.contains(why), "{message}");
        assert_eq!(model.requests().len(), 2, "one round to put it right, and no more");
        assert_eq!(reply.finished_reason(), Some(&FinishedReason::Error));
        assert_eq!(reply.error().unwrap().r#type, ErrorType::Upstream);
        assert!(!reply.has_structured_output());
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Even {
    #[serde(deserialize_with = "even")]
    number: u32,
}

fn even<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from)?;
    if number % 2 == 0 { Ok(number) } else { Err(serde::de::Error::custom("it is odd")) }
}

#[tokio::test]
async fn the_rust_type_is_checked_after_the_schema() {
    let model = FakeModel::in_schema_mode(|request| {
        vec![ScriptStep::text(if is_correction(request) {
            r#"{"number":2}"#
        } else {
            r#"{"number":1}"#
        })]
    });
    let (reply, even) = agent(&model).build().call_as::<Even>(question()).await.unwrap();
    assert_eq!(even.number, 2);
    assert!(reply.first::<HintBlock>().unwrap().hint.text("").contains("it is odd"));
}

#[tokio::test]
async fn a_list_is_an_answer_too() {
    let model = FakeModel::new(|request| by_tool(request, r#"{"answer":["boil","pour"]}"#));
    let (_, steps) = agent(&model).build().call_as::<Vec<String>>(question()).await.unwrap();
    assert_eq!(steps, ["boil", "pour"]);
}

#[tokio::test]
async fn refusals_and_failures_are_not_corrected() {
    let broken = ModelError::new(ErrorType::RateLimit, "too much");
    for (lines, reason) in [
        (
            vec![ScriptStep::text("I won't."), ScriptStep::End(FinishedReason::Refusal)],
            FinishedReason::Refusal,
        ),
        (
            vec![ScriptStep::text("{"), ScriptStep::End(FinishedReason::Length)],
            FinishedReason::Length,
        ),
        (vec![ScriptStep::text("{"), ScriptStep::Fail(broken)], FinishedReason::Error),
    ] {
        let model = FakeModel::in_schema_mode(move |_| lines.clone());
        let failed = agent(&model).build().call_as::<TaskPlan>(question()).await.unwrap_err();
        let CallError::Failed { reply, .. } = failed else { panic!("{failed}") };
        assert_eq!(reply.finished_reason(), Some(&reason));
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_invalid_schema_ends_the_reply_before_the_model_is_called() {
    let model = FakeModel::new(|_| vec![ScriptStep::text("hi")]);
    let friday = agent(&model).output_schema(Json::parse(r#"{"type":7}"#).unwrap()).build();
    let mut harness = Harness::new("hi");
    harness.run(&friday).await.unwrap();
    assert_eq!(harness.types(), ["REPLY_START", "REPLY_END"]);
    assert_eq!(harness.reply().error().unwrap().r#type, ErrorType::InvalidRequest);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn sub_agents_continue_from_the_log_alone() {
    for in_schema_mode in [true, false] {
        let choose = move |request: &RecordedRequest| {
            let answer = if is_correction(request) { GOOD } else { BAD };
            match request.result_count() {
                0 => vec![ScriptStep::call("c", "weather", r#"{"city":"Rome"}"#)],
                _ if in_schema_mode => vec![ScriptStep::text("Well:"), ScriptStep::text(answer)],
                _ => by_tool(request, answer),
            }
        };
        let friday = move || {
            let model = if in_schema_mode {
                FakeModel::in_schema_mode(choose)
            } else {
                FakeModel::new(choose)
            };
            with_tool(&model).output_schema(schema()).build()
        };
        let crashes = crash_everywhere(
            || Harness::new("go"),
            friday,
            |crashed, whole| {
                let reply = crashed.reply();
                assert_eq!(reply.structured_output(), whole.reply().structured_output());
                assert_eq!(reply.text("|"), whole.reply().text("|"));
                assert_eq!(reply.blocks::<HintBlock>().count(), 1);
                assert_eq!(reply.finished_reason(), Some(&FinishedReason::Completed));
            },
        )
        .await;
        assert!(crashes > 6, "{crashes}");
    }
}

/// A schema that is allowed, and an answer that takes too many steps to check against it: each byte costs as
/// much as the regular expression is large.
fn expensive() -> (Json, String) {
    let schema = serde_json::json!({"type": "string", "pattern": "^a{20000}$"});
    (schema.into(), serde_json::json!("a".repeat(2000)).to_string())
}

#[tokio::test]
async fn a_schema_that_costs_too_much_ends_the_reply_with_a_typed_error_also_after_a_crash() {
    let friday = || {
        let model = FakeModel::in_schema_mode(|_| vec![ScriptStep::text("\"x\"")]);
        agent(&model).output_schema(Json::parse(&doubling_schema()).unwrap()).build()
    };
    crash_everywhere(
        || Harness::new("go"),
        friday,
        |crashed, _| {
            let error = crashed.reply().error().unwrap().clone();
            assert_eq!(error.r#type, ErrorType::InvalidRequest);
            assert!(error.message.contains("too large"), "{}", error.message);
        },
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_costs_too_much_to_check_ends_the_reply_also_after_a_crash() {
    let friday = || {
        let (schema, answer) = expensive();
        let model = FakeModel::in_schema_mode(move |_| vec![ScriptStep::text(&answer)]);
        agent(&model).output_schema(schema).build()
    };
    let crashes = crash_everywhere(
        || Harness::new("go"),
        friday,
        |crashed, _| {
            let reply = crashed.reply();
            let error = reply.error().unwrap();
            assert_eq!(error.r#type, ErrorType::InvalidRequest);
            assert!(error.message.contains("cannot be checked"), "{}", error.message);
            assert_eq!(reply.structured_output(), None);
            // No retry: a new answer would not help.
            assert_eq!(reply.blocks::<HintBlock>().count(), 0);
        },
    )
    .await;
    assert!(crashes > 3, "{crashes}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_checked() {
    let model = FakeModel::in_schema_mode(|_| vec![ScriptStep::text(&"[".repeat(2 << 20))]);
    let (schema, _) = expensive();
    let friday = agent(&model).output_schema(schema).build();
    let mut harness = Harness::new("go");
    harness.run(&friday).await.unwrap();
    let reply = harness.reply();
    assert_eq!(reply.error().unwrap().r#type, ErrorType::InvalidRequest);
}
