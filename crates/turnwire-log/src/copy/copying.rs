//! Copies what the target lacks.

use super::{
    CONCURRENT_SESSIONS, CopyProgress, CopyStore, PAGE_ROWS, READ_BYTES, SessionDetails,
    SessionEnd, SessionPart, StoredBlob, StoredKey,
};
use crate::error::{Error, Result};
use crate::log::now_ms;
use crate::message_pages::MessagePages;
use crate::store::{
    BLOB_PIECE_BYTES, BlobReferences, EventLines, NewBlob, SessionNumber, SessionRecord,
};
use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use std::collections::HashMap;
use std::sync::Arc;
use turnwire_core::{Head, Seq};

/// The largest row of events that the copy joins. A larger row makes small reads expensive.
const ROW_BYTES: usize = 64 << 10;

/// What a copy did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Sessions that were copied.
    pub sessions: u64,
    /// Their events.
    pub events: u64,
    /// Blobs that were copied.
    pub blobs: u64,
    /// Sessions and blobs that an earlier run had copied.
    pub found: u64,
    /// Forks whose own copying was never finished: they are left out, as a server deletes them when it
    /// starts.
    pub left_out: u64,
}

/// Copies all sessions and blobs that the target lacks. What the target has must come from the same
/// source; `Store` if it does not.
pub async fn copy(
    from: &dyn CopyStore,
    to: &dyn CopyStore,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
) -> Result<CopyReport> {
    let size = from.count_rows().await?;
    let mut report = CopyReport::default();
    let mut after = SessionNumber(0);
    let show = |report: &CopyReport| {
        let done = report.sessions + report.found + report.left_out;
        progress(CopyProgress { stage: "copying sessions", done, total: size.sessions });
    };
    loop {
        show(&report);
        let page = from.list_all_sessions(after, CONCURRENT_SESSIONS).await?;
        let Some(last) = page.last() else { break };
        copy_page(from, to, after, &page, &mut report, &show).await?;
        after = last.number;
    }
    refuse_others(&to.list_all_sessions(after, 1).await?)?;
    copy_blobs(from, to, size.blobs, progress, &mut report).await?;
    Ok(report)
}

/// Copies sessions of a page, which comes after a session in both stores.
async fn copy_page(
    from: &dyn CopyStore,
    to: &dyn CopyStore,
    after: SessionNumber,
    page: &[SessionRecord],
    report: &mut CopyReport,
    show: &(dyn Fn(&CopyReport) + Send + Sync),
) -> Result<()> {
    let existing = to.list_all_sessions(after, page.len()).await?;
    let mut existing: HashMap<SessionNumber, SessionRecord> =
        existing.into_iter().map(|record| (record.number, record)).collect();
    let mut readers = Vec::new();
    for record in page {
        let found = existing.remove(&record.number);
        if record.state.is_forking {
            report.left_out += 1;
        } else if found.as_ref() == Some(record) {
            report.found += 1;
        } else if found.as_ref().is_none_or(|found| continues(found, record)) {
            let next = found.map_or(record.first, |found| found.head.next());
            readers.push(PartReader::new(from, record, next));
        } else {
            return Err(Error::Store(format!(
                "the session {} of tenant {} has changed since it was copied, or the target has another one with \
                 this number",
                record.key.id, record.key.tenant
            )));
        }
    }
    let last = page.last().map(|record| record.number);
    existing.retain(|number, _| last.is_some_and(|last| *number <= last));
    refuse_others(&existing.into_values().collect::<Vec<_>>())?;
    while !readers.is_empty() {
        let parts = try_join_all(readers.iter_mut().map(PartReader::next_part)).await?;
        to.write_parts(parts).await?;
        for finished in readers.extract_if(.., |reader| reader.is_finished) {
            let record = &finished.record;
            report.sessions += 1;
            report.events += record.head.events_after(record.first.previous());
        }
        show(report);
    }
    Ok(())
}

/// Whether a session is the beginning of a copy of another one.
fn continues(found: &SessionRecord, record: &SessionRecord) -> bool {
    let same_begin = SessionRecord {
        head: record.head,
        updated_ms: record.updated_ms,
        state: record.state.clone(),
        ..found.clone()
    };
    found.state.is_forking && found.head <= record.head && same_begin == *record
}

fn refuse_others(others: &[SessionRecord]) -> Result<()> {
    match others.first() {
        Some(other) => Err(Error::Store(format!(
            "the target has the session {} of tenant {}, which is not in the source",
            other.key.id, other.key.tenant
        ))),
        None => Ok(()),
    }
}

/// Reads a session in parts.
struct PartReader<'a> {
    from: &'a dyn CopyStore,
    record: Arc<SessionRecord>,
    details: Option<SessionDetails>,
    /// The next event.
    next: Seq,
    /// `None` when all are read.
    messages: Option<MessagePages<&'a dyn CopyStore>>,
    message_count: u64,
    has_keys: bool,
    last_key: Option<StoredKey>,
    is_finished: bool,
}

impl<'a> PartReader<'a> {
    fn new(from: &'a dyn CopyStore, record: &SessionRecord, next: Seq) -> Self {
        Self {
            from,
            messages: Some(MessagePages::new(from, record.number)),
            message_count: 0,
            record: Arc::new(record.clone()),
            details: None,
            next,
            has_keys: true,
            last_key: None,
            is_finished: false,
        }
    }

    /// About [`READ_BYTES`].
    async fn next_part(&mut self) -> Result<SessionPart> {
        let session = self.record.number;
        let mut part = SessionPart {
            record: Arc::clone(&self.record),
            events: Vec::new(),
            messages: Vec::new(),
            keys: Vec::new(),
            references: BlobReferences::default(),
            end: None,
        };
        let details = match self.details.take() {
            Some(details) => details,
            None => self.from.read_details(session).await?,
        };
        let mut room = READ_BYTES;
        while room > 0 && self.record.head.includes(self.next) {
            let rows = self.from.read_events(session, self.next, room).await?;
            let Some(last) = rows.last().map(EventLines::last) else {
                return Err(self.damaged(&format!("event {} is missing", self.next)));
            };
            self.next = last.next();
            for lines in &rows {
                room = room.saturating_sub(lines.bytes.len());
                part.references.add(&lines.bytes);
                add_lines(&mut part.events, lines, &details.times);
            }
        }
        while let Some(messages) = self.messages.as_mut().filter(|_| room > 0) {
            let page = messages.next_page().await?;
            if page.is_empty() {
                self.messages = None;
            }
            self.message_count += page.len() as u64;
            for message in page {
                room = room.saturating_sub(message.size());
                part.references.add(&message.json);
                part.messages.push(message);
            }
        }
        while room > 0 && self.has_keys {
            let after = self.last_key.as_ref().map(|key| &key.record);
            let page = self.from.list_keys(session, after, PAGE_ROWS).await?;
            self.has_keys = page.len() == PAGE_ROWS;
            let size = |key: &StoredKey| key.record.key.len() + key.record.response.len();
            room = room.saturating_sub(page.iter().map(size).sum());
            self.last_key = page.last().cloned().or(self.last_key.take());
            part.keys.extend(page);
        }
        if self.messages.is_none() && !self.has_keys {
            if self.message_count != details.messages {
                return Err(self.damaged("not all of its messages can be read"));
            }
            self.finish(&mut part, &details).await?;
        }
        self.details = Some(details);
        Ok(part)
    }

    async fn finish(&mut self, part: &mut SessionPart, details: &SessionDetails) -> Result<()> {
        let queue = self.from.list_queued(self.record.number).await?;
        for queued in &queue {
            part.references.add(&queued.json);
        }
        part.references.add_fields(&self.record.metadata);
        for hash in &details.references {
            part.references.insert(*hash);
        }
        part.end = Some(SessionEnd { queue, history: details.history.clone() });
        self.is_finished = true;
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        let key = &self.record.key;
        Error::Damaged(format!(
            "the session {} of tenant {} is damaged: {why}; run `turnwire doctor`",
            key.id, key.tenant
        ))
    }
}

/// Adds lines to rows with their times; small ones of the same time share a row.
fn add_lines(rows: &mut Vec<(EventLines, i64)>, lines: &EventLines, times: &[(Head, i64)]) {
    let mut rest = Some(lines.clone());
    while let Some(lines) = rest.take() {
        let at = times.partition_point(|(up_to, _)| !up_to.includes(lines.first));
        let (end, ms) = match times.get(at).or(times.last()) {
            Some(&(up_to, ms)) if up_to.includes(lines.first) => (up_to, ms),
            Some(&(_, ms)) => (lines.last().into(), ms),
            None => (lines.last().into(), 0),
        };
        rest = lines.starting_at(end.next());
        let Some(lines) = lines.up_to(end) else { return };
        match rows.last_mut() {
            Some((row, row_ms))
                if *row_ms == ms
                    && row.last().next() == lines.first
                    && row.bytes.len() + lines.bytes.len() <= ROW_BYTES =>
            {
                let mut bytes = BytesMut::from(std::mem::take(&mut row.bytes));
                bytes.extend_from_slice(&lines.bytes);
                row.bytes = bytes.freeze();
                row.count += lines.count;
            }
            _ => rows.push((lines, ms)),
        }
    }
}

async fn copy_blobs(
    from: &dyn CopyStore,
    to: &dyn CopyStore,
    total: u64,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
    report: &mut CopyReport,
) -> Result<()> {
    let mut last: Option<StoredBlob> = None;
    let mut done = 0;
    loop {
        let page = from.list_blobs(last.as_ref(), PAGE_ROWS).await?;
        for blob in &page {
            progress(CopyProgress { stage: "copying blobs", done, total });
            done += 1;
            if to.find_blob_info(&blob.tenant, blob.hash).await?.as_ref() == Some(&blob.info) {
                report.found += 1;
            } else {
                copy_blob(from, to, blob).await?;
                report.blobs += 1;
            }
        }
        last = page.into_iter().next_back();
        if last.is_none() {
            return Ok(());
        }
    }
}

async fn copy_blob(from: &dyn CopyStore, to: &dyn CopyStore, blob: &StoredBlob) -> Result<()> {
    let (tenant, hash, size) = (&blob.tenant, blob.hash, blob.info.size);
    let (mut upload, mut at) = (None, 0);
    let last = loop {
        let piece = from.read_blob_piece(tenant, hash, at).await?;
        let mut piece = piece.filter(|piece| !piece.is_empty() || size == 0).ok_or_else(|| {
            let hash = crate::store::to_hex(&hash);
            Error::Damaged(format!("the blob {hash} of tenant {tenant} ends before its end"))
        })?;
        at += piece.len() as u64;
        if at >= size && piece.len() <= BLOB_PIECE_BYTES {
            break piece;
        }
        let number = match upload {
            Some(number) => number,
            None => to.begin_upload().await?,
        };
        upload = Some(number);
        while !piece.is_empty() {
            let some = piece.split_to(piece.len().min(BLOB_PIECE_BYTES));
            to.add_upload_piece(number, some).await?;
        }
        if at >= size {
            break Bytes::new();
        }
    };
    let new = NewBlob {
        tenant: Arc::clone(tenant),
        hash,
        media_type: blob.info.media_type.clone(),
        upload,
        bytes: last,
        // Of a blob that only deleted sessions refer to, from now on.
        now_ms: blob.unused_ms.unwrap_or_else(now_ms),
        max_bytes: None,
    };
    to.store_blob(new).await?;
    Ok(())
}
