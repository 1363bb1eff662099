//! A terminal for tests, in tmux.

use crate::harness::{TestHome, wait_until};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A terminal of 90 columns, closed on drop.
pub struct Terminal {
    socket: String,
}

/// Whether tmux is missing. Then the test is recorded as skipped, and must return.
pub fn skip_without_tmux() -> bool {
    let is_there = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
    if !is_there {
        let test = std::thread::current();
        turnwire_testkit::skip(test.name().unwrap_or("a terminal test"), "tmux is not installed");
    }
    !is_there
}

impl Terminal {
    /// Runs `turnwire` with these arguments, then prints its exit status.
    pub fn start(home: &TestHome, env: &[(&str, &str)], args: &[&str]) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let terminal = Self { socket: format!("turnwire-{}-{number}", std::process::id()) };
        let program = env!("CARGO_BIN_EXE_turnwire");
        let mut command = terminal.tmux();
        command.args(["-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "50"]);
        command.arg("-c").arg(home.path());
        for (name, value) in
            home.env().iter().map(|(name, value)| (*name, &**value)).chain(env.iter().copied())
        {
            command.arg("-e").arg(format!("{name}={value}"));
        }
        // tmux sets TERM itself; and Ctrl-C also reaches the waiting shell.
        let script = "trap : INT; export TERM=${CHAT_TERM:-$TERM}; \
                      unset TURNWIRE_CONFIG TURNWIRE_STORE TURNWIRE_TOKEN; \
                      if [ -n \"$CHAT_SAYS\" ]; then echo \"$CHAT_SAYS\" | \"$0\" \"$@\"; else \"$0\" \"$@\"; fi; \
                      echo \"left with $?\"; sleep 600";
        command.args(["sh", "-c", script, program]).args(args);
        command.env_remove("NO_COLOR");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        terminal
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).env_remove("TMUX");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.tmux().args(args).output().unwrap()
    }

    /// Types a text, and Enter.
    pub fn type_line(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.press_key("Enter");
    }

    /// Presses a key by its tmux name.
    pub fn press_key(&self, key: &str) {
        assert!(self.run(&["send-keys", key]).status.success());
    }

    /// Changes the number of columns, and waits until programs see it.
    pub fn resize(&self, columns: u16) {
        let columns = columns.to_string();
        assert!(self.run(&["resize-window", "-x", &columns]).status.success());
        wait_until("the new width", || {
            let width = self.run(&["display-message", "-p", "#{pane_width}"]).stdout;
            (String::from_utf8(width).unwrap().trim() == columns).then_some(())
        });
    }

    /// All text shown so far.
    pub fn screen_text(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p", "-S", "-2000"]).stdout).unwrap()
    }

    /// The same, with lines that the terminal has broken joined again.
    pub fn joined_text(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p", "-J", "-S", "-2000"]).stdout).unwrap()
    }

    /// The same, with style codes.
    pub fn styled_text(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p", "-e", "-S", "-2000"]).stdout).unwrap()
    }

    /// Whether a text is shown with a style from end to end: 1 is bold, 2 is dim. Where style codes
    /// are placed depends on how the text arrived, so this checks each character.
    pub fn has_style(&self, part: &str, style: u8) -> bool {
        let mut plain = String::new();
        let mut has_style = Vec::new();
        let mut is_on = false;
        let styled = self.styled_text();
        for (at, piece) in styled.split("\u{1b}[").enumerate() {
            let text = match piece.split_once('m') {
                Some((set, text)) if at > 0 => {
                    for number in set.split(';').map(|number| number.parse().unwrap_or(0)) {
                        match number {
                            // A colour by number follows.
                            38 | 48 => break,
                            0 => is_on = false,
                            22 if style <= 2 => is_on = false,
                            // Another colour.
                            30..=37 | 39 if style >= 30 => is_on = number == style,
                            number if number == style => is_on = true,
                            _ => {}
                        }
                    }
                    text
                }
                _ => piece,
            };
            plain.push_str(text);
            has_style.resize(plain.len(), is_on);
        }
        plain.match_indices(part).any(|(at, part)| {
            part.char_indices().all(|(offset, char)| char.is_whitespace() || has_style[at + offset])
        })
    }

    /// Waits until a text is shown this many times.
    pub fn wait_for(&self, part: &str, times: usize) -> String {
        let mut last = String::new();
        let mut look = || {
            last = self.screen_text();
            (last.matches(part).count() >= times).then(|| last.clone())
        };
        let end = std::time::Instant::now() + crate::harness::TIMEOUT;
        while std::time::Instant::now() < end {
            if let Some(text) = look() {
                return text;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("waited in vain for {times} of {part:?}:\n{last}");
    }

    /// Waits until the last non-empty row is this.
    pub fn wait_for_prompt(&self, prompt: &str) {
        wait_until(&format!("{prompt} as the last row"), || {
            let text = self.screen_text();
            let last = text.lines().rev().find(|row| !row.trim().is_empty())?;
            (last.trim_end() == prompt.trim_end()).then_some(())
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}
