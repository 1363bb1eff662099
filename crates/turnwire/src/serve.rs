//! `turnwire serve`: the server, from its settings to its end.

mod agents;

pub(crate) use agents::{agents, far_tools};

use crate::input::{EXIT_ERROR, print_stderr};
use crate::store::{self, Mode};
use clap::Args;
use std::fmt;
#[cfg(unix)]
use std::future::poll_fn;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
#[cfg(unix)]
use std::task::{Context, Poll};
use turnwire_log::Log;
use turnwire_server::config::{
    Config, ConfigError, HostName, ListenAddress, LogConfig, LogFormat, Origin, Overrides,
    StoreUrl, WebUrl,
};
use turnwire_server::{App, Server, StartError};

/// Where settings are when nobody says it.
pub(crate) const DEFAULT_CONFIG: &str = "turnwire.toml";
/// What the shell shows for a program that was interrupted.
const EXIT_INTERRUPTED: i32 = 130;

/// Run the server
///
/// Settings come from turnwire.toml; environment variables (`TURNWIRE_LISTEN`, `TURNWIRE_STORE`, …) win over
/// the file, and options over both. Without credentials it listens on this machine only.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where to listen [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,
    /// Where sessions are kept: sqlite:PATH or memory: [default: a file in your data folder]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// The settings [default: turnwire.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the server is reached from outside
    #[arg(long, value_name = "URL")]
    public_url: Option<WebUrl>,
    /// A web page elsewhere that may use this server; may be repeated
    #[arg(long, value_name = "URL")]
    origin: Vec<Origin>,
    /// A further name under which the server is reached; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<HostName>,
    /// Something in front does TLS
    #[arg(long)]
    behind_proxy: bool,
    /// The certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, or a filter
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

/// What keeps the server from starting.
pub(crate) enum ServeError {
    Config(ConfigError),
    Start(StartError),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl From<ConfigError> for ServeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<turnwire_log::Error> for ServeError {
    fn from(error: turnwire_log::Error) -> Self {
        Self::Start(error.into())
    }
}

impl From<StartError> for ServeError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl Serve {
    pub(crate) fn run(self) -> ExitCode {
        match self.start() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(ServeError::Config(error)) => {
                print_stderr(format_args!("error: these settings cannot be used\n{error}"));
            }
            Err(error) => print_stderr(format_args!("error: {error}")),
        }
        ExitCode::from(EXIT_ERROR)
    }

    fn start(self) -> Result<(), ServeError> {
        let mut config = read_config(self.config.as_deref())?;
        config.apply(self.overrides())?;
        init_logging(&config.log)?;
        raise_file_limit();
        disable_huge_pages();
        let url = config.store.clone().map_or_else(store::default_url, Ok)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            // Who reads the store or checks a schema is counted elsewhere, and needs few of them. But the
            // system's resolver takes one for each name that is looked up, for as long as a name server
            // likes: names of slow ones must not keep the store from being read.
            .max_blocking_threads(256)
            .build()
            .map_err(|error| StartError::new(format!("the system gives no threads: {error}")))?;
        let served = runtime.block_on(async {
            let interrupts = Interrupts::listen();
            adopt_orphans();
            let store = store::open_store(&url, Mode::Write)?;
            // One process writes to a store at a time: its number names it.
            let log = Arc::new(Log::new(store, format!("pid-{}", std::process::id())));
            let far = far_tools(&config).await?;
            let (agents, warnings) = agents(&config, Some(&far))?;
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            let app = App::new(config, log, agents)?;
            let server = Server::bind(app)?;
            let (version, address) = (env!("CARGO_PKG_VERSION"), server.url());
            // Where nobody reads it, there is nobody to tell.
            let _ =
                writeln!(io::stdout(), "Turnwire {version} listens on {address}  (store {url})");
            tracing::info!(version, address, store = %url, "listening");
            server.run(wait_for_shutdown(interrupts)).await;
            tracing::info!("stopped");
            Ok(())
        });
        // The runtime waits for threads that wait for such processes; its tasks may start further ones.
        end_descendants();
        drop(runtime);
        end_descendants();
        served
    }

    fn overrides(self) -> Overrides {
        Overrides {
            listen: self.listen,
            store: self.store,
            public_url: self.public_url,
            origins: self.origin,
            hosts: self.host,
            behind_proxy: self.behind_proxy,
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            default_agent: None,
            log_level: self.log,
            log_format: None,
        }
    }
}

/// The file's settings, and the environment's over them.
pub(crate) fn read_config(file: Option<&Path>) -> Result<Config, ConfigError> {
    let env = |name: &str| std::env::var(name).ok();
    let named = file.map(Path::to_owned).or_else(|| env("TURNWIRE_CONFIG").map(PathBuf::from));
    let default = || Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists());
    let mut config = match named.or_else(default) {
        Some(path) => Config::load(&path)?,
        None => Config::default(),
    };
    config.apply(Overrides::from_env(env)?)?;
    Ok(config)
}

fn init_logging(config: &LogConfig) -> Result<(), StartError> {
    let filter = config.level.parse::<tracing_subscriber::EnvFilter>().map_err(|error| {
        StartError::new(format!("log.level \"{}\" cannot be understood: {error}", config.level))
            .hint("write error, warn, info, debug, or a filter such as info,turnwire::access=debug")
    })?;
    let json = match config.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !io::stderr().is_terminal(),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if json {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(io::stderr().is_terminal()).init();
    }
    Ok(())
}

/// MCP servers start processes that may outlive them. They become children of this one, which ends them.
#[cfg(target_os = "linux")]
use turnwire_agent::mcp::{adopt_orphans, end_descendants};

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

#[cfg(not(target_os = "linux"))]
fn end_descendants() {}

/// Every connection is an open file, and many systems allow a thousand unless they are asked.
#[cfg(unix)]
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the number of open files");
    }
}

#[cfg(not(unix))]
fn more_files() {}

/// Thousands of sessions hold a little memory each, all over the heap: pages of 2 MiB would hold more
/// that is unused than used.
#[cfg(target_os = "linux")]
fn disable_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "the system does not let us choose the size of pages");
    }
}

#[cfg(not(target_os = "linux"))]
fn small_pages() {}

/// Waits until somebody wants the server to stop. A second time it stops at once.
async fn wait_for_shutdown(mut interrupts: Interrupts) {
    interrupts.next().await;
    tokio::spawn(async move {
        interrupts.next().await;
        end_descendants();
        std::process::exit(EXIT_INTERRUPTED);
    });
}

/// What asks the server to stop. It counts from when this is made: whoever has seen that the server
/// listens can stop it in order.
#[cfg(unix)]
struct Interrupts(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Interrupts {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
        Self(kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect())
    }

    async fn next(&mut self) {
        let any = |cx: &mut Context<'_>| {
            let is_there =
                |signal: &mut tokio::signal::unix::Signal| signal.poll_recv(cx).is_ready();
            if self.0.iter_mut().any(is_there) { Poll::Ready(()) } else { Poll::Pending }
        };
        poll_fn(any).await;
    }
}

#[cfg(not(unix))]
struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
