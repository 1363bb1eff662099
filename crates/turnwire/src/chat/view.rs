//! Where a conversation is shown: a terminal, a pipe, or JSON lines.

use super::message_events;
use super::one_line;
use super::page::Style;
use super::plain::PlainRenderer;
use super::render::Renderer;
use super::screen::{Screen, terminal_width};
use crate::client::History;
use crate::input::print_stderr;
use std::io::{self, Write};
use turnwire_core::Event;

/// The output of a conversation.
pub(crate) enum View {
    Terminal(Box<Renderer>, Screen),
    Plain(Box<PlainRenderer>),
    /// One event per line, as received.
    Json,
}

impl View {
    /// Shows an event, whose JSON is `json`.
    pub(crate) fn show_event(&mut self, event: &Event<'_>, json: &str) -> io::Result<()> {
        match self {
            Self::Terminal(renderer, screen) => {
                renderer.resize(terminal_width());
                screen.write(&renderer.render_event(event))
            }
            Self::Plain(plain) => {
                let printed = plain.render_event(event);
                if !printed.text.is_empty() {
                    let mut out = io::stdout().lock();
                    out.write_all(printed.text.as_bytes())?;
                    out.flush()?;
                }
                printed.notes.iter().for_each(|note| print_stderr(one_line(note)));
                Ok(())
            }
            Self::Json => {
                let mut out = io::stdout().lock();
                writeln!(out, "{json}")?;
                out.flush()
            }
        }
    }

    /// Shows stored messages.
    pub(crate) fn show_history(&mut self, history: &History) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        if history.has_more {
            screen.write(&renderer.render_note(Style::DIM, "… earlier messages are not shown"))?;
        }
        for event in history.messages.iter().flat_map(message_events::message_to_events) {
            screen.write(&renderer.render_event(&event))?;
        }
        Ok(())
    }

    /// Shows a note.
    pub(crate) fn show_note(&mut self, style: Style, text: &str) -> io::Result<()> {
        match self {
            Self::Terminal(renderer, screen) => {
                renderer.resize(terminal_width());
                screen.write(&renderer.render_note(style, text))
            }
            Self::Plain(_) | Self::Json => {
                print_stderr(one_line(text));
                Ok(())
            }
        }
    }

    /// Shows a note with a command to copy: it is not wrapped, so that it can be pasted.
    pub(crate) fn show_command(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Terminal(renderer, screen) => screen.write(&renderer.render_command(text)),
            Self::Plain(_) | Self::Json => {
                print_stderr(one_line(text));
                Ok(())
            }
        }
    }

    /// Ends the current block before a prompt.
    pub(crate) fn finish_block(&mut self) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        let text = renderer.finish_block();
        screen.write(&text)?;
        screen.clear_spinner()
    }

    /// The same, followed by an empty row.
    pub(crate) fn finish_block_with_gap(&mut self) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        let text = renderer.finish_block_with_gap();
        screen.write(&text)?;
        screen.clear_spinner()
    }

    /// Updates the spinner.
    pub(crate) fn update_spinner(&mut self, lost: bool) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        if lost {
            screen.draw_spinner(Some("waiting for the server"))
        } else {
            screen.draw_spinner(renderer.status())
        }
    }

    /// Hides a message that the user typed.
    pub(crate) fn hide_typed_message(&mut self, message_id: &str) {
        if let Self::Terminal(renderer, _) = self {
            renderer.hide_typed_message(message_id);
        }
    }
}
