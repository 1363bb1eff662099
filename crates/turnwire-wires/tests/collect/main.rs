//! A response without streaming is what the frames of the stream add up to, as the official clients add them up.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod official;

use official::{add_up_chat, add_up_messages, last_response};
use serde_json::{Value, json};
use turnwire_core::{ErrorType, Event};
use turnwire_testkit::{Rng, check_property, one_in, random_reply};
use turnwire_wires::openai_chat::StreamOptions;
use turnwire_wires::{EncoderOptions, Frames, StreamFailure, Wire};

/// How a client of each protocol adds up frames: the response, or the error.
type AddUp = fn(&[Value]) -> Result<Value, Value>;

const WIRES: [(&str, AddUp); 3] = [
    ("openai-chat", add_up_chat),
    ("anthropic", add_up_messages),
    ("openai-responses", |frames| last_response(frames).ok_or(Value::Null)),
];

fn encode(
    wire: &str,
    events: &[Event<'_>],
    options: &EncoderOptions,
    failure: Option<&StreamFailure>,
) -> (Vec<Value>, Option<Result<Value, Value>>) {
    let mut encoder = Wire::named(wire).unwrap().encoder(options).unwrap();
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    if let Some(failure) = failure {
        encoder.fail(failure, &mut frames);
    }
    encoder.end(&mut frames);
    let whole = encoder.take_response().map(|whole| match whole {
        Ok(body) => Ok(body.parse_as().unwrap()),
        Err(error) => Err(error.body.parse_as().unwrap()),
    });
    assert!(encoder.take_response().is_none(), "taken once");
    let frames = frames.iter().filter_map(|(_, text)| serde_json::from_str(text).ok());
    (frames.collect(), whole)
}

fn options(rng: &mut Rng) -> EncoderOptions {
    EncoderOptions {
        collects: true,
        wants_json: one_in(rng, 4),
        model: one_in(rng, 2).then(|| "friday".to_owned()),
        ..EncoderOptions::default()
    }
    .with(StreamOptions { include_usage: true })
}

#[test]
fn a_whole_response_is_what_its_frames_add_up_to() {
    check_property("a_whole_response_is_what_its_frames_add_up_to", 500, |rng| {
        let mut events = random_reply(rng, "r1").events;
        // A reply that waits, or was cut off.
        if one_in(rng, 3) {
            events.truncate(rng.usize(..=events.len()));
        }
        let failure = one_in(rng, 4).then(|| StreamFailure {
            reply_id: "r1".to_owned(),
            created_at: "2026-01-01T00:00:00.000Z".to_owned(),
            error_type: ErrorType::Authentication,
            message: "the credentials have expired".to_owned(),
        });
        let options = options(rng);
        for (wire, add_up) in WIRES {
            let (frames, whole) = encode(wire, &events, &options, failure.as_ref());
            match whole {
                None => assert!(frames.is_empty(), "{wire}: {frames:?}"),
                Some(whole) => assert_eq!(whole, add_up(&frames), "{wire}: {frames:#?}"),
            }
            let streaming = EncoderOptions { collects: false, ..options.clone() };
            let (same, none) = encode(wire, &events, &streaming, failure.as_ref());
            assert_eq!((same, none), (frames, None), "{wire}: collecting changes no frame");
        }
    });
}

#[test]
fn a_stream_that_fails_ends_with_an_error_in_every_protocol_that_answers_requests() {
    let failure = StreamFailure {
        reply_id: "r".to_owned(),
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        error_type: ErrorType::Other("server_stopping".into()),
        message: "the server is restarting".to_owned(),
    };
    let start = Event::from_json(r#"{"type":"REPLY_START","reply_id":"r","name":"a"}"#).unwrap();
    for wire in ["ag-ui", "ai-sdk", "anthropic", "openai-chat", "openai-responses"] {
        for events in [&[][..], std::slice::from_ref(&start)] {
            let (frames, _) = encode(wire, events, &EncoderOptions::default(), Some(&failure));
            let text = json!(frames).to_string();
            let times = text.matches("the server is restarting").count();
            assert!(times >= 1, "{wire} with {} events: {text}", events.len());
            // The reply has not ended, so nobody says when it did.
            assert!(!text.contains("finished_at"), "{wire}: {text}");
        }
    }
}

#[test]
fn an_error_has_its_http_status() {
    for (kind, status) in
        [("internal", 500), ("authentication", 500), ("rate_limit", 429), ("invalid_request", 400)]
    {
        let end = format!(
            r#"{{"type":"REPLY_END","reply_id":"r","finished_reason":"error","error":{{"type":"{kind}","message":"no"}}}}"#
        );
        for wire in ["openai-chat", "anthropic"] {
            let options = EncoderOptions { collects: true, ..EncoderOptions::default() };
            let mut encoder = Wire::named(wire).unwrap().encoder(&options).unwrap();
            encoder.encode(&Event::from_json(&end).unwrap(), &mut Frames::default());
            let error = encoder.take_response().unwrap().unwrap_err();
            assert_eq!(error.status, status, "{wire} {kind}: {}", error.body.text());
            let body: Value = error.body.parse_as().unwrap();
            assert_eq!(body["error"]["message"], "no", "{wire}");
        }
    }
}
