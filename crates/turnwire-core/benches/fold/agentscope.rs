//! Runs AgentScope for Python on the same streams, through `tests/bench/agentscope_fold.py`.

use crate::streams::Stream;
use crate::{Result, content, json_to_message};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

pub struct AgentScope {
    python: PathBuf,
    script: PathBuf,
}

/// What the script prints.
#[derive(Debug, Deserialize)]
pub struct Run {
    pub version: String,
    /// Seconds with its own JSON reader.
    pub own: f64,
    /// Seconds with a faster JSON reader that we wrote for it.
    pub faster: f64,
}

impl AgentScope {
    /// `None` if `AGENTSCOPE_PYTHON` is not set.
    pub fn from_env() -> Option<Self> {
        let python = PathBuf::from(env::var_os("AGENTSCOPE_PYTHON")?);
        // Cargo starts a benchmark in its package; a relative path is meant from the repository.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let is_path = python.components().count() > 1;
        Some(Self {
            python: if is_path { root.join(python) } else { python },
            script: root.join("tests/bench/agentscope_fold.py"),
        })
    }

    /// One run for each stream, in their order.
    pub fn fold_all(&self, streams: &[Stream]) -> Result<Vec<Run>> {
        streams.iter().map(|stream| self.fold(stream)).collect()
    }

    fn fold(&self, stream: &Stream) -> Result<Run> {
        eprintln!("AgentScope: {}", stream.shape);
        let folded = stream.path.with_extension("agentscope");
        let mut command = Command::new(&self.python);
        let output = command.arg(&self.script).args([&stream.path, &folded]).output()?;
        if !output.status.success() {
            // The last line of a traceback says what is wrong.
            let problem = String::from_utf8_lossy(&output.stderr);
            return Err(problem.lines().last().unwrap_or("no error message").into());
        }
        if fs::read_to_string(folded)? != content(&json_to_message(&stream.json)?) {
            return Err(format!("its result for {} differs from ours", stream.shape).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
