//! Compaction: conversations that are longer than the model's context window.

use crate::fake_model::{FakeModel, RecordedRequest, crash_everywhere};
use crate::harness::Harness;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use turnwire_agent::compaction::SummaryExtent;
use turnwire_agent::model::ModelError;
use turnwire_agent::model::script::ScriptStep;
use turnwire_agent::tool::{ToolError, function};
use turnwire_agent::{Agent, ClientContext, Replier as _};
use turnwire_core::stamp::FixedStamp;
use turnwire_core::{ErrorType, FinishedReason, HintBlock, Json, Msg, ToolCall, ToolResult};

#[derive(Deserialize, JsonSchema)]
struct Page {
    page: u32,
}

fn agent(model: &Arc<FakeModel>) -> Agent {
    let read = |Page { page }: Page| async move {
        Ok::<_, ToolError>(format!("page {page}: {}", "words ".repeat(100)))
    };
    Agent::builder("friday", model.clone())
        .tool(function("read", "Reads", read))
        .context_window(500)
        .build()
}

/// A conversation of twelve messages, each of about 120 tokens.
fn long(question: &str) -> Harness {
    let mut harness = Harness::new(question);
    let stamp = FixedStamp::default();
    let turns = (1..=6).flat_map(|turn| {
        let call = ToolCall::new(format!("old-{turn}"), "read", "{}");
        let result = ToolResult::success(format!("old-{turn}"), "x".repeat(240));
        [
            Msg::user("ann", format!("question {turn} {}", "y".repeat(460))),
            Msg::assistant("friday", [call.into(), result.into(), format!("answer {turn}").into()]),
        ]
    });
    harness.history = turns.chain(harness.history).map(|msg| msg.stamped(&stamp)).collect();
    harness
}

fn is_summary_request(request: &RecordedRequest) -> bool {
    let first = request.messages.first().and_then(|msg| msg.text(""));
    first.is_some_and(|text| text.starts_with("You sum up"))
}

fn choose(request: &RecordedRequest) -> Vec<ScriptStep> {
    if is_summary_request(request) {
        vec![ScriptStep::text("They talked.")]
    } else {
        vec![ScriptStep::text("Hello.")]
    }
}

fn summaries(reply: &Msg) -> Vec<SummaryExtent> {
    reply.blocks::<HintBlock>().filter_map(SummaryExtent::from_hint).collect()
}

#[tokio::test]
async fn the_oldest_part_becomes_a_summary_that_is_logged() {
    let model = FakeModel::new(choose);
    let friday = agent(&model);
    let mut harness = long("And now?");
    harness.run(&friday).await.unwrap();
    assert_eq!(
        harness.types()[..5],
        ["REPLY_START", "MODEL_CALL_START", "MODEL_CALL_END", "HINT_BLOCK", "MODEL_CALL_START"]
    );
    let [summing, asking] = &model.requests()[..] else { panic!("two calls") };
    assert!(summing.text().contains("question 1"), "all that goes is summed up");
    assert!(summing.tools.is_empty());
    let first = asking.messages[0].text("").unwrap();
    assert!(first.contains("They talked."), "{first}");
    assert!(!asking.text().contains("question 1 "));
    assert!(asking.text().contains("question 6 "), "what is new stays as it is");
    assert_eq!(asking.messages.last().unwrap().text("").unwrap(), "And now?");
    // The reply does not change; the tokens of the summary are counted.
    let reply = harness.reply();
    assert_eq!(reply.text("").as_deref(), Some("Hello."));
    assert_eq!(reply.usage().unwrap().input_tokens, 2);
    assert_eq!(summaries(&reply).len(), 1);

    // The next turn finds the summary in the log.
    let mut history = harness.history.clone();
    history.push(reply);
    history.push(Msg::user("ann", "And then?").stamped(&turnwire_core::stamp::SystemStamp));
    let mut next = Harness::new("");
    next.history = history;
    next.run(&friday).await.unwrap();
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    assert!(
        requests[2].text().contains("They talked.") && !requests[2].text().contains("question 1 ")
    );
    assert_eq!(requests[2].text().matches("They talked.").count(), 1);
}

#[tokio::test]
async fn a_reply_that_grows_too_long_is_cut_between_its_rounds() {
    let model = FakeModel::new(|request| {
        if is_summary_request(request) {
            return vec![ScriptStep::text("They read.")];
        }
        let calls = request.messages.last().unwrap().blocks::<ToolCall>();
        let page = calls.map(|call| call.id[1..].parse::<u32>().unwrap()).max().unwrap_or(0) + 1;
        if page > 6 {
            return vec![ScriptStep::text("All read.")];
        }
        vec![ScriptStep::call(&format!("p{page}"), "read", &format!(r#"{{"page":{page}}}"#))]
    });
    let mut harness = Harness::new("Read the book.");
    harness.history =
        harness.history.into_iter().map(|msg| msg.stamped(&FixedStamp::default())).collect();
    harness.run(&agent(&model)).await.unwrap();
    let reply = harness.reply();
    assert_eq!(reply.text("").as_deref(), Some("All read."));
    assert!(!summaries(&reply).is_empty());
    assert_eq!(reply.blocks::<ToolResult>().count(), 6, "the log keeps everything");
    for request in model.requests().iter().filter(|request| !is_summary_request(request)) {
        assert!(request.text().contains("Read the book."), "the question stays");
        let last = request.messages.last().unwrap();
        for (call, result) in last.tool_calls() {
            assert!(result.is_some(), "{} was torn from its result", call.id);
        }
        assert_eq!(last.blocks::<ToolCall>().count(), last.blocks::<ToolResult>().count());
        assert!(request.text().len() < 6000, "{}", request.text().len());
    }
}

#[tokio::test]
async fn requests_after_a_crash_follow_from_the_log() {
    let crashes = crash_everywhere(
        || long("And now?"),
        || agent(&FakeModel::new(choose)),
        |crashed, whole| {
            assert_eq!(summaries(&crashed.reply()), summaries(&whole.reply()));
            assert_eq!(crashed.reply().text(""), whole.reply().text(""));
        },
    )
    .await;
    assert!(crashes >= 5, "{crashes}");
    // Every process that starts after the summary sends the same messages.
    for dies_after in 2..4 {
        let model = FakeModel::new(choose);
        crate::fake_model::run_to_end(long("And now?"), &|| agent(&model), Some(dies_after)).await;
        let requests = model.requests();
        assert_eq!(requests.iter().filter(|request| is_summary_request(request)).count(), 1);
        let sent: Vec<_> = requests.iter().filter(|request| !is_summary_request(request)).collect();
        assert!(sent.iter().all(|request| request.messages == sent[0].messages));
    }
}

#[tokio::test]
async fn without_a_summary_the_model_gets_everything() {
    let broken = ModelError::new(ErrorType::Upstream, "no");
    let model = FakeModel::new(move |request| {
        let line = if is_summary_request(request) {
            ScriptStep::Fail(broken.clone())
        } else {
            ScriptStep::text("Hello.")
        };
        vec![line]
    });
    let mut harness = long("And now?");
    harness.run(&agent(&model)).await.unwrap();
    assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Completed));
    assert_eq!(model.requests()[1].messages.len(), 13);
}

#[tokio::test]
async fn a_summary_does_not_count_as_an_iteration() {
    let model = FakeModel::new(choose);
    let friday = Agent::builder("friday", model.clone())
        .tool(function("read", "", async |_: Page| Ok::<_, ToolError>("")))
        .context_window(500)
        .max_iterations(1)
        .build();
    let mut harness = long("And now?");
    harness.run(&friday).await.unwrap();
    assert_eq!(model.requests()[1].tools, ["read"], "this is not its last word yet");
    assert_eq!(harness.reply().finished_reason(), Some(&FinishedReason::Completed));
}

#[tokio::test]
async fn a_history_that_fits_is_not_compacted() {
    let model = FakeModel::new(choose);
    let mut harness = Harness::new("Hi.");
    harness.run(&agent(&model)).await.unwrap();
    assert_eq!(model.requests().len(), 1);
}

/// Asks for compaction above so many tokens, as a client of the Responses API.
fn with_threshold(harness: &mut Harness, tokens: u32, wire: &str) {
    let management = serde_json::json!([{"type": "compaction", "compact_threshold": tokens}]);
    let client = ClientContext {
        extra: [("context_management", Json::from(management))].into_iter().collect(),
        wire: wire.to_owned(),
        ..ClientContext::default()
    };
    let question = harness.history.pop().unwrap();
    harness.history.push(client.attach_to(question));
}

#[tokio::test]
async fn a_client_can_have_its_conversation_compacted_earlier() {
    for (tokens, wire, expected) in [
        (1000, "openai-responses", 1),
        // No less than a thousand tokens stay.
        (1, "openai-responses", 1),
        (100_000, "openai-responses", 0),
        (1000, "openai-chat", 0),
    ] {
        let model = FakeModel::new(choose);
        let friday = Agent::builder("friday", model.clone()).system("Be brief.").build();
        let mut harness = long("And now?");
        with_threshold(&mut harness, tokens, wire);
        let client = ClientContext::from_msg(harness.history.last().unwrap());
        let ignored = friday.check_client(&client).unwrap();
        assert_eq!(ignored.is_empty(), wire == "openai-responses", "{ignored:?}");
        harness.run(&friday).await.unwrap();
        assert_eq!(summaries(&harness.reply()).len(), expected, "{tokens} {wire}");
    }
}

#[tokio::test]
async fn a_conversation_outside_of_a_reply_is_summarized() {
    let model = FakeModel::new(choose);
    let conversation =
        [Msg::user("ann", "We meet on Tuesday."), Msg::assistant("friday", "Noted.")];
    let summary = agent(&model).summarize(&conversation).await.unwrap().unwrap();
    assert_eq!(summary.text, "They talked.");
    let [request] = &model.requests()[..] else { panic!("one call") };
    assert!(is_summary_request(request));
    assert!(
        request.text().contains("ann: We meet on Tuesday.") && request.text().contains("Noted.")
    );

    let failing =
        FakeModel::new(|_| vec![ScriptStep::Fail(ModelError::new(ErrorType::Upstream, "down"))]);
    let error = agent(&failing).summarize(&conversation).await.unwrap_err();
    assert!(error.to_string().contains("down"), "{error}");
}
