//! The store of a command: the `--store` option, opening it, errors, progress bars.

use crate::input::CommandError;
use crate::serve::read_config;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use turnwire_log::sqlite::{Options, Progress};
use turnwire_log::{Error, MemoryStore, PostgresStore, SqliteStore, Store};
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
pub(crate) async fn open_store(url: &StoreUrl, mode: Mode) -> Result<OpenStore, Error> {
    let name = url.to_string();
    Ok(match url {
        StoreUrl::Memory => OpenStore { store: Arc::new(MemoryStore::default()), file: None, name },
        StoreUrl::Sqlite(path) => {
            let file = Arc::new(open_sqlite(path, mode)?);
            let name = file.path().display().to_string();
            OpenStore { store: Arc::<SqliteStore>::clone(&file), file: Some(file), name }
        }
        StoreUrl::Postgres(url) => {
            let store: Arc<dyn Store> = match mode {
                Mode::Read => Arc::new(PostgresStore::open_read_only(url.secret()).await?),
                Mode::Write => Arc::new(PostgresStore::open(url.secret()).await?),
            };
            OpenStore { store, file: None, name }
        }
    })
}

/// An open store.
pub(crate) struct OpenStore {
    /// What all engines can do.
    pub(crate) store: Arc<dyn Store>,
    /// The file, if it is one, for what only files can do.
    pub(crate) file: Option<Arc<SqliteStore>>,
    /// Its path, or its URL without the password.
    pub(crate) name: String,
}

fn open_sqlite(path: &Path, mode: Mode) -> Result<SqliteStore, Error> {
    match mode {
        Mode::Read => SqliteStore::open_read_only(path),
        Mode::Write => {
            check_folder(path)?;
            SqliteStore::open(path, Options::default())
        }
    }
}

/// Only the folder of the default store is created: that of another path is more likely mistyped than wanted.
pub(crate) fn check_folder(path: &Path) -> Result<(), Error> {
    let is_default = matches!(default_url(), Ok(StoreUrl::Sqlite(default)) if default == path);
    let missing = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    match missing {
        Some(folder) if !is_default => Err(Error::Store(format!(
            "cannot create {}: there is no folder {}; create it, or name another file with --store sqlite:PATH",
            path.display(),
            folder.display()
        ))),
        _ => Ok(()),
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
    /// The store: sqlite:PATH or a URL of Postgres [default: as for `turnwire serve`]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,
    /// The settings file that names the store [default: turnwire.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl StoreArgs {
    pub(crate) fn new(store: Option<StoreUrl>, config: Option<PathBuf>) -> Self {
        Self { store, config }
    }

    /// The store: from the option, the environment, the settings, or the default.
    pub(crate) fn url(self) -> Result<StoreUrl, CommandError> {
        match self.store {
            Some(url) => Ok(url),
            None => Ok(read_config(self.config.as_deref())?.store.map_or_else(default_url, Ok)?),
        }
    }

    /// The path of the store, for a command that works with files.
    pub(crate) fn path(self, command: &str) -> Result<PathBuf, CommandError> {
        match self.url()? {
            StoreUrl::Sqlite(path) => Ok(path),
            StoreUrl::Memory => Err(memory_error()),
            StoreUrl::Postgres(url) => Err(CommandError::new(
                format!("`turnwire {command}` works with files, and {url} is a Postgres database"),
                "use `pg_dump --schema=turnwire` and `pg_restore`, or the backups of your database; `turnwire copy` writes it to \
                 a file; or name a file with --store sqlite:PATH",
            )),
        }
    }

    /// Opens the store.
    pub(crate) async fn open(self, mode: Mode) -> Result<OpenStore, CommandError> {
        let url = self.url()?;
        match &url {
            StoreUrl::Memory => return Err(memory_error()),
            StoreUrl::Sqlite(path) => check_exists(path, mode)?,
            StoreUrl::Postgres(_) => {}
        }
        Ok(open_store(&url, mode).await?)
    }

    /// Opens the store, which must be a file.
    pub(crate) fn open_file(
        self,
        mode: Mode,
        command: &str,
    ) -> Result<Arc<SqliteStore>, CommandError> {
        let path = self.path(command)?;
        check_exists(&path, mode)?;
        Ok(Arc::new(open_sqlite(&path, mode)?))
    }
}

pub(crate) fn memory_error() -> CommandError {
    CommandError::new(
        "a store in memory exists only inside its server",
        "name a file with --store sqlite:PATH",
    )
}

fn check_exists(path: &Path, mode: Mode) -> Result<(), CommandError> {
    if mode == Mode::Read && !path.exists() {
        return Err(CommandError::new(
            format!("there is no store at {}", path.display()),
            "name it with --store sqlite:PATH; `turnwire serve` creates one",
        ));
    }
    Ok(())
}

/// Runs a command's future to its end.
pub(crate) fn block_on(
    work: impl Future<Output = Result<ExitCode, CommandError>>,
) -> Result<ExitCode, CommandError> {
    new_runtime()?.block_on(work)
}

/// A runtime for one command.
pub(crate) fn new_runtime() -> Result<Runtime, CommandError> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| CommandError::new(format!("cannot start the runtime: {error}"), ""))
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
