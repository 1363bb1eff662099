//! Writes appends of several sessions in one transaction.
//!
//! One statement checks the fence and the head of all sessions, advances the heads, and inserts the
//! events; sessions that do not fit are left out, and it returns the others. Appends that are only
//! events need nothing else, and this statement is their whole transaction. Everything else is sent
//! after it, together with the `COMMIT`.

use super::blobs;
use super::connection::{Connection, Database, Transaction};
use super::errors::PostgresError;
use super::messages;
use super::sessions;
use super::text;
use super::totals::{self, UsageChange};
use crate::cost::SessionUsage;
use crate::error::Error;
use crate::sql_integers;
use crate::store::{Append, BlobReferences, EventLines, Fence, HistoryState, SessionState};
use futures_util::future::{BoxFuture, join_all};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use turnwire_core::Head;

/// Appends of one owner to one session that continue each other.
pub(super) struct Chain<'a> {
    session: i64,
    fence: Fence,
    /// The head that the session must have, and that it gets. `None` if there are no events.
    before: Option<Head>,
    head: Option<Head>,
    appends: Vec<&'a Append>,
    /// Ids of messages that the appends change.
    messages: HashSet<&'a str>,
    dequeued: HashSet<&'a str>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(first: &'a Append) -> Self {
        let mut chain = Self {
            session: first.session.0,
            fence: first.fence,
            before: None,
            head: None,
            appends: Vec::new(),
            messages: HashSet::new(),
            dequeued: HashSet::new(),
        };
        chain.push(first);
        chain
    }

    /// Whether an append can be written together with those before it.
    pub(super) fn can_add(&self, append: &Append) -> bool {
        let continues = match (&append.lines, self.head) {
            (Some(lines), Some(head)) => lines.first == head.next(),
            (Some(_) | None, _) => true,
        };
        continues
            && self.fence == append.fence
            && append.messages.iter().all(|message| !self.messages.contains(&*message.id))
            && append.enqueue.iter().all(|queued| !self.dequeued.contains(&*queued.id))
    }

    pub(super) fn push(&mut self, append: &'a Append) {
        if let Some(lines) = &append.lines {
            self.before.get_or_insert(lines.first.previous());
            self.head = Some(lines.last().into());
        }
        self.messages.extend(append.messages.iter().map(|message| &*message.id));
        self.messages.extend(append.superseded.iter().map(String::as_str));
        self.dequeued.extend(append.dequeue.iter().map(String::as_str));
        self.appends.push(append);
    }

    pub(super) fn session(&self) -> i64 {
        self.session
    }

    pub(super) fn has_events(&self) -> bool {
        self.head.is_some()
    }

    fn state(&self) -> Option<&'a SessionState> {
        self.appends.iter().rev().find_map(|append| append.state.as_ref())
    }

    /// When a message last began or ended.
    fn updated_ms(&self) -> Option<i64> {
        let changes = |append: &&&Append| append.state.is_some() || !append.messages.is_empty();
        self.appends.iter().rev().find(changes).map(|append| append.now_ms)
    }

    fn has_only_events(&self, references: &BlobReferences) -> bool {
        references.iter().next().is_none() && self.appends.iter().all(|append| is_plain(append))
    }

    fn blob_references(&self) -> BlobReferences {
        let mut all = BlobReferences::default();
        for append in &self.appends {
            append.add_blob_references(&mut all);
        }
        all
    }

    /// Its events as one row.
    fn bytes(&self) -> Cow<'a, [u8]> {
        let lines = || self.appends.iter().filter_map(|append| append.lines.as_ref());
        if let (Some(only), None) = (lines().next(), lines().nth(1)) {
            return Cow::Borrowed(&only.bytes);
        }
        Cow::Owned(lines().flat_map(|lines| lines.bytes.iter().copied()).collect())
    }
}

/// Whether an append has only events.
fn is_plain(append: &Append) -> bool {
    let Append { messages, superseded, state, idempotency, enqueue, dequeue, history, .. } = append;
    messages.is_empty()
        && superseded.is_empty()
        && state.is_none()
        && idempotency.is_none()
        && enqueue.is_empty()
        && dequeue.is_empty()
        && history.is_empty()
}

/// Whether the events are as many as they say, and at least one.
pub(super) fn has_all_lines(lines: &EventLines) -> bool {
    let count = memchr::memchr_iter(b'\n', &lines.bytes).count();
    count > 0 && count as u64 == u64::from(lines.count) && lines.bytes.ends_with(b"\n")
}

/// Checks the fences and heads, advances the heads, and inserts the events.
const ADVANCE: &str = "
WITH written AS (
    UPDATE turnwire.sessions s SET head = coalesce(v.head, s.head)
    FROM unnest($1, $2, $3, $4, $5) v (no, fence, before, head, has_state)
    WHERE s.no = v.no AND s.fence = v.fence AND s.head = coalesce(v.before, s.head)
    RETURNING s.no, s.tenant, s.agent, CASE WHEN v.has_state THEN s.state END AS state),
events AS (
    INSERT INTO turnwire.segments (session, last, count, size, ms, bytes)
    SELECT v.session, v.last, v.count, v.size, v.ms, v.bytes
    FROM unnest($6, $7, $8, $9, $10, $11) v (session, last, count, size, ms, bytes)
    JOIN written ON written.no = v.session)
SELECT no, tenant, agent, state FROM written";

/// Writes some chains, at most one of each session, and returns the sessions that were written. The
/// others have another fence or head, or do not exist.
pub(super) async fn write_chains(
    database: &Database,
    shard: i64,
    chains: &[Chain<'_>],
) -> Result<HashSet<i64>, PostgresError> {
    let number = |head: Head| sql_integers::position_to_sql(head);
    let sessions: Vec<i64> = chains.iter().map(Chain::session).collect();
    let fences: Vec<i64> = chains.iter().map(|chain| sessions::fence_to_sql(chain.fence)).collect();
    let before: Vec<Option<i64>> = chains.iter().map(|chain| chain.before.map(number)).collect();
    let heads: Vec<Option<i64>> = chains.iter().map(|chain| chain.head.map(number)).collect();
    let has_state: Vec<bool> = chains.iter().map(|chain| chain.state().is_some()).collect();

    let with_events: Vec<(&Chain<'_>, Head, Head)> =
        chains.iter().filter_map(|chain| Some((chain, chain.before?, chain.head?))).collect();
    let bytes: Vec<Cow<'_, [u8]>> = with_events.iter().map(|(chain, ..)| chain.bytes()).collect();
    let bytes: Vec<&[u8]> = bytes.iter().map(|bytes| &**bytes).collect();
    let sizes: Vec<i64> =
        bytes.iter().map(|bytes| sql_integers::count_to_sql(bytes.len())).collect();
    let owners: Vec<i64> = with_events.iter().map(|(chain, ..)| chain.session).collect();
    let lasts: Vec<i64> = with_events.iter().map(|(.., head)| number(*head)).collect();
    let counts: Vec<i64> = with_events
        .iter()
        .map(|(_, before, head)| sql_integers::to_sql(head.events_after(*before)))
        .collect();
    let times = |chain: &Chain<'_>| chain.appends.iter().map(|append| append.now_ms).max();
    let times: Vec<i64> =
        with_events.iter().map(|(chain, ..)| times(chain).unwrap_or_default()).collect();
    let params = [
        (&sessions as _, Type::INT8_ARRAY),
        (&fences as _, Type::INT8_ARRAY),
        (&before as _, Type::INT8_ARRAY),
        (&heads as _, Type::INT8_ARRAY),
        (&has_state as _, Type::BOOL_ARRAY),
        (&owners as _, Type::INT8_ARRAY),
        (&lasts as _, Type::INT8_ARRAY),
        (&counts as _, Type::INT8_ARRAY),
        (&sizes as _, Type::INT8_ARRAY),
        (&times as _, Type::INT8_ARRAY),
        (&bytes as _, Type::BYTEA_ARRAY),
    ];

    let references: Vec<BlobReferences> = chains.iter().map(Chain::blob_references).collect();
    let connection = database.connect_to_append().await?;
    if chains.iter().zip(&references).all(|(chain, references)| chain.has_only_events(references)) {
        let rows = connection.query(ADVANCE, &params).await?;
        return rows.iter().map(|row| Ok(row.try_get(0)?)).collect();
    }
    let (tx, rows) = Transaction::begin_with(connection, ADVANCE, &params).await?;
    let written: HashMap<i64, WrittenRow> =
        rows.iter().map(WrittenRow::read).collect::<Result<_, _>>()?;
    let fitting: Vec<(&Chain<'_>, &WrittenRow, &BlobReferences)> = chains
        .iter()
        .zip(&references)
        .filter_map(|(chain, references)| Some((chain, written.get(&chain.session)?, references)))
        .collect();
    match write_rest(&tx, shard, &fitting).await {
        Ok(()) => Ok(written.into_keys().collect()),
        Err(error) => {
            tx.roll_back().await;
            Err(error)
        }
    }
}

/// What the first statement returns of a session.
struct WrittenRow {
    /// As they are stored.
    tenant: String,
    agent: String,
    /// Before the append, if the append changes it.
    usage: Option<SessionUsage>,
}

impl WrittenRow {
    fn read(row: &Row) -> Result<(i64, Self), PostgresError> {
        let state: Option<&str> = row.try_get(3)?;
        let usage = state.map(sessions::from_json).transpose()?;
        Ok((row.try_get(0)?, Self { tenant: row.try_get(1)?, agent: row.try_get(2)?, usage }))
    }
}

/// Writes everything but the events, and commits: one round trip.
async fn write_rest(
    tx: &Transaction,
    shard: i64,
    chains: &[(&Chain<'_>, &WrittenRow, &BlobReferences)],
) -> Result<(), PostgresError> {
    let (mut rows, mut superseded, mut keys) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    let (mut enqueued, mut dequeued, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut changes, mut references, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for (chain, row, all) in chains {
        let session = chain.session;
        for append in &chain.appends {
            // Of two with the same id or key, the last counts.
            rows.extend(append.messages.iter().map(|row| ((session, &*row.id), row)));
            superseded.extend(append.superseded.iter().map(|id| (session, id.as_str())));
            let key = append.idempotency.iter();
            let now_ms = append.now_ms;
            keys.extend(key.map(|key| ((&key.tenant, &key.key), (session, now_ms, key))));
            enqueued.extend(append.enqueue.iter().map(|queued| (session, queued)));
            dequeued.extend(append.dequeue.iter().map(|id| (session, id.as_str())));
            marks.extend(append.history.iter().map(|mark| (session, mark)));
        }
        if let (Some(state), Some(before)) = (chain.state(), &row.usage) {
            changes.push(UsageChange {
                tenant: row.tenant.clone(),
                agent: row.agent.clone(),
                before: before.clone(),
                after: SessionUsage::from_state(state),
            });
        }
        if let Some(updated_ms) = chain.updated_ms() {
            states.push((session, updated_ms, chain.state()));
        }
        references.push((session, text::from_sql(row.tenant.clone()), *all));
    }
    let rows: Vec<_> = rows.into_iter().map(|((session, _), row)| (session, row)).collect();
    let keys: Vec<_> = keys.into_values().collect();
    let references: Vec<_> =
        references.iter().map(|(session, tenant, all)| (*session, &**tenant, *all)).collect();
    let states = StateColumns::new(&states)?;
    // Polled in this order, so sent in this order.
    let statements: [BoxFuture<'_, Result<(), PostgresError>>; 10] = [
        Box::pin(states.write(tx)),
        Box::pin(messages::insert_or_replace(tx, &rows)),
        Box::pin(messages::supersede(tx, &superseded)),
        Box::pin(messages::insert_idempotency_records(tx, &keys)),
        Box::pin(messages::enqueue(tx, &enqueued)),
        Box::pin(messages::dequeue(tx, &dequeued)),
        Box::pin(messages::insert_history(tx, &marks)),
        Box::pin(blobs::add_references(tx, &references)),
        Box::pin(totals::add_changes(tx, shard, &changes)),
        Box::pin(tx.batch("COMMIT")),
    ];
    for result in join_all(statements).await {
        result?;
    }
    tx.set_ended();
    Ok(())
}

/// The states of sessions, as columns.
#[derive(Default)]
pub(super) struct StateColumns {
    sessions: Vec<i64>,
    updated_ms: Vec<i64>,
    status: Vec<Option<i64>>,
    open_from: Vec<Option<i64>>,
    state: Vec<Option<String>>,
    history: Vec<Option<Vec<u8>>>,
}

impl StateColumns {
    pub(super) fn new(states: &[(i64, i64, Option<&SessionState>)]) -> Result<Self, Error> {
        let mut columns = Self::default();
        for (session, updated_ms, state) in states {
            columns.sessions.push(*session);
            columns.updated_ms.push(*updated_ms);
            columns.status.push(state.map(|state| sessions::status_to_sql(state.status)));
            let open_from = state.and_then(SessionState::keep_from);
            columns.open_from.push(open_from.map(sql_integers::position_to_sql));
            columns.state.push(state.map(sessions::to_json).transpose()?);
            let history = state.and_then(|state| state.history.as_ref());
            columns.history.push(history.map(HistoryState::to_bytes));
        }
        Ok(columns)
    }

    pub(super) async fn write(&self, tx: &Connection) -> Result<(), PostgresError> {
        if self.sessions.is_empty() {
            return Ok(());
        }
        tx.execute(
            "UPDATE turnwire.sessions s SET updated_ms = v.updated_ms,
                status = coalesce(v.status, s.status),
                open_from = CASE WHEN v.state IS NULL THEN s.open_from ELSE v.open_from END,
                history = CASE WHEN v.state IS NULL THEN s.history ELSE v.history END,
                state = coalesce(v.state, s.state)
             FROM unnest($1, $2, $3, $4, $5, $6) v (no, updated_ms, status, open_from, state, history)
             WHERE s.no = v.no",
            &[
                (&self.sessions, Type::INT8_ARRAY),
                (&self.updated_ms, Type::INT8_ARRAY),
                (&self.status, Type::INT8_ARRAY),
                (&self.open_from, Type::INT8_ARRAY),
                (&self.state, Type::TEXT_ARRAY),
                (&self.history, Type::BYTEA_ARRAY),
            ],
        )
        .await?;
        Ok(())
    }
}

/// Why an append was not written that no other process disturbed.
pub(super) async fn explain_refusal(database: &Database, append: &Append) -> Error {
    let refusal = async {
        let connection = database.connect_to_append().await?;
        let fence = "SELECT fence FROM turnwire.sessions WHERE no = $1";
        let rows = connection.query(fence, &[(&append.session.0, Type::INT8)]).await?;
        let row = rows.first().ok_or(Error::NoSession)?;
        let is_owner = row.try_get::<_, i64>(0)? == sessions::fence_to_sql(append.fence);
        Ok::<_, PostgresError>(if is_owner { Error::OutOfOrder } else { Error::Fenced })
    };
    refusal.await.unwrap_or_else(|error| database.explain(error))
}
