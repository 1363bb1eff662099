//! The messages of a conversation as of a cursor, for protocols that send a snapshot to a client that joins.

use std::sync::Arc;
use turnwire_core::{Head, Msg};
use turnwire_log::store::MessageQuery;
use turnwire_log::{Result, Session};

/// How many bytes of messages a snapshot has at most: the latest ones. A client of such a protocol sends all its
/// messages with each request, so it cannot use more than a request body may have.
const SNAPSHOT_BYTES: usize = 16 << 20;

/// The messages of the conversation as of a cursor: finished ones without superseded ones, and open ones. The messages of
/// sub-agents are included if they began after `turn`.
pub(super) async fn messages_as_of(
    session: &Arc<Session>,
    cursor: Head,
    turn: Head,
) -> Result<Vec<Msg>> {
    let mut messages = finished_messages_as_of(session, cursor, turn).await?;
    let Some(at) = cursor.seq() else { return Ok(messages) };
    for id in session.unfinished_messages_at(at).await? {
        messages.extend(session.message_at(&id, at).await?);
    }
    Ok(messages)
}

/// The same, without open messages.
pub(crate) async fn finished_messages_as_of(
    session: &Arc<Session>,
    cursor: Head,
    turn: Head,
) -> Result<Vec<Msg>> {
    let (mut messages, mut bytes) = (Vec::new(), 0);
    let mut before = cursor.next();
    while bytes < SNAPSHOT_BYTES {
        let query = MessageQuery { sub_agents: true, ..MessageQuery::page_before(before) };
        let stored = session.list_messages(&query).await?;
        let Some(first) = stored.first() else { break };
        before = first.first;
        for stored in stored.iter().rev().filter(|stored| {
            cursor.includes(stored.last)
                && !stored.superseded
                && (!stored.of_sub_agent || !turn.includes(stored.first))
        }) {
            bytes += stored.size();
            messages.extend(parse_message(&stored.json));
        }
    }
    messages.reverse();
    Ok(messages)
}

/// Parses a stored message; `None` if it is damaged.
pub(crate) fn parse_message(json: &[u8]) -> Option<Msg> {
    Msg::from_json(std::str::from_utf8(json).ok()?).ok()
}
