//! The messages of a session: finished ones, and messages as they were at an earlier point.

use super::{READ_BYTES, Session};
use crate::error::{Error, Result};
use crate::message_pages::MessagePages;
use crate::projection::{self, parse_event};
use crate::store::{MessageQuery, Store, StoredMessage};
use crate::transfer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use turnwire_core::event::SubAgent;
use turnwire_core::{EventKind, Msg, Seq};

impl Session {
    /// A finished message.
    pub async fn find_message(&self, id: &str) -> Result<Option<StoredMessage>> {
        self.read_fairly(self.log.store.find_message(self.number, id)).await
    }

    /// Finished messages, in the order of their first events.
    pub async fn list_messages(&self, query: &MessageQuery) -> Result<Vec<StoredMessage>> {
        self.read_fairly(self.log.store.list_messages(self.number, query)).await
    }

    /// A number that changes when finished messages may be others than before: some were superseded, or another process
    /// may have written the session meanwhile. New messages do not change it.
    pub fn history_version(&self) -> u64 {
        self.history_version.load(Ordering::Acquire)
    }

    pub(super) fn change_history(&self) {
        self.history_version.fetch_add(1, Ordering::AcqRel);
    }

    /// Iterates over all finished messages, page by page.
    pub fn message_pages(&self) -> MessagePages<Arc<dyn Store>> {
        MessagePages::new(Arc::clone(&self.log.store), self.number)
            .with_fair_reads(self.log.reads.clone(), &self.key.tenant)
    }

    /// Which sub-agent wrote a finished message and for which call. Its first event has this; once
    /// that event is trimmed, only the sub-agent's name is known.
    pub async fn sub_agent_of(&self, message: &StoredMessage) -> Result<Option<SubAgent>> {
        if !message.of_sub_agent {
            return Ok(None);
        }
        let event = match self.read_events(message.first, 1).await {
            Ok(rows) => match rows.first().and_then(|lines| lines.iter().next()) {
                Some((seq, line)) => parse_event(seq, line)?.into_owned(),
                None => transfer::to_message_event(message, &self.agent)?,
            },
            Err(Error::Trimmed(_)) => transfer::to_message_event(message, &self.agent)?,
            Err(error) => return Err(error),
        };
        Ok(event.agent.map(|agent| *agent))
    }

    /// A message as it was when the log ended at `at`. `None` if it had not begun.
    pub async fn message_at(self: &Arc<Self>, id: &str, at: Seq) -> Result<Option<Msg>> {
        let snapshot = self.snapshot().await?;
        let first = match snapshot.open.iter().find(|reply| reply.msg.id() == id) {
            Some(reply) => reply.first,
            None => match self.read_fairly(self.log.store.find_message(self.number, id)).await? {
                Some(message) => message.first,
                None => return Ok(None),
            },
        };
        let (mut msg, mut from): (Option<Msg>, Seq) = (None, first);
        while from <= at && snapshot.head.includes(from) {
            let rows =
                self.read_fairly(self.log.store.read_events(self.number, from, READ_BYTES)).await?;
            let last = projection::for_each_event(&rows, |seq, _, event| {
                if seq > at {
                    return;
                }
                if matches!(event.kind, EventKind::Message(_)) {
                    let whole = event.whole_message().filter(|whole| whole.id() == id);
                    msg = msg.take().or(whole);
                } else if event.reply_id == id && event.kind.is_part_of_reply() {
                    let msg = msg.get_or_insert_with(|| Msg::reply(id, ""));
                    msg.append_event_tolerant(event);
                }
            })?;
            let Some(last) = last else { break };
            from = last.next();
            if msg.as_ref().is_some_and(|msg| msg.finished_at().is_some()) {
                break;
            }
        }
        Ok(msg)
    }

    /// The ids of the messages that had begun but not ended at a seq.
    pub async fn unfinished_messages_at(self: &Arc<Self>, at: Seq) -> Result<Vec<String>> {
        let query = MessageQuery {
            before: Some(at.next()),
            limit: 256,
            sub_agents: true,
            ..MessageQuery::default()
        };
        // The open replies first: a reply that ends meanwhile is then in both lists, instead of in neither.
        let open = self.snapshot().await?.open;
        let stored = self.read_fairly(self.log.store.list_messages(self.number, &query)).await?;
        let stored = stored.into_iter().filter(|message| message.last > at);
        let mut begun: Vec<(Seq, String)> =
            stored.map(|message| (message.first, message.id)).collect();
        for reply in open {
            if reply.first <= at && begun.iter().all(|(_, id)| *id != reply.msg.id()) {
                begun.push((reply.first, reply.msg.id().to_owned()));
            }
        }
        begun.sort();
        Ok(begun.into_iter().map(|(_, id)| id).collect())
    }
}
