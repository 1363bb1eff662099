//! Reads one key without Enter, for a question.

use super::line_editor::LineInput;
use std::io::{self, Write};

/// Shows a prompt, and returns what was pressed: usually one character; more if a key sends more, such as an arrow.
///
/// What was typed before the question appeared is dropped: it was not meant for it.
pub(crate) async fn read_key(prompt: &str) -> LineInput {
    let prompt = prompt.to_owned();
    let read = tokio::task::spawn_blocking(move || read_blocking(&prompt));
    read.await.ok().and_then(Result::ok).unwrap_or(LineInput::End)
}

#[cfg(unix)]
fn read_blocking(prompt: &str) -> io::Result<LineInput> {
    use super::screen::TerminalMode;
    use rustix::termios::{QueueSelector, tcflush};
    let stdin = io::stdin();
    let mode = TerminalMode::single_keys();
    tcflush(&stdin, QueueSelector::IFlush)?;
    let mut out = io::stdout().lock();
    write!(out, "{prompt}")?;
    out.flush()?;
    let mut bytes = [0; 64];
    let count = loop {
        match rustix::io::read(&stdin, &mut bytes) {
            // The window was resized.
            Err(rustix::io::Errno::INTR) => {}
            done => break done?,
        }
    };
    drop(mode);
    let pressed = bytes.get(..count).unwrap_or_default();
    let key = match pressed {
        [] | [CTRL_D, ..] => LineInput::End,
        [CTRL_C, ..] => LineInput::Interrupt,
        bytes => LineInput::Line(String::from_utf8_lossy(bytes).trim().to_owned()),
    };
    let shown = match &key {
        LineInput::Line(text) if text.chars().all(char::is_alphanumeric) => text,
        LineInput::Line(_) | LineInput::Interrupt | LineInput::End => "",
    };
    writeln!(out, "{shown}")?;
    Ok(key)
}

#[cfg(unix)]
const CTRL_C: u8 = 3;
#[cfg(unix)]
const CTRL_D: u8 = 4;

#[cfg(not(unix))]
fn read_blocking(prompt: &str) -> io::Result<LineInput> {
    let mut out = io::stdout().lock();
    write!(out, "{prompt}")?;
    out.flush()?;
    let mut line = String::new();
    Ok(match io::stdin().read_line(&mut line)? {
        0 => LineInput::End,
        _ => LineInput::Line(line.trim().to_owned()),
    })
}
