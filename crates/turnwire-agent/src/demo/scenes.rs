//! The scenes of the demo, one per word.

use super::block::DemoBlock;
use super::chunks::Chunks;
use super::quote;
use super::scene_choice::{LengthLimit, MAX_DELTAS, words};
use super::tools::{DemoCall, DemoTool, ToolOutcome, WEATHER};
use super::writer::ReplyWriter;
use crate::replier::AgentError;
use serde_json::json;
use turnwire_core::event::ToolResultTextDelta;
use turnwire_core::{ErrorType, FinishedReason, ReplyError, ToolResultState};

/// The name of the agent and of its model.
pub(super) const MODEL_NAME: &str = "demo";

type SceneResult = Result<(), AgentError>;

/// Thinking, then an answer that quotes the message.
pub(super) async fn introduction(w: &mut ReplyWriter<'_, '_>, question: &str) -> SceneResult {
    let blocks = [
        DemoBlock::thinking(
            "No word here that I know a scene for. I will say what I heard, and what I can show.",
        ),
        DemoBlock::text(format!(
            "## What you said\n\n{}\n\n\
             I am a **demo**: no model is behind me, and the same words always get the same answer. \
             Put one of these into a message:\n\n\
             - `weather`, `approve`, `parallel` and `browser` call tools\n\
             - `team` asks another agent\n\
             - `image`, `json` and `long 100` answer with more than words\n\
             - `fail` breaks off\n",
            quote::as_blockquote(question)
        )),
    ];
    w.model_call(&blocks).await?;
    w.end(None).await
}

/// A tool that streams its result.
pub(super) async fn weather(w: &mut ReplyWriter<'_, '_>) -> SceneResult {
    let call = weather_call(w);
    w.model_call(&[DemoBlock::thinking("I should look that up."), DemoBlock::call(&call)]).await?;
    w.get_weather(&call).await?;
    w.model_call(&[DemoBlock::text(
        "It is **18 °C** in Paris, with light rain. Tomorrow is the day for a walk: 22 °C and sunny.",
    )])
    .await?;
    w.end(None).await
}

/// A tool that requires approval.
pub(super) async fn approve(w: &mut ReplyWriter<'_, '_>) -> SceneResult {
    let call = trade_call(w);
    let thinking = DemoBlock::thinking("This spends money, so somebody has to agree first.");
    w.model_call(&[thinking, DemoBlock::call(&call)]).await?;
    let Some(answer) = describe_trade(w.execute_trade(&call).await?) else { return Ok(()) };
    w.model_call(&[DemoBlock::text(answer)]).await?;
    w.end(None).await
}

/// Two tools at once: one runs while the other waits for approval.
pub(super) async fn parallel(w: &mut ReplyWriter<'_, '_>) -> SceneResult {
    let (weather, trade) = (weather_call(w), trade_call(w));
    let thinking =
        DemoBlock::thinking("Two things that have nothing to do with each other: both at once.");
    w.model_call(&[thinking, DemoBlock::call(&weather), DemoBlock::call(&trade)]).await?;
    w.get_weather(&weather).await?;
    let Some(answer) = describe_trade(w.execute_trade(&trade).await?) else { return Ok(()) };
    let now = WEATHER.lines().next().unwrap_or_default();
    w.model_call(&[DemoBlock::text(format!("{now}\n\n{answer}"))]).await?;
    w.end(None).await
}

/// A tool that the client executes.
pub(super) async fn browser(w: &mut ReplyWriter<'_, '_>) -> SceneResult {
    let call = w.tool_call(DemoTool::OpenPage, json!({"url": "https://example.com/"}).to_string());
    let thinking = DemoBlock::thinking("Only the user's own browser can open that page.");
    w.model_call(&[thinking, DemoBlock::call(&call)]).await?;
    let answer = match w.open_page(&call).await? {
        ToolOutcome::Waits => return Ok(()),
        ToolOutcome::Done(text) => {
            format!("The page is open. This is what came back:\n\n{}", quote::as_blockquote(&text))
        }
        ToolOutcome::Failed(text) => {
            format!("The page could not be opened:\n\n{}", quote::as_blockquote(&text))
        }
        ToolOutcome::Denied => "The page was not opened: that was not allowed.".to_owned(),
        ToolOutcome::Expired => "The page was not opened: nobody answered in time.".to_owned(),
        ToolOutcome::Interrupted => "The page was not opened: that was interrupted.".to_owned(),
    };
    w.model_call(&[DemoBlock::text(answer)]).await?;
    w.end(None).await
}

/// Text and a picture.
pub(super) async fn image(w: &mut ReplyWriter<'_, '_>) -> SceneResult {
    let blocks = [
        DemoBlock::text("Here is a sunset, drawn pixel by pixel:"),
        DemoBlock::picture(),
        DemoBlock::text("It is a PNG of 48 by 48 pixels."),
    ];
    w.model_call(&blocks).await?;
    w.end(None).await
}

/// A sub-agent, whose reply is a message of its own.
pub(super) async fn team(w: &mut ReplyWriter<'_, '_>, question: &str) -> SceneResult {
    let input = json!({"question": quote::on_one_line(question)}).to_string();
    let call = w.tool_call(DemoTool::AskResearcher, input);
    let thinking = DemoBlock::thinking("The researcher knows more about this than I do.");
    w.model_call(&[thinking, DemoBlock::call(&call)]).await?;
    research(w, &call).await?;
    w.model_call(&[DemoBlock::text(format!(
        "I asked the researcher. In short:\n\n{}",
        quote::as_blockquote(FINDINGS)
    ))])
    .await?;
    w.end(None).await
}

const FINDINGS: &str = "Two heads find more than one, as long as each knows what the other does.";

/// The end of the sub-agent's reply and its findings are one commit. While the call has no output, the
/// sub-agent's reply is open, and its repeated events are recognised.
async fn research(w: &mut ReplyWriter<'_, '_>, call: &DemoCall) -> SceneResult {
    match w.known_result(call) {
        None => w.start_result(call).await?,
        Some(known) if known.output.text("").is_empty() => {}
        Some(_) => return w.result(call, FINDINGS, ToolResultState::Success).await,
    }
    let mut researcher = w.sub_agent("researcher", call);
    researcher.start().await?;
    let blocks = [
        DemoBlock::thinking("What is asked here? Who has looked into it before?"),
        DemoBlock::text(FINDINGS),
    ];
    researcher.model_call(&blocks).await?;
    let end = researcher.end_event();
    let (tool_call_id, delta) = (call.id.clone().into(), FINDINGS.into());
    let found = w.event(ToolResultTextDelta { tool_call_id, delta });
    w.pace.commit_together(vec![end, found]).await?;
    w.end_result(call, ToolResultState::Success).await
}

/// Structured output in addition to the text.
pub(super) async fn json(w: &mut ReplyWriter<'_, '_>, question: &str) -> SceneResult {
    let output = json!({
        "message": quote::on_one_line(question),
        "words": words(question).count(),
        "characters": question.chars().count(),
        "shows": ["text", "structured output"],
    });
    w.model_call(&[DemoBlock::text(format!(
        "What I know about your message, as JSON:\n\n```json\n{output:#}\n```\n"
    ))])
    .await?;
    w.end(Some(output.into())).await
}

/// A model that fails.
pub(super) async fn fail(w: &mut ReplyWriter<'_, '_>) -> SceneResult {
    let message = "the model broke off in the middle of its answer; ask again";
    let error = ReplyError::new(ErrorType::Upstream, message);
    let blocks = [DemoBlock::text("This was going to be a long and thoughtful answer, but the")];
    w.model_call_with_reason(&blocks, FinishedReason::Error, Some(error.clone())).await?;
    w.end_failed(error).await
}

/// A text of many deltas.
pub(super) async fn long(
    w: &mut ReplyWriter<'_, '_>,
    deltas: u64,
    limit: LengthLimit,
) -> SceneResult {
    let numbers = DemoBlock::Text(Chunks::Numbers(deltas));
    let blocks = match limit {
        LengthLimit::Within => vec![numbers],
        LengthLimit::Exceeded => {
            let most = format!("That is more than I give at once: {MAX_DELTAS} deltas it is.");
            vec![DemoBlock::thinking(most), numbers]
        }
    };
    w.model_call(&blocks).await?;
    w.end(None).await
}

fn weather_call(w: &mut ReplyWriter<'_, '_>) -> DemoCall {
    w.tool_call(DemoTool::GetWeather, json!({"city": "Paris"}).to_string())
}

fn trade_call(w: &mut ReplyWriter<'_, '_>) -> DemoCall {
    w.tool_call(DemoTool::ExecuteTrade, json!({"symbol": "ACME", "quantity": 100}).to_string())
}

/// The model's text about a trade. `None`: it is not decided yet.
fn describe_trade(outcome: ToolOutcome) -> Option<String> {
    Some(match outcome {
        ToolOutcome::Waits => return None,
        ToolOutcome::Done(done) => format!("Done. {done}"),
        ToolOutcome::Failed(why) => format!("The trade did not go through. {why}"),
        ToolOutcome::Denied => "You said no, so I have bought nothing.".to_owned(),
        ToolOutcome::Expired => "Nobody answered in time, so I have bought nothing.".to_owned(),
        ToolOutcome::Interrupted => "The trade was interrupted, and I cannot tell whether it went \
                                 through. I did not try again: please look at your orders first."
            .to_owned(),
    })
}
