//! Settings: `turnwire.toml`, and the environment variables and options that override it.
//!
//! ```
//! use turnwire_server::config::Config;
//!
//! let error = Config::parse("turnwire.toml", "lisen = \"127.0.0.1:80\"").unwrap_err();
//! let text = error.to_string();
//! assert!(text.starts_with("turnwire.toml:1:1: lisen: unknown field `lisen`"));
//! assert!(text.ends_with("did you mean `listen`?"));
//! ```

mod access;
mod agents;
mod check;
mod client_options;
mod cluster;
mod conversations;
mod limits;
mod links;
mod problem;
mod value;

pub use access::{AuthConfig, JwtAlgorithm, JwtConfig, TlsConfig, TokenConfig};
pub use agents::{
    AgentConfig, Behavior, ExternalTool, Fallback, McpConfig, ModelRef, OnHint, OnRestart,
    Permission, Prices, StructuredOutput, Timeouts, ToolPattern, ToolSource,
};
pub use client_options::ClientOptionsSetting;
pub use cluster::ClusterConfig;
pub use conversations::ConversationsConfig;
pub use limits::{Limits, LogConfig, LogFormat, Producers, Retention};
pub use links::LinksConfig;
pub use problem::{ConfigError, Problem};
pub use value::{
    ByteSize, DatabaseUrl, HostName, HumanDuration, ListenAddress, MediaPattern, Origin, Sha256,
    StoreUrl, WebUrl,
};

use problem::{Deserialized, SettingsText};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

/// All settings. A setting that the file does not have has its default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen on.
    pub listen: ListenAddress,
    /// Where sessions are stored. `None`: a file in the user's data folder.
    pub store: Option<StoreUrl>,
    /// The URL under which clients reach the server.
    pub public_url: Option<WebUrl>,
    /// Origins of other web pages that may use this server.
    pub origins: Vec<Origin>,
    /// Further host names of the server.
    pub hosts: Vec<HostName>,
    /// A reverse proxy in front terminates TLS.
    pub behind_proxy: bool,
    /// The certificate and its key.
    pub tls: Option<TlsConfig>,
    /// The agent of sessions that name none, if it is set: see [`Config::default_agent`].
    pub default_agent: Option<String>,
    /// The currency of the prices: a code of ISO 4217.
    pub currency: String,
    /// The agents.
    pub agents: BTreeMap<String, AgentConfig>,
    /// MCP servers whose tools agents may use.
    pub mcp: BTreeMap<String, McpConfig>,
    /// Tools that the client executes.
    pub external_tools: BTreeMap<String, ExternalTool>,
    /// Credentials.
    pub auth: AuthConfig,
    /// Limits on sizes, times and counts.
    pub limits: Limits,
    /// Links in messages.
    pub links: LinksConfig,
    /// How conversations of clients that keep their own history are recognised.
    pub conversations: ConversationsConfig,
    /// Several servers over one database.
    pub cluster: ClusterConfig,
    /// How long events, keys and blobs are kept.
    pub retention: Retention,
    /// Producers: agents in other processes.
    pub producers: Producers,
    /// The server's own log.
    pub log: LogConfig,
    /// The file that the settings come from.
    #[serde(skip)]
    read_from: SettingsFile,
    /// The address that the server is bound to; the system replaces port 0.
    #[serde(skip)]
    bound: OnceLock<SocketAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: ListenAddress::default(),
            store: None,
            public_url: None,
            origins: Vec::new(),
            hosts: Vec::new(),
            behind_proxy: false,
            tls: None,
            default_agent: None,
            currency: "USD".to_owned(),
            agents: BTreeMap::new(),
            mcp: BTreeMap::new(),
            external_tools: BTreeMap::new(),
            auth: AuthConfig::default(),
            limits: Limits::default(),
            links: LinksConfig::default(),
            conversations: ConversationsConfig::default(),
            cluster: ClusterConfig::default(),
            retention: Retention::default(),
            producers: Producers::default(),
            log: LogConfig::default(),
            read_from: SettingsFile::default(),
            bound: OnceLock::new(),
        }
    }
}

impl Config {
    /// The agent of sessions that name none: the one that is set, or the only agent of the settings, or `demo`.
    pub fn default_agent(&self) -> &str {
        let mut names = self.agents.keys();
        let only_agent = names.next().filter(|_| names.next().is_none());
        self.default_agent.as_ref().or(only_agent).map_or(Self::BUILT_IN_AGENTS[0], String::as_str)
    }

    /// Sets the address that the server is bound to.
    pub(crate) fn set_bound(&self, address: SocketAddr) {
        // A second server with the same settings keeps the address of the first.
        let _ = self.bound.set(address);
    }

    /// A digest of what all nodes of a cluster should have in common.
    pub(crate) fn digest(&self) -> String {
        let Self { agents, mcp, external_tools, auth, limits, links, .. } = self;
        let Self { conversations, retention, producers, default_agent, .. } = self;
        let text = format!(
            "{default_agent:?} {agents:?} {mcp:?} {external_tools:?} {auth:?} {limits:?} {links:?} {conversations:?} \
             {retention:?} {producers:?} {:?}",
            self.cluster.lease
        );
        crate::auth::hex(&crate::auth::sha256(text.as_bytes()), 8)
    }

    /// The server's URL, without a `/` at the end.
    pub(crate) fn base_url(&self) -> String {
        if let Some(url) = &self.public_url {
            return url.0.as_str().trim_end_matches('/').to_owned();
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.bound.get().unwrap_or(&self.listen.0))
    }
}

/// The text of a settings file, to find line numbers.
#[derive(Clone, Default)]
struct SettingsFile {
    name: String,
    text: String,
}

impl SettingsFile {
    fn source(&self) -> SettingsText<'_> {
        let name = if self.name.is_empty() { "settings" } else { &self.name };
        SettingsText { name, text: &self.text }
    }
}

/// Without the text, which may hold secrets.
impl fmt::Debug for SettingsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SettingsFile")
    }
}

/// Overrides of the file: environment variables, and over those the command line.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `TURNWIRE_LISTEN`, `--listen`
    pub listen: Option<ListenAddress>,
    /// `TURNWIRE_STORE`, `--store`
    pub store: Option<StoreUrl>,
    /// `TURNWIRE_PUBLIC_URL`, `--public-url`
    pub public_url: Option<WebUrl>,
    /// `TURNWIRE_ORIGINS` (with commas), `--origin`
    pub origins: Vec<Origin>,
    /// `TURNWIRE_HOSTS` (with commas), `--host`
    pub hosts: Vec<HostName>,
    /// `TURNWIRE_BEHIND_PROXY`, `--behind-proxy`
    pub behind_proxy: bool,
    /// `TURNWIRE_TLS_CERT`, `--tls-cert`
    pub tls_cert: Option<PathBuf>,
    /// `TURNWIRE_TLS_KEY`, `--tls-key`
    pub tls_key: Option<PathBuf>,
    /// `TURNWIRE_DEFAULT_AGENT`
    pub default_agent: Option<String>,
    /// `TURNWIRE_LOG`, `--log`
    pub log_level: Option<String>,
    /// `TURNWIRE_LOG_FORMAT`
    pub log_format: Option<LogFormat>,
}

impl Config {
    /// Agents that exist without configuration.
    pub(crate) const BUILT_IN_AGENTS: [&str; 2] = ["demo", "external"];

    /// Reads and checks the text of a file; errors call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let source = SettingsText { name, text };
        let Deserialized { settings, mut problems, left_out } = source.deserialize::<Self>();
        let Some(mut config) = settings else { return Err(ConfigError(problems)) };
        config.read_from = SettingsFile { name: name.to_owned(), text: text.to_owned() };
        // What follows from an entry that was left out is not reported.
        let is_known = |found: &Problem| {
            problems.iter().any(|known| found.key.starts_with(&known.key))
                || left_out.iter().any(|name| found.message.contains(&format!("\"{name}\"")))
        };
        let mut further = check::check(&config, &source);
        further.retain(|found| !is_known(found));
        problems.extend(further);
        problems.sort_by_key(|problem| problem.position);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError(problems)) }
    }

    /// Reads and checks a file. Relative paths in it are relative to its folder.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::single(&name, format!("cannot be read: {error}")))?;
        let mut config = Self::parse(&name, &text)?;
        if let Some(folder) = path.parent() {
            config.for_each_path(|file| *file = folder.join(&*file));
        }
        Ok(config)
    }

    fn for_each_path(&mut self, mut each: impl FnMut(&mut PathBuf)) {
        if let Some(tls) = &mut self.tls {
            each(&mut tls.cert);
            each(&mut tls.key);
        }
        if let Some(jwt) = &mut self.auth.jwt {
            jwt.public_key_file.iter_mut().chain(&mut jwt.secret_file).for_each(&mut each);
        }
        for agent in self.agents.values_mut() {
            agent.api_key_file.iter_mut().for_each(&mut each);
            let fallback = agent.fallback.iter_mut();
            fallback.flat_map(|fallback| &mut fallback.api_key_file).for_each(&mut each);
        }
        self.links.files.iter_mut().for_each(&mut each);
        if let Some(StoreUrl::Sqlite(path)) = &mut self.store {
            each(path);
        }
    }

    /// Suspicious settings, and those that will fail later. The settings are still valid. `env` reads an
    /// environment variable.
    pub fn warnings(&self, env: impl Fn(&str) -> Option<String>) -> Vec<Problem> {
        check::warnings(self, &self.read_from.source(), &env)
    }

    /// A problem with a key, with its line in the settings file.
    pub fn problem(&self, path: &[&str], message: impl Into<String>) -> Problem {
        self.read_from.source().problem_at(path, message)
    }

    /// Applies overrides, and checks the result.
    pub fn apply(&mut self, over: Overrides) -> Result<(), ConfigError> {
        fn put<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        put(&mut self.listen, over.listen);
        put(&mut self.log.level, over.log_level);
        put(&mut self.log.format, over.log_format);
        self.default_agent = over.default_agent.or(self.default_agent.take());
        self.store = over.store.or(self.store.take());
        self.public_url = over.public_url.or(self.public_url.take());
        self.behind_proxy |= over.behind_proxy;
        if !over.origins.is_empty() {
            self.origins = over.origins;
        }
        if !over.hosts.is_empty() {
            self.hosts = over.hosts;
        }
        let (cert, key) = self.tls.take().map(|tls| (tls.cert, tls.key)).unzip();
        self.tls = match (over.tls_cert.or(cert), over.tls_key.or(key)) {
            (Some(cert), Some(key)) => Some(TlsConfig { cert, key }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(ConfigError::single("--tls-cert", "--tls-cert requires --tls-key"));
            }
            (None, Some(_)) => {
                return Err(ConfigError::single("--tls-key", "--tls-key requires --tls-cert"));
            }
        };
        let problems = check::check(self, &SettingsText { name: "settings", text: "" });
        if problems.is_empty() { Ok(()) } else { Err(ConfigError(problems)) }
    }
}

impl Overrides {
    /// Reads the environment, through `get`.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let text = |name: &str| get(name).filter(|value| !value.is_empty());
        let behind_proxy = match text("TURNWIRE_BEHIND_PROXY").as_deref() {
            None | Some("0" | "false" | "no") => false,
            Some("1" | "true" | "yes") => true,
            Some(_) => {
                return Err(ConfigError::single("TURNWIRE_BEHIND_PROXY", "expected 1 or 0"));
            }
        };
        let log_format = match text("TURNWIRE_LOG_FORMAT").as_deref() {
            None => None,
            Some("auto") => Some(LogFormat::Auto),
            Some("text") => Some(LogFormat::Text),
            Some("json") => Some(LogFormat::Json),
            Some(_) => {
                return Err(ConfigError::single(
                    "TURNWIRE_LOG_FORMAT",
                    "expected auto, text or json",
                ));
            }
        };
        Ok(Self {
            listen: parse_one("TURNWIRE_LISTEN", text("TURNWIRE_LISTEN"))?,
            store: parse_one("TURNWIRE_STORE", text("TURNWIRE_STORE"))?,
            public_url: parse_one("TURNWIRE_PUBLIC_URL", text("TURNWIRE_PUBLIC_URL"))?,
            origins: parse_list("TURNWIRE_ORIGINS", text("TURNWIRE_ORIGINS"))?,
            hosts: parse_list("TURNWIRE_HOSTS", text("TURNWIRE_HOSTS"))?,
            behind_proxy,
            tls_cert: text("TURNWIRE_TLS_CERT").map(PathBuf::from),
            tls_key: text("TURNWIRE_TLS_KEY").map(PathBuf::from),
            default_agent: text("TURNWIRE_DEFAULT_AGENT"),
            log_level: text("TURNWIRE_LOG"),
            log_format,
        })
    }
}

fn parse_one<T: FromStr<Err = String>>(
    name: &str,
    value: Option<String>,
) -> Result<Option<T>, ConfigError> {
    value.map(|value| value.parse()).transpose().map_err(|why| ConfigError::single(name, why))
}

fn parse_list<T: FromStr<Err = String>>(
    name: &str,
    value: Option<String>,
) -> Result<Vec<T>, ConfigError> {
    let value = value.unwrap_or_default();
    let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::parse).collect::<Result<_, _>>().map_err(|why| ConfigError::single(name, why))
}
