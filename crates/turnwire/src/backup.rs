//! `turnwire backup` and `turnwire restore`: copy a store to a file, and make a store from it.

use crate::input::{CommandError, print_stderr};
use crate::store::{self, Mode, StoreArgs};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use turnwire_log::sqlite::{ExistingStore, restore};

/// Copy a store to a file, also while a server uses it
///
/// The copy is a snapshot: the store at one moment. The server keeps writing meanwhile. An existing
/// file is never overwritten, and the new file appears only when it is complete.
#[derive(Args)]
#[command(after_help = AFTER_BACKUP)]
pub(crate) struct Backup {
    /// The file to write; it must not exist
    file: PathBuf,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER_BACKUP: &str = "\
Exit status:
  0  the copy is complete
  2  there is no store, or the copy cannot be written

Examples:
  turnwire backup turnwire-2026-01-31.db
  turnwire backup /mnt/backup/turnwire.db --store sqlite:/var/lib/turnwire/turnwire.db";

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        store::block_on(async {
            let store = self.which.open_file(Mode::Read, "backup")?;
            let bar = store::progress_bar(store::STAGE_TEMPLATE, Some(0));
            let done = store.backup(&self.file, store::show_progress(bar.clone())).await;
            bar.finish_and_clear();
            done?;
            let (from, to) = (store.path().display(), self.file.display());
            print_stderr(format_args!("copied {from} to {to} ({})", store::file_size(&self.file)));
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Create a store from a backup
///
/// The whole backup is checked first. Sessions get new epochs: their subscribers start over,
/// because the backup may lack events that they have seen.
#[derive(Args)]
#[command(after_help = AFTER_RESTORE)]
pub(crate) struct Restore {
    /// The backup file
    file: PathBuf,

    /// Replace the existing store; stop its server first
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER_RESTORE: &str = "\
Exit status:
  0  the store is restored
  2  it is not: the backup is damaged, a store already exists, or a server uses it

Examples:
  turnwire restore turnwire-2026-01-31.db --store sqlite:restored.db
  turnwire restore turnwire-2026-01-31.db --replace";

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let to = self.which.path("restore")?;
        let existing = if self.replace { ExistingStore::Replace } else { ExistingStore::Keep };
        if existing == ExistingStore::Keep && to.exists() {
            return Err(CommandError::new(
                format!("a store already exists at {}", to.display()),
                "name another path with --store sqlite:PATH, or replace it with --replace",
            ));
        }
        store::check_folder(&to)?;
        let bar = store::progress_bar(store::STAGE_TEMPLATE, Some(0));
        let done = restore(&self.file, &to, existing, store::show_progress(bar.clone()));
        bar.finish_and_clear();
        done?;
        print_stderr(format_args!("restored {} to {}", self.file.display(), to.display()));
        Ok(ExitCode::SUCCESS)
    }
}
