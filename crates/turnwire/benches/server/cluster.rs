//! Figures of a cluster: nodes over a Postgres that this program starts, all on this machine.

use crate::Result;
use crate::figures::{Figure, median, number, thousands};
use crate::running_server::{RunningServer, ServerKind, TempFolder, send_request};
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};
use turnwire_testkit::postgres::PostgresServer;

/// Commits are synced; the caches are as large as on a small server.
const SETTINGS: [&str; 5] = [
    "fsync=on",
    "full_page_writes=on",
    "max_connections=400",
    "shared_buffers=512MB",
    "max_wal_size=4GB",
];
const CONNECTIONS: usize = 256;
const SESSIONS: usize = 1000;
/// About the size of an event of the load generator.
const EVENT_BYTES: usize = 200;
/// The default of `[cluster] lease`.
const LEASE: Duration = Duration::from_secs(10);

/// A database and the nodes over it.
pub struct Cluster {
    nodes: Vec<RunningServer>,
    pub database: String,
    _folders: Vec<TempFolder>,
}

impl Cluster {
    /// Starts so many nodes with these settings over an empty database.
    pub fn start(server: &PostgresServer, nodes: usize, settings: &str) -> Result<Self> {
        let database = server.create_database();
        let kind = ServerKind::Node { url: server.url(&database), settings: settings.to_owned() };
        let folders: Vec<TempFolder> =
            (0..nodes).map(|_| TempFolder::new()).collect::<Result<_>>()?;
        let nodes = folders.iter().map(|folder| RunningServer::start(&kind, folder));
        Ok(Self { nodes: nodes.collect::<Result<_>>()?, database, _folders: folders })
    }

    pub fn node(&self, number: usize) -> Result<&RunningServer> {
        self.nodes.get(number).ok_or_else(|| format!("there is no node {number}").into())
    }

    pub fn stop(self, server: &PostgresServer) -> Result<()> {
        self.nodes.into_iter().try_for_each(RunningServer::stop)?;
        server.drop_database(&self.database);
        Ok(())
    }
}

pub fn start_postgres() -> Result<PostgresServer> {
    let server = PostgresServer::start("the figures of a cluster", &SETTINGS);
    server.ok_or_else(|| "Postgres is not installed: `make postgres` installs it".into())
}

/// Events per second, and the 99th percentile of a POST in milliseconds.
struct IngestSample {
    events: f64,
    p99: f64,
}

/// Loads the nodes with as many generators, which share the connections and the sessions. There may be fewer nodes.
fn measure_ingest(
    server: &PostgresServer,
    nodes: usize,
    generators: usize,
    batch: usize,
    seconds: u32,
) -> Result<IngestSample> {
    let cluster = Cluster::start(server, nodes, "")?;
    let (connections, sessions) = (CONNECTIONS.div_ceil(generators), SESSIONS.div_ceil(generators));
    let [connections, sessions, batch] = [connections, sessions, batch].map(|n| n.to_string());
    let seconds = seconds.to_string();
    let args = [
        "ingest",
        "--connections",
        &connections,
        "--sessions",
        &sessions,
        "--batch",
        &batch,
        "--seconds",
        &seconds,
    ];
    let samples: Vec<Result<_, String>> = thread::scope(|scope| {
        let load = |node: &RunningServer| node.bench(&args).map_err(|error| error.to_string());
        let nodes = cluster.nodes.iter().cycle().take(generators);
        let running: Vec<_> = nodes.map(|node| scope.spawn(move || load(node))).collect();
        let ended = running
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err("it panicked".to_owned())));
        ended.collect()
    });
    let mut sum = IngestSample { events: 0.0, p99: 0.0 };
    for figures in samples {
        let figures = figures?;
        sum.events += number(&figures, "/events_per_second")?;
        sum.p99 = sum.p99.max(number(&figures, "/latency_ms/p99")?);
    }
    cluster.stop(server)?;
    Ok(sum)
}

/// Synced appends through one node, alternating with `pgbench`.
pub fn ingest(rounds: usize, seconds: u32) -> Result<Vec<Figure>> {
    let server = start_postgres()?;
    let (mut single, mut batches, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        let ours =
            |single: &mut Vec<IngestSample>, batches: &mut Vec<IngestSample>| -> Result<()> {
                single.push(measure_ingest(&server, 1, 1, 1, seconds)?);
                batches.push(measure_ingest(&server, 1, 1, 64, seconds)?);
                Ok(())
            };
        if round % 2 == 0 {
            ours(&mut single, &mut batches)?;
            commits.push(server.pgbench(CONNECTIONS, EVENT_BYTES, seconds));
        } else {
            commits.push(server.pgbench(CONNECTIONS, EVENT_BYTES, seconds));
            ours(&mut single, &mut batches)?;
        }
        if let (Some(one), Some(many), Some(commits)) =
            (single.last(), batches.last(), commits.last())
        {
            eprintln!(
                "  {} events/s (p99 {:.1} ms), 64 per POST {} (p99 {:.1} ms), pgbench {} commits/s",
                thousands(one.events),
                one.p99,
                thousands(many.events),
                many.p99,
                thousands(*commits)
            );
        }
    }
    let ratio = median(single.iter().zip(&commits).map(|(ours, theirs)| ours.events / theirs));
    let many = median(batches.iter().map(|sample| sample.events));
    let name = |what: &str| format!("Postgres, one node: {what}");
    Ok(vec![
        Figure::informational(
            name("1 event per POST, events/s"),
            thousands(median(single.iter().map(|sample| sample.events))),
        ),
        Figure::informational(
            name("1 event per POST, p99"),
            format!("{:.1} ms", median(single.iter().map(|sample| sample.p99))),
        ),
        Figure::informational(
            name("pgbench, commits/s"),
            thousands(median(commits.iter().copied())),
        ),
        Figure::at_least(name("times pgbench"), format!("{ratio:.2}"), ratio, 1.0, "1.0"),
        Figure::at_least(
            name("64 events per POST, events/s"),
            thousands(many),
            many,
            150_000.0,
            "150,000",
        ),
    ])
}

/// The same load on one node and on three.
pub fn three_nodes_beside_one(rounds: usize, seconds: u32) -> Result<Vec<Figure>> {
    let server = start_postgres()?;
    let measure = |nodes: usize| -> Result<f64> {
        let sample = measure_ingest(&server, nodes, 3, 1, seconds)?;
        let (events, p99) = (thousands(sample.events), sample.p99);
        eprintln!("  nodes: {nodes}, {events} events/s (p99 {p99:.1} ms)");
        Ok(sample.events)
    };
    let mut ratios = Vec::new();
    for round in 0..rounds.max(1) {
        let (one, three) = if round % 2 == 0 {
            let one = measure(1)?;
            (one, measure(3)?)
        } else {
            let three = measure(3)?;
            (measure(1)?, three)
        };
        ratios.push(three / one);
    }
    let ratio = median(ratios.into_iter());
    let name = "Postgres, three nodes, 1 event per POST: times one node".to_owned();
    Ok(vec![Figure::at_least(name, format!("{ratio:.2}"), ratio, 0.9, "0.9")])
}

/// From a POST at one node to the event at a subscriber of another.
pub fn latency(seconds: u32) -> Result<Vec<Figure>> {
    let server = start_postgres()?;
    let cluster = Cluster::start(&server, 2, "")?;
    let (watch, seconds) = (cluster.node(1)?.url.clone(), seconds.to_string());
    let args = [
        "fanout",
        "--watchers",
        "1",
        "--rate",
        "100",
        "--seconds",
        &seconds,
        "--watch-url",
        &watch,
    ];
    let figures = cluster.node(0)?.bench(&args)?;
    cluster.stop(&server)?;
    let (p50, p99) = (number(&figures, "/latency_ms/p50")?, number(&figures, "/latency_ms/p99")?);
    let name =
        |what: &str| format!("from a POST to a subscriber of another node, 100 events/s: {what}");
    Ok(vec![
        Figure::at_most(name("p50"), format!("{p50:.2} ms"), p50, 5.0, "5 ms"),
        Figure::at_most(name("p99"), format!("{p99:.2} ms"), p99, 25.0, "25 ms"),
    ])
}

/// From the end of the node that owns a session to the next event that another node has stored.
pub fn takeover(rounds: usize) -> Result<Vec<Figure>> {
    let server = start_postgres()?;
    let lease = LEASE.as_secs_f64() + 1.0;
    let goal = |seconds: f64| format!("{seconds:.0} s");
    let mut table = Vec::new();
    for (what, signal, most) in [
        ("SIGTERM", Signal::TERM, 1.0),
        ("SIGKILL, seen by the closed port", Signal::KILL, lease),
        ("SIGSTOP, as a lost machine", Signal::STOP, lease),
    ] {
        let mut times = Vec::new();
        for _ in 0..rounds.max(1) {
            let time = measure_takeover(&server, signal)?.as_secs_f64();
            eprintln!("  {what}: {time:.2} s");
            times.push(time);
        }
        let longest = times.iter().copied().fold(0.0, f64::max);
        let shown = format!("{:.2} s, longest {longest:.2} s", median(times.iter().copied()));
        table.push(Figure::at_most(
            format!("take-over after {what}"),
            shown,
            longest,
            most,
            &goal(most),
        ));
    }
    Ok(table)
}

fn measure_takeover(server: &PostgresServer, signal: Signal) -> Result<Duration> {
    let cluster = Cluster::start(server, 2, "")?;
    let (owner, other) = (cluster.node(0)?, cluster.node(1)?);
    let json = "Content-Type: application/json\r\n";
    send_request(&owner.url, "POST", "/v1/sessions", json, r#"{"id":"s","agent":"external"}"#)?;
    publish(&owner.url, "before").map_err(|why| format!("the owner refuses an event: {why}"))?;
    owner.signal(signal)?;
    let begin = Instant::now();
    while let Err(why) = publish(&other.url, "after") {
        if begin.elapsed() > LEASE * 3 {
            return Err(format!("nobody takes the session over: {why}").into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let time = begin.elapsed();
    if signal == Signal::STOP {
        owner.signal(Signal::CONT)?;
    }
    Ok(time)
}

fn publish(url: &str, id: &str) -> Result<()> {
    let headers = "Content-Type: application/x-ndjson\r\nTurnwire-Producer: bench.1\r\n";
    let event =
        format!("{{\"id\":\"{id}\",\"type\":\"CUSTOM\",\"name\":\"mark\",\"value\":\"{id}\"}}\n");
    match send_request(url, "POST", "/v1/sessions/s/events", headers, &event)? {
        (200, _) => Ok(()),
        (status, body) => Err(format!("{status} {body}").into()),
    }
}

/// What ten thousand idle subscribers of a node that owns none of their sessions cost the database.
pub fn idle() -> Result<Vec<Figure>> {
    const WATCHERS: u32 = 10_000;
    const TIME: Duration = Duration::from_secs(20);
    let server = start_postgres()?;
    let cluster = Cluster::start(&server, 2, "")?;
    let node = cluster.node(1)?;
    let (watch, pid) = (node.url.clone(), node.pid().to_string());
    let count = || {
        let statements = u32::try_from(server.count_statements(&cluster.database, TIME));
        f64::from(statements.unwrap_or(u32::MAX)) / TIME.as_secs_f64()
    };
    let without = count();
    let watchers = WATCHERS.to_string();
    let args = [
        "idle",
        "--watchers",
        &watchers,
        "--sessions",
        &watchers,
        "--watch-url",
        &watch,
        "--pid",
        &pid,
        "--seconds",
        "60",
    ];
    let first = cluster.node(0)?;
    let (with, figures) = thread::scope(|scope| -> Result<_> {
        let idle = scope.spawn(|| first.bench(&args).map_err(|error| error.to_string()));
        while !idle.is_finished() && open_streams(node)? < f64::from(WATCHERS) {
            thread::sleep(Duration::from_millis(100));
        }
        let with = count();
        Ok((with, idle.join().map_err(|_| "it panicked")??))
    })?;
    let each = number(&figures, "/kib_per_watcher")?;
    cluster.stop(&server)?;
    let name = |what: &str| {
        format!("10,000 idle subscribers of as many sessions, owned by another node: {what}")
    };
    let most = f64::from(WATCHERS) / 100.0;
    Ok(vec![
        Figure::informational("statements/s of two idle nodes".to_owned(), format!("{without:.1}")),
        Figure::at_most(name("statements/s"), format!("{with:.1}"), with, most, "100"),
        Figure::informational(name("memory of each"), format!("{each:.1} KiB")),
    ])
}

/// How many streams a node serves.
fn open_streams(node: &RunningServer) -> Result<f64> {
    let (_, metrics) = send_request(&node.url, "GET", "/metrics", "", "")?;
    let gauges = metrics.lines().filter(|line| line.starts_with("turnwire_streams{"));
    Ok(gauges.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}
