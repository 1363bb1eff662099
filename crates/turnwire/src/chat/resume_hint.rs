//! The command that continues a conversation, with the options that lead to the same server.

use super::{Chat, one_line};
use std::fmt::Write as _;

/// How to continue the sessions of a conversation. `None` where nothing is left of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResumeHint(Option<String>);

impl ResumeHint {
    /// The hint for the options of a conversation. Secrets are not part of it.
    pub(crate) fn new(options: &Chat) -> Self {
        let mut text = String::new();
        let mut push = |name: &str, value: &str| {
            // Writing to a string never fails.
            let _ = write!(text, " {name} {}", quote(value));
        };
        if let Some(url) = &options.url {
            push("--url", url);
        }
        if let Some(url) = &options.store {
            // Without the password of a database.
            push("--store", &url.to_string());
        }
        if let Some(path) = &options.config {
            push("--config", &path.display().to_string());
        }
        if let Some(model) = &options.model {
            push("--model", model);
        }
        if let Some(agent) = &options.agent {
            push("--agent", agent);
        }
        if let Some(path) = &options.save {
            push("--save", &path.display().to_string());
        }
        Self(Some(text))
    }

    /// Nothing can be continued.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// The command for a session.
    pub(crate) fn command(&self, session: &str) -> Option<String> {
        let options = self.0.as_deref()?;
        Some(format!("turnwire chat --resume --session {}{options}", quote(session)))
    }
}

/// Quotes a word for a POSIX shell, if it needs quotes.
fn quote(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_-./:@%+=,".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", one_line(word).replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        chat: Chat,
    }

    fn hint(args: &[&str]) -> Option<String> {
        let line = Line::parse_from([&["turnwire"], args].concat());
        ResumeHint::new(&line.chat).command("s-1")
    }

    #[test]
    fn the_command_has_the_options_that_were_used_and_no_secrets() {
        let start = "turnwire chat --resume --session s-1";
        assert_eq!(hint(&["hello", "--yes"]).unwrap(), start);
        assert_eq!(
            hint(&["--store", "sqlite:my notes.db", "--config", "it's.toml", "--agent", "friday"])
                .unwrap(),
            format!(r"{start} --store 'sqlite:my notes.db' --config 'it'\''s.toml' --agent friday")
        );
        assert_eq!(
            hint(&["--url", "http://127.0.0.1:4747", "--token", "secret"]).unwrap(),
            format!("{start} --url http://127.0.0.1:4747")
        );
        assert_eq!(
            hint(&["--store", "postgres://ada:secret@db/x", "--model", "demo", "--save", "$HOME"])
                .unwrap(),
            format!("{start} --store postgres://ada@db/x --model demo --save '$HOME'")
        );
        assert_eq!(ResumeHint::none().command("s-1"), None);
    }
}
