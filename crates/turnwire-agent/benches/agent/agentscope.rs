//! Runs AgentScope's agent with the same script, through `tests/bench/agentscope_agent.py`.

use crate::Result;
use serde::Deserialize;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct AgentScope {
    python: PathBuf,
    script: PathBuf,
}

/// The output of the script.
#[derive(Debug, Deserialize)]
pub struct Run {
    pub version: String,
    /// Processor time per token.
    pub seconds: f64,
}

impl AgentScope {
    /// `None` if `AGENTSCOPE_PYTHON` is not set.
    pub fn from_env() -> Option<Self> {
        let python = PathBuf::from(env::var_os("AGENTSCOPE_PYTHON")?);
        // Cargo starts a benchmark in its package; relative paths mean the repository.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let is_path = python.components().count() > 1;
        Some(Self {
            python: if is_path { root.join(python) } else { python },
            script: root.join("tests/bench/agentscope_agent.py"),
        })
    }

    pub fn run(&self, tokens: u32, token: &str) -> Result<Run> {
        eprintln!("AgentScope ...");
        let mut command = Command::new(&self.python);
        let output = command.arg(&self.script).arg(tokens.to_string()).arg(token).output()?;
        if !output.status.success() {
            // The last line of a traceback says what is wrong.
            let problem = String::from_utf8_lossy(&output.stderr);
            return Err(problem.lines().last().unwrap_or("it says nothing").into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
