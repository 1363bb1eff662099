//! The terminal: its abilities, writing to it, and the spinner.

use super::page::{DisplayOptions, display_width};
use std::io::{self, IsTerminal, Write};

/// Frames of the spinner.
const SPINNER_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// What the terminal can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// Standard input and output are both terminals.
    pub(crate) is_interactive: bool,
    pub(crate) display: DisplayOptions,
    /// It can rewrite its last row.
    pub(crate) can_redraw: bool,
}

impl Terminal {
    pub(crate) fn detect() -> Self {
        let is_interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb" || term.is_empty());
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let can_redraw = io::stdout().is_terminal() && !is_dumb;
        let display = DisplayOptions { width: terminal_width(), colour: can_redraw && !no_colour };
        Self { is_interactive, display, can_redraw }
    }
}

/// The current width in columns.
pub(crate) fn terminal_width() -> usize {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or(80, |(width, _)| usize::from(width.0)).max(20)
}

/// Writes to the terminal. The spinner is in the last row, and is removed before other output.
pub(crate) struct Screen {
    can_redraw: bool,
    frame: usize,
    has_spinner: bool,
}

impl Screen {
    pub(crate) fn new(terminal: Terminal) -> Self {
        Self { can_redraw: terminal.can_redraw, frame: 0, has_spinner: false }
    }

    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        if std::mem::take(&mut self.has_spinner) {
            out.write_all(b"\r\x1b[K")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Removes the spinner.
    pub(crate) fn clear_spinner(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_spinner) {
            let mut out = io::stdout().lock();
            out.write_all(b"\r\x1b[K")?;
            out.flush()?;
        }
        Ok(())
    }

    /// Draws the next frame in one write, so that nothing flickers.
    pub(crate) fn draw_spinner(&mut self, status: Option<&str>) -> io::Result<()> {
        let Some(status) = status.filter(|_| self.can_redraw) else { return self.clear_spinner() };
        self.frame = (self.frame + 1) % SPINNER_FRAMES.len();
        let frame = SPINNER_FRAMES.get(self.frame).copied().unwrap_or_default();
        let mut row = format!("{frame} {}…", super::one_line(status));
        while display_width(&row) >= terminal_width() {
            row.pop();
        }
        self.has_spinner = true;
        let mut out = io::stdout().lock();
        write!(out, "\r{row}\x1b[K")?;
        out.flush()
    }
}

/// Another mode of the terminal, until it is dropped.
#[cfg(unix)]
pub(crate) struct TerminalMode(Option<rustix::termios::Termios>);

#[cfg(unix)]
impl TerminalMode {
    /// Typed characters are not shown, and go to the next prompt.
    pub(crate) fn echo_off() -> Self {
        use rustix::termios::LocalModes;
        Self::without(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// Each key can be read at once, also Ctrl-C.
    pub(crate) fn single_keys() -> Self {
        use rustix::termios::LocalModes;
        Self::without(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    fn without(modes: rustix::termios::LocalModes) -> Self {
        use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
        let stdin = io::stdin();
        let Ok(before) = tcgetattr(&stdin) else { return Self(None) };
        let mut changed = before.clone();
        changed.local_modes.remove(modes);
        let done = tcsetattr(&stdin, OptionalActions::Now, &changed);
        Self(done.is_ok().then_some(before))
    }
}

#[cfg(unix)]
impl Drop for TerminalMode {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(before) = &self.0 {
            // A closed terminal needs no mode.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(not(unix))]
pub(crate) struct TerminalMode;

#[cfg(not(unix))]
impl TerminalMode {
    pub(crate) fn echo_off() -> Self {
        Self
    }
}
