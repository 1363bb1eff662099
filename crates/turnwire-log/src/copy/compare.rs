//! Reads both stores, and lists what differs.

use super::{CONCURRENT_SESSIONS, CopyProgress, CopyStore, PAGE_ROWS, READ_BYTES, StoredBlob};
use crate::cost::{AgentTotals, SessionUsage};
use crate::error::{Error, Result};
use crate::message_pages::MessagePages;
use crate::store::{EventLines, SessionKey, SessionNumber, SessionRecord, StoredMessage, to_hex};
use crate::visible_sessions::VisibleSessions;
use bytes::{Buf, Bytes};
use futures_util::future::{try_join, try_join_all};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use turnwire_core::Seq;

/// How many differences are listed; further ones are only counted.
const MAX_DIFFERENCES: usize = 100;

/// What was compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Sessions.
    pub sessions: u64,
    /// Their events.
    pub events: u64,
    /// Blobs.
    pub blobs: u64,
    /// What differs; the first 100.
    pub differences: Vec<Difference>,
    /// How many differences there are.
    pub difference_count: u64,
}

/// Something that is not the same in both stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The session, if it is about one.
    pub session: Option<SessionKey>,
    /// What differs.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.session {
            Some(key) => write!(f, "{}/{}: {}", key.tenant, key.id, self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Comparison {
    fn add(&mut self, session: Option<&SessionKey>, what: impl Into<String>) {
        self.difference_count += 1;
        if self.differences.len() < MAX_DIFFERENCES {
            self.differences.push(Difference { session: session.cloned(), what: what.into() });
        }
    }
}

/// Compares everything in two stores: events by their bytes, messages, queues, idempotency keys, states of
/// conversations, sessions, blobs, and the usage totals of tenants. The second may have more references to
/// blobs than the first.
pub async fn compare(
    one: &dyn CopyStore,
    other: &dyn CopyStore,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
) -> Result<Comparison> {
    let size = one.count_rows().await?;
    let mut found = Comparison::default();
    let mut totals = Totals::default();
    let mut after = SessionNumber(0);
    loop {
        let (stage, done) = ("comparing sessions", found.sessions);
        progress(CopyProgress { stage, done, total: size.sessions });
        let limit = CONCURRENT_SESSIONS;
        let page = one.list_all_sessions(after, limit);
        let (page, others) = try_join(page, other.list_all_sessions(after, limit)).await?;
        let ends = [&page, &others].map(|page| page.last().map(|record| record.number));
        // Both have listed everything up to the smaller of full pages.
        let full = [&page, &others].into_iter().filter(|page| page.len() == limit);
        let end = full.filter_map(|page| page.last()).map(|record| record.number).min();
        let Some(end) = end.or(ends.into_iter().flatten().max()) else { break };
        let up_to = |page: Vec<SessionRecord>| {
            page.into_iter()
                .filter(|record| record.number <= end && !record.state.is_forking)
                .map(|record| (record.number, record))
                .collect::<BTreeMap<_, _>>()
        };
        compare_page(one, other, up_to(page), up_to(others), &mut found, &mut totals).await?;
        after = end;
    }
    totals.compare(other, &mut found).await?;
    compare_blobs(one, other, size.blobs, progress, &mut found).await?;
    Ok(found)
}

async fn compare_page(
    one: &dyn CopyStore,
    other: &dyn CopyStore,
    page: BTreeMap<SessionNumber, SessionRecord>,
    mut others: BTreeMap<SessionNumber, SessionRecord>,
    found: &mut Comparison,
    totals: &mut Totals,
) -> Result<()> {
    let mut pairs = Vec::new();
    for (number, record) in page {
        found.sessions += 1;
        totals.add(&record);
        match others.remove(&number) {
            Some(copied) if copied == record => {
                found.events += record.head.events_after(record.first.previous());
                pairs.push(record);
            }
            Some(copied) => found.add(Some(&record.key), differing_field(&record, &copied)),
            None => found.add(Some(&record.key), "the session is missing in the target"),
        }
    }
    for extra in others.values() {
        found.add(Some(&extra.key), "the session is not in the source");
    }
    let compared = pairs.iter().map(|record| compare_session(one, other, record));
    for (record, different) in pairs.iter().zip(try_join_all(compared).await?) {
        for what in different {
            found.add(Some(&record.key), what);
        }
    }
    Ok(())
}

fn differing_field(one: &SessionRecord, other: &SessionRecord) -> String {
    let SessionRecord { key, epoch, agent, title, metadata, first, head, state, .. } = one;
    let fields = [
        ("id", *key == other.key),
        ("epoch", *epoch == other.epoch),
        ("agent", *agent == other.agent),
        ("title", *title == other.title),
        ("metadata", *metadata == other.metadata),
        ("first event", *first == other.first),
        ("head", *head == other.head),
        ("state", *state == other.state),
        ("times", one.created_ms == other.created_ms && one.updated_ms == other.updated_ms),
    ];
    let names = fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name);
    format!("differs: {}", names.collect::<Vec<_>>().join(", "))
}

/// What differs in a session besides its record.
async fn compare_session(
    one: &dyn CopyStore,
    other: &dyn CopyStore,
    record: &SessionRecord,
) -> Result<Vec<String>> {
    let session = record.number;
    let mut different = Vec::new();
    different.extend(first_differing_event(one, other, record).await?);
    let (mine, theirs) = try_join(sum_rows(one, session), sum_rows(other, session)).await?;
    for ((name, mine), (_, theirs)) in mine.into_iter().zip(theirs) {
        if mine != theirs {
            different.push(format!(
                "{name} differ: {} in the source, {} in the target",
                mine.count, theirs.count
            ));
        }
    }
    let queues = try_join(one.list_queued(session), other.list_queued(session)).await?;
    if queues.0 != queues.1 {
        different.push("queued messages differ".to_owned());
    }
    let (mine, theirs) = try_join(one.read_details(session), other.read_details(session)).await?;
    if mine.history != theirs.history {
        different.push("states of the conversation differ".to_owned());
    }
    if mine.messages != theirs.messages {
        different.push("the number of messages differs".to_owned());
    }
    if !mine.references.iter().all(|hash| theirs.references.contains(hash)) {
        different.push("references to blobs are missing".to_owned());
    }
    Ok(different)
}

async fn first_differing_event(
    one: &dyn CopyStore,
    other: &dyn CopyStore,
    record: &SessionRecord,
) -> Result<Option<String>> {
    let (mut mine, mut theirs) = (EventReader::new(one, record), EventReader::new(other, record));
    let mut seq = record.first;
    loop {
        match try_join(mine.next(), theirs.next()).await? {
            (None, None) => return Ok(None),
            (one, other) if one == other => seq = seq.next(),
            _ => return Ok(Some(format!("event {seq} differs"))),
        }
    }
}

/// Reads the events of a session one by one.
struct EventReader<'a> {
    store: &'a dyn CopyStore,
    record: &'a SessionRecord,
    next: Seq,
    rows: std::vec::IntoIter<EventLines>,
    row: Bytes,
}

impl<'a> EventReader<'a> {
    fn new(store: &'a dyn CopyStore, record: &'a SessionRecord) -> Self {
        let rows = Vec::new().into_iter();
        Self { store, record, next: record.first, rows, row: Bytes::new() }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.row) {
                let line = self.row.split_to(end);
                self.row.advance(1);
                return Ok(Some(line));
            }
            if let Some(lines) = self.rows.next() {
                self.next = lines.last().next();
                self.row = lines.bytes;
            } else if self.record.head.includes(self.next) {
                let rows =
                    self.store.read_events(self.record.number, self.next, READ_BYTES).await?;
                if rows.is_empty() {
                    return Ok(None);
                }
                self.rows = rows.into_iter();
            } else {
                return Ok(None);
            }
        }
    }
}

/// A sum of hashes, so that rows can be compared that engines list in different orders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RowSum {
    count: u64,
    low: u128,
    high: u128,
}

impl RowSum {
    fn add(&mut self, parts: &[&[u8]]) {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let half =
            |bytes: Option<&[u8; 16]>| u128::from_le_bytes(bytes.copied().unwrap_or_default());
        self.count += 1;
        self.low = self.low.wrapping_add(half(hash.first_chunk()));
        self.high = self.high.wrapping_add(half(hash.last_chunk()));
    }

    fn add_message(&mut self, message: &StoredMessage) {
        let StoredMessage { id, first, last, event_id, json, text, .. } = message;
        let StoredMessage { of_sub_agent, superseded, fold_version, .. } = message;
        self.add(&[
            id.as_bytes(),
            &first.get().to_le_bytes(),
            &last.get().to_le_bytes(),
            event_id.as_bytes(),
            &[(*of_sub_agent).into(), (*superseded).into()],
            &fold_version.to_le_bytes(),
            json,
            text.as_bytes(),
        ]);
    }
}

/// Sums of the messages and of the idempotency keys of a session.
async fn sum_rows(
    store: &dyn CopyStore,
    session: SessionNumber,
) -> Result<[(&'static str, RowSum); 2]> {
    let (mut messages, mut keys) = (RowSum::default(), RowSum::default());
    let mut pages = MessagePages::new(store, session);
    loop {
        let page = pages.next_page().await?;
        if page.is_empty() {
            break;
        }
        for message in &page {
            messages.add_message(message);
        }
    }
    let mut page = store.list_keys(session, None, PAGE_ROWS).await?;
    loop {
        for key in &page {
            let record = &key.record;
            keys.add(&[
                record.tenant.as_bytes(),
                record.key.as_bytes(),
                &record.fingerprint,
                record.response.as_bytes(),
                &key.stored_ms.to_le_bytes(),
            ]);
        }
        let Some(last) = page.last().filter(|_| page.len() == PAGE_ROWS) else { break };
        page = store.list_keys(session, Some(&last.record), PAGE_ROWS).await?;
    }
    Ok([("messages", messages), ("idempotency keys", keys)])
}

/// What the sessions of each tenant used, by agent.
#[derive(Default)]
struct Totals(BTreeMap<Arc<str>, BTreeMap<String, AgentTotals>>);

impl Totals {
    fn add(&mut self, record: &SessionRecord) {
        let tenant = self.0.entry(Arc::clone(&record.key.tenant)).or_default();
        let totals = tenant.entry(record.agent.clone()).or_default();
        totals.replace_session(&SessionUsage::default(), &SessionUsage::from_state(&record.state));
    }

    async fn compare(&self, store: &dyn CopyStore, found: &mut Comparison) -> Result<()> {
        for (tenant, agents) in &self.0 {
            let stored = match store.agent_totals(tenant, &VisibleSessions::ALL, None).await {
                Ok(stored) => stored,
                // A store of an older version that was opened to read has not counted them.
                Err(Error::Denied(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            for (agent, totals) in agents {
                let stored = stored.get(agent).cloned().unwrap_or_default();
                if stored.total() != totals.total() {
                    found.add(
                        None,
                        format!("the usage of agent {agent} of tenant {tenant} differs"),
                    );
                }
            }
        }
        Ok(())
    }
}

async fn compare_blobs(
    one: &dyn CopyStore,
    other: &dyn CopyStore,
    total: u64,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
    found: &mut Comparison,
) -> Result<()> {
    let mut last: Option<StoredBlob> = None;
    loop {
        let page = one.list_blobs(last.as_ref(), PAGE_ROWS).await?;
        for blob in &page {
            progress(CopyProgress { stage: "comparing blobs", done: found.blobs, total });
            found.blobs += 1;
            let (tenant, hash) = (&blob.tenant, blob.hash);
            let different = match other.find_blob_info(tenant, hash).await? {
                Some(info) if info == blob.info => !has_same_bytes(one, other, blob).await?,
                Some(_) | None => true,
            };
            if different {
                let hash = to_hex(&hash);
                found
                    .add(None, format!("the blob {hash} of tenant {tenant} is missing or differs"));
            }
        }
        last = page.into_iter().next_back();
        if last.is_none() {
            break;
        }
    }
    let blobs = other.count_rows().await?.blobs;
    if blobs > found.blobs {
        found.add(None, format!("{} blobs are not in the source", blobs - found.blobs));
    }
    Ok(())
}

async fn has_same_bytes(
    one: &dyn CopyStore,
    other: &dyn CopyStore,
    blob: &StoredBlob,
) -> Result<bool> {
    let (tenant, hash) = (&*blob.tenant, blob.hash);
    let mut at = 0;
    while at < blob.info.size {
        let pieces = try_join(
            one.read_blob_piece(tenant, hash, at),
            other.read_blob_piece(tenant, hash, at),
        );
        let (Some(mine), Some(theirs)) = pieces.await? else { return Ok(false) };
        let length = mine.len().min(theirs.len());
        if length == 0 || mine.get(..length) != theirs.get(..length) {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}
