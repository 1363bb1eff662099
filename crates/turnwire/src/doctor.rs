//! `turnwire doctor`: checks a store, and repairs what can be derived from its events.

use crate::input::{IoFailure, print_stderr};
use crate::store::{self, CommandError, Mode, StoreArgs};
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use turnwire_log::doctor::{self, SessionFinding};
use turnwire_log::store::{SessionNumber, SessionRecord, Store};
use turnwire_log::{Error, SqliteStore};

/// How many sessions are read at a time.
const PAGE_SIZE: usize = 500;
/// How many sessions are checked concurrently.
const CONCURRENT_CHECKS: usize = 4;

/// Check a store, and repair what can be derived from its events
///
/// Reads the whole file: damaged pages and rows, missing events, leftovers. Then it folds the
/// events of every session again and compares the result with the stored messages. Events are never
/// changed; messages are derived from them and can be rebuilt.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Doctor {
    /// Rebuild messages and states that do not match their events; stop the server first
    #[arg(long)]
    repair: bool,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER: &str = "\
Findings are printed on standard output, one per line. Without --repair it works while a server runs.
Damage in the file itself cannot be repaired: restore a backup, or save what can be read with
`turnwire sessions export`.

Exit status:
  0  no findings, or all repaired
  1  findings remain
  2  the store cannot be opened

Examples:
  turnwire doctor
  turnwire doctor --repair --store sqlite:/var/lib/turnwire/turnwire.db";

#[derive(Default)]
struct Summary {
    sessions: u64,
    findings: u64,
    repaired: u64,
}

impl Doctor {
    pub(crate) fn run(self) -> ExitCode {
        store::block_on(self.check())
    }

    async fn check(self) -> Result<ExitCode, CommandError> {
        let mode = if self.repair { Mode::Write } else { Mode::Read };
        let store = self.which.open(mode)?;
        let mut summary = Summary::default();
        let bar = store::progress_bar(store::STAGE_TEMPLATE, Some(0));
        let found = store.check(store::show_progress(bar.clone())).await;
        bar.finish_and_clear();
        let mut lines: Vec<String> = Vec::new();
        for finding in found? {
            summary.findings += 1;
            let about = finding.session.as_ref().map(|key| format!("{}/{}: ", key.tenant, key.id));
            lines.push(format!("{}{}", about.unwrap_or_default(), finding.text));
        }
        if let Err(error) = print_lines(&lines) {
            return Ok(IoFailure::Write(error).report(Path::new("-")));
        }
        if let Err(error) = check_sessions(&store, mode, &mut summary).await? {
            return Ok(IoFailure::Write(error).report(Path::new("-")));
        }
        Ok(report_summary(&store, &summary, mode))
    }
}

fn print_lines(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Checks all sessions. The inner error is a failed output.
async fn check_sessions(
    store: &SqliteStore,
    mode: Mode,
    summary: &mut Summary,
) -> Result<io::Result<()>, CommandError> {
    let bar = store::progress_bar("{spinner} sessions {pos} {per_sec}", None);
    let mut after = SessionNumber(0);
    loop {
        let records = store.list_all_sessions(after, PAGE_SIZE).await?;
        let Some(last) = records.last() else { break };
        after = last.number;
        let checks = records.iter().map(|record| async move {
            let found = doctor::check(store, record).await;
            Ok::<_, Error>((record, found))
        });
        let checked: Vec<_> =
            stream::iter(checks).buffered(CONCURRENT_CHECKS).try_collect().await?;
        for (record, found) in checked {
            summary.sessions += 1;
            bar.inc(1);
            let key = &record.key;
            let found = match found {
                Ok(found) => found,
                Err(Error::NoSession) => continue,
                Err(error) => {
                    summary.findings += 1;
                    let line = format!("{}/{}: cannot be checked: {error}", key.tenant, key.id);
                    if let Err(error) = bar.suspend(|| print_lines(&[line])) {
                        return Ok(Err(error));
                    }
                    continue;
                }
            };
            if found.is_empty() {
                continue;
            }
            summary.findings += found.len() as u64;
            let about = |finding: &SessionFinding| format!("{}/{}: {finding}", key.tenant, key.id);
            let lines: Vec<String> = found.iter().map(about).collect();
            if let Err(error) = bar.suspend(|| print_lines(&lines)) {
                return Ok(Err(error));
            }
            if mode == Mode::Write {
                summary.repaired += repair_session(store, record, &found).await?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(Ok(()))
}

/// Repairs a session, checks it again, and returns how many findings are gone.
async fn repair_session(
    store: &SqliteStore,
    record: &SessionRecord,
    found: &[SessionFinding],
) -> Result<u64, Error> {
    if !found.iter().any(SessionFinding::can_be_repaired) {
        return Ok(0);
    }
    doctor::repair(store, record, found).await?;
    let Some(record) = store.find_session(&record.key).await? else { return Ok(0) };
    let left = doctor::check(store, &record).await?;
    Ok((found.len() as u64).saturating_sub(left.len() as u64))
}

fn report_summary(store: &SqliteStore, summary: &Summary, mode: Mode) -> ExitCode {
    let Summary { sessions, findings, repaired } = summary;
    let path = store.path().display();
    match (findings, mode) {
        (0, _) => {
            print_stderr(format_args!("{path}: {sessions} sessions, no findings"));
            ExitCode::SUCCESS
        }
        (_, Mode::Read) => {
            print_stderr(format_args!("{path}: {sessions} sessions, {findings} findings"));
            print_stderr(
                "hint: stop the server and run `turnwire doctor --repair` to rebuild messages",
            );
            ExitCode::FAILURE
        }
        (_, Mode::Write) => {
            print_stderr(format_args!(
                "{path}: {sessions} sessions, {findings} findings, {repaired} of them repaired"
            ));
            if findings == repaired { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
