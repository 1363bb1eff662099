//! A cluster: one database, and nodes that are real processes. Each node has a proxy to the database and one for its
//! clients, so that it can be cut off from either alone.

use crate::proxy::{Link, Proxy};
use crate::server::{Server, turnwire};
use crate::{fake_provider, marks};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use turnwire_testkit::postgres::PostgresServer;
use turnwire_testkit::skip;

/// Of clusters with several nodes: short, so that tests need not wait long.
pub const LEASE: Duration = Duration::from_secs(2);

/// The longest time to stop in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// What a cluster is started with.
pub struct ClusterOptions {
    pub nodes: usize,
    /// `None` leaves the setting out.
    pub lease: Option<Duration>,
    pub behind_pgbouncer: bool,
    /// By how many seconds the clocks of the nodes are wrong.
    pub clocks: &'static [i64],
}

impl ClusterOptions {
    /// One node with the default settings.
    pub const ONE_NODE: Self = Self { nodes: 1, lease: None, behind_pgbouncer: false, clocks: &[] };

    pub const THREE_NODES: Self = Self { nodes: 3, lease: Some(LEASE), ..Self::ONE_NODE };

    pub const BEHIND_PGBOUNCER: Self = Self { behind_pgbouncer: true, ..Self::THREE_NODES };

    /// One clock is ten minutes behind, one is ten minutes ahead, and one is right.
    pub const WRONG_CLOCKS: Self = Self { clocks: &[-600, 600, 0], ..Self::THREE_NODES };
}

/// Ends its processes when it is dropped, also by a panic.
pub struct Cluster {
    pub nodes: Vec<Node>,
    folder: Option<TempDir>,
    /// Only kept: it ends with this.
    pub database: Option<PostgresServer>,
}

/// One node: it keeps its proxies when its process ends and starts again.
pub struct Node {
    pub database: Proxy,
    pub clients: Proxy,
    number: usize,
    folder: PathBuf,
    store: String,
    /// In seconds.
    clock: i64,
    process: Mutex<Option<Server>>,
}

impl Cluster {
    /// A cluster with a Postgres of its own; `None` where it, or what else it needs, is not installed.
    pub fn start(what: &str, options: &ClusterOptions) -> Option<Self> {
        if !options.clocks.is_empty() && clock_library().is_none() {
            skip(what, "libfaketime is not installed (Debian package faketime)");
            return None;
        }
        let database = if options.behind_pgbouncer {
            PostgresServer::start_with_pgbouncer(what)?
        } else {
            PostgresServer::start(what, &[])?
        };
        let (name, port) = (database.create_database(), database.url_port());
        let mut cluster = Self::start_on(options, |proxy| {
            proxy.set_target(Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
            let url = database.url(&name);
            url.replace(&format!(":{port}/"), &format!(":{}/", proxy.address.port()))
        });
        cluster.database = Some(database);
        Some(cluster)
    }

    /// A cluster on a database of the caller. `store` sets the target of a node's proxy to the database, if the
    /// node uses it, and returns the node's URL.
    pub fn start_on(options: &ClusterOptions, store: impl Fn(&Proxy) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("turnwire.toml"), settings(options)).unwrap();
        let nodes = (0..options.nodes).map(|number| {
            let (database, clients) = (Proxy::start(None), Proxy::start(None));
            let store = store(&database);
            let folder = folder.path().to_owned();
            let clock = options.clocks.get(number).copied().unwrap_or_default();
            Node { number, folder, store, clock, database, clients, process: Mutex::default() }
        });
        let nodes: Vec<Node> = nodes.collect();
        // All at once: one of them creates the tables.
        thread::scope(|scope| nodes.iter().for_each(|node| drop(scope.spawn(|| node.start()))));
        Self { nodes, folder: Some(folder), database: None }
    }

    /// Where clients reach each node, whatever process it is.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.clients.address.to_string()).collect()
    }

    /// How often each tool call ran.
    pub fn tool_runs(&self) -> HashMap<String, u64> {
        self.folder
            .as_ref()
            .map(|folder| marks::read(&marks_file(folder.path())))
            .unwrap_or_default()
    }

    /// Keeps the logs of the nodes, and returns where they are.
    pub fn keep_logs(&mut self) -> PathBuf {
        self.folder.take().map(TempDir::keep).unwrap_or_default()
    }
}

/// The library that changes the clock of a program.
fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    files.find(|file| file.is_file())
}

fn marks_file(folder: &Path) -> PathBuf {
    folder.join("marks")
}

fn settings(options: &ClusterOptions) -> String {
    let lease = options.lease.map_or_else(String::new, |lease| {
        format!("[cluster]\nlease = \"{}ms\"\n", lease.as_millis())
    });
    let (provider, marks) = (fake_provider::start(), marks::settings());
    format!(
        "default_agent = \"marker\"\n{lease}[limits]\nheartbeat = \"1s\"\n[agents.marker]\nmodel = \"openai:fake\"\n\
         base_url = \"http://{provider}\"\ntools = [\"mcp:marks/*\"]\n\
         permissions = [{{ tool = \"marks/ask\", behavior = \"ask\" }}]\n{marks}"
    )
}

impl Node {
    fn process(&self) -> MutexGuard<'_, Option<Server>> {
        self.process.lock().unwrap()
    }

    /// Starts a process, and leads clients to it.
    pub fn start(&self) {
        let config = self.folder.join("turnwire.toml");
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", &self.store, "--log", "warn"];
        let mut command = turnwire(&args);
        command.arg("--config").arg(config).current_dir(&self.folder);
        command.env(marks::FILE, marks_file(&self.folder)).env("TURNWIRE_DEMO_RATE", "500");
        if self.clock != 0 {
            command.env("LD_PRELOAD", clock_library().unwrap());
            command.env("FAKETIME", format!("{:+}", self.clock));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        }
        let log = self.folder.join(format!("node{}.log", self.number));
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        command.stdout(Stdio::piped()).stderr(log);
        let server = Server::from_command(command);
        self.clients.set_target(Some(server.address.parse().unwrap()));
        *self.process() = Some(server);
    }

    /// SIGKILL.
    pub fn kill(&self) {
        let process = self.process().take();
        self.clients.set_target(None);
        process.into_iter().for_each(Server::kill);
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&self) {
        let Some(process) = self.process().take() else { return };
        // Those who are connected are told by the node, and new ones go elsewhere.
        self.clients.set_target(None);
        let begun = Instant::now();
        process.terminate();
        let status = process.wait();
        assert!(begun.elapsed() < STOP_TIMEOUT, "{status} after {:?}", begun.elapsed());
    }

    /// SIGSTOP: the process hangs, and its connections stay.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.process().as_ref().map(Server::id);
        let pid = pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Undoes every fault.
    pub fn heal(&self) {
        self.database.set(Link::Open);
        self.clients.set(Link::Open);
        let is_running = self.process().is_some();
        if is_running {
            self.resume();
        } else {
            self.start();
        }
    }
}
