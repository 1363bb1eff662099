//! The line editor: reads the user's input, and keeps a history file.

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, Config, Editor};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The length of the history.
const HISTORY_LINES: usize = 1000;

/// What the user entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LineInput {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal was closed.
    End,
}

/// The line editor.
#[derive(Clone)]
pub(crate) struct LineEditor {
    editor: Arc<Mutex<Editor<(), FileHistory>>>,
    history: Option<PathBuf>,
}

impl LineEditor {
    pub(crate) fn open(colour: bool) -> Result<Self, String> {
        let colours = if colour { ColorMode::Enabled } else { ColorMode::Disabled };
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| error.to_string())?
            .history_ignore_space(true)
            .color_mode(colours)
            .build();
        let mut editor = Editor::with_config(config).map_err(|error| error.to_string())?;
        let folders = directories::ProjectDirs::from("", "", "turnwire");
        let history = folders.map(|folders| folders.data_dir().join("chat_history"));
        if let Some(path) = &history {
            // There is no file the first time.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor: Arc::new(Mutex::new(editor)), history })
    }

    /// Reads a line that starts as `begun`.
    pub(crate) async fn read_line(&self, prompt: &str, begun: &str) -> LineInput {
        let (editor, prompt, begun) =
            (Arc::clone(&self.editor), prompt.to_owned(), begun.to_owned());
        let read = move || {
            let mut editor = editor.lock().unwrap_or_else(PoisonError::into_inner);
            editor.readline_with_initial(&prompt, (&begun, ""))
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(line)) => LineInput::Line(line),
            Ok(Err(ReadlineError::Interrupted)) => LineInput::Interrupt,
            Ok(Err(_)) | Err(_) => LineInput::End,
        }
    }

    /// Adds a line to the history, and to its file.
    pub(crate) fn add_to_history(&self, line: &str) {
        let mut editor = self.editor.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(editor.add_history_entry(line), Ok(true)) {
            return;
        }
        let Some(path) = &self.history else { return };
        if let Some(folder) = path.parent() {
            let _ = std::fs::create_dir_all(folder);
        }
        // A failure only loses the history of later runs.
        let _ = editor.append_history(path);
    }
}
