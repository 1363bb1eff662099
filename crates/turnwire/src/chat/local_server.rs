//! A private server in this process, for `turnwire chat` without `--url`.

use crate::client::Endpoint;
use crate::input::CommandError;
use crate::serve;
use crate::store::{self, Mode};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use turnwire_agent::model::http::HttpModel;
use turnwire_agent::{Agent, DemoAgent, Replier};
use turnwire_log::Error;
use turnwire_server::agents::ConfiguredAgents;
use turnwire_server::auth::{self, Scopes};
use turnwire_server::config::{
    AuthConfig, Config, ListenAddress, Overrides, Sha256, StoreUrl, TokenConfig,
};
use turnwire_server::{App, ClusterNode, Server, StartError, agents_from_config};

/// How long a shutdown may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A running server.
pub(crate) struct LocalServer {
    pub(crate) endpoint: Endpoint,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// Its settings.
pub(crate) struct LocalOptions<'a> {
    pub(crate) config: Option<&'a Path>,
    pub(crate) store: Option<StoreUrl>,
    /// A model for which an agent is created.
    pub(crate) model: Option<&'a str>,
}

impl LocalServer {
    pub(crate) async fn start(wanted: LocalOptions<'_>) -> Result<Self, CommandError> {
        let mut config = serve::read_config(wanted.config)?;
        let over = Overrides { store: wanted.store, ..Overrides::default() };
        config.apply(over)?;
        let token = require_private_token(&mut config)?;
        let url = config.store.clone().map_or_else(store::default_url, Ok)?;
        let store = store::open_store(&url, Mode::Write)
            .await
            .map_err(|error| locked_store_error(error, &config))?;
        let (log, node) = ClusterNode::open_log(&config, store).await?;
        let ConfiguredAgents { mut agents, warnings } = agents_from_config(&config).await?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if let Some(model) = wanted.model {
            agents.insert(model.to_owned(), build_model_agent(model)?);
        }
        config.listen = ListenAddress(([127, 0, 0, 1], 0).into());
        let app = App::in_cluster(config, log, agents, node)?;
        Ok(Self::run(app, token)?)
    }

    fn run(app: Arc<App>, token: String) -> Result<Self, StartError> {
        let server = Server::bind(app)?;
        let endpoint = Endpoint::new(&server.url(), Some(token)).map_err(StartError::new)?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Ok(Self { endpoint, stop, running })
    }

    /// Stops the server. An open reply continues the next time its store is opened.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.running).await;
    }
}

/// Keeps other users of this machine out: they can reach the port, so the server accepts only one
/// random token, which stays in this process.
fn require_private_token(config: &mut Config) -> Result<String, CommandError> {
    let nothing = || CommandError::new("the system's random number generator failed", "");
    let (token, hash) = auth::generate_token().ok_or_else(nothing)?;
    let sha256: Sha256 = hash.parse().map_err(|_| nothing())?;
    let tenant = auth::DEFAULT_TENANT.to_owned();
    let only = TokenConfig { tenant, sha256, scopes: Scopes::all(), subject: None, sessions: None };
    config.auth = AuthConfig { tokens: vec![only], jwt: None };
    config.tls = None;
    config.public_url = None;
    config.origins = Vec::new();
    config.limits.stop_timeout.0 = config.limits.stop_timeout.0.min(Duration::from_secs(1));
    Ok(token)
}

/// An agent for a model that the settings do not name.
fn build_model_agent(model: &str) -> Result<Arc<dyn Replier>, CommandError> {
    if model == "demo" {
        let demo =
            DemoAgent::from_env().map_err(|error| CommandError::new(error.to_string(), ""))?;
        return Ok(Arc::new(demo));
    }
    let made = HttpModel::builder(model).build();
    let made =
        made.map_err(|error| CommandError::new(error.message, "use PROVIDER:MODEL, or demo"))?;
    if let Some(why) = made.missing_key() {
        let hint = "set it, or use an agent of turnwire.toml with --agent";
        return Err(CommandError::new(format!("cannot use {model}: {why}"), hint));
    }
    Ok(Arc::new(Agent::builder("assistant", made).build()))
}

/// A store that a server uses can only be reached through that server.
fn locked_store_error(error: Error, config: &Config) -> CommandError {
    if !matches!(error, Error::Locked(_)) {
        return error.into();
    }
    CommandError::new(
        error.to_string(),
        format!(
            "a server uses it: connect to that server with --url http://{}, or use another store with \
             --store sqlite:PATH (or memory:)",
            config.listen.0
        ),
    )
}
