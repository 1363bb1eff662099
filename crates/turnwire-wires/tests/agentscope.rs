//! The `agentscope` wire: foreign events that look like ours, and base64 in complete groups.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use turnwire_core::block::{Base64Source, Source};
use turnwire_core::{DataBlock, Event, Fields};
use turnwire_testkit::check_property;
use turnwire_wires::{DecoderOptions, EncoderOptions, Frames, Wire, agentscope};

#[test]
fn a_foreign_field_with_our_name_survives() {
    let line = r#"{"type":"USER_INTERRUPT","reply_id":"r","turnwire":1}"#;
    let event = agentscope::decode_event(line).unwrap();
    assert_eq!(event.rest.get::<u8>("turnwire").unwrap(), Some(1));
    let again = agentscope::encode_event(&event);
    assert_eq!(agentscope::decode_event(&again).unwrap(), event);
}

#[test]
fn a_custom_event_that_looks_like_ours_survives() {
    let line =
        r#"{"type":"CUSTOM","name":"supersede","value":{"type":"SUPERSEDE","message_ids":["m"]}}"#;
    let event = Event::from_json(line).unwrap();
    let written = agentscope::encode_event(&event);
    assert_eq!(agentscope::decode_event(&written).unwrap(), event);
}

#[test]
fn a_foreign_custom_event_survives() {
    for line in [
        r#"{"type":"CUSTOM","name":"block","value":{"type":"CUSTOM","name":"x"}}"#,
        r#"{"type":"CUSTOM","name":"message","value":{"type":"SUPERSEDE","message_ids":[]}}"#,
        r#"{"type":"CUSTOM","name":"reset","value":{}}"#,
    ] {
        let event = agentscope::decode_event(line).unwrap();
        assert_eq!(event.kind.type_name(), "CUSTOM", "{line}");
    }
}

fn encoded(events: &[Event<'_>]) -> Vec<String> {
    let wire = Wire::named("agentscope").unwrap();
    let mut encoder = wire.encoder(&EncoderOptions::default()).unwrap();
    let mut frames = Frames::default();
    for event in events {
        encoder.encode(event, &mut frames);
    }
    frames.iter().map(|(_, text)| text.to_owned()).collect()
}

fn decoded(lines: &[String]) -> Vec<Event<'static>> {
    let wire = Wire::named("agentscope").unwrap();
    wire.decoder(&DecoderOptions::default())
        .unwrap()
        .decode_all(lines.join("\n").as_bytes())
        .unwrap()
}

/// What AgentScope reads of the deltas: type, id, and the base64 that it decodes on its own.
fn data(lines: &[String]) -> Vec<(String, String, String)> {
    let fields = lines.iter().map(|line| serde_json::from_str::<Fields>(line).unwrap());
    let text = |fields: &Fields, key| fields.get::<String>(key).unwrap().unwrap_or_default();
    fields
        .filter(|fields| fields.raw("data").is_some())
        .map(|fields| (text(&fields, "type"), text(&fields, "id"), text(&fields, "data")))
        .collect()
}

fn block(pieces: &[&str], end: &str) -> Vec<Event<'static>> {
    let delta = |piece: &&str| {
        format!(
            r#"{{"type":"DATA_BLOCK_DELTA","id":"d","reply_id":"r","block_id":"b","media_type":"image/png","data":"{piece}"}}"#
        )
    };
    let start =
        r#"{"type":"DATA_BLOCK_START","reply_id":"r","block_id":"b","media_type":"image/png"}"#;
    let lines = std::iter::once(start.to_owned()).chain(pieces.iter().map(delta));
    lines
        .chain(std::iter::once(end.to_owned()))
        .map(|line| Event::from_json(&line).unwrap().into_owned())
        .collect()
}

const END: &str = r#"{"type":"DATA_BLOCK_END","id":"end","reply_id":"r","block_id":"b"}"#;

#[test]
fn split_base64_groups_are_joined() {
    for end in [END, r#"{"type":"REPLY_END","id":"end","reply_id":"r"}"#] {
        let events = block(&["aGVsb", "G8gd29", "y"], end);
        let lines = encoded(&events);
        let pieces: Vec<(String, String, String)> = data(&lines);
        let expected = [("d", "aGVs"), ("d", "bG8g"), ("d", "d29y")];
        let expected =
            expected.map(|(id, data)| ("DATA_BLOCK_DELTA".into(), id.into(), data.into()));
        assert_eq!(pieces, expected);
        assert_eq!(decoded(&lines), events);
    }
}

#[test]
fn an_unpadded_end_is_a_delta_that_decodes_to_nothing() {
    for end in [END, r#"{"type":"REPLY_END","id":"end","reply_id":"r"}"#] {
        let events = block(&["aGVsb", "G8"], end);
        let lines = encoded(&events);
        let expected = [("d", "aGVs"), ("d", ""), ("end-rest-0", "bG8=")];
        let expected =
            expected.map(|(id, data)| ("DATA_BLOCK_DELTA".into(), id.into(), data.into()));
        assert_eq!(data(&lines), expected);
        assert_eq!(decoded(&lines), events);
    }
}

#[test]
fn several_runs_of_base64_in_a_delta_become_one() {
    let events = block(&["aGk=aGk=", "aG=", "="], END);
    let lines = encoded(&events);
    let pieces: Vec<String> = data(&lines).into_iter().map(|(_, _, data)| data).collect();
    assert_eq!(pieces, ["aGloaQ==", "", "aG=="]);
    assert_eq!(decoded(&lines), events);
}

#[test]
fn incomplete_data_of_a_result_waits_for_its_next_event() {
    let events: Vec<Event<'static>> = [
        r#"{"type":"TOOL_RESULT_DATA_DELTA","id":"1","reply_id":"r","tool_call_id":"c","block_id":"a","media_type":"image/png","data":"aGVsb"}"#,
        r#"{"type":"TOOL_RESULT_TEXT_DELTA","id":"2","reply_id":"r","tool_call_id":"other","delta":"x"}"#,
        r#"{"type":"TOOL_RESULT_DATA_DELTA","id":"3","reply_id":"r","tool_call_id":"c","block_id":"a","media_type":"image/png","data":"G8"}"#,
        r#"{"type":"TOOL_RESULT_DATA_DELTA","id":"4","reply_id":"r","tool_call_id":"c","block_id":"b","media_type":"image/png","data":"aG"}"#,
        r#"{"type":"TOOL_RESULT_END","id":"5","reply_id":"r","tool_call_id":"c","state":"success"}"#,
    ]
    .map(|line| Event::from_json(line).unwrap().into_owned())
    .into();
    let lines = encoded(&events);
    let pieces: Vec<(String, String)> =
        data(&lines).into_iter().map(|(_, id, data)| (id, data)).collect();
    let expected =
        [("1", "aGVs"), ("3", ""), ("4-rest-0", "bG8="), ("4", ""), ("5-rest-0", "aG==")];
    assert_eq!(pieces, expected.map(|(id, data)| (id.to_owned(), data.to_owned())));
    assert_eq!(decoded(&lines), events);
}

#[test]
fn invalid_base64_is_written_unchanged_and_the_incomplete_group_waits() {
    let events = block(&["aG", "not base64!", "k="], END);
    let lines = encoded(&events);
    let pieces: Vec<String> = data(&lines).into_iter().map(|(_, _, data)| data).collect();
    assert_eq!(pieces, ["", "not base64!", "aGk="]);
    assert_eq!(decoded(&lines), events);
}

/// The state depends only on the data, not on where it was split.
#[test]
fn merged_deltas_give_the_same_bytes() {
    let text = "aGVsbG8gd29ybGQhIQ==aGk=aGVsbG8";
    let whole: Vec<u8> = bytes(&encoded(&block(&[text], END)));
    check_property("merged_deltas_give_the_same_bytes", 200, |rng| {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rng.usize(1..=rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        assert_eq!(bytes(&encoded(&block(&pieces, END))), whole, "{pieces:?}");
    });
}

/// As AgentScope does it: each delta on its own.
fn bytes(lines: &[String]) -> Vec<u8> {
    let pieces = data(lines).into_iter().map(|(_, _, data)| {
        let source = Base64Source { data, media_type: None, rest: Fields::default() };
        let mut block = DataBlock::from_source(Source::Base64(source));
        block.finished_at = Some(String::new());
        block.decoded().unwrap().unwrap()
    });
    pieces.flatten().collect()
}

#[test]
fn unknown_finish_reasons_become_the_nearest() {
    for (ours, theirs) in [
        ("completed", "completed"),
        ("interrupted", "interrupted"),
        ("exceed_max_iters", "exceed_max_iters"),
        ("error", "error"),
        ("tool_calls", "completed"),
        ("refusal", "completed"),
        ("length", "interrupted"),
        ("content_filter", "interrupted"),
        ("truncated", "interrupted"),
        ("x_tired", "completed"),
    ] {
        let line = format!(r#"{{"type":"REPLY_END","reply_id":"r","finished_reason":"{ours}"}}"#);
        let event = Event::from_json(&line).unwrap();
        let written = agentscope::encode_event(&event);
        let reason = format!(r#""finished_reason":"{theirs}""#);
        assert!(written.contains(&reason), "{ours}: {written}");
        assert_eq!(agentscope::decode_event(&written).unwrap(), event);
    }
}
