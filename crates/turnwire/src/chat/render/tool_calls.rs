//! Renders tool calls: input, approvals and results.

use super::{Renderer, tool_input};
use crate::chat::page::Style;
use std::collections::HashMap;
use turnwire_core::event::Chunk;
use turnwire_core::{
    DataBlock, Event, EventKind, Payload, ToolCall, ToolResult, ToolResultState, event_kinds,
};

/// The most rows of a result.
const MAX_RESULT_ROWS: usize = 12;

/// State of the calls whose results arrive.
#[derive(Default)]
pub(super) struct ToolCallState {
    results: HashMap<String, ShownResult>,
    /// The call of the last written row.
    last: String,
    /// The inputs as shown, to detect an edit.
    inputs: HashMap<String, String>,
}

/// The shown part of a result.
#[derive(Default)]
struct ShownResult {
    name: String,
    /// An incomplete row.
    begun: String,
    rows: usize,
    /// How many rows were omitted.
    more: usize,
}

impl Renderer {
    pub(super) fn show_tool_event(&mut self, event: &Event<'_>) {
        match &event.kind {
            EventKind::ToolCallStart(start) => {
                self.end_current_block();
                self.status = Some(format!("calling {}", start.tool_call_name));
            }
            EventKind::ToolCallEnd(end) => {
                if let Some(call) = self.find_call(&event.reply_id, &end.tool_call_id) {
                    self.show_input(&call);
                    self.status = Some(format!("running {}", call.name));
                }
            }
            EventKind::ToolResultStart(start) => {
                self.end_current_block();
                let name = if start.tool_call_name.is_empty() {
                    self.find_call(&event.reply_id, &start.tool_call_id).map(|call| call.name)
                } else {
                    Some(start.tool_call_name.to_string())
                };
                let name = name.unwrap_or_default();
                self.status = Some(format!("running {name}"));
                let shown = ShownResult { name, ..ShownResult::default() };
                self.calls.results.insert(start.tool_call_id.to_string(), shown);
            }
            EventKind::ToolResultTextDelta(delta) => {
                self.end_current_block();
                self.show_result_text(&delta.tool_call_id, &delta.delta);
            }
            EventKind::ToolResultDataDelta(delta) => {
                if let Chunk::Url(url) = &delta.chunk {
                    self.show_result_text(&delta.tool_call_id, &format!("{url}\n"));
                }
            }
            EventKind::ToolResultEnd(end) => {
                self.end_current_block();
                self.show_result_end(&event.reply_id, &end.tool_call_id, &end.state);
            }
            EventKind::RequireUserConfirm(require) => {
                self.status = None;
                for call in &require.tool_calls {
                    self.show_note(
                        Style::YELLOW,
                        &format!("? {} needs approval", tool_label(call)),
                    );
                }
            }
            EventKind::RequireExternalExecution(require) => {
                self.status = None;
                for call in &require.tool_calls {
                    let text = format!("? {} must be executed by the client", tool_label(call));
                    self.show_note(Style::YELLOW, &text);
                }
            }
            EventKind::UserConfirmResult(answer) => {
                for result in &answer.confirm_results {
                    self.end_current_block();
                    let name = tool_label(&result.tool_call);
                    if !result.confirmed {
                        let why: Option<String> = event.metadata.get("reason").ok().flatten();
                        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                        self.page.write_row(Style::RED, &format!("✗ {name} was denied{why}"));
                        continue;
                    }
                    let always = result.rules.as_ref().is_some_and(|rules| !rules.is_empty());
                    let always = if always { ", always" } else { "" };
                    self.calls.last.clone_from(&result.tool_call.id);
                    self.page.write_row(Style::GREEN, &format!("✓ {name} was allowed{always}"));
                    self.show_edited(&result.tool_call);
                }
                self.status = Some("working".to_owned());
            }
            EventKind::ExternalExecutionResult(answer) => {
                for result in &answer.execution_results {
                    self.end_current_block();
                    self.show_whole_result(result);
                }
                self.status = Some("working".to_owned());
            }
            EventKind::AllToolsDenied(_) => {
                self.show_note(Style::YELLOW, "✗ all tool calls were denied");
            }
            // Not shown, or not passed by `render`.
            event_kinds!(
                ToolCallDelta RequestStop SubagentExposed ExceedMaxIters UserInterrupt
                reply model_call content session
            ) => {}
        }
    }

    fn find_call(&self, reply_id: &str, id: &str) -> Option<ToolCall> {
        let msg = self.folder.get(reply_id)?;
        msg.blocks::<ToolCall>().find(|call| call.id == id).cloned()
    }

    fn show_input(&mut self, call: &ToolCall) {
        self.calls.inputs.insert(call.id.clone(), call.input.clone());
        self.calls.last.clone_from(&call.id);
        self.end_current_block();
        self.page.ensure_blank_row();
        self.page.write_verbatim(Style::CYAN, "⚙ ");
        self.page.set_hanging_indent(2);
        self.page.write_text(Style { bold: true, ..Style::CYAN }, &tool_label(call));
        let room = self.page.width().saturating_sub(4);
        for (at, row) in
            tool_input::format_input(&call.input, room, MAX_RESULT_ROWS).iter().enumerate()
        {
            if at == 0 && crate::chat::page::display_width(row) + call.name.len() + 3 < room {
                self.page.write_text(Style::DIM, &format!(" {row}"));
                continue;
            }
            self.page.start_row();
            self.page.write_verbatim(Style::DIM, &format!("  {row}"));
        }
        self.page.start_row();
    }

    /// Shows an edited input.
    fn show_edited(&mut self, answered: &ToolCall) {
        let is_as_shown =
            self.calls.inputs.get(&answered.id).is_none_or(|input| *input == answered.input);
        if answered.input.is_empty() || is_as_shown {
            return;
        }
        let room = self.page.width().saturating_sub(4);
        for row in tool_input::format_input(&answered.input, room, MAX_RESULT_ROWS) {
            self.page.write_row(Style::DIM, &format!("  with {row}"));
        }
    }

    fn show_result_text(&mut self, id: &str, text: &str) {
        let shown = self.calls.results.entry(id.to_owned()).or_default();
        shown.begun.push_str(text);
        let mut rows = Vec::new();
        while let Some(end) = shown.begun.find('\n') {
            let row: String = shown.begun.drain(..=end).collect();
            rows.push(row.trim_end().to_owned());
        }
        for row in rows {
            self.show_result_row(id, &row);
        }
    }

    fn show_result_row(&mut self, id: &str, row: &str) {
        let Some(shown) = self.calls.results.get_mut(id) else { return };
        if shown.rows >= MAX_RESULT_ROWS {
            shown.more += 1;
            return;
        }
        shown.rows += 1;
        self.label_result_row(id);
        self.page.start_row();
        self.page.write_verbatim(Style::DIM, "  ┆ ");
        self.page.set_hanging_indent(4);
        self.page.write_text(Style::DIM, row);
        self.page.end_row();
    }

    /// Names the call before a row, if the row above belongs to another call.
    fn label_result_row(&mut self, id: &str) {
        if self.calls.last == id {
            return;
        }
        id.clone_into(&mut self.calls.last);
        let name = self.calls.results.get(id).map(|shown| shown.name.clone());
        let name = name.filter(|name| !name.is_empty());
        if let Some(name) = name {
            self.page.write_row(Style::DIM, &format!("  {name}:"));
        }
    }

    fn show_result_end(&mut self, reply_id: &str, id: &str, state: &ToolResultState) {
        let rest = self.calls.results.get_mut(id).map(|shown| std::mem::take(&mut shown.begun));
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.show_result_row(id, rest.trim_end());
        }
        self.label_result_row(id);
        let shown = self.calls.results.remove(id).unwrap_or_default();
        if shown.more > 0 {
            let more = shown.more;
            self.page.write_row(Style::DIM, &format!("  ┆ … {more} more lines"));
        }
        let (style, word) = result_state_label(state);
        self.page.write_row(style, &format!("  {word}"));
        let files = self.result_files(reply_id, id);
        for data in files {
            self.save_and_show_data(&data);
        }
        self.status = Some("working".to_owned());
    }

    /// The files of a result.
    fn result_files(&self, reply_id: &str, id: &str) -> Vec<DataBlock> {
        let msg = self.folder.get(reply_id);
        let result = msg.and_then(|msg| msg.blocks::<ToolResult>().find(|result| result.id == id));
        let Some(Payload::Parts(parts)) = result.map(|result| &result.output) else {
            return Vec::new();
        };
        let data = parts.iter().filter_map(|part| match part {
            turnwire_core::Part::Data(data) => Some(data.clone()),
            turnwire_core::Part::Text(_) | turnwire_core::Part::Other(_) => None,
        });
        data.filter(|data| matches!(data.source, turnwire_core::Source::Base64(_))).collect()
    }

    /// A complete result.
    fn show_whole_result(&mut self, result: &ToolResult) {
        let shown = ShownResult { name: result.name.clone(), ..ShownResult::default() };
        self.calls.last.clone_from(&result.id);
        self.calls.results.insert(result.id.clone(), shown);
        self.show_result_text(&result.id, &result.output.text("\n"));
        self.show_result_end("", &result.id, &result.state);
    }
}

/// Label of a result's state.
fn result_state_label(state: &ToolResultState) -> (Style, &str) {
    match state {
        ToolResultState::Success => (Style::GREEN, "✓ done"),
        ToolResultState::Error => (Style::RED, "✗ failed"),
        ToolResultState::Denied => (Style::RED, "✗ denied"),
        ToolResultState::Interrupted => (Style::YELLOW, "■ interrupted"),
        ToolResultState::Running => (Style::DIM, "… continues in the background"),
        ToolResultState::Other(word) => (Style::DIM, word),
    }
}

/// A tool's name, with its title.
pub(crate) fn tool_label(call: &ToolCall) -> String {
    let title: Option<String> = call.rest.get("title").ok().flatten();
    match title.filter(|title| !title.is_empty() && *title != call.name) {
        Some(title) => format!("{} ({title})", call.name),
        None => call.name.clone(),
    }
}
