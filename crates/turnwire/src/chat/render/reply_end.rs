//! Renders the end of a reply: outcome, advice and token usage.

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
            self.status = Some("working".to_owned());
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
        // A conversation may last for days: free the memory.
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

/// Style and text of an end that was not a plain success.
pub(crate) fn describe_reply_end(end: &ReplyEnd) -> Option<(Style, String)> {
    if let Some(error) = &end.error {
        let (what, todo) = (error.r#type.as_str(), error_advice(&error.r#type));
        let message = &error.message;
        return Some((Style::RED, format!("✗ The reply failed ({what}): {message}\n{todo}")));
    }
    let text = match &end.finished_reason {
        FinishedReason::Completed | FinishedReason::ToolCalls => return None,
        FinishedReason::Interrupted => "■ stopped",
        FinishedReason::ExceedMaxIters => "! iteration limit reached; send a message to continue",
        FinishedReason::Error => "✗ The reply failed",
        FinishedReason::Length => "! output limit reached; ask the model to continue",
        FinishedReason::Refusal => "! the model refused to answer",
        FinishedReason::ContentFilter => "! blocked by the provider's content filter",
        FinishedReason::Truncated => "! the provider's stream was truncated; try /retry",
        FinishedReason::Other(word) => return Some((Style::YELLOW, format!("! ended: {word}"))),
    };
    Some((Style::YELLOW, text.to_owned()))
}

fn error_advice(kind: &ErrorType) -> &'static str {
    match kind {
        ErrorType::Authentication => {
            "Check the agent's API key: api_key_env in turnwire.toml names its variable."
        }
        ErrorType::Permission => {
            "The API key is valid but has no access to this: use another key or model."
        }
        ErrorType::RateLimit => "The provider's rate limit is reached: wait, then retry.",
        ErrorType::InvalidRequest => {
            "The provider rejected the request: rephrase the message, or start a new session."
        }
        ErrorType::Upstream => "The provider failed: retry.",
        ErrorType::Connection => {
            "The provider is unreachable: check the network and base_url, then retry."
        }
        ErrorType::Setup => "It failed before it started: check the agent's settings.",
        ErrorType::Internal => "Internal error of the agent: see the server's log, then retry.",
        ErrorType::Unknown | ErrorType::Other(_) => "Retry.",
    }
}
