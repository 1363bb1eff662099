//! Writes a session of a store as lines of JSON.

use super::{BlobLine, BytesLine, LeftOutLine, QueuedLine, SessionHeader, VERSION};
use crate::error::Error;
use crate::message_pages::MessagePages;
use crate::store::{BlobReferences, EventLines, QueuedMessage, SessionRecord, Store, to_hex};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::Arc;
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

/// The blobs that were exported already: each is written once.
#[derive(Debug, Default)]
pub struct ExportedBlobs {
    written: HashSet<(Arc<str>, [u8; 32])>,
    none_wanted: bool,
}

impl ExportedBlobs {
    /// No blob is exported at all.
    pub fn without_blobs() -> Self {
        Self { none_wanted: true, ..Self::default() }
    }
}

/// What was written of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Events.
    pub events: u64,
    /// Blobs.
    pub blobs: u64,
    /// What could not be read, and is missing.
    pub left_out: Vec<String>,
}

/// Writes a session as it was when `record` was read. What is damaged is left out; the report says what that is.
pub async fn export(
    store: &dyn Store,
    record: &SessionRecord,
    blobs: &mut ExportedBlobs,
    out: &mut (dyn Write + Send),
) -> Result<ExportReport, ExportError> {
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
    let mut export = SessionExport {
        store,
        record,
        out,
        references: BlobReferences::default(),
        report: ExportReport::default(),
    };
    export.references.add_fields(&record.metadata);
    export.write_line(&header)?;
    if record.first > Seq::FIRST {
        export.write_messages().await?;
    }
    export.write_events().await?;
    export.write_queue().await?;
    if !blobs.none_wanted {
        export.write_blobs(&mut blobs.written).await?;
    }
    Ok(export.report)
}

/// Writes one session.
struct SessionExport<'a> {
    store: &'a dyn Store,
    record: &'a SessionRecord,
    out: &'a mut (dyn Write + Send),
    references: BlobReferences,
    report: ExportReport,
}

impl SessionExport<'_> {
    fn write_line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self.out, line)?;
        self.out.write_all(b"\n")
    }

    fn leave_out(&mut self, first: Option<Seq>, why: String) -> io::Result<()> {
        self.write_line(&LeftOutLine { turnwire: "left_out".to_owned(), first, why: why.clone() })?;
        self.report.left_out.push(why);
        Ok(())
    }

    async fn write_messages(&mut self) -> Result<(), ExportError> {
        let first = self.record.first;
        let mut messages = MessagePages::new(self.store, self.record.number).before(first);
        loop {
            let some = match messages.next_page().await {
                Ok(some) => some,
                Err(Error::Damaged(why)) => {
                    let why = format!("messages before event {first}: {why}");
                    return Ok(self.leave_out(None, why)?);
                }
                Err(error) => return Err(error.into()),
            };
            if some.is_empty() {
                return Ok(());
            }
            for message in some {
                self.references.add(&message.json);
                self.out.write_all(b"{\"message\":")?;
                self.out.write_all(&message.json)?;
                if !message.event_id.is_empty() {
                    let id = serde_json::to_string(&message.event_id).map_err(io::Error::from)?;
                    write!(self.out, ",\"event_id\":{id}")?;
                }
                if message.of_sub_agent {
                    self.out.write_all(b",\"sub_agent\":true")?;
                }
                if message.superseded {
                    self.out.write_all(b",\"superseded\":true")?;
                }
                self.out.write_all(b"}\n")?;
            }
        }
    }

    async fn write_events(&mut self) -> Result<(), ExportError> {
        let (number, head) = (self.record.number, self.record.head);
        let (mut from, mut most) = (self.record.first, READ_BYTES);
        while head.includes(from) {
            let read = self.store.read_events(number, from, most).await;
            let (rows, last) = match read.map(|rows| {
                let last = rows.last().map(EventLines::last);
                (rows, last)
            }) {
                Ok((rows, Some(last))) => (rows, last),
                // Up to the row that is damaged.
                Err(Error::Damaged(_)) if most > 1 => {
                    most = 1;
                    continue;
                }
                Err(Error::Damaged(why)) => {
                    let why = format!("events {from} to {head}: {why}");
                    return Ok(self.leave_out(Some(from), why)?);
                }
                Ok((_, None)) => {
                    let why = format!("events {from} to {head}: event {from} is missing");
                    return Ok(self.leave_out(Some(from), why)?);
                }
                Err(error) => return Err(error.into()),
            };
            for (seq, line) in rows.iter().flat_map(EventLines::iter) {
                if !head.includes(seq) {
                    break;
                }
                self.references.add(line);
                let body = line.strip_suffix(b"}").unwrap_or(line);
                self.out.write_all(body)?;
                writeln!(self.out, ",\"seq\":{seq}}}")?;
                self.report.events += 1;
            }
            from = last.next();
        }
        Ok(())
    }

    async fn write_queue(&mut self) -> Result<(), ExportError> {
        let queue = match self.store.list_queued(self.record.number).await {
            Ok(queue) => queue,
            Err(Error::Damaged(why)) => {
                return Ok(self.leave_out(None, format!("queued messages: {why}"))?);
            }
            Err(error) => return Err(error.into()),
        };
        for QueuedMessage { id, reply_id, json } in queue {
            let Ok(message) = serde_json::from_slice::<&RawValue>(&json) else {
                self.leave_out(None, format!("the queued message {id}: it is not JSON"))?;
                continue;
            };
            self.references.add(&json);
            self.write_line(&QueuedLine {
                turnwire: "queued".into(),
                id: id.into(),
                reply_id: reply_id.into(),
                message,
            })?;
        }
        Ok(())
    }

    async fn write_blobs(
        &mut self,
        written: &mut HashSet<(Arc<str>, [u8; 32])>,
    ) -> Result<(), ExportError> {
        let tenant = self.record.key.tenant.clone();
        for hash in std::mem::take(&mut self.references).iter().copied() {
            if !written.insert((tenant.clone(), hash)) {
                continue;
            }
            match self.write_blob(&tenant, hash).await {
                Err(ExportError::Log(Error::Damaged(why))) => {
                    self.leave_out(None, format!("the blob {}: {why}", to_hex(&hash)))?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn write_blob(&mut self, tenant: &str, hash: [u8; 32]) -> Result<(), ExportError> {
        // A link to a blob may be all that is left of it.
        let Some(info) = self.store.find_blob_info(tenant, hash).await? else { return Ok(()) };
        let (turnwire, size) = ("blob".to_owned(), info.size);
        let (tenant_name, media_type) = (tenant.to_owned(), info.media_type);
        let hex = to_hex(&hash);
        self.write_line(&BlobLine { turnwire, tenant: tenant_name, hash: hex, media_type, size })?;
        let mut from = 0;
        while from < size
            && let Some(piece) = self.store.read_blob_piece(tenant, hash, from).await?
        {
            from += piece.len() as u64;
            let data = BASE64_STANDARD.encode(&piece).into();
            self.write_line(&BytesLine { turnwire: "bytes".into(), data })?;
        }
        self.report.blobs += 1;
        Ok(())
    }
}

fn format_time(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}
