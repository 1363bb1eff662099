//! The figures of the server: `make bench-server`, or some of them by name, such as `cargo bench -p
//! turnwire --bench server -- fanout idle`.
//!
//! Each figure has a fresh server and a fresh store on the disk of the target folder. If Electric's
//! `durable-streams` server is installed (`DURABLE_STREAMS` is its path), it gets the same events
//! from the same load generator, alternating.
//!
//! The figures of a cluster, and the comparison with an earlier version, run only by name: `make bench-cluster`, `make bench-before`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::print_stderr, reason = "and tells who waits what it is at")]

mod before;
mod cluster;
mod figures;
mod first_token;
mod ingest;
mod replies;
mod running_server;
mod sizing;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use figures::Figure;
use replies::Model;
use running_server::ServerKind;
use std::error::Error;
use std::path::{Path, PathBuf};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The figures of the server
#[derive(Parser)]
struct Cli {
    /// The figures [default: all of a single server]
    #[arg(value_parser = PossibleValuesParser::new(SINGLE.into_iter().chain(CLUSTER).chain(["before"])))]
    figures: Vec<String>,

    /// Rounds of ingest per server
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds per round
    #[arg(long, default_value_t = 10)]
    seconds: u32,

    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

const SINGLE: [&str; 14] = [
    "ingest-1",
    "ingest-64",
    "fanout",
    "idle",
    "stalled",
    "late-join",
    "resume-storm",
    "wires",
    "start",
    "token-time",
    "first-token",
    "replies-in-process",
    "replies-over-http",
    "reply-memory",
];

/// Over a Postgres on this machine.
const CLUSTER: [&str; 6] = [
    "cluster-ingest",
    "cluster-nodes",
    "cluster-latency",
    "cluster-takeover",
    "cluster-idle",
    "cluster-sizing",
];

fn main() {
    let cli = Cli::parse();
    running_server::allow_open_files();
    let peer = find_peer();
    let kinds = match &peer {
        Some(peer) => vec![ServerKind::Turnwire, ServerKind::DurableStreams(peer.clone())],
        None => vec![ServerKind::Turnwire],
    };
    let names: Vec<&str> = if cli.figures.is_empty() {
        SINGLE.to_vec()
    } else {
        cli.figures.iter().map(String::as_str).collect()
    };
    let mut table = Vec::new();
    for name in names {
        eprintln!("{name} ...");
        let figures = match name {
            "ingest-1" => ingest::compare(&kinds, 1, cli.rounds, cli.seconds),
            "ingest-64" => ingest::compare(&kinds, 64, cli.rounds, cli.seconds),
            "fanout" => figures::fanout(cli.seconds),
            "idle" => figures::idle(),
            "stalled" => figures::stalled(),
            "late-join" => figures::late_join(),
            "resume-storm" => figures::resume_storm(),
            "wires" => figures::wires(),
            "start" => figures::start(),
            "token-time" => replies::token_time(cli.seconds),
            "first-token" => first_token::first_token(),
            "replies-in-process" => replies::most_replies(Model::InProcess, cli.seconds),
            "replies-over-http" => replies::most_replies(Model::OverHttp, cli.seconds),
            "reply-memory" => replies::memory(),
            "cluster-ingest" => cluster::ingest(cli.rounds, cli.seconds),
            "cluster-nodes" => cluster::three_nodes_beside_one(cli.rounds, cli.seconds),
            "cluster-latency" => cluster::latency(cli.seconds),
            "cluster-takeover" => cluster::takeover(cli.rounds),
            "before" => before::compare(cli.rounds, cli.seconds),
            "cluster-idle" => cluster::idle(),
            _ => sizing::sizing(cli.seconds),
        };
        match figures {
            Ok(figures) => table.extend(figures),
            // Continue with the other figures.
            Err(error) => eprintln!("{name} was not measured: {error}"),
        }
    }
    print_table(&table);
}

/// The path of the other server, if it is installed.
fn find_peer() -> Option<PathBuf> {
    let path = match std::env::var_os("DURABLE_STREAMS") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/peers/durable-streams/bin/durable-streams-server"),
    };
    if path.is_file() {
        return Some(path);
    }
    eprintln!(
        "durable-streams is not at {}: Turnwire is measured alone (`make bench-server` installs it)",
        path.display()
    );
    None
}

fn print_table(table: &[Figure]) {
    let width = |of: fn(&Figure) -> &str| {
        table.iter().map(|figure| of(figure).chars().count()).max().unwrap_or_default()
    };
    let (name, measured, goal) =
        (width(|one| &one.name), width(|one| &one.measured), width(|one| &one.goal));
    for figure in table {
        println!(
            "{:<name$}  {:>measured$}  {:<goal$}  {}",
            figure.name, figure.measured, figure.goal, figure.verdict
        );
    }
}
