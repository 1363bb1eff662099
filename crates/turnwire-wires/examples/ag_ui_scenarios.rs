//! Prints AG-UI streams and requests, for the tests with the real AG-UI client.
//!
//! Without arguments: one line of JSON for each turn of `scenarios`, with its `name`, the `runs` as
//! bodies of server-sent events, under `late` the runs of clients that connect after each event, and
//! under `merged` the same with the earlier events merged.
//!
//! `ag_ui_scenarios random SEED COUNT` does the same for random turns, with one late client each, and
//! adds random `messages` as the wire writes them.
//!
//! `ag_ui_scenarios read` reads a `RunAgentInput` from standard input and prints what it contains:
//! the whole `history`, the `new` messages if the user's first one is known, and the `answers` to two
//! calls that need an approval and one that the client executes.

mod scenarios;

use scenarios::Scenario;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use turnwire_core::{Event, EventKind, Folder, Msg, ToolCall, coalesce};
use turnwire_testkit::{Rng, random_reply, stream, values};
use turnwire_wires::ag_ui::{PendingReply, RunInput, RunOptions};
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire, sse};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["read"] => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            let read = read(&text).map_err(io::Error::other)?;
            writeln!(out, "{read}")?;
            return out.flush();
        }
        ["random", seed, count] => {
            let numbers = (seed.parse::<u64>(), count.parse::<u64>());
            let (Ok(seed), Ok(count)) = numbers else {
                return Err(io::Error::other("SEED and COUNT are numbers"));
            };
            for seed in seed..seed + count {
                writeln!(out, "{}", random(seed).map_err(io::Error::other)?)?;
            }
            return out.flush();
        }
        _ => return Err(io::Error::other("usage: ag_ui_scenarios [read | random SEED COUNT]")),
    }
    for scenario in scenarios::all() {
        let runs = early(&scenario).map_err(io::Error::other)?;
        let mut late = Vec::new();
        let mut merged = Vec::new();
        for at in 1..=scenario.events.len() {
            late.push(resumed(&scenario, at, false).map_err(io::Error::other)?);
            merged.push(resumed(&scenario, at, true).map_err(io::Error::other)?);
        }
        let events: Vec<&str> =
            scenario.events.iter().map(|event| event.kind.type_name()).collect();
        let line = json!({
            "name": scenario.name, "runs": runs, "late": late, "merged": merged, "events": events,
        });
        writeln!(out, "{line}")?;
    }
    out.flush()
}

fn encoder(run_id: &str) -> Result<Box<dyn Encode>, String> {
    let wire = Wire::named("ag-ui").ok_or("there is no wire ag-ui")?;
    let run = RunOptions {
        run_id: Some(run_id.to_owned()),
        resets_client: false,
        ..RunOptions::default()
    };
    let encoding =
        EncoderOptions { session_id: Some("t".to_owned()), ..EncoderOptions::default() }.with(run);
    wire.encoder(&encoding).map_err(|error| error.to_string())
}

/// A random turn with a client that connects in the middle, and random messages.
fn random(seed: u64) -> Result<Value, String> {
    let mut rng = Rng::with_seed(seed);
    let mut scenario = Scenario {
        name: "random",
        question: Msg::builder(turnwire_core::Role::User)
            .id("u")
            .text("hi")
            .build()
            .unwrap_or_default(),
        events: stream::with_seqs(random_reply(&mut rng, "r").events),
    };
    scenario.events.truncate(rng.usize(..=scenario.events.len()));
    leave_out_open_data(&mut scenario.events);
    let at = rng.usize(..=scenario.events.len());
    let late = if at == 0 { early(&scenario)? } else { resumed(&scenario, at, true)? };
    let messages: Vec<Msg> = (0..3).map(|_| values::message(&mut rng)).collect();
    let wire = Wire::named("ag-ui").ok_or("there is no wire ag-ui")?;
    let messages = wire.encode_messages(&messages).map_err(|error| error.to_string())?;
    let messages: Vec<&str> = messages.iter().map(turnwire_core::Json::text).collect();
    let runs = early(&scenario)?;
    Ok(json!({ "seed": seed.to_string(), "runs": runs, "late": late, "messages": messages }))
}

/// A client gets data when it is complete or when a run ends; how much it has of incomplete data
/// depends on when it connected.
fn leave_out_open_data(events: &mut Vec<Event<'static>>) {
    let ended: HashSet<String> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::DataBlockEnd(end) => Some(end.block_id.to_string()),
            _ => None,
        })
        .collect();
    events.retain(|event| match &event.kind {
        EventKind::DataBlockStart(start) => ended.contains(&*start.block_id),
        EventKind::DataBlockDelta(delta) => ended.contains(&*delta.block_id),
        _ => true,
    });
    *events = stream::with_seqs(std::mem::take(events));
}

/// The bodies of the responses: split after the end of each run.
#[derive(Default)]
struct Bodies(Vec<String>);

impl Bodies {
    fn take(&mut self, frames: &mut Frames) {
        for (name, text) in frames.iter() {
            let begins = self.0.last().is_none_or(|body| body.lines().any(is_end));
            if begins {
                self.0.push(String::new());
            }
            let mut one = Frames::default();
            one.push_text(name, text);
            if let Some(body) = self.0.last_mut() {
                sse::write(&one, None, body);
            }
        }
        frames.clear();
    }
}

fn is_end(line: &str) -> bool {
    ["RUN_FINISHED", "RUN_ERROR"]
        .iter()
        .any(|word| line.starts_with(&format!("data: {{\"type\":\"{word}\"")))
}

fn early(scenario: &Scenario) -> Result<Vec<String>, String> {
    Ok(tail(encoder("run")?, &scenario.events, Bodies::default()))
}

/// What a client gets that connects after this many events.
fn resumed(scenario: &Scenario, at: usize, merge: bool) -> Result<Vec<String>, String> {
    let (before, after) = scenario.events.split_at_checked(at).ok_or("out of range")?;
    let mut encoder = encoder("run")?;
    let mut frames = Frames::default();
    let mut folder = Folder::default();
    let merged: Vec<Event<'static>> =
        if merge { coalesce(before.to_vec()).collect() } else { before.to_vec() };
    for event in &merged {
        encoder.encode(event, &mut frames);
        folder.push(event).map_err(|error| error.to_string())?;
    }
    frames.clear();
    let mut messages: Vec<Msg> = vec![scenario.question.clone()];
    messages.extend(folder.into_messages());
    encoder.resume(&messages, &mut frames);
    let mut bodies = Bodies::default();
    bodies.take(&mut frames);
    Ok(tail(encoder, after, bodies))
}

fn tail(mut encoder: Box<dyn Encode>, events: &[Event<'_>], mut bodies: Bodies) -> Vec<String> {
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
        bodies.take(&mut frames);
    }
    encoder.end(&mut frames);
    bodies.take(&mut frames);
    bodies.0
}

fn read(text: &str) -> Result<Value, String> {
    let text_of = |error: turnwire_core::Error| error.to_string();
    let input = RunInput::parse(text).map_err(text_of)?;
    let confirm = [ToolCall::new("c1", "execute_trade", ""), ToolCall::new("c2", "send_mail", "")];
    let external = [ToolCall::new("c1", "open_page", "")];
    let values = |messages: Vec<Msg>| -> Result<Vec<Value>, String> {
        let each = messages.iter().map(|msg| serde_json::from_str(&msg.to_json()));
        each.collect::<Result<_, _>>().map_err(|error| error.to_string())
    };
    let events = |waiting: PendingReply<'_>| -> Result<Vec<Value>, String> {
        let answers = input.answers(&[waiting]).map_err(text_of)?;
        let each = answers.events.iter().map(|event| serde_json::from_str(&event.to_json()));
        each.collect::<Result<_, _>>().map_err(|error| error.to_string())
    };
    let waiting = PendingReply { reply_id: "r", agent: None, confirm: &confirm, external: &[] };
    Ok(json!({
        "thread": input.thread_id,
        "run": input.run_id,
        "tools": input.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>(),
        "history": values(input.history().map_err(text_of)?)?,
        "new": values(input.new_messages(|id| id == "u").map_err(text_of)?)?,
        "decisions": events(waiting)?,
        "results": events(PendingReply { confirm: &[], external: &external, ..waiting })?,
    }))
}
