//! The server of `turnwire chat` without `--url`: the one that has the store open, or else a private one in this process.

use super::{one_line, remote_endpoint};
use crate::client::Endpoint;
use crate::input::{CommandError, print_stderr};
use crate::serve;
use crate::store::{self, Mode};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use turnwire_agent::model::http::HttpModel;
use turnwire_agent::{Agent, DemoAgent, Replier};
use turnwire_log::sqlite::announced_url;
use turnwire_log::{Error, Store};
use turnwire_server::agents::ConfiguredAgents;
use turnwire_server::auth::{self, Scopes};
use turnwire_server::config::{
    AuthConfig, Config, ListenAddress, Overrides, Sha256, StoreUrl, TokenConfig,
};
use turnwire_server::{App, ClusterNode, Server, StartError, agents_from_config};

/// How long a shutdown may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a locked store is checked for the URL of a server that is just starting.
const FIND_INTERVAL: Duration = Duration::from_millis(100);
/// How many times.
const FIND_ATTEMPTS: usize = 20;

/// Where a conversation without `--url` takes place.
pub(crate) enum StoreServer {
    /// Another process has the store open and serves it here.
    Found(Endpoint),
    Started(LocalServer),
}

/// A server in this process.
pub(crate) struct LocalServer {
    pub(crate) endpoint: Endpoint,
    /// Nothing is left when it stops.
    pub(crate) is_in_memory: bool,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// Its settings.
pub(crate) struct LocalOptions<'a> {
    pub(crate) config: Option<&'a Path>,
    pub(crate) store: Option<StoreUrl>,
    /// A model for which an agent is created.
    pub(crate) model: Option<&'a str>,
    /// The token for a server that is found.
    pub(crate) token: Option<String>,
}

impl StoreServer {
    pub(crate) async fn find_or_start(wanted: LocalOptions<'_>) -> Result<Self, CommandError> {
        let mut config = serve::read_config(wanted.config)?;
        let over = Overrides { store: wanted.store, ..Overrides::default() };
        config.apply(over)?;
        let url = config.store.clone().map_or_else(store::default_url, Ok)?;
        let opened = match (store::open_store(&url, Mode::Write).await, &url) {
            (Ok(opened), _) => opened,
            (Err(locked @ Error::Locked(_)), StoreUrl::Sqlite(path)) => {
                let url = find_server(path, &locked).await?;
                return match wanted.model {
                    None => Ok(Self::Found(remote_endpoint(&url, wanted.token)?)),
                    Some(_) => Err(CommandError::new(
                        format!(
                            "the server at {url} has the store open, and --model needs a server of its own"
                        ),
                        "choose one of its agents with --agent, or another store with --store sqlite:PATH (or memory:)",
                    )),
                };
            }
            (Err(error), _) => return Err(error.into()),
        };
        if wanted.token.is_some() {
            return Err(CommandError::new(
                "--token is for a running server, and no server has the store open",
                "leave it out, or name the server with --url",
            ));
        }
        let is_in_memory = url == StoreUrl::Memory;
        LocalServer::start(config, opened.store, wanted.model, is_in_memory)
            .await
            .map(Self::Started)
    }
}

impl LocalServer {
    async fn start(
        mut config: Config,
        store: Arc<dyn Store>,
        model: Option<&str>,
        is_in_memory: bool,
    ) -> Result<Self, CommandError> {
        let token = require_private_token(&mut config)?;
        let (log, node) = ClusterNode::open_log(&config, store).await?;
        let ConfiguredAgents { mut agents, warnings } = agents_from_config(&config).await?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if let Some(model) = model {
            agents.insert(model.to_owned(), build_model_agent(model)?);
        }
        config.listen = ListenAddress(([127, 0, 0, 1], 0).into());
        let app = App::in_cluster(config, log, agents, node)?;
        Ok(Self::run(app, token, is_in_memory)?)
    }

    fn run(app: Arc<App>, token: String, is_in_memory: bool) -> Result<Self, StartError> {
        let server = Server::bind(app)?;
        let endpoint = Endpoint::new(&server.url(), Some(token)).map_err(StartError::new)?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Ok(Self { endpoint, is_in_memory, stop, running })
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

/// The URL of the server that has a store open.
async fn find_server(store: &Path, locked: &Error) -> Result<String, CommandError> {
    for _ in 0..FIND_ATTEMPTS {
        match announced_url(store) {
            Ok(Some(url)) => {
                let store = store.display();
                print_stderr(format_args!(
                    "using the server at {}, which has {store} open",
                    one_line(&url)
                ));
                return Ok(url);
            }
            // It may still be starting.
            Ok(None) => tokio::time::sleep(FIND_INTERVAL).await,
            Err(error) => {
                let hint = "if you know the server, name it with --url";
                return Err(CommandError::new(format!("{locked}\n{error}"), hint));
            }
        }
    }
    Err(CommandError::new(
        locked.to_string(),
        "that process is not a server, perhaps another `turnwire chat`: for several conversations at once start \
         `turnwire serve`; or use another store with --store sqlite:PATH (or memory:)",
    ))
}
