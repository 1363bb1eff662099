//! The official Python packages on the same bytes.

use crate::Result;
use crate::streams::Stream;
use std::path::Path;
use std::process::Command;
use std::{env, fs, process};

/// Wires whose official packages have an accumulator.
pub const OFFICIAL: [&str; 3] = ["anthropic", "openai-chat", "openai-responses"];

/// The seconds from the bytes to the package's final object; `None` without such a package or an
/// interpreter.
pub fn accumulate(stream: &Stream) -> Result<Option<f64>> {
    let Some(python) = env::var_os("PROVIDERS_PYTHON") else { return Ok(None) };
    let wire = stream.wire.name;
    if !OFFICIAL.contains(&wire) {
        return Ok(None);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bench/accumulators.py");
    let name = format!("turnwire-{}-{wire}.sse", process::id());
    let body = env::temp_dir().join(name);
    fs::write(&body, &stream.body)?;
    let output = Command::new(python).arg(script).arg(wire).arg(&body).output();
    fs::remove_file(&body)?;
    let output = output?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let (seconds, text) = str::from_utf8(&output.stdout)?.split_once('\n').ok_or("no answer")?;
    if text != stream.text {
        return Err(format!("{wire}: Python made another text of it").into());
    }
    Ok(Some(seconds.parse()?))
}
