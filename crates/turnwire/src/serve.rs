//! `turnwire serve`: reads the settings, starts the server, and stops it on a signal.

use crate::input::CommandError;
use crate::store::{self, Mode};
use clap::Args;
#[cfg(unix)]
use std::future::poll_fn;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
#[cfg(unix)]
use std::task::{Context, Poll};
use tokio::runtime::Runtime;
use turnwire_server::agents::ConfiguredAgents;
use turnwire_server::config::{
    Config, ConfigError, HostName, ListenAddress, LogConfig, LogFormat, Origin, Overrides,
    StoreUrl, WebUrl,
};
use turnwire_server::{App, ClusterNode, Server, StartError, agents_from_config};

/// The default settings file.
pub(crate) const DEFAULT_CONFIG: &str = "turnwire.toml";
/// The exit status of an interrupted program.
const EXIT_INTERRUPTED: i32 = 130;

/// Run the server
///
/// Settings come from turnwire.toml; environment variables (`TURNWIRE_LISTEN`, `TURNWIRE_STORE`, …)
/// override the file, and options override both. Without credentials it listens on the loopback
/// address only.
#[derive(Args)]
pub(crate) struct Serve {
    /// Address to listen on [default: 127.0.0.1:4747]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,
    /// The store: sqlite:PATH, a URL of Postgres, or memory: [default: a file in your data folder]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// The settings file [default: turnwire.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The public URL of the server
    #[arg(long, value_name = "URL")]
    public_url: Option<WebUrl>,
    /// Origin of another web page that may use this server; may be repeated
    #[arg(long, value_name = "URL")]
    origin: Vec<Origin>,
    /// Additional host name of the server; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<HostName>,
    /// A proxy in front terminates TLS
    #[arg(long)]
    behind_proxy: bool,
    /// TLS certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Log level: error, warn, info, debug, or a filter
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let mut config = read_config(self.config.as_deref())?;
        config.apply(self.overrides())?;
        init_logging(&config.log)?;
        raise_file_limit();
        disable_huge_pages();
        let url = config.store.clone().map_or_else(store::default_url, Ok);
        let url = url.map_err(StartError::from)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            // Blocking threads. Store reads and schema checks have their own limits and need few.
            // But the system resolver takes one per DNS lookup, for as long as the name server
            // takes: slow lookups must not block the store.
            .max_blocking_threads(256)
            .build()
            .map_err(|error| StartError::new(format!("cannot start the runtime: {error}")))?;
        block_on_with_children(runtime, async {
            let interrupts = Interrupts::listen();
            let opened = store::open_store(&url, Mode::Write).await.map_err(StartError::from)?;
            let (log, node) = ClusterNode::open_log(&config, opened.store).await?;
            let ConfiguredAgents { agents, warnings } = agents_from_config(&config).await?;
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            let app = App::in_cluster(config, log, agents, node)?;
            let server = Server::bind(app)?;
            // So that `turnwire chat` finds this server.
            if let Some(Err(error)) = opened.file.map(|file| file.announce_url(&server.local_url()))
            {
                tracing::warn!(%error, "`turnwire chat` will not find this server without --url");
            }
            let (version, address) = (env!("CARGO_PKG_VERSION"), server.url());
            // A failure could not be reported.
            let _ =
                writeln!(io::stdout(), "Turnwire {version} listens on {address}  (store {url})");
            tracing::info!(version, address, store = %url, "listening");
            server.run(wait_for_shutdown(interrupts)).await;
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        })
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

/// The settings of the file, overridden by the environment.
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
        StartError::new(format!("invalid log.level \"{}\": {error}", config.level))
            .hint("write error, warn, info, debug, or a filter such as info,turnwire::access=debug")
    })?;
    let filter = match "rmcp=error".parse() {
        // The library logs every notification that an MCP server sends.
        Ok(quiet) if !config.level.contains("rmcp") => filter.add_directive(quiet),
        _ => filter,
    };
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

/// Runs work that may start MCP servers, and ends their processes. Those that outlive the servers become children of this
/// process.
pub(crate) fn block_on_with_children<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(async {
        adopt_orphans();
        work.await
    });
    // The runtime waits for threads that wait for such processes, and its tasks may start more.
    end_descendants();
    drop(runtime);
    end_descendants();
    done
}

#[cfg(target_os = "linux")]
use turnwire_agent::mcp::{adopt_orphans, end_descendants};

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

#[cfg(not(target_os = "linux"))]
fn end_descendants() {}

/// Raises the limit of open files: every connection is one, and many systems allow 1,024 by
/// default.
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
fn raise_file_limit() {}

/// Thousands of sessions hold a little memory each, scattered over the heap: most of each 2 MiB
/// page would be unused.
#[cfg(target_os = "linux")]
fn disable_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "the system does not let us choose the size of pages");
    }
}

#[cfg(not(target_os = "linux"))]
fn disable_huge_pages() {}

/// Waits for a signal to stop. A second signal exits at once.
async fn wait_for_shutdown(mut interrupts: Interrupts) {
    interrupts.next().await;
    tokio::spawn(async move {
        interrupts.next().await;
        end_descendants();
        std::process::exit(EXIT_INTERRUPTED);
    });
}

/// The signals that stop the server. Created before the server listens, so that no signal is
/// missed.
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
