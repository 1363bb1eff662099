//! Regroups base64 into groups of four characters.
//!
//! Our deltas may be split anywhere. AgentScope's fold decodes each delta on its own, and raises if
//! one is split inside a group of four or continues after padding. So the last one to three
//! characters of a delta wait for the next one, or for the end.

use std::collections::BTreeMap;
use turnwire_core::block::Source;
use turnwire_core::event::{Chunk, DataBlockDelta, ToolResultDataDelta};
use turnwire_core::{DataBlock, Event, EventKind, event_kinds};

/// Incomplete groups by reply; none for a block that is complete so far.
#[derive(Default)]
pub(super) struct Base64Groups(BTreeMap<String, BTreeMap<DeltaTarget, PartialGroup>>);

/// What grows: a block, or a call's result, which has at most one open data block.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum DeltaTarget {
    Block(String),
    Result(String),
}

struct PartialGroup {
    /// The block of a result.
    block_id: String,
    media_type: Option<String>,
    /// One to three characters.
    partial: String,
}

/// What of a delta is written now.
pub(super) enum Regrouped {
    /// All of it, unchanged.
    Unchanged,
    /// This base64 instead.
    Changed(String),
}

impl Base64Groups {
    /// The deltas to write before this event: incomplete groups of what ends with it.
    pub fn flush_before(&mut self, event: &Event<'_>) -> Vec<Event<'static>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let reply = &*event.reply_id;
        let group = match &event.kind {
            EventKind::DataBlockEnd(end) => {
                self.take(reply, &DeltaTarget::Block(end.block_id.to_string()))
            }
            EventKind::ToolResultTextDelta(delta) => self.take_result(reply, &delta.tool_call_id),
            EventKind::ToolResultEnd(end) => self.take_result(reply, &end.tool_call_id),
            EventKind::ToolResultDataDelta(delta) => {
                let target = DeltaTarget::Result(delta.tool_call_id.to_string());
                let waits = self.0.get(reply).and_then(|open| open.get(&target));
                match waits {
                    Some(group) if group.block_id != delta.block_id => self.take(reply, &target),
                    _ => None,
                }
            }
            EventKind::ReplyEnd(_) => {
                let all = self.0.remove(reply).unwrap_or_default();
                return all
                    .into_iter()
                    .enumerate()
                    .filter_map(|(at, group)| flush_delta(event, at, group))
                    .collect();
            }
            event_kinds!(
                ReplyStart DataBlockStart DataBlockDelta Hint Block ToolResultStart
                model_call text thinking tool_call pending_call notice session
            ) => None,
        };
        group.and_then(|group| flush_delta(event, 0, group)).into_iter().collect()
    }

    /// Regroups the data of a block's delta.
    pub fn regroup_block_delta(&mut self, reply: &str, delta: &DataBlockDelta<'_>) -> Regrouped {
        let target = DeltaTarget::Block(delta.block_id.to_string());
        self.regroup_delta(reply, target, "", delta.media_type.as_deref(), &delta.chunk)
    }

    /// Regroups the data of a result's delta.
    pub fn regroup_result_delta(
        &mut self,
        reply: &str,
        delta: &ToolResultDataDelta<'_>,
    ) -> Regrouped {
        let target = DeltaTarget::Result(delta.tool_call_id.to_string());
        self.regroup_delta(
            reply,
            target,
            &delta.block_id,
            delta.media_type.as_deref(),
            &delta.chunk,
        )
    }

    fn regroup_delta(
        &mut self,
        reply: &str,
        target: DeltaTarget,
        block_id: &str,
        media_type: Option<&str>,
        chunk: &Chunk<'_>,
    ) -> Regrouped {
        let waiting = self.take(reply, &target);
        let Chunk::Data(data) = chunk else { return Regrouped::Unchanged };
        let partial = waiting.as_ref().map_or("", |(_, group)| &group.partial);
        if partial.is_empty() && is_complete(data.as_bytes()) {
            return Regrouped::Unchanged;
        }
        let Some((whole, partial)) = regroup(partial, data) else {
            // Invalid base64 is rejected by both folds; the incomplete group stays.
            if let Some((target, group)) = waiting {
                self.0.entry(reply.to_owned()).or_default().insert(target, group);
            }
            return Regrouped::Unchanged;
        };
        if !partial.is_empty() {
            let known = waiting.and_then(|(_, group)| group.media_type);
            let group = PartialGroup {
                block_id: block_id.to_owned(),
                media_type: media_type.map(str::to_owned).or(known),
                partial,
            };
            self.0.entry(reply.to_owned()).or_default().insert(target, group);
        }
        if whole == **data { Regrouped::Unchanged } else { Regrouped::Changed(whole) }
    }

    fn take_result(&mut self, reply: &str, call: &str) -> Option<(DeltaTarget, PartialGroup)> {
        self.take(reply, &DeltaTarget::Result(call.to_owned()))
    }

    fn take(&mut self, reply: &str, target: &DeltaTarget) -> Option<(DeltaTarget, PartialGroup)> {
        let open = self.0.get_mut(reply)?;
        let taken = open.remove_entry(target);
        if open.is_empty() {
            self.0.remove(reply);
        }
        taken
    }
}

/// The delta for an incomplete group when `end` arrives; it needs no padding. A single character is
/// not a byte.
fn flush_delta(
    end: &Event<'_>,
    at: usize,
    (target, group): (DeltaTarget, PartialGroup),
) -> Option<Event<'static>> {
    let PartialGroup { block_id, media_type, mut partial } = group;
    if partial.len() < 2 {
        return None;
    }
    partial.extend(std::iter::repeat_n('=', 4 - partial.len()));
    let chunk = Chunk::Data(partial.into());
    let kind: EventKind<'static> = match target {
        DeltaTarget::Block(block_id) => {
            DataBlockDelta { block_id: block_id.into(), media_type, chunk }.into()
        }
        DeltaTarget::Result(call) => ToolResultDataDelta {
            tool_call_id: call.into(),
            block_id: block_id.into(),
            media_type,
            chunk,
        }
        .into(),
    };
    let mut event = Event::new(end.reply_id.to_string(), kind);
    if !end.id.is_empty() {
        event.id = format!("{}-rest-{at}", end.id).into();
    }
    event.created_at = end.created_at.to_string().into();
    event.agent.clone_from(&end.agent);
    Some(event)
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

/// Whether this is base64 in complete groups, padded only at the end.
fn is_complete(data: &[u8]) -> bool {
    let digits = data.strip_suffix(b"==").or_else(|| data.strip_suffix(b"=")).unwrap_or(data);
    data.len().is_multiple_of(4) && digits.iter().copied().all(is_digit)
}

/// The complete groups of these two, and the rest; `None` if they are not base64.
fn regroup(partial: &str, data: &str) -> Option<(String, String)> {
    let mut whole = partial.to_owned();
    whole.extend(data.chars().filter(|c| !c.is_ascii_whitespace()));
    if !whole.is_ascii() {
        return None;
    }
    let partial = whole.split_off(whole.len() - whole.len() % 4);
    let digits = partial.strip_suffix('=').filter(|digits| digits.len() == 2).unwrap_or(&partial);
    if !digits.bytes().all(is_digit) {
        return None;
    }
    if is_complete(whole.as_bytes()) {
        return Some((whole, partial));
    }
    // Padding in the middle ends a run; the bytes of all runs are encoded again as one.
    let bytes = DataBlock::from_source(Source::base64(whole, None)).decoded()?.ok()?;
    match DataBlock::bytes(bytes, "").source {
        Source::Base64(source) => Some((source.data, partial)),
        Source::Url(_) | Source::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_groups_are_written_and_incomplete_ones_wait() {
        for (partial, data, whole, left) in [
            ("", "aGk=", "aGk=", ""),
            ("", "aGVsbG", "aGVs", "bG"),
            ("bG", "8=", "bG8=", ""),
            ("", "aG", "", "aG"),
            ("", "aG=", "", "aG="),
            ("aG=", "=aGk=", "aGhp", ""),
            ("", "aGk=aGk=", "aGloaQ==", ""),
            ("", "aG\r\nk=", "aGk=", ""),
        ] {
            assert_eq!(
                regroup(partial, data),
                Some((whole.to_owned(), left.to_owned())),
                "{partial}|{data}"
            );
        }
        for (partial, data) in [("", "a!b="), ("", "é"), ("", "a==="), ("", "ab=c"), ("", "=")] {
            assert_eq!(regroup(partial, data), None, "{partial}|{data}");
        }
    }
}
