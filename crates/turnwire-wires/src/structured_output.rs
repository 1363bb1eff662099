//! Structured output as text, for clients of a model protocol that asked for JSON.
//!
//! An agent may write text beside its structured output. These protocols have one field for both,
//! and the client parses it as JSON. So text that is not JSON is held back until it is known
//! whether there is structured output.

use crate::collect::WholeResponse;
use crate::stream::{Encode, EncoderOptions, Frames, StreamFailure, UnsettledCalls};
use std::collections::HashSet;
use turnwire_core::event::Block;
use turnwire_core::{ContentBlock, Event, EventKind, TextBlock, event_kinds};

/// Wraps an encoder if the client asked for JSON.
pub(crate) fn wrap_encoder<E: Encode + 'static>(
    encoding: &EncoderOptions,
    inner: E,
) -> Box<dyn Encode> {
    if encoding.wants_json {
        Box::new(StructuredOutputEncoder {
            inner,
            buffered: Vec::new(),
            json_blocks: HashSet::new(),
            checked_blocks: HashSet::new(),
        })
    } else {
        Box::new(inner)
    }
}

struct StructuredOutputEncoder<E> {
    inner: E,
    /// Events of text that is held back.
    buffered: Vec<Event<'static>>,
    /// Blocks that are JSON: written as they grow.
    json_blocks: HashSet<String>,
    /// Blocks whose first character was seen.
    checked_blocks: HashSet<String>,
}

impl<E: Encode> StructuredOutputEncoder<E> {
    fn release(&mut self, which: impl Fn(&Event<'_>) -> bool, out: &mut Frames) {
        for event in std::mem::take(&mut self.buffered) {
            if which(&event) {
                self.inner.encode(&event, out);
            } else {
                self.buffered.push(event);
            }
        }
    }

    /// Handles a text delta. The first character of a block decides whether it is a JSON object.
    fn text_delta(&mut self, event: &Event<'_>, id: &str, delta: &str, out: &mut Frames) {
        if self.json_blocks.contains(id) {
            return self.inner.encode(event, out);
        }
        let is_object = match delta.trim_start().chars().next() {
            Some(first) => self.checked_blocks.insert(id.to_owned()) && first == '{',
            None => false,
        };
        if is_object {
            self.json_blocks.insert(id.to_owned());
            self.release(|event| text_block_id(event) == Some(id), out);
            return self.inner.encode(event, out);
        }
        self.buffered.push(event.clone().into_owned());
    }
}

/// The text block that an event belongs to.
fn text_block_id<'e>(event: &'e Event<'_>) -> Option<&'e str> {
    match &event.kind {
        EventKind::TextBlockStart(start) => Some(&start.block_id),
        EventKind::TextBlockDelta(delta) => Some(&delta.block_id),
        EventKind::TextBlockEnd(end) => Some(&end.block_id),
        EventKind::Block(block) => {
            let ContentBlock::Text(block) = &*block.block else { return None };
            Some(&block.id)
        }
        event_kinds!(Hint reply model_call thinking data tool pending_call notice session) => None,
    }
}

impl<E: Encode> Encode for StructuredOutputEncoder<E> {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        let id = text_block_id(event).filter(|_| !event.is_from_sub_agent());
        if let Some(id) = id {
            if let EventKind::TextBlockDelta(delta) = &event.kind {
                self.text_delta(event, id, &delta.delta, out);
            } else if self.json_blocks.contains(id) {
                self.inner.encode(event, out);
            } else {
                self.buffered.push(event.clone().into_owned());
            }
            return;
        }
        if let EventKind::ReplyEnd(end) = &event.kind
            && !event.is_from_sub_agent()
        {
            if let Some(output) = &end.structured_output {
                self.buffered.clear();
                if self.json_blocks.is_empty() {
                    let block = Box::new(TextBlock::new(output.text()).into());
                    let text = Event::new(event.reply_id.to_string(), Block { block });
                    self.inner.encode(&text, out);
                }
            }
            self.release(|_| true, out);
        }
        self.inner.encode(event, out);
    }

    fn fail(&mut self, failure: &StreamFailure, out: &mut Frames) {
        self.release(|_| true, out);
        self.inner.fail(failure, out);
    }

    fn settle_calls(&mut self, reply_id: &str, calls: &UnsettledCalls, out: &mut Frames) {
        self.release(|_| true, out);
        self.inner.settle_calls(reply_id, calls, out);
    }

    fn take_response(&mut self) -> Option<WholeResponse> {
        self.inner.take_response()
    }

    fn end(&mut self, out: &mut Frames) {
        self.release(|_| true, out);
        self.inner.end(out);
    }
}

#[cfg(test)]
mod tests {
    use crate::{EncoderOptions, Frames, UnsettledCalls, Wire};
    use turnwire_core::Event;

    #[test]
    fn a_call_that_waits_for_an_approval_is_not_the_clients_also_if_it_asked_for_json() {
        for wire in ["anthropic", "openai-chat", "openai-responses"] {
            let encoding = EncoderOptions { wants_json: true, ..EncoderOptions::default() };
            let mut encoder = Wire::named(wire).unwrap().encoder(&encoding).unwrap();
            let mut frames = Frames::default();
            for event in [
                r#""type":"REPLY_START","name":"a""#,
                r#""type":"TOOL_CALL_START","tool_call_id":"c-asked","tool_call_name":"f""#,
                r#""type":"TOOL_CALL_END","tool_call_id":"c-asked""#,
                r#""type":"TOOL_CALL_START","tool_call_id":"c-own","tool_call_name":"f""#,
                r#""type":"TOOL_CALL_END","tool_call_id":"c-own""#,
            ] {
                let text = format!(r#"{{"reply_id":"r",{event}}}"#);
                encoder.encode(&Event::from_json(&text).unwrap(), &mut frames);
            }
            let calls = UnsettledCalls {
                awaiting_approval: vec!["c-asked".to_owned()],
                ..UnsettledCalls::default()
            };
            encoder.settle_calls("r", &calls, &mut frames);
            encoder.end(&mut frames);
            let written: String = frames.iter().map(|(_, text)| text).collect();
            assert!(!written.contains("c-asked") && written.contains("c-own"), "{wire}: {written}");
        }
    }

    /// The text of a response to a client that asked for JSON.
    fn encoded_text(wire: &str, texts: &[&str], output: &str) -> String {
        let encoding = EncoderOptions { wants_json: true, ..EncoderOptions::default() };
        let mut encoder = Wire::named(wire).unwrap().encoder(&encoding).unwrap();
        let mut events = vec![r#""type":"REPLY_START","name":"a""#.to_owned()];
        events.push(r#""type":"TEXT_BLOCK_START","block_id":"b""#.to_owned());
        for text in texts {
            let delta = serde_json::to_string(text).unwrap();
            events.push(format!(r#""type":"TEXT_BLOCK_DELTA","block_id":"b","delta":{delta}"#));
        }
        events.push(r#""type":"TEXT_BLOCK_END","block_id":"b""#.to_owned());
        events.push(format!(
            r#""type":"REPLY_END","finished_reason":"completed","structured_output":{output}"#
        ));
        let mut frames = Frames::default();
        for event in events {
            let text = format!(r#"{{"reply_id":"r",{event}}}"#);
            encoder.encode(&Event::from_json(&text).unwrap(), &mut frames);
        }
        let texts = frames.iter().filter_map(|(_, text)| {
            let frame: serde_json::Value = serde_json::from_str(text).ok()?;
            let found = frame
                .pointer("/delta/text")
                .or_else(|| frame.pointer("/choices/0/delta/content"))?;
            Some(found.as_str()?.to_owned())
        });
        texts.collect()
    }

    #[test]
    fn a_client_that_asked_for_json_gets_it_once() {
        for wire in ["openai-chat", "anthropic"] {
            let object = r#"{"a":1}"#;
            assert_eq!(encoded_text(wire, &["Here ", "it is: {"], object), object, "{wire}");
            assert_eq!(encoded_text(wire, &["Just ", "words"], "null"), "Just words", "{wire}");
            assert_eq!(
                encoded_text(wire, &[" \n", "{\"a\":", " 1}"], object),
                " \n{\"a\": 1}",
                "{wire}"
            );
            assert_eq!(encoded_text(wire, &[], object), object, "{wire}");
        }
    }
}
