//! `turnwire bench`: load a running server, and print rates and latency percentiles.

mod connection;
mod delta_marks;
mod error;
mod event_script;
mod fake_provider;
mod fanout;
mod fill;
mod idle;
mod ingest;
mod late_join;
mod latency;
mod process;
mod progress;
mod replies;
mod report;
mod resume_storm;
mod sessions;
mod stalled;
mod target;
mod watchers;
mod wires;

use crate::input::CommandError;
use clap::{Args, Subcommand};
use error::{BenchError, Result};
use report::Report;
use sessions::Cleanup;
use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use target::{BenchTarget, Protocol};
use tokio::runtime::Builder;

/// Load a running server and print rates and latency percentiles
///
/// Each measurement creates its own sessions (`bench-…`), uses them over plain HTTP/1.1 like any
/// client, and deletes them. The load generator is cheap, but on the same machine it competes with
/// the server for the processors.
#[derive(Args)]
#[command(after_help = AFTER, disable_help_subcommand = true)]
pub(crate) struct Bench {
    /// URL of the server
    #[arg(long, global = true, default_value = "http://127.0.0.1:4747")]
    url: String,

    /// A token with the scopes publish, read and chat; better in the variable `TURNWIRE_TOKEN`,
    /// which process lists do not show
    #[arg(long, global = true)]
    token: Option<String>,

    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,

    /// Keep the sessions
    #[arg(long, global = true)]
    keep: bool,

    /// Threads of the load generator
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Subcommand)]
enum Measurement {
    Ingest(ingest::Ingest),
    Fanout(fanout::Fanout),
    Idle(idle::Idle),
    Stalled(stalled::Stalled),
    LateJoin(late_join::LateJoin),
    ResumeStorm(resume_storm::ResumeStorm),
    Wires(wires::Wires),
    Replies(replies::Replies),
    Fill(fill::Fill),
}

const AFTER: &str = "\
Exit status:
  0    measured
  1    the server lost, repeated or reordered events
  2    wrong usage, or the measurement failed: the server is unreachable, refuses, or disconnects
  141  the reader of the output closed the pipe

Examples:
  turnwire serve &
  turnwire bench ingest
  turnwire bench ingest --batch 64 --seconds 30 --json
  turnwire bench fanout --watchers 1000 --rate 1000
  turnwire bench idle --watchers 10000 --pid $!
  turnwire bench replies --agent clock --replies 100";

impl Bench {
    pub(crate) fn run(self) -> std::result::Result<ExitCode, CommandError> {
        let report = self.measure().map_err(|failed| CommandError::new(failed.to_string(), ""))?;
        let status = u8::from(report.is_failed());
        let text = if self.json { report.into_json() + "\n" } else { report.to_text() };
        io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::from(status))
    }

    fn measure(&self) -> Result<Report> {
        let token = self.token.clone().or_else(|| env::var("TURNWIRE_TOKEN").ok());
        let target = if let Measurement::Ingest(ingest) = &self.measurement {
            ingest.target
        } else {
            Protocol::Turnwire
        };
        let server = Arc::new(BenchTarget::new(&self.url, token.as_deref(), target)?);
        let after = if self.keep { Cleanup::Keep } else { Cleanup::Delete };
        let runtime = Builder::new_multi_thread()
            .worker_threads(usize::from(self.threads))
            .enable_all()
            .build()
            .map_err(|error| BenchError::new(format!("cannot start threads: {error}")))?;
        runtime.block_on(async {
            match &self.measurement {
                Measurement::Ingest(ingest) => ingest.run(&server, after).await,
                Measurement::Fanout(fanout) => fanout.run(&server, after).await,
                Measurement::Idle(idle) => idle.run(&server, after).await,
                Measurement::Stalled(stalled) => stalled.run(&server, after).await,
                Measurement::LateJoin(join) => join.run(&server, after).await,
                Measurement::ResumeStorm(storm) => storm.run(&server, after).await,
                Measurement::Wires(wires) => wires.run(&server, after).await,
                Measurement::Replies(replies) => replies.run(&server, after).await,
                Measurement::Fill(fill) => fill.run(&server).await,
            }
        })
    }
}
