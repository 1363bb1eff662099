//! The store of a command: the `--store` option, opening it, errors, progress bars.

use crate::input::{EXIT_ERROR, print_stderr};
use crate::serve::read_config;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use turnwire_log::sqlite::{Options, Progress};
use turnwire_log::{Error, MemoryStore, SqliteStore, Store};
use turnwire_server::config::StoreUrl;

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// For reading, also while a server uses it. It must exist.
    Read,
    /// For writing. It is created if it does not exist.
    Write,
}

/// Opens the store that a URL names.
pub(crate) fn open_store(url: &StoreUrl, mode: Mode) -> Result<Arc<dyn Store>, Error> {
    match url {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::default())),
        StoreUrl::Sqlite(path) => Ok(Arc::new(open_sqlite(path, mode)?)),
    }
}

fn open_sqlite(path: &Path, mode: Mode) -> Result<SqliteStore, Error> {
    match mode {
        Mode::Read => SqliteStore::open_read_only(path),
        Mode::Write => SqliteStore::open(path, Options::default()),
    }
}

/// The default store: a file in the user's data folder.
pub(crate) fn default_url() -> Result<StoreUrl, Error> {
    let folders = directories::ProjectDirs::from("", "", "turnwire").ok_or_else(|| {
        Error::Store(
            "this user has no home folder, so there is no default store; name one with \
             --store sqlite:PATH"
                .to_owned(),
        )
    })?;
    Ok(StoreUrl::Sqlite(folders.data_dir().join("turnwire.db")))
}

/// The `--store` option.
#[derive(Args, Default)]
pub(crate) struct StoreArgs {
    /// The store: sqlite:PATH [default: as for `turnwire serve`]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
}

impl StoreArgs {
    /// The path of the store: from the option, the environment, the settings, or the default.
    pub(crate) fn path(self) -> Result<PathBuf, CommandError> {
        let url = match self.store {
            Some(url) => url,
            None => configured_url()?.map_or_else(default_url, Ok)?,
        };
        match url {
            StoreUrl::Sqlite(path) => Ok(path),
            StoreUrl::Memory => Err(CommandError::new(
                "a store in memory exists only inside its server",
                "name a file with --store sqlite:PATH",
            )),
        }
    }

    pub(crate) fn open(self, mode: Mode) -> Result<Arc<SqliteStore>, CommandError> {
        let path = self.path()?;
        if mode == Mode::Read && !path.exists() {
            return Err(CommandError::new(
                format!("there is no store at {}", path.display()),
                "name it with --store sqlite:PATH; `turnwire serve` creates one",
            ));
        }
        Ok(Arc::new(open_sqlite(&path, mode)?))
    }
}

fn configured_url() -> Result<Option<StoreUrl>, CommandError> {
    let cannot = |error| CommandError::new(format!("invalid settings\n{error}"), "");
    Ok(read_config(None).map_err(cannot)?.store)
}

/// Why a command failed, with a hint.
#[derive(Debug)]
pub(crate) struct CommandError {
    message: String,
    hint: Cow<'static, str>,
}

impl CommandError {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// Prints the error, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        print_stderr(format_args!("error: {}", self.message));
        if !self.hint.is_empty() {
            print_stderr(format_args!("hint: {}", self.hint));
        }
        ExitCode::from(EXIT_ERROR)
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let hint = if matches!(error, Error::Locked(_)) {
            "a server uses it; `turnwire sessions`, `sessions export`, `backup`, and `doctor` \
             without --repair work at the same time"
        } else if matches!(error, Error::Version(_)) {
            "use the version of Turnwire that wrote it, or a later one"
        } else {
            ""
        };
        Self::new(error.to_string(), hint)
    }
}

/// Runs a command's future to its end.
pub(crate) fn block_on(work: impl Future<Output = Result<ExitCode, CommandError>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime
        .map_err(|error| CommandError::new(format!("cannot start the runtime: {error}"), ""))
        .and_then(|runtime| runtime.block_on(work));
    done.unwrap_or_else(|cannot| cannot.report())
}

/// A progress bar on standard error.
pub(crate) fn progress_bar(template: &'static str, total: Option<u64>) -> ProgressBar {
    // Nothing is drawn if standard error is not a terminal.
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows the progress that the storage engine reports.
pub(crate) fn show_progress(bar: ProgressBar) -> impl FnMut(Progress) + Send + 'static {
    move |progress| {
        bar.set_message(progress.stage);
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    }
}

/// The template of such a bar.
pub(crate) const STAGE_TEMPLATE: &str = "{msg:10} {bar:40} {pos}/{len} {eta}";

/// The size of a file, as text.
pub(crate) fn file_size(path: &Path) -> String {
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    indicatif::HumanBytes(bytes).to_string()
}
