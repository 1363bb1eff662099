//! Retention in memory: deletes the oldest events, never a part of a reply.

use super::Data;
use super::stored_session::StoredSession;
use crate::store::{Retention, RetentionReport, SessionNumber};
use std::collections::BTreeSet;
use turnwire_core::{Head, Seq};

/// Events of a session that can be deleted together: after the previous cut, up to `last`.
struct RemovableEvents {
    /// The time of the latest of them.
    at_ms: i64,
    session: SessionNumber,
    last: Seq,
    bytes: u64,
}

impl Data {
    pub(super) fn retain(&mut self, retention: Retention) -> RetentionReport {
        let mut removed = RetentionReport::default();
        let mut left: u64 = self.sessions.values().map(StoredSession::bytes).sum();
        let mut all_removable: Vec<RemovableEvents> =
            self.sessions.values().flat_map(StoredSession::removable_events).collect();
        all_removable.sort_by_key(|removable| (removable.at_ms, removable.session, removable.last));
        let mut sessions = BTreeSet::new();
        for removable in all_removable {
            let old = retention.before_ms.is_some_and(|before| removable.at_ms < before);
            let too_much = retention.max_bytes.is_some_and(|max| left > max);
            if !old && !too_much {
                break;
            }
            if let Some(stored) = self.sessions.get_mut(&removable.session) {
                removed.events += stored.remove_up_to(removable.last);
                removed.bytes += removable.bytes;
                left = left.saturating_sub(removable.bytes);
                sessions.insert(removable.session);
            }
        }
        removed.sessions = sessions.len() as u64;
        if let Some(before) = retention.keys_before_ms {
            for tenant in self.tenants.values_mut() {
                let keys = tenant.keys.len();
                tenant.keys.retain(|_, key| key.at_ms >= before);
                removed.keys += (keys - tenant.keys.len()) as u64;
            }
        }
        if let Some(before) = retention.blobs_before_ms {
            let tenants = self.tenants.values_mut();
            removed.blobs = tenants.map(|tenant| tenant.blobs.remove_unused(before)).sum();
        }
        removed
    }
}

impl StoredSession {
    fn bytes(&self) -> u64 {
        self.segments.values().map(super::stored_session::Segment::bytes).sum()
    }

    /// Everything that can be deleted, in order. Events of open replies cannot.
    fn removable_events(&self) -> Vec<RemovableEvents> {
        let end = self.record.state.open_from.map_or(self.record.head, Seq::previous);
        let message_ends = self.messages.values().map(|message| message.last);
        let segment_ends = self.segments.values().map(|segment| segment.lines.last());
        let mut cuts: Vec<Seq> = message_ends
            .chain(segment_ends)
            .chain(end.seq())
            .filter(|&cut| cut >= self.record.first && end.includes(cut))
            .collect();
        cuts.sort_unstable();
        cuts.dedup();

        let mut messages = self.messages.values().peekable();
        let mut segments = self.segments.values().peekable();
        // The last event of all messages that began up to the cut.
        let mut reach = Head::EMPTY;
        let (mut at_ms, mut bytes, mut bytes_gone) = (i64::MIN, 0, 0);
        let mut all_removable = Vec::new();
        for cut in cuts {
            while let Some(message) = messages.next_if(|message| message.first <= cut) {
                reach = reach.max(message.last.into());
            }
            while let Some(segment) = segments.next_if(|segment| segment.lines.last() <= cut) {
                bytes += segment.bytes();
                // A clock that went backwards does not change the order of events.
                at_ms = at_ms.max(segment.at_ms);
            }
            if reach > cut.into() {
                continue;
            }
            let split = segments.peek().filter(|segment| segment.lines.first <= cut);
            let at_ms = split.map_or(at_ms, |segment| at_ms.max(segment.at_ms));
            let up_to = bytes + split.map_or(0, |segment| segment.bytes_before_seq(cut.next()));
            all_removable.push(RemovableEvents {
                at_ms,
                session: self.record.number,
                last: cut,
                bytes: up_to - bytes_gone,
            });
            bytes_gone = up_to;
        }
        all_removable
    }

    /// Deletes the events up to a seq, and returns how many.
    fn remove_up_to(&mut self, last: Seq) -> u64 {
        let first = last.next();
        let before = self.segments.split_off(&first);
        let cut = std::mem::replace(&mut self.segments, before).pop_last();
        if let Some((_, segment)) = cut.filter(|(_, segment)| segment.lines.last() > last) {
            self.segments.insert(first, segment.starting_at(first));
        }
        let gone = Head::from(last).events_after(self.record.first.previous());
        self.record.first = first;
        gone
    }
}
