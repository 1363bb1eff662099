//! A wire: what a screen shows while the agent speaks, and nothing else.

use serde::Serialize;
use turnwire_core::{Event, EventKind};
use turnwire_wires::{Encode, Frames, Wire};

pub static CAPTIONS: Wire = Wire {
    name: "captions",
    about: "text, questions, and the end of each reply",
    encode: Some(|_| Box::new(Captions)),
    ..Wire::EMPTY
};

struct Captions;

#[derive(Serialize)]
struct Question<'a> {
    reply: &'a str,
    call: &'a str,
    tool: &'a str,
    input: &'a str,
}

impl Encode for Captions {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        match &event.kind {
            EventKind::TextBlockDelta(delta) => out.push("say", &delta.delta),
            EventKind::RequireUserConfirm(asked) => {
                for call in &asked.tool_calls {
                    let question = Question {
                        reply: &event.reply_id,
                        call: &call.id,
                        tool: &call.name,
                        input: &call.input,
                    };
                    out.push("ask", &question);
                }
            }
            EventKind::ReplyEnd(end) => out.push("end", &end.finished_reason),
            _ => {}
        }
    }
}
