//! Reads all messages of a session page by page, so that they need not fit in memory. The server,
//! the export and the doctor use it.

use crate::error::Result;
use crate::log::ReadQueue;
use crate::store::{MessageQuery, SessionNumber, Store, StoredMessage};
use std::ops::Deref;
use std::sync::Arc;
use turnwire_core::Seq;

/// How many messages a page has at most.
const PAGE_MESSAGES: usize = 64;

/// How many bytes a page has, about.
const PAGE_BYTES: usize = 1 << 20;

/// Reads the finished messages of a session, sub-agents included, in the order of their first
/// events.
#[derive(Debug)]
pub struct MessagePages<S> {
    store: S,
    session: SessionNumber,
    before: Option<Seq>,
    after: Option<Seq>,
    sub_agents: bool,
    /// The queue for fair reads, and the tenant.
    reads: Option<(ReadQueue, Arc<str>)>,
}

impl<S: Deref> MessagePages<S>
where
    S::Target: Store,
{
    /// All messages.
    pub fn new(store: S, session: SessionNumber) -> Self {
        Self { store, session, before: None, after: None, sub_agents: true, reads: None }
    }

    /// Takes turns with reads of other tenants.
    pub(crate) fn with_fair_reads(mut self, reads: ReadQueue, tenant: &Arc<str>) -> Self {
        self.reads = Some((reads, Arc::clone(tenant)));
        self
    }

    /// Only messages that begin before a seq.
    #[must_use]
    pub fn before(mut self, seq: Seq) -> Self {
        self.before = Some(seq);
        self
    }

    /// Only messages that begin after a seq.
    #[must_use]
    pub fn after(mut self, seq: Seq) -> Self {
        self.after = Some(seq);
        self
    }

    /// Without messages of sub-agents.
    #[must_use]
    pub fn without_sub_agents(mut self) -> Self {
        self.sub_agents = false;
        self
    }

    /// The next page; empty at the end.
    pub async fn next_page(&mut self) -> Result<Vec<StoredMessage>> {
        let mut query = MessageQuery {
            before: self.before,
            after: self.after,
            limit: PAGE_MESSAGES,
            max_bytes: Some(PAGE_BYTES),
            sub_agents: self.sub_agents,
        };
        if self.after.is_none() {
            // `after` excludes its own seq, so a message at the first seq is read separately.
            self.after = Some(Seq::FIRST);
            let second = Seq::FIRST.next();
            query.before = Some(self.before.map_or(second, |before| before.min(second)));
            let first = self.read(&query).await?;
            if !first.is_empty() {
                return Ok(first);
            }
            (query.before, query.after) = (self.before, self.after);
        }
        let messages = self.read(&query).await?;
        if let Some(last) = messages.last() {
            self.after = Some(last.first);
        }
        Ok(messages)
    }

    async fn read(&self, query: &MessageQuery) -> Result<Vec<StoredMessage>> {
        let read = self.store.list_messages(self.session, query);
        match &self.reads {
            Some((reads, tenant)) => reads.run(tenant, read).await,
            None => read.await,
        }
    }
}
