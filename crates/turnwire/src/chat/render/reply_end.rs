//! The end of a reply: how it went, what to do about it, what it took.

use super::Renderer;
use crate::chat::page::Style;
use turnwire_core::event::{ReplyEnd, TokenCounts};
use turnwire_core::{ErrorType, Event, FinishedReason, Folder};

impl Renderer {
    pub(super) fn show_reply_end(&mut self, event: &Event<'_>, end: &ReplyEnd) {
        self.end_current_block();
        if let Some((style, text)) = describe_reply_end(end) {
            self.show_note(style, &text);
        }
        if event.is_from_sub_agent() {
            self.page.write_row(Style::DIM, "└");
            self.status = Some("going on".to_owned());
            return;
        }
        if let Some(output) = &end.structured_output {
            let text = serde_json::from_str::<serde_json::Value>(output.text());
            let text = text.map_or_else(|_| output.text().to_owned(), |value| format!("{value:#}"));
            self.page.ensure_blank_row();
            self.page.write_row(Style::DIM, "structured output");
            self.page.write_verbatim(Style::CYAN, &text);
            self.page.start_row();
        }
        let counts = std::mem::take(&mut self.usage);
        if counts != TokenCounts::default() {
            self.page.ensure_blank_row();
            self.page.write_row(Style::DIM, &format_usage(counts));
        }
        self.page.start_row();
        self.status = None;
        // A conversation may last for days.
        self.folder = Folder::default();
        self.texts.clear();
        self.started.clear();
        self.calls = super::ToolCallState::default();
    }
}

fn format_usage(counts: TokenCounts) -> String {
    let TokenCounts { input_tokens, output_tokens, cache_input_tokens, .. } = counts;
    let cached = match cache_input_tokens {
        0 => String::new(),
        cached => format!(" ({cached} of them cached)"),
    };
    format!("{input_tokens} tokens in{cached} · {output_tokens} out")
}

/// What is said of an end that is not just the end.
pub(crate) fn describe_reply_end(end: &ReplyEnd) -> Option<(Style, String)> {
    if let Some(error) = &end.error {
        let (what, todo) = (error.r#type.as_str(), error_advice(&error.r#type));
        let message = &error.message;
        return Some((Style::RED, format!("✗ The reply failed ({what}): {message}\n{todo}")));
    }
    let text = match &end.finished_reason {
        FinishedReason::Completed | FinishedReason::ToolCalls => return None,
        FinishedReason::Interrupted => "■ stopped",
        FinishedReason::ExceedMaxIters => {
            "! it has gone round as often as it may; write on to let it go further"
        }
        FinishedReason::Error => "✗ The reply failed",
        FinishedReason::Length => "! cut off at the limit of the model's output; ask it to go on",
        FinishedReason::Refusal => "! the model declined to answer",
        FinishedReason::ContentFilter => "! a filter of the provider took it out",
        FinishedReason::Truncated => "! the provider's stream broke off; try again",
        FinishedReason::Other(word) => return Some((Style::YELLOW, format!("! ended: {word}"))),
    };
    Some((Style::YELLOW, text.to_owned()))
}

fn error_advice(kind: &ErrorType) -> &'static str {
    match kind {
        ErrorType::Authentication => {
            "Check the agent's key: api_key_env in turnwire.toml names it."
        }
        ErrorType::Permission => "The key is good, and may not do this: ask whoever gave it.",
        ErrorType::RateLimit => "Too much at once: wait a little, then try again.",
        ErrorType::InvalidRequest => {
            "The model does not take this: ask in another way, or begin anew."
        }
        ErrorType::Upstream => "The model's provider failed: try again.",
        ErrorType::Connection => {
            "The model was not reached: check the network and base_url, then try again."
        }
        ErrorType::Setup => "It failed before it began: look at the agent's settings.",
        ErrorType::Internal => {
            "That is a fault of the agent's: the server's log says more. Try again."
        }
        ErrorType::Unknown | ErrorType::Other(_) => "Try again.",
    }
}
