//! The state that every handler can use.

use crate::StartError;
use crate::auth::Auth;
use crate::cluster::ClusterNode;
use crate::config::Config;
use crate::deliveries::Deliveries;
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
    /// Checks credentials.
    pub auth: Auth,
    /// The agents of this process, by name.
    pub agents: BTreeMap<String, Arc<dyn Replier>>,
    /// Runs these agents.
    pub turns: Arc<Turns>,
    /// What all subscribers share.
    pub streams: Arc<stream::StreamContext>,
    /// What all requests that bring events share.
    pub ingest: Ingest,
    /// Fetches the content of links in messages.
    pub(crate) links: Links,
    /// Schemas of clients that wait to be compiled.
    pub(crate) schemas: FairQueue,
    /// The bytes of request bodies in memory.
    pub(crate) buffered: ByteBudget,
    /// Searches that are running.
    pub(crate) searches: FairQueue,
    /// The bytes of incomplete blob uploads.
    pub(crate) uploads: ByteBudget,
    /// This process as a node of a cluster, if the store can be shared.
    pub(crate) cluster: Option<Arc<ClusterNode>>,
    /// Which answers have arrived at their clients.
    pub(crate) deliveries: Deliveries,
    /// Metrics.
    pub metrics: Metrics,
    /// Work that outlives its request. A stopping server waits for it.
    pub tasks: TaskTracker,
    /// Cancelled when the server stops: streams end, and clients reconnect later.
    pub shutdown: CancellationToken,
    /// Cancelled `limits.stop_timeout` later: responses that have not finished end with an error.
    pub force_stop: CancellationToken,
}

impl App {
    /// Creates the state from settings, log and agents, for a store that only this process uses.
    pub fn new(
        config: Config,
        log: Arc<Log>,
        agents: BTreeMap<String, Arc<dyn Replier>>,
    ) -> Result<Arc<Self>, StartError> {
        Self::in_cluster(config, log, agents, None)
    }

    /// The same for a node of a cluster, if the store can be shared: [`ClusterNode::open_log`] comes first.
    pub fn in_cluster(
        config: Config,
        log: Arc<Log>,
        agents: BTreeMap<String, Arc<dyn Replier>>,
        cluster: Option<Arc<ClusterNode>>,
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
            outlives_store_errors: cluster.is_some(),
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
            cluster,
            deliveries: Deliveries::default(),
            metrics,
            tasks: TaskTracker::new(),
            shutdown,
            force_stop: closing,
        }))
    }

    /// Whether the server can take requests.
    pub(crate) async fn healthy(&self) -> ApiResult<()> {
        Ok(self.log.store().check_health().await?)
    }
}
