//! Reads and encodes the backlog of a subscriber: the events between its cursor and the head.

use super::backlog_cache::{BacklogCache, PageKey};
use super::writer::{Encoded, Merge, StreamFormat, StreamWriter};
use turnwire_core::event::Message;
use turnwire_core::{Event, Head, Role, Seq, coalesce};
use turnwire_log::store::{EventLines, MessageQuery};
use turnwire_log::{Result, Session};
use turnwire_wires::{Encode, Frames};

/// How many events are encoded together. Pages begin at multiples of it, so that subscribers with
/// different cursors share them.
const PAGE_EVENTS: u64 = 4096;
/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 512 * 1024;

/// The next events after a cursor, at least one, and the seq of the last of them.
pub(super) async fn read_page(
    session: &Session,
    format: &StreamFormat,
    cache: &BacklogCache,
    writer: &mut Option<Box<StreamWriter>>,
    cursor: Head,
) -> Result<(Encoded, Head)> {
    let to = page_end(cursor).min(session.head_state().head);
    if !format.is_canonical() {
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(Box::new(warmed_writer(session, format, cursor).await?)),
        };
        write_events(session, format.merge, writer, cursor, to).await?;
        return Ok((writer.take(), to));
    }
    let page = PageKey { session: session.number(), format: format.key(), from: cursor, to };
    let make = async {
        let mut writer = new_stream_writer(session, format)?;
        write_events(session, format.merge, &mut writer, cursor, to).await?;
        Ok(writer.take())
    };
    Ok((cache.get_or_encode(&page, make).await?, to))
}

/// The end of the page that has the next event after a cursor.
fn page_end(cursor: Head) -> Head {
    let next = cursor.next().get();
    Head::new(next.checked_next_multiple_of(PAGE_EVENTS).unwrap_or(next))
}

fn new_stream_writer(session: &Session, format: &StreamFormat) -> Result<StreamWriter> {
    // Whether the wire can be encoded was checked when the request came in.
    StreamWriter::new(session, format)
        .map_err(|error| turnwire_log::Error::Store(error.to_string()))
}

async fn write_events(
    session: &Session,
    merge: Merge,
    writer: &mut StreamWriter,
    cursor: Head,
    to: Head,
) -> Result<()> {
    each_row(session, cursor, to, |rows| match merge {
        Merge::Nothing => each_line(rows, to, |seq, line| writer.write_line(seq, line)),
        Merge::Deltas => {
            let mut events = Vec::new();
            for rows in rows {
                for (seq, line) in rows.iter().take_while(|(seq, _)| to.includes(*seq)) {
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
    to: Head,
    mut each: impl FnMut(Seq, &[u8]) -> Result<()>,
) -> Result<()> {
    for rows in rows {
        for (seq, line) in rows.iter().take_while(|(seq, _)| to.includes(*seq)) {
            each(seq, line)?;
        }
    }
    Ok(())
}

/// Reads rows after a cursor, up to a seq.
async fn each_row(
    session: &Session,
    mut cursor: Head,
    to: Head,
    mut each: impl FnMut(&[EventLines]) -> Result<()>,
) -> Result<()> {
    while cursor < to {
        let rows = session.read_events(cursor.next(), READ_BYTES).await?;
        let Some(last) = rows.last().map(EventLines::last) else { break };
        each(&rows)?;
        cursor = last.into();
    }
    Ok(())
}

/// A writer whose encoder has seen the current turn up to a cursor.
pub(super) async fn warmed_writer(
    session: &Session,
    format: &StreamFormat,
    cursor: Head,
) -> Result<StreamWriter> {
    let mut writer = new_stream_writer(session, format)?;
    if let Some(encoder) = writer.encoder_mut() {
        let start = turn_start(session, cursor).await?;
        let start = match format.wire.name {
            "blocks" => encode_user_message(session, encoder, start).await?,
            _ => start,
        };
        warm_up_encoder(session, encoder, start, cursor).await?;
    }
    Ok(writer)
}

/// How many messages are searched for the user message of a turn: a retried turn has superseded
/// ones before it.
const MAX_LOOKBACK: usize = 16;

/// Encodes the user message of a turn, which may set how the turn is displayed, and returns the
/// cursor from which the encoder has to see the log: what stands between, such as the state of
/// files, belongs to the turn.
async fn encode_user_message(
    session: &Session,
    encoder: &mut dyn Encode,
    start: Head,
) -> Result<Head> {
    let query =
        MessageQuery { before: Some(start.next()), limit: MAX_LOOKBACK, ..MessageQuery::default() };
    let messages = session.list_messages(&query).await?;
    let Some(last) = messages.last() else { return Ok(start) };
    let msgs =
        messages.iter().rev().filter_map(|stored| super::snapshot::parse_message(&stored.json));
    if let Some(msg) = msgs.into_iter().find(|msg| msg.role() == Role::User) {
        let mut frames = Frames::default();
        encoder.encode(&Event::new("", Message { message: Box::new(msg) }), &mut frames);
    }
    let trimmed = session.first_seq().await?.previous();
    Ok(start.min(last.last.into()).max(trimmed.min(start)))
}

/// Encodes the events after a cursor up to a seq, and discards the frames.
pub(super) async fn warm_up_encoder(
    session: &Session,
    encoder: &mut dyn Encode,
    from: Head,
    to: Head,
) -> Result<()> {
    let mut frames = Frames::default();
    each_row(session, from, to, |rows| {
        each_line(rows, to, |seq, line| {
            encoder.encode(&Session::parse_event(seq, line)?, &mut frames);
            frames.clear();
            Ok(())
        })
    })
    .await
}

/// The cursor before the first event of the turn that a cursor is in.
pub(super) async fn turn_start(session: &Session, cursor: Head) -> Result<Head> {
    let Some(at) = cursor.seq() else { return Ok(Head::EMPTY) };
    let mut start =
        session.open_from().await?.filter(|open| *open <= at).map_or(cursor, Seq::previous);
    // Some messages back: sub-agents end before their parents.
    let query = MessageQuery {
        before: Some(at.next()),
        limit: 64,
        sub_agents: true,
        ..MessageQuery::default()
    };
    for message in session.list_messages(&query).await? {
        if message.last > at && message.first <= at {
            start = start.min(message.first.previous());
        }
    }
    Ok(start)
}
