//! `turnwire copy`: copies a store to another engine.

use crate::input::{CommandError, print_stderr};
use crate::sessions::one_line;
use crate::store::{self, StoreArgs};
use clap::Args;
use indicatif::ProgressBar;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use turnwire_log::copy::{Comparison, CopyProgress, CopyStore, compare, copy};
use turnwire_log::sqlite::SqliteCopy;
use turnwire_log::{Error, PostgresStore, SqliteStore};
use turnwire_server::config::StoreUrl;

/// How often a line says how far it is, if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Copy a store to another one, for example from SQLite to Postgres
///
/// Copies every session with its events, messages, queue, idempotency keys and usage, and every blob. Seqs and
/// epochs stay the same, so clients continue with the resume tokens that they have. The source is not changed.
///
/// Stop the servers of both stores first. The target must be new: a file that does not exist, or a database without
/// sessions. Until the copy is complete, no server uses the target.
///
/// At the end both stores are compared: every session, event by event. If the copy is interrupted, run the same
/// command again: it continues.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Copy {
    /// The store to copy: sqlite:PATH or a URL of Postgres [default: as for `turnwire serve`]
    #[arg(long, value_name = "URL")]
    from: Option<StoreUrl>,

    /// The store to copy to
    #[arg(long, value_name = "URL")]
    to: StoreUrl,

    /// Only compare the two stores, and change nothing
    #[arg(long)]
    compare: bool,

    /// The settings file that names the store to copy [default: turnwire.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const AFTER: &str = "\
What differs is printed on standard output, one difference per line.

A file is locked meanwhile. A database is not: a server that runs on the source, or is started there, makes the
comparison at the end fail, or its later events stay behind.

Exit status:
  0  the target has everything
  1  the stores differ
  2  wrong usage, or a store cannot be read or written

Examples:
  turnwire copy --from sqlite:turnwire.db --to postgres://turnwire:secret@db/turnwire
  turnwire copy --from postgres://turnwire:secret@db/turnwire --to sqlite:turnwire.db
  turnwire copy --from sqlite:turnwire.db --to sqlite:/mnt/new/turnwire.db
  turnwire copy --from sqlite:turnwire.db --to postgres://turnwire:secret@db/turnwire --compare";

/// The store to copy to.
enum Target {
    File(Box<SqliteCopy>),
    Database(PostgresStore),
}

impl Target {
    async fn open(url: &StoreUrl) -> Result<Self, CommandError> {
        match url {
            StoreUrl::Memory => Err(store::memory_error()),
            StoreUrl::Sqlite(path) => {
                store::check_folder(path)?;
                Ok(Self::File(Box::new(SqliteCopy::open(path)?)))
            }
            StoreUrl::Postgres(url) => {
                let store = PostgresStore::open_copy(url.secret()).await?;
                warn_of_connections(&store).await?;
                Ok(Self::Database(store))
            }
        }
    }

    fn store(&self) -> &dyn CopyStore {
        match self {
            Self::File(copy) => copy.store(),
            Self::Database(store) => store,
        }
    }

    async fn finish(self) -> Result<(), Error> {
        match self {
            Self::File(copy) => copy.finish().await,
            Self::Database(store) => store.finish_copy().await,
        }
    }
}

async fn open_source(url: &StoreUrl) -> Result<Box<dyn CopyStore>, CommandError> {
    Ok(match url {
        StoreUrl::Memory => return Err(store::memory_error()),
        StoreUrl::Sqlite(path) => Box::new(SqliteStore::open_source(path)?),
        StoreUrl::Postgres(url) => {
            let store = PostgresStore::open_source(url.secret()).await?;
            warn_of_connections(&store).await?;
            Box::new(store)
        }
    })
}

async fn warn_of_connections(store: &PostgresStore) -> Result<(), Error> {
    let count = store.count_other_connections().await?;
    if count > 0 {
        print_stderr(format_args!(
            "warning: {count} other connections of Turnwire to {}: stop its servers (connections that pgbouncer keeps \
             do no harm)",
            store.name()
        ));
    }
    Ok(())
}

impl Copy {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        store::block_on(self.copy())
    }

    async fn copy(self) -> Result<ExitCode, CommandError> {
        let from = StoreArgs::new(self.from, self.config).url()?;
        if from == self.to {
            return Err(CommandError::new(
                format!("{from} cannot be copied to itself"),
                "name another store with --to",
            ));
        }
        let source = open_source(&from).await?;
        if self.compare {
            let target = open_source(&self.to).await?;
            return report(&compare_stores(&*source, &*target).await?, &from, &self.to);
        }
        let target = Target::open(&self.to).await?;
        let progress = ShownProgress::new();
        let copied = copy(&*source, target.store(), &|now| progress.show(now)).await;
        progress.finish();
        let copied = copied.map_err(|error| explain(error, &self.to))?;
        if copied.found > 0 {
            print_stderr(format_args!("{} sessions and blobs were there already", copied.found));
        }
        if copied.left_out > 0 {
            print_stderr(format_args!(
                "{} forks that were never finished are left out; a server deletes them",
                copied.left_out
            ));
        }
        let compared = compare_stores(&*source, target.store()).await?;
        if compared.difference_count == 0 {
            target.finish().await?;
        }
        report(&compared, &from, &self.to)
    }
}

async fn compare_stores(one: &dyn CopyStore, other: &dyn CopyStore) -> Result<Comparison, Error> {
    let progress = ShownProgress::new();
    let compared = compare(one, other, &|now| progress.show(now)).await;
    progress.finish();
    compared
}

/// Prints what differs, or that nothing does.
fn report(compared: &Comparison, from: &StoreUrl, to: &StoreUrl) -> Result<ExitCode, CommandError> {
    let Comparison { sessions, events, blobs, differences, difference_count } = compared;
    if *difference_count == 0 {
        print_stderr(format_args!(
            "{to} has all of {from}: {sessions} sessions, {events} events, {blobs} blobs"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    for difference in differences {
        writeln!(out, "{}", one_line(&difference.to_string()))?;
    }
    out.flush()?;
    print_stderr(format_args!("error: {difference_count} differences between {from} and {to}"));
    print_stderr(
        "hint: if a server has written to one of them, stop it, remove the target, and copy again",
    );
    Ok(ExitCode::FAILURE)
}

fn explain(error: Error, to: &StoreUrl) -> CommandError {
    if matches!(error, Error::OutOfOrder) {
        return CommandError::new(
            format!("another program writes to {to}"),
            "let only one `turnwire copy` run at a time",
        );
    }
    if !matches!(error, Error::Store(_) | Error::Full(_) | Error::TooSlow) {
        return error.into();
    }
    CommandError::new(
        error.to_string(),
        "run the same command again to continue; if the target has data of another store, choose another target",
    )
}

/// Progress on standard error: a bar on a terminal, otherwise a line from time to time.
struct ShownProgress {
    bar: ProgressBar,
    /// The stage and the time of the last line, if there are lines.
    last_line: Option<Mutex<(&'static str, Instant)>>,
}

impl ShownProgress {
    fn new() -> Self {
        let has_lines = !io::stderr().is_terminal();
        Self {
            bar: store::progress_bar(TEMPLATE, Some(0)),
            last_line: has_lines.then(|| Mutex::new(("", Instant::now()))),
        }
    }

    fn show(&self, progress: CopyProgress) {
        let CopyProgress { stage, done, total } = progress;
        self.bar.set_message(stage);
        self.bar.set_length(total);
        self.bar.set_position(done);
        let Some(Ok(mut last)) = self.last_line.as_ref().map(Mutex::lock) else { return };
        if last.0 != stage || last.1.elapsed() >= LINE_INTERVAL {
            *last = (stage, Instant::now());
            print_stderr(format_args!("{stage}: {done} of {total}"));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

const TEMPLATE: &str = "{msg:18} {bar:40} {pos}/{len} {eta}";
