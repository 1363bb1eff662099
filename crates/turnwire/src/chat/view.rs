//! The three ways to show events: on a terminal, in a pipe, as JSON.

use super::again;
use super::one_line;
use super::page::Style;
use super::plain::Plain;
use super::render::Renderer;
use super::screen::{Screen, columns};
use crate::client::History;
use crate::input::say;
use std::io::{self, Write};
use turnwire_core::Event;

/// Where events are shown.
pub(crate) enum View {
    Terminal(Box<Renderer>, Screen),
    Plain(Box<Plain>),
    /// One event a line, as it came.
    Json,
}

impl View {
    /// Shows an event, of which `json` is the text.
    pub(crate) fn event(&mut self, event: &Event<'_>, json: &str) -> io::Result<()> {
        match self {
            Self::Terminal(renderer, screen) => {
                renderer.resize(columns());
                screen.write(&renderer.push(event))
            }
            Self::Plain(plain) => {
                let printed = plain.push(event);
                if !printed.text.is_empty() {
                    let mut out = io::stdout().lock();
                    out.write_all(printed.text.as_bytes())?;
                    out.flush()?;
                }
                printed.notes.iter().for_each(|note| say(one_line(note)));
                Ok(())
            }
            Self::Json => {
                let mut out = io::stdout().lock();
                writeln!(out, "{json}")?;
                out.flush()
            }
        }
    }

    /// Shows messages that are there already.
    pub(crate) fn history(&mut self, history: &History) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        if history.has_more {
            screen.write(&renderer.note(Style::DIM, "… earlier messages are left out"))?;
        }
        for event in history.messages.iter().flat_map(again::events) {
            screen.write(&renderer.push(&event))?;
        }
        Ok(())
    }

    /// Says something that is no event.
    pub(crate) fn note(&mut self, style: Style, text: &str) -> io::Result<()> {
        match self {
            Self::Terminal(renderer, screen) => screen.write(&renderer.note(style, text)),
            Self::Plain(_) | Self::Json => {
                say(one_line(text));
                Ok(())
            }
        }
    }

    /// Ends what stands open, so that somebody can be asked.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        let text = renderer.settle();
        screen.write(&text)?;
        screen.rest()
    }

    /// The same, with an empty row before what comes.
    pub(crate) fn part(&mut self) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        let text = renderer.part();
        screen.write(&text)?;
        screen.rest()
    }

    /// Shows that something is being done.
    pub(crate) fn tick(&mut self, lost: bool) -> io::Result<()> {
        let Self::Terminal(renderer, screen) = self else { return Ok(()) };
        if lost {
            screen.spin(Some("waiting for the server"))
        } else {
            screen.spin(renderer.status())
        }
    }

    /// A message that stands on the screen already.
    pub(crate) fn typed(&mut self, message_id: &str) {
        if let Self::Terminal(renderer, _) = self {
            renderer.typed(message_id);
        }
    }
}
