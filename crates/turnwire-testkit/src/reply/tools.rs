//! Random tool calls of a reply, with approvals, external execution and results.

use super::{BlockScripts, Step, step};
use crate::values::{self, text};
use turnwire_core::event::{
    ConfirmResult, ExternalExecutionResult, RequireExternalExecution, RequireUserConfirm, Text,
    ToolCallDelta, ToolCallEnd, ToolCallStart, ToolResultDataDelta, ToolResultEnd, ToolResultStart,
    ToolResultTextDelta, UserConfirmResult,
};
use turnwire_core::{
    ContentBlock, DataBlock, Part, Payload, TextBlock, ToolCall, ToolCallState, ToolResult,
    ToolResultState,
};

impl BlockScripts<'_> {
    /// A call, with approval or external execution, and its result.
    pub(super) fn tool(&mut self) -> Vec<Step> {
        let id = self.id();
        let mut steps = self.call(&id);
        match self.rng.u8(..8) {
            0 => {}
            1 => steps.push(self.require_confirm(&id)),
            2 => {
                steps.push(self.require_confirm(&id));
                steps.push(self.confirm(&id, true));
                steps.extend(self.result(&id, ToolResultState::Success, false));
            }
            3 => {
                steps.push(self.require_confirm(&id));
                steps.push(self.confirm(&id, false));
                // Too late: changes nothing.
                steps.push(late(step(confirm_result(&id, true, "{\"late\":1}"))));
                steps.extend(self.result(&id, ToolResultState::Denied, false));
            }
            4 => steps.extend(self.result(&id, ToolResultState::Running, true)),
            5 => {
                steps.push(require_external(&id));
                steps.push(self.external_result(&id));
            }
            6 => {
                let mut result = self.result(&id, ToolResultState::Interrupted, false);
                result.push(late(step(RequireUserConfirm { tool_calls: vec![bare_call(&id)] })));
                result.push(late(step(RequireExternalExecution {
                    tool_calls: vec![bare_call(&id)],
                })));
                result.push(late(step(ExternalExecutionResult {
                    execution_results: vec![ToolResult::success(id.clone(), "late")],
                })));
                steps.extend(result);
            }
            _ => steps.extend(self.result(&id, ToolResultState::Error, false)),
        }
        steps
    }

    fn call(&mut self, id: &str) -> Vec<Step> {
        let (pieces, input) = self.text_pieces();
        let name = text(self.rng);
        let (call_id, key) = (Text::from(id.to_owned()), id.to_owned());
        let begin =
            ToolCallStart { tool_call_id: call_id.clone(), tool_call_name: name.clone().into() };
        let call = ToolCall::new(id, name, input);
        let mut steps = vec![step(begin).with_effect(move |content, at| {
            content.push(ToolCall { created_at: at.to_owned(), ..call }.into());
        })];
        for delta in pieces {
            steps.push(step(ToolCallDelta { tool_call_id: call_id.clone(), delta: delta.into() }));
        }
        let end = ToolCallEnd { tool_call_id: call_id, ..ToolCallEnd::default() };
        steps.push(step(end).with_effect(move |content, at| {
            change_call(content, &key, |call| call.finished_at = Some(at.to_owned()));
        }));
        steps
    }

    fn require_confirm(&mut self, id: &str) -> Step {
        let rules = vec![values::rule(self.rng)];
        let requested = ToolCall { suggested_rules: rules.clone(), ..bare_call(id) };
        let id = id.to_owned();
        // The list may contain a call that is not in this message.
        let mut tool_calls = vec![requested];
        if self.rng.bool() {
            tool_calls.insert(0, bare_call("x_elsewhere"));
        }
        step(RequireUserConfirm { tool_calls }).with_effect(move |content, _| {
            change_call(content, &id, |call| {
                call.state = ToolCallState::Asking;
                call.suggested_rules = rules;
            });
        })
    }

    fn confirm(&mut self, id: &str, confirmed: bool) -> Step {
        let edited = if self.rng.bool() { "{\"edited\":true}" } else { "" };
        let id = id.to_owned();
        step(confirm_result(&id, confirmed, edited)).with_effect(move |content, _| {
            change_call(content, &id, |call| {
                if confirmed && !edited.is_empty() {
                    edited.clone_into(&mut call.input);
                }
                call.state =
                    if confirmed { ToolCallState::Allowed } else { ToolCallState::Finished };
            });
        })
    }

    /// The result of a call that was executed outside, without a start.
    fn external_result(&mut self, id: &str) -> Step {
        let result = ToolResult {
            output: values::payload(self.rng),
            rest: values::unknown_fields(self.rng),
            ..ToolResult::success(id, "")
        };
        let id = id.to_owned();
        let event = ExternalExecutionResult { execution_results: vec![result.clone()] };
        step(event).with_effect(move |content, at| {
            let (created_at, finished_at) = (at.to_owned(), Some(at.to_owned()));
            content.push(ToolResult { created_at, finished_at, ..result }.into());
            change_call(content, &id, |call| call.state = ToolCallState::Finished);
        })
    }

    fn result(&mut self, id: &str, state: ToolResultState, external: bool) -> Vec<Step> {
        let (call_id, key) = (Text::from(id.to_owned()), id.to_owned());
        let begin =
            ToolResultStart { tool_call_id: call_id.clone(), tool_call_name: "tool".into() };
        let result =
            ToolResult { id: id.to_owned(), name: "tool".to_owned(), ..ToolResult::default() };
        let mut steps = vec![step(begin).with_effect(move |content, at| {
            content.push(ToolResult { created_at: at.to_owned(), ..result }.into());
        })];
        if external {
            steps.push(require_external(id));
            let event = ExternalExecutionResult {
                execution_results: vec![ToolResult::success(id, "left to the deltas")],
            };
            let key = key.clone();
            steps.push(step(event).with_effect(move |content, _| {
                change_call(content, &key, |call| call.state = ToolCallState::Finished);
            }));
        }
        for _ in 0..self.rng.usize(..4) {
            steps.extend(if self.rng.bool() { self.text_part(id) } else { self.data_part(id) });
        }
        let mut end = step(ToolResultEnd { tool_call_id: call_id, state: state.clone() });
        if self.rng.bool() {
            end.metadata.insert("took", self.rng.u8(..));
        }
        let metadata = end.metadata.clone();
        steps.push(end.with_effect(move |content, at| {
            change_result(content, &key, |result| {
                result.state = state;
                result.metadata = metadata;
                result.finished_at = Some(at.to_owned());
            });
            change_call(content, &key, |call| call.state = ToolCallState::Finished);
        }));
        steps
    }

    fn text_part(&mut self, id: &str) -> Vec<Step> {
        let (mut pieces, _) = self.text_pieces();
        pieces.push(text(self.rng));
        let steps = pieces.into_iter().map(|delta| {
            let (key, tool_call_id) = (id.to_owned(), Text::from(id.to_owned()));
            let event = ToolResultTextDelta { tool_call_id, delta: delta.clone().into() };
            step(event).with_effect(move |content, at| {
                change_result(content, &key, |result| {
                    let Payload::Parts(parts) = &mut result.output else { return };
                    if let Some(Part::Text(block)) = parts.last_mut() {
                        block.text.push_str(&delta);
                        return;
                    }
                    parts.push(Part::Text(TextBlock {
                        text: delta,
                        id: format!("{key}-{}", parts.len()),
                        created_at: at.to_owned(),
                        ..TextBlock::default()
                    }));
                });
            })
        });
        steps.collect()
    }

    fn data_part(&mut self, id: &str) -> Vec<Step> {
        let (chunks, source) = self.data_chunks();
        let (block_id, key) = (self.id(), id.to_owned());
        let mut block = Some(DataBlock { id: block_id.clone(), ..DataBlock::from_source(source) });
        let steps = chunks.into_iter().map(|chunk| {
            let event = ToolResultDataDelta {
                tool_call_id: key.clone().into(),
                block_id: block_id.clone().into(),
                media_type: Some("image/png".to_owned()),
                chunk,
            };
            let (key, block) = (key.clone(), block.take());
            step(event).with_effect(move |content, at| {
                change_result(content, &key, |result| {
                    if let (Payload::Parts(parts), Some(block)) = (&mut result.output, block) {
                        parts.push(Part::Data(DataBlock { created_at: at.to_owned(), ..block }));
                    }
                });
            })
        });
        steps.collect()
    }
}

fn bare_call(id: &str) -> ToolCall {
    ToolCall::new(id, "tool", "")
}

fn confirm_result(id: &str, confirmed: bool, input: &str) -> UserConfirmResult {
    let tool_call = ToolCall::new(id, "tool", input);
    UserConfirmResult {
        confirm_results: vec![ConfirmResult { confirmed, tool_call, ..ConfirmResult::default() }],
    }
}

fn require_external(id: &str) -> Step {
    let key = id.to_owned();
    step(RequireExternalExecution { tool_calls: vec![bare_call(id)] }).with_effect(
        move |content, _| {
            change_call(content, &key, |call| call.state = ToolCallState::Submitted);
        },
    )
}

/// Marks a step that comes too late and changes nothing.
fn late(step: Step) -> Step {
    step
}

fn change_call(content: &mut [ContentBlock], id: &str, change: impl FnOnce(&mut ToolCall)) {
    for block in content {
        if let ContentBlock::ToolCall(call) = block
            && call.id == id
        {
            return change(call);
        }
    }
}

fn change_result(content: &mut [ContentBlock], id: &str, change: impl FnOnce(&mut ToolResult)) {
    for block in content {
        if let ContentBlock::ToolResult(result) = block
            && result.id == id
        {
            return change(result);
        }
    }
}
