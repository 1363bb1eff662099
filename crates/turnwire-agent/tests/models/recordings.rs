//! Recordings of real providers, sent over HTTP: the events equal those of the wire's decoder.

use crate::fake_provider::{FakeProvider, whole_stream};
use crate::scenes::{REPLY, collect_events, model_at};
use std::fs;
use turnwire_agent::model::MODEL_METADATA_KEY;
use turnwire_core::{Event, EventKind, FinishedReason};
use turnwire_wires::Wire;
use turnwire_wires::stream::{DecoderOptions, StreamScope};

/// The wire of each provider's recordings; the first match counts.
const OWNERS: [(&str, &str); 13] = [
    ("azure.azure-deepseek", "openai-chat"),
    ("alibaba.", "openai-chat"),
    ("deepseek.", "openai-chat"),
    ("groq.", "openai-chat"),
    ("mistral.", "openai-chat"),
    ("moonshotai.", "openai-chat"),
    ("openai-compatible.", "openai-chat"),
    ("perplexity.", "openai-chat"),
    ("openai.responses.", "openai-responses"),
    ("azure.", "openai-responses"),
    ("anthropic.", "anthropic"),
    ("google.google-", "gemini"),
    ("google-vertex.google-", "gemini"),
];

/// A broken recording: its first and its last line lack their last brace.
const BROKEN: &str = "parallel-tool-call-wrapper";

/// The decoded events of a body, up to the end of the first model call, with the fields that `HttpModel`
/// adds: the model's name where the provider sends none, and the requested model.
fn decoded(wire: &str, body: &str) -> Vec<Event<'static>> {
    let decoding = DecoderOptions {
        reply_id: Some(REPLY.to_owned()),
        block_prefix: Some("reply-1-".to_owned()),
        scope: StreamScope::ModelCall,
        ..DecoderOptions::default()
    };
    let decoder = Wire::named(wire).unwrap().decoder(&decoding).unwrap();
    let mut events = decoder.decode_all(body.as_bytes()).unwrap();
    let is_end = |event: &Event<'_>| {
        matches!(&event.kind, EventKind::ModelCallEnd(end)
            if end.finished_reason != FinishedReason::Truncated)
    };
    if let Some(end) = events.iter().position(is_end) {
        events.truncate(end + 1);
    }
    for event in &mut events {
        if let EventKind::ModelCallStart(start) = &mut event.kind
            && start.model_name.is_empty()
        {
            "m".clone_into(&mut start.model_name);
        }
        if let EventKind::ModelCallEnd(_) = &event.kind {
            event.metadata.insert(MODEL_METADATA_KEY, format!("{wire}:m"));
        }
    }
    events
}

fn json(events: &[Event<'static>]) -> Vec<String> {
    events.iter().map(Event::to_json).collect()
}

#[tokio::test]
async fn every_recording_comes_through_as_its_wire_reads_it() {
    let Some(folder) = turnwire_testkit::fixtures("recordings through the model APIs") else {
        return;
    };
    let mut count = 0;
    for entry in fs::read_dir(folder.join("provider-streams")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let owner = OWNERS.iter().find(|(start, _)| name.starts_with(start));
        let Some((_, wire)) = owner.filter(|_| !name.contains(BROKEN)) else { continue };
        let text = fs::read_to_string(&path).unwrap();
        let frames = text.lines().filter(|line| !line.trim().is_empty());
        let body = frames.fold(String::new(), |body, line| body + "data: " + line + "\n\n");
        let expected = decoded(wire, &body);

        let fake = FakeProvider::start([whole_stream(&body, 1000)]).await;
        let (events, error) =
            collect_events(&model_at(wire, &fake).retries(0).build().unwrap()).await;
        let first = expected.iter().find(|event| {
            !matches!(event.kind, EventKind::ModelCallStart(_) | EventKind::Custom(_))
        });
        match first.map(|event| &event.kind) {
            Some(EventKind::ModelCallEnd(end)) if end.error.is_some() => {
                assert!(events.is_empty() && error.is_some(), "{name}: {events:?}");
            }
            _ => {
                assert_eq!(error, None, "{name}");
                assert_eq!(json(&events), json(&expected), "{name}");
            }
        }
        count += 1;
    }
    assert!(count > 50, "only {count} recordings");
}
