//! Takes in events that agents elsewhere publish.
//!
//! The body of a request becomes a `Batch`: its events, each with the text that it was read from,
//! so that the log stores what was sent. Everything that decides whether it may be stored (the
//! producer, the open replies, repeated events, the fold) is checked in one transaction of the
//! session: all events become durable, or none.
//!
//! | module | content |
//! |---|---|
//! | `params` | the query parameters |
//! | `batch` | parses a body into events |
//! | `java` | continues the reply of an AgentScope Java agent over several requests |
//! | `producer` | identifies the producer, and checks that it may write |
//! | `publish` | stores events |
//! | `pipe` | stores a stream as one reply |

mod batch;
mod java;
mod params;
mod pipe;
mod producer;
mod publish;

pub(crate) use batch::{Batch, WIRES};
pub(crate) use params::{PipeQuery, PublishQuery, find_wire};
pub(crate) use pipe::Pipe;
pub(crate) use producer::Publisher;
pub(crate) use publish::{
    PublishOperation, Published, PublishedView, SkippedEvent, accept_client_events, publish_body,
};

use crate::App;
use crate::error::ApiResult;
use crate::metrics::Metrics;
use prometheus_client::metrics::counter::Counter;
use std::sync::Arc;
use turnwire_log::Session;

/// What all requests that bring events share.
#[derive(Default)]
pub struct Ingest {
    /// Counts events for the metrics.
    counts: EventCounts,
    java: java::JavaReplies,
}

/// How many events came in.
#[derive(Debug, Default)]
struct EventCounts {
    appended: Counter,
    repeated: Counter,
    refused: Counter,
}

impl Ingest {
    /// Counts in these metrics.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counts = EventCounts {
            appended: metrics.events_stored.clone(),
            repeated: metrics.events_repeated.clone(),
            refused: metrics.events_refused.clone(),
        };
        Self { counts, ..Self::default() }
    }
}

impl EventCounts {
    pub(crate) fn count_stored(&self, stored: u64, repeated: u64) {
        self.appended.inc_by(stored);
        if repeated > 0 {
            self.repeated.inc_by(repeated);
        }
    }

    pub(crate) fn count_published(&self, published: &Published) {
        self.count_stored(published.stored, published.repeated);
        if !published.skipped.is_empty() {
            self.count_refused(published.skipped.len());
        }
    }

    /// Events that do not fit, or that nobody asked for.
    pub(crate) fn count_refused(&self, events: usize) {
        self.refused.inc_by(events as u64);
    }
}

/// Reads the events of a body on one of [`WIRES`].
pub(crate) async fn read_batch<'a>(
    app: &App,
    session: &Arc<Session>,
    wire: &str,
    bytes: &'a [u8],
) -> ApiResult<Batch<'a>> {
    let limit = app.config.limits.event.bytes();
    let body = batch::read_text(bytes)?;
    if wire == "turnwire" {
        return Batch::read(body, limit);
    }
    let frames = batch::split_frames(body, limit)?;
    let items = match wire {
        java::WIRE => app.ingest.java.decode(session, body, &frames).await?,
        _ => batch::decode_frames(&mut batch::new_decoder(wire, None)?, body, &frames)?,
    };
    Batch::new(body, items)
}
