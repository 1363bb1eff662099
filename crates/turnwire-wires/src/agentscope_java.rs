//! AgentScope for Java, version 2; also reads messages of version 1.
//!
//! A Java agent gives every model call and every batch of tools an id of its own, and the same block
//! ids to each. Here all events between `AGENT_START` and `AGENT_END` belong to one reply, and every
//! block has an id of its own:
//!
//! ```
//! use turnwire_core::Folder;
//! use turnwire_wires::{DecoderOptions, Wire};
//!
//! let stream = br#"
//! {"type":"AGENT_START","replyId":"r","name":"friday","role":"assistant","type":"AGENT_START"}
//! {"type":"TEXT_BLOCK_START","replyId":"step-1","blockId":"text"}
//! {"type":"TEXT_BLOCK_DELTA","replyId":"step-1","blockId":"text","delta":"One"}
//! {"type":"TEXT_BLOCK_START","replyId":"step-2","blockId":"text"}
//! {"type":"TEXT_BLOCK_DELTA","replyId":"step-2","blockId":"text","delta":"Two"}
//! {"type":"AGENT_END","replyId":"r"}
//! "#;
//! let java = Wire::named("agentscope-java").unwrap();
//! let mut folder = Folder::default();
//! for event in java.decoder(&DecoderOptions::default())?.decode_all(stream)? {
//!     folder.push(&event)?;
//! }
//! let messages: Vec<_> = folder.into_messages().collect();
//! assert_eq!(messages.len(), 1);
//! assert_eq!(messages[0].text("|").as_deref(), Some("One|Two"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing is lost in either direction. What we have no field for (such as the id of a step) stays in
//! the event or message, as a patch in the field `java`. What Java has no field for is a patch in its
//! metadata, under `turnwire`. Events that Java does not have are custom events.
//!
//! A decoder must see a reply from its `AGENT_START` on. For one that starts inside a reply, set
//! [`DecoderOptions::reply_id`](crate::DecoderOptions::reply_id).

mod block;
mod carried_patch;
mod decode;
mod delta;
mod encode;
mod event;
mod message;
mod open_replies;
mod patch;

pub use message::{
    confirm_results, decode_message, encode_message, join_tool_messages, with_confirm_results,
};

use crate::registry::{MessageCodec, Wire};
use crate::stream::{Decode, Encode, EventSink, Frames};
use crate::turnwire::{read_messages, write_messages};
use open_replies::OpenReplies;
use turnwire_core::{Event, Fields, Result};

pub(crate) static WIRE: Wire = Wire {
    name: "agentscope-java",
    about: "AgentScope for Java 2.x; reads messages of 1.x",
    interleaves_replies: true,
    has_event_ids: true,
    decode: Some(|decoding| {
        Box::new(EventDecoder { track: OpenReplies::within(decoding.reply_id.as_deref()) })
    }),
    encode: Some(|_| Box::new(EventEncoder::default())),
    messages: Some(MessageCodec {
        decode: |text| read_messages(text, decode_message),
        encode: |messages| write_messages(messages, encode_message),
    }),
    ..Wire::EMPTY
};

/// The field of our events and messages with what Java has and we do not.
const KEPT_FIELD: &str = "java";

struct EventDecoder {
    track: OpenReplies,
}

impl Decode for EventDecoder {
    fn decode(&mut self, text: &str, out: &mut EventSink<'_>) -> Result<()> {
        if text == "[DONE]" || delta::read_delta(text, &self.track, out) {
            return Ok(());
        }
        let java: Fields = delta::parse(text)?;
        let event = event::decode(java, &self.track)?;
        self.track.apply_event(&event);
        out(event);
        Ok(())
    }

    fn find_reply_id(&self, text: &str) -> Option<String> {
        let java: Fields = delta::parse(text).ok()?;
        let own: String = java.get("replyId").ok()??;
        let path: Option<String> = java.get("source").ok().flatten();
        Some(self.track.outer_reply_id(path.as_deref(), &own).into_owned())
    }
}

#[derive(Default)]
struct EventEncoder {
    track: OpenReplies,
}

impl Encode for EventEncoder {
    fn encode(&mut self, event: &Event<'_>, out: &mut Frames) {
        if !encode::write_event(event, &self.track, out) {
            out.push("", &event::encode(event, &self.track));
        }
        self.track.apply_event(event);
    }
}
