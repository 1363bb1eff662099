//! Renders recorded replies of the demo agent. `recorded/` has the events, and what a terminal of
//! 60 columns shows.

use super::super::plain::{PlainOutput, PlainRenderer};
use super::*;
use turnwire_core::coalesce;
use turnwire_core::event::{
    Text, TextBlockDelta, ThinkingBlockDelta, ToolCallDelta, ToolResultTextDelta,
};

/// Saves nothing, and returns what it was given.
struct FakeSaver;

impl FileSaver for FakeSaver {
    fn save(&mut self, name: Option<&str>, _: &str, bytes: &[u8]) -> io::Result<String> {
        Ok(format!("{}[{}]", name.unwrap_or("?"), bytes.len()))
    }
}

fn renderer() -> Renderer {
    Renderer::new(DisplayOptions { width: 60, colour: false }, Box::new(FakeSaver))
}

fn parse_events(lines: &str) -> Vec<Event<'static>> {
    lines.lines().map(|line| Event::from_json(line).unwrap().into_owned()).collect()
}

fn render(events: &[Event<'_>]) -> String {
    let mut renderer = renderer();
    let mut text: String = events.iter().map(|event| renderer.render_event(event)).collect();
    text += &renderer.finish_block();
    text
}

macro_rules! recorded {
    ($($name:literal)+) => {
        [$(($name, include_str!(concat!("recorded/", $name, ".ndjson")), include_str!(concat!("recorded/", $name, ".txt")))),+]
    };
}

const RECORDINGS: [(&str, &str, &str); 7] =
    recorded!("hello" "weather" "parallel" "team" "fail" "browser" "json");

#[test]
fn recorded_replies_look_the_same() {
    for (name, lines, expected) in RECORDINGS {
        let text = render(&parse_events(lines));
        // `TURNWIRE_RECORD=1 cargo test` writes them again, for review.
        if std::env::var_os("TURNWIRE_RECORD").is_some() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/chat/render/recorded");
            std::fs::write(format!("{folder}/{name}.txt"), &text).unwrap();
            continue;
        }
        assert_eq!(text, expected, "{name}");
    }
}

fn delta_text<'k>(kind: &'k mut EventKind<'static>) -> Option<&'k mut Text<'static>> {
    if let EventKind::TextBlockDelta(TextBlockDelta { delta, .. })
    | EventKind::ThinkingBlockDelta(ThinkingBlockDelta { delta, .. })
    | EventKind::ToolCallDelta(ToolCallDelta { delta, .. })
    | EventKind::ToolResultTextDelta(ToolResultTextDelta { delta, .. }) = kind
    {
        Some(delta)
    } else {
        None
    }
}

/// The same events with one delta per character.
fn split_deltas(events: &[Event<'static>]) -> Vec<Event<'static>> {
    let mut out = Vec::new();
    for event in events {
        let mut plain = Event { seq: None, seq_from: None, id: "".into(), ..event.clone() };
        let text = delta_text(&mut plain.kind).map(std::mem::take);
        let Some(text) = text else {
            out.push(plain);
            continue;
        };
        for char in text.chars() {
            let mut piece = plain.clone();
            *delta_text(&mut piece.kind).unwrap() = char.to_string().into();
            out.push(piece);
        }
    }
    out
}

#[test]
fn a_reply_looks_the_same_however_its_deltas_are_split() {
    for (name, lines, _) in RECORDINGS {
        let events = parse_events(lines);
        let letters = split_deltas(&events);
        assert!(letters.len() > events.len());
        assert_eq!(render(&letters), render(&events), "{name}");
        assert_eq!(render(&coalesce(letters).collect::<Vec<_>>()), render(&events), "{name}");
    }
}

#[test]
fn text_is_printed_before_the_reply_ends() {
    let mut renderer = renderer();
    let mut text = String::new();
    for line in [
        r#"{"type":"REPLY_START","reply_id":"r"}"#,
        r#"{"type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#,
        r#"{"type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"It is **18 °C** in Pa"}"#,
    ] {
        text += &renderer.render_event(&Event::from_json(line).unwrap());
    }
    assert_eq!(text, "It is 18 °C in");
    assert_eq!(renderer.status(), None, "no spinner in the middle of a row");
}

#[test]
fn a_file_is_saved_and_its_path_is_shown() {
    let text = render(&parse_events(
        r#"{"type":"DATA_BLOCK_START","reply_id":"r","block_id":"b","media_type":"image/png","name":"a.png"}
{"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"b","media_type":"image/png","data":"aGVsb"}
{"type":"DATA_BLOCK_DELTA","reply_id":"r","block_id":"b","media_type":"image/png","data":"G8="}
{"type":"DATA_BLOCK_END","reply_id":"r","block_id":"b"}"#,
    ));
    assert_eq!(text, "▣ saved a.png[5] (image/png, 5 B)\n");
}

#[test]
fn an_edit_a_denial_and_a_long_result_are_shown() {
    let long = (1..=20).map(|n| format!("row {n}\\n")).collect::<Vec<_>>().concat();
    let text = render(&parse_events(&format!(
        r#"{{"type":"TOOL_CALL_START","reply_id":"r","tool_call_id":"c","tool_call_name":"buy"}}
{{"type":"TOOL_CALL_DELTA","reply_id":"r","tool_call_id":"c","delta":"{{\"n\": 1}}"}}
{{"type":"TOOL_CALL_END","reply_id":"r","tool_call_id":"c"}}
{{"type":"REQUIRE_USER_CONFIRM","reply_id":"r","tool_calls":[{{"type":"tool_call","id":"c","name":"buy","input":"{{\"n\": 1}}"}}]}}
{{"type":"USER_CONFIRM_RESULT","reply_id":"r","confirm_results":[{{"confirmed":true,"tool_call":{{"type":"tool_call","id":"c","name":"buy","input":"{{\"n\":2}}"}}}}]}}
{{"type":"TOOL_RESULT_START","reply_id":"r","tool_call_id":"c","tool_call_name":"buy"}}
{{"type":"TOOL_RESULT_TEXT_DELTA","reply_id":"r","tool_call_id":"c","delta":"{long}"}}
{{"type":"TOOL_RESULT_END","reply_id":"r","tool_call_id":"c","state":"error"}}
{{"type":"USER_CONFIRM_RESULT","reply_id":"r","metadata":{{"reason":"too late"}},"confirm_results":[{{"confirmed":false,"tool_call":{{"type":"tool_call","id":"d","name":"sell","input":""}}}}]}}
{{"type":"REPLY_END","reply_id":"r","finished_reason":"interrupted"}}"#
    )));
    let rows = (1..=12).map(|n| format!("  ┆ row {n}\n")).collect::<Vec<_>>().concat();
    assert_eq!(
        text,
        format!(
            "⚙ buy {{\"n\":1}}\n\n? buy needs approval\n✓ buy was allowed\n  with {{\"n\":2}}\n{rows}  \
             ┆ … 8 more lines\n  ✗ failed\n✗ sell was denied: too late\n\n■ stopped\n"
        )
    );
}

#[test]
fn a_stored_message_looks_like_the_streamed_one() {
    for (name, lines, _) in RECORDINGS {
        let events = parse_events(lines);
        let mut folder = Folder::default();
        for event in &events {
            folder.push(event).unwrap();
        }
        let own = |msg: &&turnwire_core::Msg| msg.name() != "researcher";
        let again: Vec<Event<'static>> = folder
            .history()
            .filter(own)
            .flat_map(super::super::message_events::message_to_events)
            .collect();
        // Approvals, tokens and sub-agents are not in the message.
        let is_in = |line: &&str| {
            !line.is_empty()
                && !line.contains(" tokens in")
                && !line.starts_with("? ")
                && !line.contains(" was allowed")
                && !line.starts_with('│')
                && !line.starts_with("  get_weather:")
        };
        let (before, after) = (render(&events), render(&again));
        let rows = |text: &str| -> Vec<String> {
            let mut rows: Vec<String> = text.lines().filter(is_in).map(str::to_owned).collect();
            rows.dedup();
            // A client-side result arrives as an event of its own.
            rows
        };
        if name != "browser" && name != "parallel" {
            assert_eq!(rows(&after), rows(&before), "{name}");
        }
        assert!(after.contains("›"), "{after}");
    }
}

#[test]
fn a_resumed_reply_continues_where_it_was() {
    let (_, lines, _) = RECORDINGS[1];
    let events = split_deltas(&parse_events(lines));
    let whole = render(&events);
    for at in 1..events.len() {
        let mut folder = Folder::default();
        for event in &events[..at] {
            folder.push(event).unwrap();
        }
        let mut all: Vec<Event<'static>> =
            folder.history().flat_map(super::super::message_events::message_to_events).collect();
        all.extend_from_slice(&events[at..]);
        let text = render(&all);
        let text = text.replace(" tokens in", "");
        let last = |text: &str| {
            text.lines().filter(|line| line.contains("°C")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(last(&text), last(&whole), "cut at {at}\n{text}");
    }
}

#[test]
fn after_a_reset_all_events_are_rendered_again() {
    let (_, lines, expected) = RECORDINGS[0];
    let again = parse_events(lines);
    let reset = r#"{"type":"RESET","epoch":"e","reason":"it was restored"}"#;
    let half: Vec<_> = again.iter().take(6).cloned().collect();
    let events = [half, parse_events(reset), again].concat();
    let text = render(&events);
    assert!(text.contains("↻ session reset: it was restored\n"), "{text}");
    assert!(text.trim_end().ends_with(expected.trim()), "{text}");
}

#[test]
fn a_pipe_gets_only_the_text_of_the_reply() {
    let (_, lines, _) = RECORDINGS[1];
    let mut plain = PlainRenderer::new(Box::new(FakeSaver));
    let mut all = PlainOutput::default();
    for event in parse_events(lines) {
        let printed = plain.render_event(&event);
        all.text += &printed.text;
        all.notes.extend(printed.notes);
    }
    let text = "It is **18 °C** in Paris, with light rain. Tomorrow is the day for a walk: 22 °C and sunny.\n";
    let notes =
        ["tool get_weather (Look up the weather) {\"city\":\"Paris\"}", "tool ended: success"];
    let notes = notes.map(str::to_owned).to_vec();
    assert_eq!(all, PlainOutput { text: text.to_owned(), notes });
}
