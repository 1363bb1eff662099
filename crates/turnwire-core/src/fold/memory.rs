//! State of the fold of one message: which events were applied, and an index of the blocks.

use super::BlockIndex;
use super::event_ids::{EventId, IdSet};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::seq::Seq;
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// State of the fold of one message. Empty until the first event.
#[derive(Clone, Default)]
pub(crate) struct FoldMemory(Option<Box<FoldState>>);

#[derive(Clone, Default)]
pub(super) struct FoldState {
    pub(super) seen: SeenEvents,
    pub(super) started: bool,
    /// The message was added as a whole: it is not a reply and accepts no events.
    pub(super) is_whole: bool,
    pub(super) index: BlockIndex,
}

impl FoldState {
    /// Frees the memory that only an unfinished reply needs.
    pub(super) fn shrink(&mut self) {
        self.index.clear();
        self.seen.ids.shrink();
    }
}

impl FoldMemory {
    pub(super) fn state(&mut self) -> &mut FoldState {
        self.0.get_or_insert_default()
    }

    pub(super) fn cursor(&self) -> FoldCursor {
        let Some(state) = &self.0 else { return FoldCursor::default() };
        let mut ids: Vec<EventId> = state.seen.ids.iter().collect();
        ids.sort_unstable();
        FoldCursor { started: state.started, is_whole: state.is_whole, seq: state.seen.seq, ids }
    }

    /// Remembers the event that added the complete message.
    pub(crate) fn mark_whole(&mut self, event: &Event<'_>) -> Result<()> {
        let state = self.state();
        state.is_whole = true;
        state.seen.remember(event).map(|_| ())
    }

    /// Whether an event was applied before.
    pub(crate) fn has_seen(&mut self, event: &Event<'_>) -> Result<bool> {
        let seen = &mut self.state().seen;
        match seen.remember(event)? {
            Seen::Before => Ok(true),
            Seen::New(mark) => {
                seen.forget(event, mark);
                Ok(false)
            }
        }
    }
}

impl From<FoldCursor> for FoldMemory {
    fn from(cursor: FoldCursor) -> Self {
        let mut state = Box::<FoldState>::default();
        state.started = cursor.started;
        state.is_whole = cursor.is_whole;
        state.seen.seq = cursor.seq;
        for id in cursor.ids {
            state.seen.ids.insert(id);
        }
        Self(Some(state))
    }
}

impl fmt::Debug for FoldMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(state) => {
                write!(f, "Memory(seq {:?}, {} ids)", state.seen.seq, state.seen.ids.len())
            }
            None => f.write_str("Memory(nothing)"),
        }
    }
}

/// State of the fold of a message. Store it with the message to continue the fold later.
///
/// As JSON: `{"started": true, "seq": 17}`, or with the ids of events that had no seq:
/// `{"started": true, "ids": ["…"]}`. A message that was added as a whole has `"whole": true`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoldCursor {
    started: bool,
    is_whole: bool,
    seq: Option<Seq>,
    ids: Vec<EventId>,
}

impl FoldCursor {
    /// The last event of the log that was applied.
    pub fn seq(&self) -> Option<Seq> {
        self.seq
    }
}

impl Serialize for FoldCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("started", &self.started)?;
        if self.is_whole {
            map.serialize_entry("whole", &true)?;
        }
        if let Some(seq) = &self.seq {
            map.serialize_entry("seq", seq)?;
        }
        if !self.ids.is_empty() {
            let ids: Vec<String> = self.ids.iter().map(EventId::to_string).collect();
            map.serialize_entry("ids", &ids)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for FoldCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = crate::json::Fields::deserialize(deserializer)?;
        let mut read = || -> Result<Self> {
            let ids: Vec<String> = fields.take("ids")?.unwrap_or_default();
            Ok(Self {
                started: fields.take("started")?.unwrap_or_default(),
                is_whole: fields.take("whole")?.unwrap_or_default(),
                seq: fields.take("seq")?,
                ids: ids.iter().map(|id| EventId::from_text(id)).collect(),
            })
        };
        read().map_err(|error| D::Error::custom(error.plain()))
    }
}

/// The applied events: all up to a seq, and those without a seq by their ids.
#[derive(Clone, Default)]
pub(super) struct SeenEvents {
    seq: Option<Seq>,
    ids: IdSet,
}

pub(super) enum Seen {
    Before,
    New(Undo),
}

/// What [`SeenEvents::forget`] needs to undo a [`SeenEvents::remember`].
#[derive(Clone, Copy)]
pub(super) enum Undo {
    Nothing,
    Seq(Option<Seq>),
    Id,
}

impl SeenEvents {
    #[inline]
    pub(super) fn remember(&mut self, event: &Event<'_>) -> Result<Seen> {
        let Some(seq) = event.seq else { return Ok(self.remember_id(event)) };
        if let Some(cursor) = self.seq {
            if seq <= cursor {
                return Ok(Seen::Before);
            }
            if event.seq_from.is_some_and(|from| from <= cursor) {
                return Err(overlap_error(event, cursor));
            }
        }
        // When a stream changes from ids to seqs, events that came with an id may come again.
        if !self.ids.is_empty() && self.ids.contains(EventId::from_text(&event.id)) {
            return Ok(Seen::Before);
        }
        Ok(Seen::New(Undo::Seq(self.seq.replace(seq))))
    }

    pub(super) fn remember_id(&mut self, event: &Event<'_>) -> Seen {
        if event.id.is_empty() {
            return Seen::New(Undo::Nothing);
        }
        let id = EventId::from_text(&event.id);
        if self.ids.insert(id) { Seen::New(Undo::Id) } else { Seen::Before }
    }

    /// Undoes [`remember`](Self::remember) for an event that was refused.
    pub(super) fn forget(&mut self, event: &Event<'_>, mark: Undo) {
        match mark {
            Undo::Nothing => {}
            Undo::Seq(before) => self.seq = before,
            Undo::Id => self.ids.remove(EventId::from_text(&event.id)),
        }
    }
}

#[cold]
fn overlap_error(event: &Event<'_>, cursor: Seq) -> Error {
    let (from, to) = (event.seq_from.unwrap_or(cursor), event.seq.unwrap_or(cursor));
    Error::new(
        ErrorKind::Overlap,
        format!(
            "the merged event {from} to {to} was applied in part, up to {cursor}; \
             request the events after {cursor} instead"
        ),
    )
}
