//! Writes a session of a store as lines of JSON.

use super::{SessionHeader, VERSION};
use crate::error::Error;
use crate::message_pages::MessagePages;
use crate::store::{EventLines, SessionRecord, Store};
use std::io::{self, Write};
use turnwire_core::Seq;

/// How many bytes of the log are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Log(#[from] Error),
    /// The output could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// Writes a session as it was when `record` was read. Returns how many events it has.
pub async fn export(
    store: &dyn Store,
    record: &SessionRecord,
    out: &mut (dyn Write + Send),
) -> Result<u64, ExportError> {
    let header = SessionHeader {
        turnwire: "session".to_owned(),
        version: VERSION,
        tenant: record.key.tenant.to_string(),
        id: record.key.id.to_string(),
        agent: record.agent.clone(),
        title: record.title.clone(),
        metadata: record.metadata.clone(),
        epoch: record.epoch.clone(),
        created_at: format_time(record.created_ms),
        first: Some(record.first),
        last: Some(record.head),
    };
    serde_json::to_writer(&mut *out, &header).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    if record.first > Seq::FIRST {
        write_messages(store, record, out).await?;
    }
    write_events(store, record, out).await
}

fn format_time(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

async fn write_messages(
    store: &dyn Store,
    record: &SessionRecord,
    out: &mut (dyn Write + Send),
) -> Result<(), ExportError> {
    let mut messages = MessagePages::new(store, record.number).before(record.first);
    loop {
        let some = messages.next_page().await?;
        if some.is_empty() {
            return Ok(());
        }
        for message in some {
            out.write_all(b"{\"message\":")?;
            out.write_all(&message.json)?;
            if !message.event_id.is_empty() {
                let id = serde_json::to_string(&message.event_id).map_err(io::Error::from)?;
                write!(out, ",\"event_id\":{id}")?;
            }
            if message.of_sub_agent {
                out.write_all(b",\"sub_agent\":true")?;
            }
            if message.superseded {
                out.write_all(b",\"superseded\":true")?;
            }
            out.write_all(b"}\n")?;
        }
    }
}

async fn write_events(
    store: &dyn Store,
    record: &SessionRecord,
    out: &mut (dyn Write + Send),
) -> Result<u64, ExportError> {
    let (mut from, mut count) = (record.first, 0);
    while record.head.includes(from) {
        let rows = store.read_events(record.number, from, READ_BYTES).await?;
        let Some(last) = rows.last().map(EventLines::last) else {
            return Err(Error::Damaged(format!("event {from} is missing")).into());
        };
        for (seq, line) in rows.iter().flat_map(EventLines::iter) {
            if !record.head.includes(seq) {
                break;
            }
            let body = line.strip_suffix(b"}").unwrap_or(line);
            out.write_all(body)?;
            writeln!(out, ",\"seq\":{seq}}}")?;
            count += 1;
        }
        from = last.next();
    }
    Ok(count)
}
