//! `turnwire man`: writes the manual pages. `make dist` calls it; hidden from the list of commands.

use crate::input::CommandError;
use clap::{Args, Command};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages into a folder
///
/// One page for each command: turnwire.1, turnwire-serve.1, and so on.
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct Man {
    /// The folder, which must exist
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Result<ExitCode, CommandError> {
        clap_mangen::generate_to(command, &self.folder).map_err(|error| {
            CommandError::new(
                format!("cannot write to {}: {error}", self.folder.display()),
                "name a folder that exists and can be written",
            )
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
