//! Folds a whole stream: interleaved replies, and complete messages between them.
//!
//! ```
//! use turnwire_core::{Event, Folder};
//!
//! let mut folder = Folder::default();
//! for line in [
//!     r#"{"seq":1,"type":"MESSAGE","message":{"id":"u","name":"alice","role":"user","content":"hi"}}"#,
//!     r#"{"seq":2,"type":"REPLY_START","reply_id":"a","name":"friday"}"#,
//!     r#"{"seq":3,"type":"REPLY_START","reply_id":"b","name":"monday"}"#,
//!     r#"{"seq":4,"type":"TEXT_BLOCK_START","reply_id":"a","block_id":"t"}"#,
//!     r#"{"seq":5,"type":"TEXT_BLOCK_DELTA","reply_id":"a","block_id":"t","delta":"Hello"}"#,
//! ] {
//!     folder.push(&Event::from_json(line)?)?;
//! }
//! let names: Vec<&str> = folder.messages().map(|msg| msg.name()).collect();
//! assert_eq!(names, ["alice", "friday", "monday"]);
//! # Ok::<(), turnwire_core::Error>(())
//! ```

use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::event::{Event, EventKind};
use crate::fold::FoldCursor;
use crate::fold::Outcome;
use crate::msg::Msg;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The JSON of a folder.
#[derive(Serialize, Deserialize)]
struct Dump<M> {
    messages: Vec<DumpedMessage<M>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    superseded: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reset: String,
}

#[derive(Serialize, Deserialize)]
struct DumpedMessage<M> {
    message: M,
    cursor: FoldCursor,
}

/// Folds a stream into its messages, in the order of their first events.
///
/// To continue with stored messages, collect them into a folder, each [with its cursor](Msg::with_cursor).
#[derive(Debug, Clone, Default)]
pub struct Folder {
    messages: IndexMap<String, Msg>,
    superseded: HashSet<String>,
    /// Id of the last reset; empty if it had none.
    last_reset: String,
    /// Index of the last event's message: the next event most likely belongs to it too.
    last_index: usize,
}

impl FromIterator<Msg> for Folder {
    fn from_iter<I: IntoIterator<Item = Msg>>(messages: I) -> Self {
        let mut folder = Self::default();
        for msg in messages {
            folder.insert(folder.message_key(&msg), msg);
        }
        folder
    }
}

impl Folder {
    /// Applies an event. An event that does not fit is an error and changes nothing.
    pub fn push(&mut self, event: &Event<'_>) -> Result<Outcome> {
        if let Some(outcome) = self.apply_outside_replies(event) {
            return outcome;
        }
        if let Some(msg) = self.message_mut(&event.reply_id) {
            return msg.append_matching(event);
        }
        // A reply starts with the first event that fits.
        let mut msg = Msg::reply(&*event.reply_id, "");
        let outcome = msg.append_event(event)?;
        self.insert(msg.id.clone(), msg);
        Ok(outcome)
    }

    /// Applies what fits of an event, and reports the rest.
    pub fn push_tolerant(&mut self, event: &Event<'_>) -> (Outcome, Option<Error>) {
        if let Some(outcome) = self.apply_outside_replies(event) {
            return match outcome {
                Ok(outcome) => (outcome, None),
                Err(error) => (Outcome::Skipped, Some(error)),
            };
        }
        if self.message_mut(&event.reply_id).is_none() {
            self.insert(event.reply_id.to_string(), Msg::reply(&*event.reply_id, ""));
        }
        match self.message_mut(&event.reply_id) {
            Some(msg) => msg.append_matching_tolerant(event),
            None => (Outcome::Ignored, None),
        }
    }

    /// All messages, in the order of their first events.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &Msg> + ExactSizeIterator {
        self.messages.values()
    }

    /// The messages that count as history: all except superseded ones.
    pub fn history(&self) -> impl Iterator<Item = &Msg> {
        self.messages().filter(|msg| !self.superseded.contains(msg.id()))
    }

    /// A message by its id.
    pub fn get(&self, id: &str) -> Option<&Msg> {
        self.messages.get(id)
    }

    /// The ids of the messages that no longer count as history.
    pub fn superseded(&self) -> impl Iterator<Item = &str> {
        self.superseded.iter().map(String::as_str)
    }

    /// All messages, in the order of their first events.
    pub fn into_messages(self) -> impl Iterator<Item = Msg> {
        self.messages.into_values()
    }

    /// The state of the fold as one line of JSON, to continue later with [`load`](Self::load).
    ///
    /// ```
    /// use turnwire_core::{Event, Folder};
    ///
    /// let mut folder = Folder::default();
    /// let start = r#"{"id":"1","type":"TEXT_BLOCK_START","reply_id":"r","block_id":"b"}"#;
    /// let delta = r#"{"id":"2","type":"TEXT_BLOCK_DELTA","reply_id":"r","block_id":"b","delta":"Hello"}"#;
    /// folder.push(&Event::from_json(start)?)?;
    /// let mut later = Folder::load(&folder.dump())?;
    /// later.push(&Event::from_json(delta)?)?;
    /// assert_eq!(later.get("r").unwrap().text("").as_deref(), Some("Hello"));
    /// # Ok::<(), turnwire_core::Error>(())
    /// ```
    pub fn dump(&self) -> String {
        let messages =
            self.messages().map(|message| DumpedMessage { message, cursor: message.cursor() });
        let mut superseded: Vec<String> = self.superseded.iter().cloned().collect();
        superseded.sort_unstable();
        let dump =
            Dump { messages: messages.collect(), superseded, reset: self.last_reset.clone() };
        // Cannot fail: every key is a string and every value is plain.
        serde_json::to_string(&dump).unwrap_or_default()
    }

    /// Loads what [`dump`](Self::dump) wrote.
    pub fn load(text: &str) -> Result<Self> {
        let dump: Dump<Msg> = serde_json::from_str(text)
            .map_err(|error| Error::from_json(ErrorKind::WrongShape, &error))?;
        let mut folder = Self::default();
        for DumpedMessage { message, cursor } in dump.messages {
            let msg = message.with_cursor(cursor);
            folder.insert(folder.message_key(&msg), msg);
        }
        folder.superseded = dump.superseded.into_iter().collect();
        folder.last_reset = dump.reset;
        Ok(folder)
    }

    /// Applies an event that does not belong to a reply; `None` for other events.
    fn apply_outside_replies(&mut self, event: &Event<'_>) -> Option<Result<Outcome>> {
        if event.kind.is_part_of_reply() {
            return event.reply_id.is_empty().then_some(Ok(Outcome::Ignored));
        }
        Some(if let Some(msg) = event.whole_message() {
            self.insert_message(msg, event)
        } else if let EventKind::Supersede(supersede) = &event.kind {
            self.superseded.extend(supersede.message_ids.iter().cloned());
            Ok(Outcome::Applied)
        } else if matches!(event.kind, EventKind::Reset(_)) {
            Ok(self.reset(event))
        } else {
            Ok(Outcome::Ignored)
        })
    }

    fn reset(&mut self, event: &Event<'_>) -> Outcome {
        if !event.id.is_empty() && self.last_reset == event.id {
            return Outcome::Repeated;
        }
        *self = Self { last_reset: event.id.to_string(), ..Self::default() };
        Outcome::Applied
    }

    fn insert_message(&mut self, mut msg: Msg, event: &Event<'_>) -> Result<Outcome> {
        let key = self.message_key(&msg);
        if let Some(known) = self.messages.get_mut(&key) {
            if known.memory.has_seen(event)? {
                return Ok(Outcome::Repeated);
            }
            return Err(known.duplicate_error());
        }
        msg.memory.mark_whole(event)?;
        self.insert(key, msg);
        Ok(Outcome::Applied)
    }

    /// The key of a message: its id, or one that no id can equal.
    fn message_key(&self, msg: &Msg) -> String {
        match msg.id.as_str() {
            "" => format!("\0{}", self.messages.len()),
            id => id.to_owned(),
        }
    }

    fn insert(&mut self, key: String, msg: Msg) {
        self.messages.insert(key, msg);
        self.last_index = self.messages.len() - 1;
    }

    #[inline]
    fn message_mut(&mut self, id: &str) -> Option<&mut Msg> {
        let at_last = self.messages.get_index(self.last_index).is_some_and(|(last, _)| last == id);
        if !at_last {
            self.last_index = self.messages.get_index_of(id)?;
        }
        self.messages.get_index_mut(self.last_index).map(|(_, msg)| msg)
    }
}
