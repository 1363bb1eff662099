//! `turnwire sessions import`: reads sessions that `export` has written.

use super::{DEFAULT_TENANT, one_line};
use crate::input::{CommandError, EXIT_ERROR, print_stderr};
use crate::store::{self, Mode, OpenStore, StoreArgs};
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use turnwire_log::store::{SessionQuery, Store};
use turnwire_log::transfer::{self, ExistingSession, ImportOptions, ImportReport};
use turnwire_log::{Error, SearchQuery};

/// Import sessions that `export` has written
///
/// Sessions keep their ids and get new epochs. An existing session is reported and not changed,
/// unless an option says otherwise. A session with an invalid line is not imported; the others are.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Import {
    /// The input: a file, or - for standard input
    file: PathBuf,

    /// Replace existing sessions
    #[arg(long, conflicts_with = "skip_existing")]
    replace: bool,

    /// Skip existing sessions without an error
    #[arg(long)]
    skip_existing: bool,

    /// The tenant of the imported sessions [default: as exported]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER: &str = "\
The store is created if it does not exist. No server may use it. An interrupted import can be repeated
with --replace.

Exit status:
  0  everything was imported or skipped
  1  an invalid line, or a session that already exists; the others were imported
  2  wrong usage, or the file cannot be read, or the store cannot be written

Examples:
  turnwire sessions import all.ndjson --store sqlite:new.db
  zcat all.ndjson.gz | turnwire sessions import - --skip-existing";

impl Import {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        store::block_on(self.import())
    }

    async fn import(self) -> Result<ExitCode, CommandError> {
        let (input, size) = open_input(&self.file).map_err(|error| {
            CommandError::new(format!("cannot read {}: {error}", self.file.display()), "")
        })?;
        let OpenStore { store, .. } = self.which.open(Mode::Write).await?;
        let existing = match (self.replace, self.skip_existing) {
            (true, _) => ExistingSession::Replace,
            (false, true) => ExistingSession::Skip,
            (false, false) => ExistingSession::Refuse,
        };
        let importing = ImportOptions { existing, tenant: self.tenant.map(Into::into) };
        let template = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = store::progress_bar(template, size);
        let shown = bar.clone();
        let progress = move |bytes| shown.set_position(bytes);
        let imported = transfer::import(store.clone(), input, importing, progress).await;
        bar.finish_and_clear();
        if imported.sessions > 0 && imported.stopped.is_none() {
            make_searchable(&*store).await?;
        }
        Ok(report_import(&self.file, &imported))
    }
}

/// Waits until the search index is complete. The index is updated after writes, and only a store
/// opened for writing can wait for it.
async fn make_searchable(store: &dyn Store) -> Result<(), Error> {
    let bar = store::progress_bar("{spinner} making it searchable {elapsed}", None);
    bar.enable_steady_tick(Duration::from_millis(100));
    let search = SearchQuery::new("turnwire").ok().flatten();
    let query = SessionQuery { search, ..SessionQuery::latest(DEFAULT_TENANT, 1) };
    let found = store.list_sessions(&query).await;
    bar.finish_and_clear();
    found.map(drop)
}

fn open_input(file: &Path) -> io::Result<(Box<dyn BufRead + Send>, Option<u64>)> {
    if file == Path::new("-") {
        if io::stdin().is_terminal() {
            print_stderr("reading sessions from standard input; end with Ctrl-D, or see --help");
        }
        return Ok((Box::new(BufReader::with_capacity(1 << 18, io::stdin())), None));
    }
    let file = File::open(file)?;
    let size = file.metadata().map(|meta| meta.len()).ok();
    Ok((Box::new(BufReader::with_capacity(1 << 18, file)), size))
}

fn report_import(file: &Path, imported: &ImportReport) -> ExitCode {
    let name = file.display();
    let mut problems: Vec<_> = imported.problems.iter().collect();
    problems.sort_by_key(|problem| problem.line);
    for problem in problems {
        let session = problem.session.as_ref().map(|id| format!("session {}: ", one_line(id)));
        let (line, why) = (problem.line, one_line(&problem.why));
        print_stderr(format_args!("error: {name}:{line}: {}{why}", session.unwrap_or_default()));
    }
    let more = imported.problem_count.saturating_sub(imported.problems.len() as u64);
    if more > 0 {
        print_stderr(format_args!("error: and {more} more"));
    }
    if imported.problems.iter().any(|problem| problem.why.contains("already")) {
        print_stderr("hint: --skip-existing skips such sessions, --replace replaces them");
    }
    let ImportReport { sessions, events, skipped, left_out, .. } = imported;
    if *left_out > 0 {
        print_stderr(format_args!(
            "note: the export says that it left out {left_out} damaged parts; these sessions are incomplete"
        ));
    }
    let skipped = if *skipped > 0 { format!("; {skipped} skipped") } else { String::new() };
    print_stderr(format_args!("{sessions} sessions with {events} events imported{skipped}"));
    match &imported.stopped {
        Some(error) => {
            print_stderr(format_args!("error: import stopped: {error}"));
            ExitCode::from(EXIT_ERROR)
        }
        None if imported.problem_count > 0 => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}
