//! `turnwire config check`: checks the settings without starting a server.

use crate::input::{CommandError, print_stderr};
use crate::serve::{DEFAULT_CONFIG, block_on_with_children, read_config};
use crate::store;
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use turnwire_server::agents::{McpServers, build_agents, try_models};
use turnwire_server::auth::Auth;
use turnwire_server::config::Config;

/// Work with the settings
#[derive(Args)]
pub(crate) struct Settings {
    #[command(subcommand)]
    command: SettingsCommand,
}

#[derive(Subcommand)]
enum SettingsCommand {
    Check(Check),
}

/// Check the settings: print a summary, or the errors with their lines
#[derive(Args)]
struct Check {
    /// The settings file [default: turnwire.toml]
    file: Option<PathBuf>,
    /// Also try the MCP servers and the models: sends each model a short message
    #[arg(long)]
    connect: bool,
}

impl Settings {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let SettingsCommand::Check(check) = self.command;
        let file = check.file.unwrap_or_else(|| DEFAULT_CONFIG.into());
        let config = match read_config(Some(&file)) {
            Ok(config) => config,
            Err(error) => {
                print_stderr(format_args!("error: {error}"));
                return Ok(ExitCode::FAILURE);
            }
        };
        if let Err(why) = Auth::new(&config, |name| std::env::var(name).ok()) {
            print_stderr(format_args!("error: {}: {why}", file.display()));
            return Ok(ExitCode::FAILURE);
        }
        let warnings = match build_agents(&config, None) {
            Ok(built) => built.warnings,
            Err(error) => {
                print_stderr(format_args!("error: {error}"));
                return Ok(ExitCode::FAILURE);
            }
        };
        for warning in warnings {
            print_stderr(format_args!("warning: {warning}"));
        }
        io::stdout().lock().write_all(summary(&file, &config).as_bytes())?;
        if !check.connect {
            return Ok(ExitCode::SUCCESS);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        block_on_with_children(runtime, try_connections(&config))
    }
}

/// Connects to the MCP servers, and sends each model a message.
async fn try_connections(config: &Config) -> Result<ExitCode, CommandError> {
    let servers = Arc::new(McpServers::connect_once(config).await?);
    let mut out = io::stdout().lock();
    let mut all_work = true;
    for (name, state) in servers.states() {
        all_work &= state.is_ok();
        let state = match state {
            Ok(tools) => format!("ok, {} tools", tools.len()),
            Err(why) => why,
        };
        writeln!(out, "  mcp {name:<9}{state}")?;
    }
    build_agents(config, Some(&servers))?;
    for (name, settings) in &config.agents {
        for (model, state) in try_models(config, name, settings).await? {
            all_work &= state.is_ok();
            match state {
                Ok(time) => writeln!(out, "  agent {name:<7}{model} responds in {time:.1?}")?,
                Err(why) => writeln!(out, "  agent {name:<7}{model}: {why}")?,
            }
        }
    }
    Ok(if all_work { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn summary(file: &Path, config: &Config) -> String {
    let store = match config.store.clone().map_or_else(store::default_url, Ok) {
        Ok(url) => url.to_string(),
        Err(_) => "-".to_owned(),
    };
    let (tokens, jwt) = (config.auth.tokens.len(), config.auth.jwt.as_ref());
    let credentials = match (tokens, jwt) {
        (0, None) => "none: only this machine has access, with all scopes".to_owned(),
        (count, None) => format!("{count} token(s)"),
        (count, Some(jwt)) => format!("{count} token(s), and JWT of {}", jwt.issuer),
    };
    let names: Vec<String> =
        config.agents.iter().map(|(name, agent)| format!("{name} ({})", agent.model)).collect();
    let agents = if names.is_empty() { "demo, external".to_owned() } else { names.join(", ") };
    let tls = match (&config.tls, config.behind_proxy) {
        (Some(_), _) => "yes",
        (None, true) => "by a proxy in front",
        (None, false) => "no",
    };
    format!(
        "{}: ok\n  listen       {}\n  store        {store}\n  credentials  {credentials}\n  TLS          {tls}\n  \
         agents       {agents} (default: {})\n",
        file.display(),
        config.listen.0,
        config.default_agent(),
    )
}
