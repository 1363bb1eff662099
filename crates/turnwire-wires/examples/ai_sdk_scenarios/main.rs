//! Prints AI SDK streams and messages, for the tests with the real `ai` package.
//!
//! `ai_sdk_scenarios` prints one scenario per line: the bodies of its responses as the `ai-sdk` wire
//! writes them, what a late client gets, and the expected message. `ai_sdk_scenarios requests` reads
//! a client's requests, one per line with the pending calls, and prints what is taken from them.
//! `ai_sdk_scenarios messages SEED COUNT` prints random messages.

mod asking;
mod harness;
mod stopping;
mod talking;

use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{self, BufRead, Write};
use turnwire_core::{Event, Msg, ToolCall, coalesce};
use turnwire_testkit::{Rng, random_reply, values};
use turnwire_wires::ai_sdk::{ChatRequest, PendingReply};
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire, sse};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => {
            for scenario in scenarios() {
                writeln!(out, "{}", scenario.written()?)?;
            }
        }
        ["requests"] => {
            for line in io::stdin().lock().lines() {
                writeln!(out, "{}", answer_events(&line?)?)?;
            }
        }
        ["messages", seed, count] => {
            let mut rng = Rng::with_seed(seed.parse()?);
            let wire = wire()?;
            for _ in 0..count.parse::<usize>()? {
                let messages = [values::message(&mut rng), random_reply(&mut rng, "r").message];
                for message in wire.encode_messages(&messages)? {
                    writeln!(out, "{}", message.text())?;
                }
            }
        }
        _ => return Err("usage: ai_sdk_scenarios [requests | messages SEED COUNT]".into()),
    }
    out.flush()?;
    Ok(())
}

fn wire() -> Result<&'static Wire, Box<dyn Error>> {
    Ok(Wire::named("ai-sdk").ok_or("there is no wire ai-sdk")?)
}

/// A client's request, as the server sees it.
#[derive(Deserialize)]
struct Posted {
    request: Value,
    known: Vec<String>,
    reply_id: String,
    #[serde(default)]
    confirm: Vec<ToolCall>,
    #[serde(default)]
    external: Vec<ToolCall>,
}

fn answer_events(line: &str) -> Result<Value, Box<dyn Error>> {
    let posted: Posted = serde_json::from_str(line)?;
    let request = ChatRequest::parse(&posted.request.to_string())?;
    let new = request.new_messages(|id| posted.known.iter().any(|known| known == id))?;
    let answers = request.answers(&[PendingReply {
        reply_id: &posted.reply_id,
        confirm: &posted.confirm,
        external: &posted.external,
    }])?;
    let texts: Vec<Option<String>> = new.iter().map(|msg| msg.text("\n")).collect();
    Ok(json!({"chat": request.chat_id, "new": texts, "answers": canonical(&answers)?}))
}

/// Events as JSON, without the fields that the log adds.
fn canonical(events: &[Event<'_>]) -> Result<Vec<Value>, Box<dyn Error>> {
    events
        .iter()
        .map(|event| {
            let mut bare = event.clone();
            (bare.id, bare.created_at, bare.seq) =
                (String::new().into(), String::new().into(), None);
            Ok(serde_json::from_str(&bare.to_json())?)
        })
        .collect()
}

/// A reply, split where it waits for the client.
struct Scenario {
    name: &'static str,
    /// The events of each response.
    responses: Vec<Vec<Event<'static>>>,
    /// What the client does between two responses.
    actions: Vec<Value>,
    /// The calls pending then.
    pending: Vec<Value>,
    expected: Value,
}

impl Scenario {
    fn written(&self) -> Result<Value, Box<dyn Error>> {
        let mut encoder = wire()?.encoder(&EncoderOptions::default())?;
        let mut bodies = Vec::new();
        for events in &self.responses {
            bodies.push(body(encoder.as_mut(), events.iter().cloned(), true));
        }
        let all: Vec<Event<'static>> = self.responses.concat();
        let cuts = self.resume_points(&all)?;
        let mut encoder = wire()?.encoder(&EncoderOptions::default())?;
        let late = body(encoder.as_mut(), coalesce(all.clone()), true);
        let mut folded = Msg::reply("r1", "");
        for event in &all {
            if event.agent.is_none() {
                folded.append_event(event)?;
            }
        }
        let history = wire()?.encode_messages(&[folded])?;
        let history: Vec<&str> = history.iter().map(turnwire_core::Json::text).collect();
        let answers: Vec<Vec<Value>> = self
            .responses
            .iter()
            .skip(1)
            .map(|events| canonical(events.get(..1).unwrap_or_default()))
            .collect::<Result<_, _>>()?;
        Ok(json!({
            "name": self.name,
            "bodies": bodies,
            "late": late,
            "cuts": cuts,
            "actions": self.actions,
            "pending": self.pending,
            "answers": answers,
            "history": serde_json::from_str::<Value>(history.first().copied().unwrap_or("null"))?,
            "expected": self.expected,
        }))
    }
}

impl Scenario {
    /// For each event of each response: what was sent before the connection broke there, and what
    /// the client gets when it reconnects.
    fn resume_points(&self, all: &[Event<'static>]) -> Result<Vec<Value>, Box<dyn Error>> {
        let mut cuts = Vec::new();
        let mut from = 0;
        for (response, events) in self.responses.iter().enumerate() {
            let to = from + events.len();
            for at in from + 1..to {
                let mut encoder = wire()?.encoder(&EncoderOptions::default())?;
                for earlier in self.responses.iter().take(response) {
                    body(encoder.as_mut(), earlier.iter().cloned(), true);
                }
                let seen = all.iter().take(at).skip(from).cloned();
                let sent = body(encoder.as_mut(), seen, false);
                let mut encoder = wire()?.encoder(&EncoderOptions::default())?;
                let merged = coalesce(all.iter().take(at).cloned());
                let rest = all.iter().take(to).skip(at).cloned();
                let replay = body(encoder.as_mut(), merged.chain(rest), true);
                cuts.push(json!({"response": response, "sent": sent, "replay": replay}));
            }
            from = to;
        }
        Ok(cuts)
    }
}

fn body<'a>(
    encoder: &mut dyn Encode,
    events: impl Iterator<Item = Event<'a>>,
    ends: bool,
) -> String {
    let (mut frames, mut body) = (Frames::default(), String::new());
    for event in events {
        encoder.encode(&event, &mut frames);
    }
    if ends {
        encoder.end(&mut frames);
        frames.push_text("", "[DONE]");
    }
    sse::write(&frames, None, &mut body);
    body
}

fn scenarios() -> Vec<Scenario> {
    let mut all = talking::scenarios();
    all.extend(asking::scenarios());
    all.extend(stopping::scenarios());
    all
}
