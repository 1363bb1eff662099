//! Answers that have a form.

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

/// The answer by the tool for it, in two pieces.
fn by_tool(asked: &RecordedRequest, answer: &str) -> Vec<ScriptStep> {
    let name = asked.tools.last().unwrap().clone();
    let (head, tail) = answer.split_at(answer.len() / 2);
    let input = vec![head.to_owned(), tail.to_owned()];
    vec![ScriptStep::Call { id: "answer".to_owned(), name, input }]
}

fn is_mending(asked: &RecordedRequest) -> bool {
    asked.messages.last().is_some_and(Msg::has::<HintBlock>)
}

fn question() -> [Msg; 1] {
    [Msg::user("ann", "How is tea made?")]
}

#[tokio::test]
async fn a_model_with_a_mode_for_it_is_told_the_schema() {
    let model = FakeModel::in_schema_mode(|_| vec![ScriptStep::text(GOOD)]);
    let (reply, plan) = agent(&model).build().call_as::<TaskPlan>(question()).await.unwrap();
    assert_eq!(plan.steps, ["boil", "pour"]);
    assert_eq!(reply.structured_output().unwrap().text(), GOOD);
    let asked = &model.requests()[0];
    assert!(asked.output.as_ref().unwrap().schema.text().contains("goal"));
    assert!(asked.tools.is_empty());
}

#[tokio::test]
async fn any_other_is_made_to_call_a_tool_that_nobody_sees() {
    let model = FakeModel::new(|asked| by_tool(asked, GOOD));
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
    let asked = &model.requests()[0];
    assert_eq!(asked.tool_choice, ToolChoice::Tool(asked.tools[0].clone()));
    assert!(asked.output.is_none());
}

#[tokio::test]
async fn tools_come_first_then_the_answer() {
    for in_schema_mode in [true, false] {
        let choose = move |asked: &RecordedRequest| match asked.result_count() {
            0 => vec![ScriptStep::call("c", "weather", r#"{"city":"Rome"}"#)],
            _ if in_schema_mode => vec![ScriptStep::text(GOOD)],
            _ => by_tool(asked, GOOD),
        };
        let model =
            if in_schema_mode { FakeModel::in_schema_mode(choose) } else { FakeModel::new(choose) };
        let friday = with_tool(&model).build();
        let (reply, plan) = friday.call_as::<TaskPlan>(question()).await.unwrap();
        assert_eq!(plan.goal, "tea");
        assert_eq!(find_result(&reply, "c"), (ToolResultState::Success, "Rome: sunny".to_owned()));
        let asked = model.requests();
        let forced = if in_schema_mode { ToolChoice::Auto } else { ToolChoice::Required };
        assert_eq!(asked[0].tool_choice, forced);
        assert_eq!(asked.len(), 2);
    }
}

#[tokio::test]
async fn what_a_client_asks_for_wins_over_what_the_agent_has() {
    let model = FakeModel::in_schema_mode(|_| vec![ScriptStep::text("3")]);
    let friday = agent(&model).output_schema(schema()).build();
    let mut harness = Harness::new("How many?");
    let wanted = Json::parse(r#"{"type":"integer"}"#).unwrap();
    let offer = ClientContext { output_schema: Some(wanted), ..ClientContext::default() };
    harness.history = harness.history.iter().map(|msg| offer.attach_to(msg.clone())).collect();
    harness.run(&friday).await.unwrap();
    assert_eq!(harness.reply().structured_output().unwrap().text(), "3");
}

#[tokio::test]
async fn a_wrong_answer_is_put_right_once() {
    for by_a_tool in [true, false] {
        let choose = move |asked: &RecordedRequest| {
            let answer = if is_mending(asked) { GOOD } else { BAD };
            if by_a_tool { by_tool(asked, answer) } else { vec![ScriptStep::text(answer)] }
        };
        let model =
            if by_a_tool { FakeModel::new(choose) } else { FakeModel::in_schema_mode(choose) };
        let friday = agent(&model).output_schema(schema()).build();
        let mut harness = Harness::new("How is tea made?");
        harness.run(&friday).await.unwrap();
        assert_eq!(harness.types().iter().filter(|word| *word == "HINT_BLOCK").count(), 1);
        let reply = harness.reply();
        assert_eq!(reply.structured_output().unwrap().text(), GOOD);
        // The model is told what was wrong, and reads what it said.
        let told = reply.first::<HintBlock>().unwrap().hint.text("");
        assert!(told.contains("/steps") && told.contains("array"), "{told}");
        assert!(model.requests()[1].text().contains(r#"\"steps\":3"#));
    }
}

#[tokio::test]
async fn an_answer_that_stays_wrong_is_an_error() {
    for (line, why) in [(BAD, "array"), ("Tea is made with water.", "not JSON"), ("", "no answer")]
    {
        let model = FakeModel::in_schema_mode(move |_| vec![ScriptStep::text(line)]);
        let failed = agent(&model).build().call_as::<TaskPlan>(question()).await.unwrap_err();
        let CallError::Failed { reply, why: told } = failed else { panic!("{failed}") };
        assert!(told.contains(why), "{told}");
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
async fn what_only_the_type_knows_is_checked_too() {
    let model = FakeModel::in_schema_mode(|asked| {
        vec![ScriptStep::text(if is_mending(asked) {
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
    let model = FakeModel::new(|asked| by_tool(asked, r#"{"answer":["boil","pour"]}"#));
    let (_, steps) = agent(&model).build().call_as::<Vec<String>>(question()).await.unwrap();
    assert_eq!(steps, ["boil", "pour"]);
}

#[tokio::test]
async fn who_fails_otherwise_is_not_asked_to_put_it_right() {
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
async fn a_schema_that_is_none_ends_the_reply_before_anybody_is_asked() {
    let model = FakeModel::new(|_| vec![ScriptStep::text("hi")]);
    let friday = agent(&model).output_schema(Json::parse(r#"{"type":7}"#).unwrap()).build();
    let mut harness = Harness::new("hi");
    harness.run(&friday).await.unwrap();
    assert_eq!(harness.types(), ["REPLY_START", "REPLY_END"]);
    assert_eq!(harness.reply().error().unwrap().r#type, ErrorType::InvalidRequest);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn it_goes_on_from_the_log_alone() {
    for in_schema_mode in [true, false] {
        let choose = move |asked: &RecordedRequest| {
            let answer = if is_mending(asked) { GOOD } else { BAD };
            match asked.result_count() {
                0 => vec![ScriptStep::call("c", "weather", r#"{"city":"Rome"}"#)],
                _ if in_schema_mode => vec![ScriptStep::text("Well:"), ScriptStep::text(answer)],
                _ => by_tool(asked, answer),
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
            // The model is not asked to answer again: it would not help.
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
