//! An agent that does what the last message says, and waits where the test wants it to.

use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Semaphore;
use turnwire_agent::{AgentError, Journal, Replier, ReplyRequest};
use turnwire_core::event::SubAgent;
use turnwire_core::{Event, ToolCall, ToolCallState};

/// The arguments of one call of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub reply_id: String,
    pub history: Vec<String>,
    pub partial: Option<String>,
    pub input: Option<String>,
}

#[derive(Debug)]
pub struct FakeAgent {
    /// A permit lets one `hold` continue.
    pub gate: Semaphore,
    pub calls: Mutex<Vec<Called>>,
}

impl FakeAgent {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { gate: Semaphore::new(0), calls: Mutex::default() })
    }

    /// Waits until the test lets it continue, or until it is stopped.
    async fn hold(&self, turn: &ReplyRequest) -> Result<(), AgentError> {
        tokio::select! {
            permit = self.gate.acquire() => {
                permit.unwrap().forget();
                Ok(())
            }
            () = turn.stop.cancelled() => Err(AgentError::Stopped),
        }
    }
}

pub fn event(reply: &str, rest: &str) -> Event<'static> {
    Event::from_json(&format!(r#"{{"reply_id":"{reply}",{rest}}}"#)).unwrap().into_owned()
}

struct Pen<'p> {
    reply: String,
    sub_agent: Option<Box<SubAgent>>,
    journal: &'p mut dyn Journal,
}

impl Pen<'_> {
    async fn write(&mut self, lines: &[&str]) -> Result<(), AgentError> {
        let events = lines
            .iter()
            .map(|rest| Event { agent: self.sub_agent.clone(), ..event(&self.reply, rest) });
        self.journal.commit(events.collect()).await
    }

    async fn delta(&mut self, text: &str) -> Result<(), AgentError> {
        let delta = format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":"{text}""#);
        self.write(&[&delta]).await
    }

    async fn begin(&mut self) -> Result<(), AgentError> {
        self.write(&[r#""type":"REPLY_START","name":"actor""#, BLOCK]).await
    }

    async fn end(&mut self) -> Result<(), AgentError> {
        self.write(&[r#""type":"TEXT_BLOCK_END","block_id":"b""#, END]).await
    }
}

const BLOCK: &str = r#""type":"TEXT_BLOCK_START","block_id":"b""#;
const END: &str = r#""type":"REPLY_END","finished_reason":"completed""#;

#[async_trait]
impl Replier for FakeAgent {
    fn description(&self) -> &'static str {
        "Does as it is told"
    }

    fn model_name(&self) -> &'static str {
        "none"
    }

    async fn run(&self, turn: ReplyRequest, journal: &mut dyn Journal) -> Result<(), AgentError> {
        let history: Vec<String> =
            turn.history.iter().map(|msg| msg.text("").unwrap_or_default()).collect();
        self.calls.lock().push(Called {
            reply_id: turn.reply_id.clone(),
            history: history.clone(),
            partial: turn.partial.as_ref().map(|msg| msg.text("").unwrap_or_default()),
            input: turn.input.as_ref().map(|event| event.kind.type_name().to_owned()),
        });
        let mut pen = Pen { reply: turn.reply_id.clone(), sub_agent: None, journal };
        let wish = history.last().cloned().unwrap_or_default();
        match wish.split(' ').next().unwrap_or_default() {
            "hold" => {
                if turn.partial.is_none() {
                    pen.begin().await?;
                    pen.delta("before ").await?;
                }
                self.hold(&turn).await?;
                pen.delta("after").await?;
                pen.end().await
            }
            "count" => {
                let written =
                    turn.partial.as_ref().and_then(|msg| msg.text("")).unwrap_or_default();
                if turn.partial.is_none() {
                    pen.begin().await?;
                }
                for n in written.len()..10 {
                    self.hold(&turn).await?;
                    pen.delta(&n.to_string()).await?;
                }
                pen.end().await
            }
            "ask" | "run" => ask(&turn, &mut pen, &wish, self).await,
            "team" => {
                pen.begin().await?;
                let mut sub = Pen {
                    reply: format!("{}-sub", turn.reply_id),
                    sub_agent: Some(Box::new(SubAgent {
                        agent_path: Some("actor/helper".to_owned()),
                        parent_tool_call_id: Some("c".to_owned()),
                    })),
                    journal: &mut *pen.journal,
                };
                sub.begin().await?;
                sub.delta("helping").await?;
                if wish == "team orphan" {
                    return pen.end().await;
                }
                self.hold(&turn).await
            }
            "panic" => {
                pen.begin().await?;
                panic!("as it was told");
            }
            "fail" => {
                pen.begin().await?;
                Err(AgentError::Failed("no luck".to_owned()))
            }
            "misfit" => pen.delta("no such block").await,
            "foreign" => {
                pen.write(&[r#""type":"REPLY_START","name":"x""#]).await?;
                "another".clone_into(&mut pen.reply);
                pen.begin().await
            }
            "nothing" => pen.begin().await,
            "stubborn" => {
                pen.begin().await?;
                self.gate.acquire().await.unwrap().forget();
                pen.delta("late").await
            }
            _ => {
                pen.begin().await?;
                pen.delta(&format!("re: {wish}")).await?;
                pen.end().await
            }
        }
    }
}

/// Asks for calls, and reports the results when all are answered.
async fn ask(
    turn: &ReplyRequest,
    pen: &mut Pen<'_>,
    wish: &str,
    actor: &FakeAgent,
) -> Result<(), AgentError> {
    let calls: Vec<&ToolCall> =
        turn.partial.iter().flat_map(turnwire_core::Msg::blocks::<ToolCall>).collect();
    if calls.is_empty() {
        let ids: &[&str] = if wish.contains("two") { &["c1", "c2"] } else { &["c1"] };
        let require = if wish.starts_with("run") {
            "REQUIRE_EXTERNAL_EXECUTION"
        } else {
            "REQUIRE_USER_CONFIRM"
        };
        for id in ids {
            let start = format!(
                r#""type":"TOOL_CALL_START","tool_call_id":"{id}","tool_call_name":"trade""#
            );
            let delta = format!(
                r#""type":"TOOL_CALL_DELTA","tool_call_id":"{id}","delta":"{{\"amount\":1}}""#
            );
            let end = format!(r#""type":"TOOL_CALL_END","tool_call_id":"{id}""#);
            pen.write(&[&start, &delta, &end]).await?;
        }
        let asked: Vec<String> = ids
            .iter()
            .map(|id| {
                format!(
                    r#"{{"type":"tool_call","id":"{id}","name":"trade","input":"{{\"amount\":1}}",
                    "suggested_rules":[{{"tool_name":"trade","rule_content":"amount<5","behavior":"allow","source":"demo"}}]}}"#
                )
            })
            .collect();
        pen.write(&[&format!(r#""type":"{require}","tool_calls":[{}]"#, asked.join(","))]).await?;
        if wish.contains("slowly") {
            // The answer comes while the agent still runs.
            actor.hold(turn).await?;
        }
        return Ok(());
    }
    let mut text = String::new();
    for call in &calls {
        text.push_str(match call.state {
            ToolCallState::Allowed => "yes ",
            ToolCallState::Finished => "done ",
            _ => "? ",
        });
    }
    for call in calls.iter().filter(|call| call.state == ToolCallState::Allowed) {
        let id = &call.id;
        let start =
            format!(r#""type":"TOOL_RESULT_START","tool_call_id":"{id}","tool_call_name":"trade""#);
        let end = format!(r#""type":"TOOL_RESULT_END","tool_call_id":"{id}","state":"success""#);
        pen.write(&[&start, &end]).await?;
    }
    pen.begin().await?;
    pen.delta(&text).await?;
    pen.end().await
}
