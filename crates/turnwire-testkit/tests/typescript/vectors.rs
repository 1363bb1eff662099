//! Generates test vectors: streams, and the result of our strict and tolerant fold. Another fold must give the
//! same.
//!
//! Numbers that do not fit into a JavaScript number are left out.

use serde_json::{Value, json};
use std::fmt::Write;
use turnwire_core::{Event, Folder, Msg, Outcome, coalesce};
use turnwire_testkit::{Rng, one_in, pick, random_reply, stream, values};

const CASES: u64 = 20;

pub(crate) fn write_vectors() -> [(&'static str, String); 5] {
    [
        ("replies", write_file(1, |rng| fold_case(&stream::random_replies(rng).0))),
        ("repeats", write_file(2, |rng| fold_case(&repeated_stream(rng)))),
        ("disorder", write_file(3, |rng| fold_case(&disordered_stream(rng)))),
        ("splits", write_file(4, split_case)),
        ("messages", write_file(5, message_case)),
    ]
}

/// Writes a file of cases whose numbers JavaScript can represent.
fn write_file(seed: u64, make: impl Fn(&mut Rng) -> Value) -> String {
    let mut out = format!("{{\"seed\": {seed}, \"cases\": [\n");
    let mut written = 0;
    for at in 0.. {
        let case = make(&mut Rng::with_seed(seed << 32 | at)).to_string();
        if fits_javascript(&serde_json::from_str(&case).unwrap()) {
            let _ = write!(out, "{}{case}", if written == 0 { "" } else { ",\n" });
            written += 1;
        }
        if written == CASES {
            break;
        }
    }
    out + "\n]}\n"
}

/// Whether JavaScript can represent every number exactly.
fn fits_javascript(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().map_or(number.is_f64(), |it| it.abs() < 1 << 53),
        Value::Array(items) => items.iter().all(fits_javascript),
        Value::Object(fields) => fields.values().all(fits_javascript),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn fold_case(events: &[Event<'_>]) -> Value {
    let [strict, tolerant] = [false, true].map(|is_tolerant| {
        let mut folder = Folder::default();
        let mut outcomes = Vec::new();
        for event in events {
            let (outcome, problem) = if is_tolerant {
                folder.push_tolerant(event)
            } else {
                match folder.push(event) {
                    Ok(outcome) => (outcome, None),
                    Err(problem) => (Outcome::Skipped, Some(problem)),
                }
            };
            let problem = problem.map_or_else(String::new, |it| format!(" {}", it.kind()));
            outcomes.push(format!("{outcome:?}{problem}").to_lowercase());
        }
        let messages: Vec<Value> = folder.messages().map(|msg| value(&msg.to_json())).collect();
        let history: Vec<&str> = folder.history().map(Msg::id).collect();
        json!({ "outcomes": outcomes, "messages": messages, "history": history })
    });
    let events: Vec<Value> = events.iter().map(|event| value(&event.to_json())).collect();
    json!({ "events": events, "strict": strict, "tolerant": tolerant })
}

fn repeated_stream(rng: &mut Rng) -> Vec<Event<'static>> {
    let (events, _) = stream::random_replies(rng);
    let events = if rng.bool() { stream::with_seqs(events) } else { events };
    let events = stream::with_repeats(rng, &events);
    if rng.bool() { coalesce(events).collect() } else { events }
}

/// A stream in which events are lost, moved, repeated with another id, and mixed with random events.
fn disordered_stream(rng: &mut Rng) -> Vec<Event<'static>> {
    let (mut events, messages) = stream::random_replies(rng);
    for _ in 0..=events.len() / 4 {
        let (from, to) = (rng.usize(..events.len()), rng.usize(..events.len()));
        match rng.u8(..5) {
            0 => drop(events.remove(from)),
            1 => events.swap(from, to),
            2 => {
                let mut again = pick(rng, &events).clone();
                again.id = values::id(rng).into();
                events.insert(to, again);
            }
            3 => events.insert(to, values::event(rng)),
            _ => {
                let mut stranger = values::event(rng);
                if let Some(message) = messages.first() {
                    stranger.reply_id = message.id().to_owned().into();
                }
                stranger.seq = None;
                stranger.seq_from = None;
                events.insert(to, stranger);
            }
        }
        if events.is_empty() {
            break;
        }
    }
    if one_in(rng, 3) { stream::with_seqs(events) } else { events }
}

/// A reply that is stored in the middle: the stored state, and the events after it.
fn split_case(rng: &mut Rng) -> Value {
    let made = random_reply(rng, "r");
    let events = stream::with_seqs(made.events);
    let at = rng.usize(..=events.len());
    let (before, behind) = events.split_at(at);
    let mut msg = Msg::reply("r", "");
    for event in before {
        msg.append_event(event).unwrap();
    }
    let events = |events: &[Event<'_>]| -> Vec<Value> {
        events.iter().map(|event| value(&event.to_json())).collect()
    };
    json!({
        "before": events(before),
        "message": value(&msg.to_json()),
        "cursor": serde_json::to_value(msg.cursor()).unwrap(),
        "behind": events(behind),
        "whole": value(&made.message.to_json()),
    })
}

/// A message with missing, null and empty fields, and how we write it.
fn message_case(rng: &mut Rng) -> Value {
    let mut sparse = value(&values::message(rng).to_json());
    remove_some_fields(rng, &mut sparse);
    match Msg::from_json(&sparse.to_string()) {
        Ok(msg) => json!({ "read": sparse, "written": value(&msg.to_json()) }),
        Err(error) => json!({ "read": sparse, "error": error.kind().name() }),
    }
}

fn remove_some_fields(rng: &mut Rng, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            for key in keys {
                match rng.u8(..24) {
                    0 => drop(fields.remove(&key)),
                    1 => drop(fields.insert(key, Value::Null)),
                    2 if fields.get(&key).is_some_and(Value::is_string) => {
                        drop(fields.insert(key, "".into()));
                    }
                    _ => fields
                        .get_mut(&key)
                        .into_iter()
                        .for_each(|inner| remove_some_fields(rng, inner)),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_some_fields(rng, item)),
        _ => {}
    }
}
