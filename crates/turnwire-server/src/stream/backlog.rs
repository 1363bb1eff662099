//! What a watcher has missed, read from the log.

use super::backlog_cache::{BacklogCache, PageKey};
use super::writer::{Merge, StreamFormat, StreamWriter};
use bytes::Bytes;
use turnwire_core::event::Message;
use turnwire_core::{Event, Role, Seq, coalesce};
use turnwire_log::store::{EventLines, MessageQuery};
use turnwire_log::{Result, Session};
use turnwire_wires::{Encode, Frames};

/// How many events are encoded together. Pages begin at multiples of it, so that those who come
/// from different places meet.
const PAGE_EVENTS: u64 = 4096;
/// How much is read of the log at a time.
const READ_BYTES: usize = 512 * 1024;

/// The next events behind a place, at least one, and the place of the last of them.
pub(super) async fn read_page(
    session: &Session,
    shape: &StreamFormat,
    cache: &BacklogCache,
    writer: &mut Option<Box<StreamWriter>>,
    cursor: u64,
) -> Result<(Bytes, u64)> {
    let to = (cursor / PAGE_EVENTS + 1).saturating_mul(PAGE_EVENTS).min(session.head_state().head);
    if !shape.is_canonical() {
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(Box::new(warmed_writer(session, shape, cursor).await?)),
        };
        write_events(session, shape.merge, writer, cursor, to).await?;
        return Ok((writer.take_bytes(), to));
    }
    let page = PageKey { session: session.number(), shape: shape.key(), from: cursor, to };
    let make = async {
        let mut writer = new_stream_writer(session, shape)?;
        write_events(session, shape.merge, &mut writer, cursor, to).await?;
        Ok(writer.take_bytes())
    };
    Ok((cache.get_or_encode(&page, make).await?, to))
}

fn new_stream_writer(session: &Session, shape: &StreamFormat) -> Result<StreamWriter> {
    // Which wires can be written was checked when the request came in.
    StreamWriter::new(session, shape).map_err(|error| turnwire_log::Error::Store(error.to_string()))
}

async fn write_events(
    session: &Session,
    merge: Merge,
    writer: &mut StreamWriter,
    cursor: u64,
    to: u64,
) -> Result<()> {
    each_row(session, cursor, to, |rows| match merge {
        Merge::Nothing => each_line(rows, to, |seq, line| writer.write_line(seq, line)),
        Merge::Deltas => {
            let mut events = Vec::new();
            for rows in rows {
                for (seq, line) in rows.iter().take_while(|(seq, _)| seq.get() <= to) {
                    events.push(Session::parse_event(seq, line)?);
                }
            }
            for event in coalesce(events) {
                writer.write_event(&event);
            }
            Ok(())
        }
    })
    .await
}

fn each_line(
    rows: &[EventLines],
    to: u64,
    mut each: impl FnMut(Seq, &[u8]) -> Result<()>,
) -> Result<()> {
    for rows in rows {
        for (seq, line) in rows.iter().take_while(|(seq, _)| seq.get() <= to) {
            each(seq, line)?;
        }
    }
    Ok(())
}

/// Reads rows behind a place, up to another.
async fn each_row(
    session: &Session,
    mut cursor: u64,
    to: u64,
    mut each: impl FnMut(&[EventLines]) -> Result<()>,
) -> Result<()> {
    while cursor < to {
        let from = Seq::new(cursor.saturating_add(1)).unwrap_or(Seq::FIRST);
        let rows = session.read_events(from, READ_BYTES).await?;
        let Some(last) = rows.last().map(EventLines::last) else { break };
        each(&rows)?;
        cursor = last;
    }
    Ok(())
}

/// A writer that has seen the turn that a place is in, up to there.
pub(super) async fn warmed_writer(
    session: &Session,
    shape: &StreamFormat,
    cursor: u64,
) -> Result<StreamWriter> {
    let mut writer = new_stream_writer(session, shape)?;
    if let Some(encode) = writer.encode_mut() {
        let start = turn_start(session, cursor).await?;
        let start = match shape.wire.name {
            "blocks" => encode_user_message(session, encode, start).await?,
            _ => start,
        };
        warm_up_encoder(session, encode, start, cursor).await?;
    }
    Ok(writer)
}

/// How many messages are looked at to find what a turn answers: a turn that was done again has those
/// before it between.
const MAX_LOOKBACK: usize = 16;

/// Has an encoder see what a turn answers, where the message says how the turn is shown, and says
/// from where on it has to see the log itself: what stands between, such as what became of files,
/// belongs to the turn.
async fn encode_user_message(
    session: &Session,
    encode: &mut dyn Encode,
    start: u64,
) -> Result<u64> {
    let Some(before) = Seq::new(start.saturating_add(1)) else { return Ok(start) };
    let query =
        MessageQuery { before: Some(before), limit: MAX_LOOKBACK, ..MessageQuery::default() };
    let messages = session.list_messages(&query).await?;
    let Some(last) = messages.last() else { return Ok(start) };
    let msgs =
        messages.iter().rev().filter_map(|stored| super::subscriber::parse_message(&stored.json));
    if let Some(msg) = msgs.into_iter().find(|msg| msg.role() == Role::User) {
        let mut frames = Frames::default();
        encode.encode(&Event::new("", Message { message: Box::new(msg) }), &mut frames);
    }
    let kept = session.first_seq().await?.get() - 1;
    Ok(start.min(last.last.get()).max(kept.min(start)))
}

/// Has an encoder see the events behind a place up to another, and says nothing.
pub(super) async fn warm_up_encoder(
    session: &Session,
    encode: &mut dyn Encode,
    from: u64,
    to: u64,
) -> Result<()> {
    let mut frames = Frames::default();
    each_row(session, from, to, |rows| {
        each_line(rows, to, |seq, line| {
            encode.encode(&Session::parse_event(seq, line)?, &mut frames);
            frames.clear();
            Ok(())
        })
    })
    .await
}

/// The place before the first event of the turn that a place is in the middle of.
pub(super) async fn turn_start(session: &Session, cursor: u64) -> Result<u64> {
    let Some(at) = Seq::new(cursor) else { return Ok(0) };
    let mut start = session.open_from().filter(|open| *open <= at).map_or(cursor, seq_before);
    // A few messages back: sub-agents end before those that they work for.
    let query = MessageQuery {
        before: Some(at.next()),
        limit: 64,
        sub_agents: true,
        ..MessageQuery::default()
    };
    for message in session.list_messages(&query).await? {
        if message.last > at && message.first <= at {
            start = start.min(seq_before(message.first));
        }
    }
    Ok(start)
}

fn seq_before(seq: Seq) -> u64 {
    seq.get() - 1
}
