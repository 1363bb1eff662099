//! `turnwire token new`: makes credentials.

use crate::input::{EXIT_ERROR, IoFailure, print_stderr};
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use turnwire_server::auth::{self, Scope};

/// Make credentials
#[derive(Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    New(New),
}

/// Make a bearer token, and the lines of turnwire.toml that let it in
///
/// The token is shown once, and only its hash is kept in the settings.
#[derive(Args)]
struct New {
    /// Whose sessions it reaches
    #[arg(long, default_value = auth::DEFAULT_TENANT, value_parser = id)]
    tenant: String,
    /// What it may do: read, chat, publish, approve, admin
    #[arg(long, value_delimiter = ',', default_value = "read,chat,approve")]
    scopes: Vec<Scope>,
    /// Who holds it
    #[arg(long, value_name = "NAME", value_parser = plain)]
    subject: Option<String>,
    /// Only this session, or with a * behind all that begin so; may be repeated
    #[arg(long = "session", value_name = "SESSION", value_parser = rule)]
    sessions: Vec<String>,
}

fn id(text: &str) -> Result<String, String> {
    if auth::is_valid_id(text) {
        return Ok(text.to_owned());
    }
    Err("1 to 128 of A-Z a-z 0-9 . _ : -".to_owned())
}

fn rule(text: &str) -> Result<String, String> {
    id(text.strip_suffix('*').filter(|text| !text.is_empty()).unwrap_or(text))
        .map(|_| text.to_owned())
}

/// What can stand in the settings as it is.
fn plain(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == '"' || c == '\\') {
        return Err("some letters, without quotes, backslashes or line breaks".to_owned());
    }
    Ok(text.to_owned())
}

impl Token {
    pub(crate) fn run(self) -> ExitCode {
        let TokenCommand::New(new) = self.command;
        let Some((token, hash)) = auth::generate_token() else {
            print_stderr("error: the system gives no randomness");
            return ExitCode::from(EXIT_ERROR);
        };
        match io::stdout().lock().write_all(new.text(&token, &hash).as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => IoFailure::Write(error).report(Path::new("-")),
        }
    }
}

impl New {
    fn text(&self, token: &str, hash: &str) -> String {
        let quoted = |names: Vec<&str>| {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            names.join(", ")
        };
        let scopes = quoted(self.scopes.iter().map(|scope| scope.name()).collect());
        let mut text = format!(
            "# The token, shown this once; send it as `Authorization: Bearer TOKEN`:\n# {token}\n\
             # These lines go into turnwire.toml:\n[[auth.tokens]]\ntenant = \"{}\"\nsha256 = \"{hash}\"\n\
             scopes = [{scopes}]\n",
            self.tenant
        );
        if let Some(subject) = &self.subject {
            let _ = writeln!(text, "subject = \"{subject}\"");
        }
        if !self.sessions.is_empty() {
            let sessions = quoted(self.sessions.iter().map(String::as_str).collect());
            let _ = writeln!(text, "sessions = [{sessions}]");
        }
        text
    }
}
