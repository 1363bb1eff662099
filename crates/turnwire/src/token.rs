//! `turnwire token new`: creates a bearer token.

use crate::input::CommandError;
use clap::{Args, Subcommand};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use turnwire_server::auth::{self, Scope};

/// Create credentials
#[derive(Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    New(New),
}

/// Create a bearer token, and print the lines for turnwire.toml that accept it
///
/// The token is printed once. The settings contain only its hash.
#[derive(Args)]
struct New {
    /// The tenant whose sessions it can access
    #[arg(long, default_value = auth::DEFAULT_TENANT, value_parser = id)]
    tenant: String,
    /// Its scopes: read, chat, publish, approve, admin
    #[arg(long, value_delimiter = ',', default_value = "read,chat,approve")]
    scopes: Vec<Scope>,
    /// The owner of the token
    #[arg(long, value_name = "NAME", value_parser = plain)]
    subject: Option<String>,
    /// Limit it to this session, or with a * at the end to all with this prefix; may be repeated
    #[arg(long = "session", value_name = "SESSION", value_parser = rule)]
    sessions: Vec<String>,
}

fn id(text: &str) -> Result<String, String> {
    if auth::is_valid_id(text) {
        return Ok(text.to_owned());
    }
    Err("expected 1 to 128 characters of A-Z a-z 0-9 . _ : -".to_owned())
}

fn rule(text: &str) -> Result<String, String> {
    id(text.strip_suffix('*').filter(|text| !text.is_empty()).unwrap_or(text))
        .map(|_| text.to_owned())
}

/// Text that needs no escaping in the settings.
fn plain(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == '"' || c == '\\') {
        return Err("expected text without quotes, backslashes or line breaks".to_owned());
    }
    Ok(text.to_owned())
}

impl Token {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let TokenCommand::New(new) = self.command;
        let Some((token, hash)) = auth::generate_token() else {
            return Err(CommandError::new("the system's random number generator failed", ""));
        };
        io::stdout().lock().write_all(new.text(&token, &hash).as_bytes())?;
        Ok(ExitCode::SUCCESS)
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
            "# The token, printed only once. Send it as `Authorization: Bearer TOKEN`:\n# {token}\n\
             # Add these lines to turnwire.toml:\n[[auth.tokens]]\ntenant = \"{}\"\nsha256 = \"{hash}\"\n\
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
