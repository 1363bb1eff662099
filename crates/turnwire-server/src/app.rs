//! What every handler can reach.

use crate::StartError;
use crate::auth::Auth;
use crate::config::Config;
use crate::error::ApiResult;
use crate::ingest::Ingest;
use crate::limits::{ByteBudget, FairQueue};
use crate::links::Links;
use crate::metrics::Metrics;
use crate::stream;
use crate::turns::{Turns, client_context};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use turnwire_agent::Replier;
use turnwire_log::Log;

/// The state of the server. Handlers get it as `State<Arc<App>>`.
pub struct App {
    /// All sessions.
    pub log: Arc<Log>,
    /// The settings.
    pub config: Arc<Config>,
    /// Everybody's credentials.
    pub auth: Auth,
    /// The agents that run here, by their names.
    pub agents: BTreeMap<String, Arc<dyn Replier>>,
    /// The replies that they write.
    pub turns: Arc<Turns>,
    /// What all watchers share.
    pub streams: Arc<stream::StreamContext>,
    /// What all requests share that bring events.
    pub ingest: Ingest,
    /// What brings in what links in messages lead to.
    pub(crate) links: Links,
    /// Schemas of clients that wait to be compiled.
    pub(crate) schemas: FairQueue,
    /// The bytes of request bodies that are held in memory.
    pub(crate) buffered: ByteBudget,
    /// Searches that run now.
    pub(crate) searches: FairQueue,
    /// The bytes of blobs that are stored and not whole yet.
    pub(crate) uploads: ByteBudget,
    /// What is counted.
    pub metrics: Metrics,
    /// Work that outlives its request. A server that stops waits for it.
    pub tasks: TaskTracker,
    /// Cancelled when the server stops: streams end then, and clients come back later.
    pub shutdown: CancellationToken,
    /// Cancelled `limits.stop_timeout` later: answers that have not finished by then end with an error.
    pub force_stop: CancellationToken,
}

impl App {
    /// With these settings, over this log, with these agents.
    pub fn new(
        config: Config,
        log: Arc<Log>,
        agents: BTreeMap<String, Arc<dyn Replier>>,
    ) -> Result<Arc<Self>, StartError> {
        let auth = Auth::new(&config, |name| std::env::var(name).ok()).map_err(|why| {
            StartError::new(why).hint("`turnwire config check` looks at all settings")
        })?;
        let (shutdown, closing) = (CancellationToken::new(), CancellationToken::new());
        let streams = Arc::new(stream::StreamContext {
            feeds: stream::Feeds::default(),
            backlogs: stream::BacklogCache::default(),
            shutdown: shutdown.clone(),
            force_stop: closing.clone(),
            heartbeat: config.limits.heartbeat.0,
        });
        let metrics = Metrics::new();
        let config = Arc::new(config);
        let turns = Turns::new(log.clone(), config.clone(), agents.clone(), metrics.agents.clone());
        Ok(Arc::new(Self {
            log,
            links: Links::new(&config),
            schemas: client_context::schema_queue(&config),
            buffered: ByteBudget::new(
                config.limits.buffered.bytes(),
                config.limits.buffered_per_tenant.bytes(),
            ),
            searches: FairQueue::new(config.limits.searches, config.limits.searches_per_tenant),
            uploads: ByteBudget::new(
                config.limits.uploads.bytes(),
                config.limits.uploads_per_tenant.bytes(),
            ),
            config,
            auth,
            agents,
            turns,
            streams,
            ingest: Ingest::new(&metrics),
            metrics,
            tasks: TaskTracker::new(),
            shutdown,
            force_stop: closing,
        }))
    }

    /// Whether requests should be sent here.
    pub(crate) async fn healthy(&self) -> ApiResult<()> {
        Ok(self.log.store().check_health().await?)
    }
}
