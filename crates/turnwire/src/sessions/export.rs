//! `turnwire sessions export`: writes sessions as JSON lines.

use super::{DEFAULT_TENANT, one_line};
use crate::input::{CommandError, print_stderr};
use crate::store::{self, Mode, OpenStore, StoreArgs};
use clap::Args;
use indicatif::ProgressBar;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use turnwire_log::private_file;
use turnwire_log::store::{SessionKey, SessionNumber, SessionRecord, Store};
use turnwire_log::transfer::{self, ExportError, ExportedBlobs};

/// How many sessions are read at a time.
const PAGE_SIZE: usize = 500;

/// Write sessions as JSON lines
///
/// Per session one line that describes it, then its stored events, queued messages, and the blobs that it
/// refers to; messages whose events were removed are written whole. Without ids: all sessions. What is
/// damaged is left out and named.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Export {
    /// The sessions [default: all]
    ids: Vec<String>,

    /// The output: a file, or - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,

    /// The tenant of the sessions [default: all tenants; with ids, `default`]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER: &str = "\
It works while a server runs. A file appears only when it is complete.

Exit status:
  0    everything was written
  1    something damaged was left out; or there is no such session, and nothing was written
  2    wrong usage, or the store cannot be read, or the output cannot be written
  141  the reader of the output closed the pipe

Examples:
  turnwire sessions export -o all.ndjson
  turnwire sessions export chat-1 chat-2 | gzip > two.ndjson.gz
  turnwire sessions export chat-1 | turnwire fold";

/// The output.
enum ExportTarget {
    Stdout(BufWriter<io::Stdout>),
    /// Renamed when it is complete.
    File {
        file: BufWriter<File>,
        partial: PathBuf,
        path: PathBuf,
    },
}

impl ExportTarget {
    fn open(path: PathBuf) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout(BufWriter::with_capacity(1 << 16, io::stdout())));
        }
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = BufWriter::with_capacity(1 << 16, private_file::create_or_replace(&partial)?);
        Ok(Self::File { file, partial, path })
    }

    fn writer(&mut self) -> &mut (dyn Write + Send) {
        match self {
            Self::Stdout(out) => out,
            Self::File { file, .. } => file,
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout(mut out) => out.flush(),
            Self::File { file, partial, path } => {
                let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.sync_all()?;
                fs::rename(partial, path)
            }
        }
    }

    fn discard(self) {
        if let Self::File { file, partial, .. } = self {
            drop(file);
            // If this fails, the file's name says that it is partial.
            let _ = fs::remove_file(partial);
        }
    }
}

#[derive(Default)]
struct ExportCounts {
    sessions: u64,
    events: u64,
    blobs: ExportedBlobs,
    left_out: u64,
}

impl Export {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        store::block_on(self.export())
    }

    async fn export(self) -> Result<ExitCode, CommandError> {
        let OpenStore { store, .. } = self.which.open(Mode::Read).await?;
        let store = &*store;
        let tenant = self.tenant.as_deref();
        let mut chosen = Vec::new();
        for id in &self.ids {
            let key = SessionKey::new(tenant.unwrap_or(DEFAULT_TENANT), id.as_str());
            let Some(record) = store.find_session(&key).await? else {
                let (id, tenant) = (one_line(id), one_line(&key.tenant));
                print_stderr(format_args!("error: there is no session {id} of tenant {tenant}"));
                print_stderr("hint: `turnwire sessions` lists the sessions");
                return Ok(ExitCode::FAILURE);
            };
            chosen.push(record);
        }
        let cannot_write = |error| write_error(&self.output, error);
        let mut out = ExportTarget::open(self.output.clone()).map_err(cannot_write)?;
        let bar = store::progress_bar("{spinner} sessions {pos} {per_sec}", None);
        let done = if self.ids.is_empty() {
            export_all(store, tenant, out.writer(), &bar).await
        } else {
            export_records(store, &chosen, out.writer(), &bar).await
        };
        bar.finish_and_clear();
        let written = match done {
            Ok(written) => written,
            Err(error) => {
                out.discard();
                return Err(match error {
                    ExportError::Write(error) => cannot_write(error),
                    ExportError::Log(error) => error.into(),
                });
            }
        };
        out.finish().map_err(cannot_write)?;
        let ExportCounts { sessions, events, left_out, .. } = written;
        if self.output != Path::new("-") {
            let to = self.output.display();
            print_stderr(format_args!("{sessions} sessions with {events} events written to {to}"));
        }
        if left_out > 0 {
            print_stderr(format_args!("hint: the last backup may have what was left out"));
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write_error(path: &Path, error: io::Error) -> CommandError {
    if path == Path::new("-") {
        return error.into();
    }
    CommandError::new(format!("cannot write {}: {error}", path.display()), "")
}

async fn export_all(
    store: &dyn Store,
    tenant: Option<&str>,
    out: &mut (dyn Write + Send),
    bar: &ProgressBar,
) -> Result<ExportCounts, ExportError> {
    let mut written = ExportCounts::default();
    let mut after = SessionNumber(0);
    loop {
        let records = store.list_all_sessions(after, PAGE_SIZE).await?;
        let Some(last) = records.last() else { return Ok(written) };
        after = last.number;
        let is_wanted =
            |record: &&SessionRecord| tenant.is_none_or(|tenant| *record.key.tenant == *tenant);
        for record in records.iter().filter(is_wanted) {
            export_session(store, record, out, &mut written).await?;
            bar.inc(1);
        }
    }
}

async fn export_records(
    store: &dyn Store,
    records: &[SessionRecord],
    out: &mut (dyn Write + Send),
    bar: &ProgressBar,
) -> Result<ExportCounts, ExportError> {
    let mut written = ExportCounts::default();
    for record in records {
        export_session(store, record, out, &mut written).await?;
        bar.inc(1);
    }
    Ok(written)
}

async fn export_session(
    store: &dyn Store,
    record: &SessionRecord,
    out: &mut (dyn Write + Send),
    written: &mut ExportCounts,
) -> Result<(), ExportError> {
    let report = transfer::export(store, record, &mut written.blobs, out).await?;
    written.sessions += 1;
    written.events += report.events;
    written.left_out += report.left_out.len() as u64;
    for what in &report.left_out {
        print_stderr(format_args!("left out: session {}: {}", record.key.id, one_line(what)));
    }
    Ok(())
}
