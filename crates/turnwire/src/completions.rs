//! `turnwire completions`: prints the completions of a shell. Packages contain them, too.

use crate::input::CommandError;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::{self, Write};
use std::process::ExitCode;

/// Print shell completions
///
/// For bash: `turnwire completions bash > ~/.local/share/bash-completion/completions/turnwire`. The packages
/// install them.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Result<ExitCode, CommandError> {
        // The generator panics if its output fails, as that of a closed pipe does.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "turnwire", &mut script);
        io::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
