//! `turnwire doctor`: checks a store, and repairs what can be derived from its events.

use crate::input::{CommandError, print_stderr};
use crate::store::{self, Mode, OpenStore, StoreArgs};
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::io::{self, Write};
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
/// Reads the whole file, if the store is one: damaged pages and rows, missing events, leftovers. Then it folds the
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
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        store::block_on(self.check())
    }

    async fn check(self) -> Result<ExitCode, CommandError> {
        let mode = if self.repair { Mode::Write } else { Mode::Read };
        let OpenStore { store, file, name } = self.which.open(mode).await?;
        let mut summary = Summary::default();
        let lines = match &file {
            Some(file) => check_file(file, &mut summary).await?,
            // The database checks its own pages.
            None => Vec::new(),
        };
        print_lines(&lines)?;
        check_sessions(&*store, mode, &mut summary).await?;
        Ok(report_summary(&name, &summary, mode))
    }
}

/// Reads the whole file, and returns a line for each finding.
async fn check_file(file: &SqliteStore, summary: &mut Summary) -> Result<Vec<String>, Error> {
    let bar = store::progress_bar(store::STAGE_TEMPLATE, Some(0));
    let found = file.check(store::show_progress(bar.clone())).await;
    bar.finish_and_clear();
    let mut lines = Vec::new();
    for finding in found? {
        summary.findings += 1;
        let about = finding.session.as_ref().map(|key| format!("{}/{}: ", key.tenant, key.id));
        lines.push(format!("{}{}", about.unwrap_or_default(), finding.text));
    }
    Ok(lines)
}

fn print_lines(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Checks all sessions.
async fn check_sessions(
    store: &dyn Store,
    mode: Mode,
    summary: &mut Summary,
) -> Result<(), CommandError> {
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
                    bar.suspend(|| print_lines(&[line]))?;
                    continue;
                }
            };
            if found.is_empty() {
                continue;
            }
            summary.findings += found.len() as u64;
            let about = |finding: &SessionFinding| format!("{}/{}: {finding}", key.tenant, key.id);
            let lines: Vec<String> = found.iter().map(about).collect();
            bar.suspend(|| print_lines(&lines))?;
            if mode == Mode::Write {
                summary.repaired += repair_session(store, record, &found).await?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Repairs a session, checks it again, and returns how many findings are gone.
async fn repair_session(
    store: &dyn Store,
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

fn report_summary(name: &str, summary: &Summary, mode: Mode) -> ExitCode {
    let Summary { sessions, findings, repaired } = summary;
    match (findings, mode) {
        (0, _) => {
            print_stderr(format_args!("{name}: {sessions} sessions, no findings"));
            ExitCode::SUCCESS
        }
        (_, Mode::Read) => {
            print_stderr(format_args!("{name}: {sessions} sessions, {findings} findings"));
            print_stderr(
                "hint: stop the server and run `turnwire doctor --repair` to rebuild messages",
            );
            ExitCode::FAILURE
        }
        (_, Mode::Write) => {
            print_stderr(format_args!(
                "{name}: {sessions} sessions, {findings} findings, {repaired} of them repaired"
            ));
            if findings == repaired { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
