//! Decisions on pending tool calls: asks the user at a terminal, or decides by `--yes` in a pipe.

use super::key_press::read_key;
use super::line_editor::{LineEditor, LineInput};
use super::one_line;
use super::page::Style;
use super::render::tool_label;
use super::view::View;
use serde_json::Value;
use std::io;
use turnwire_agent::permission::describe_rule;
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, UserConfirmResult};
use turnwire_core::{EventKind, PermissionRule, ToolCall, ToolResult};

/// Who decides.
pub(crate) enum Approver {
    /// The user at the terminal.
    Interactive(LineEditor),
    /// No user: every call is allowed (`--yes`) or denied.
    NonInteractive { yes: bool },
}

/// The outcome of a prompt.
pub(crate) enum Decision {
    Respond(EventKind<'static>),
    /// Stop the reply.
    Stop,
    /// The user quits; the call stays pending.
    Leave,
}

/// One key chooses a rule.
const MAX_RULES: usize = 9;
/// The result of a client-side tool that nobody executes.
const NOT_EXECUTED: &str = "Not executed: this client is a terminal.";

impl Approver {
    /// Asks whether a call may run.
    pub(crate) async fn ask_confirmation(
        &self,
        view: &mut View,
        call: &ToolCall,
    ) -> io::Result<Decision> {
        let lines = match self {
            Self::Interactive(lines) => lines,
            Self::NonInteractive { yes: true } => {
                return Ok(confirmation(call, true, None, Vec::new()));
            }
            Self::NonInteractive { yes: false } => {
                let note =
                    format!("{} was denied: no user to ask; use --yes to allow", tool_label(call));
                view.show_note(Style::YELLOW, &note)?;
                return Ok(confirmation(call, false, None, Vec::new()));
            }
        };
        let name = one_line(&call.name);
        loop {
            view.finish_block()?;
            let prompt = format!("Allow {name}? [y]es [n]o [a]lways [e]dit: ");
            let key = match read_key(&prompt).await {
                LineInput::Line(key) => key,
                LineInput::Interrupt => return Ok(Decision::Stop),
                LineInput::End => return Ok(Decision::Leave),
            };
            // Several characters at once are an arrow key or pasted text: no decision.
            match &*key {
                "y" => return Ok(confirmation(call, true, None, Vec::new())),
                "n" => return Ok(confirmation(call, false, None, Vec::new())),
                "a" => {
                    if let Some(rule) = self.choose_rule(view, call).await? {
                        return Ok(confirmation(call, true, None, vec![rule]));
                    }
                }
                "e" => {
                    if let Some(input) = edit_input(lines, view, call).await? {
                        return Ok(confirmation(call, true, Some(input), Vec::new()));
                    }
                }
                _ => view.show_note(
                    Style::DIM,
                    "y: run it · n: deny it, and tell the model · a: run it, and do not ask again in this \
                     session · e: edit its input first · Ctrl-C: stop the reply",
                )?,
            }
        }
    }

    /// Lets the user choose a suggested permission rule.
    async fn choose_rule(
        &self,
        view: &mut View,
        call: &ToolCall,
    ) -> io::Result<Option<PermissionRule>> {
        match call.suggested_rules.as_slice() {
            [] => {
                view.show_note(
                    Style::DIM,
                    "No rule is suggested for this tool; y allows it once.",
                )?;
                Ok(None)
            }
            rules => {
                // The user reads what a rule covers before accepting it, even if there is only one.
                for (at, rule) in rules.iter().enumerate().take(MAX_RULES) {
                    let what = one_line(&describe_rule(rule));
                    view.show_note(Style::PLAIN, &format!("  {}: {what}", at + 1))?;
                }
                loop {
                    let prompt = "Number of the rule for the rest of this session, or [n]one: ";
                    let LineInput::Line(key) = read_key(prompt).await else { return Ok(None) };
                    if key == "n" {
                        return Ok(None);
                    }
                    let at = key.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                    if let Some(rule) = at.and_then(|at| rules.iter().take(MAX_RULES).nth(at)) {
                        return Ok(Some(rule.clone()));
                    }
                }
            }
        }
    }

    /// Asks for the result of a tool that the client executes.
    pub(crate) async fn ask_tool_result(
        &self,
        view: &mut View,
        call: &ToolCall,
    ) -> io::Result<Decision> {
        let Self::Interactive(lines) = self else {
            let note =
                format!("{} was not executed: it needs a client with tools", tool_label(call));
            view.show_note(Style::YELLOW, &note)?;
            return Ok(tool_result(call, ToolResult::error(&call.id, NOT_EXECUTED)));
        };
        view.finish_block()?;
        let prompt = format!("Result of {} (empty: not executed): ", one_line(&call.name));
        Ok(match lines.read_line(&prompt, "").await {
            LineInput::Line(line) if line.trim().is_empty() => {
                tool_result(call, ToolResult::error(&call.id, NOT_EXECUTED))
            }
            LineInput::Line(line) => tool_result(call, ToolResult::success(&call.id, line)),
            LineInput::Interrupt => Decision::Stop,
            LineInput::End => Decision::Leave,
        })
    }
}

/// The edited input; `None` if the user cancels.
async fn edit_input(
    lines: &LineEditor,
    view: &mut View,
    call: &ToolCall,
) -> io::Result<Option<String>> {
    let mut begun = call.input.replace('\n', " ");
    loop {
        let LineInput::Line(line) = lines.read_line("Input: ", &begun).await else {
            return Ok(None);
        };
        if line.trim().is_empty() {
            return Ok(None);
        }
        let why = match serde_json::from_str::<Value>(&line) {
            // An Enter after the key is a habit, not a decision.
            Ok(Value::Object(_)) if line == call.input.replace('\n', " ") => {
                view.show_note(Style::DIM, "The input is unchanged; y allows it as it is.")?;
                return Ok(None);
            }
            Ok(Value::Object(_)) => return Ok(Some(line)),
            Ok(_) => "not a JSON object".to_owned(),
            Err(error) => error.to_string(),
        };
        view.show_note(
            Style::RED,
            &format!("Invalid input: {why}. Enter an empty line to cancel."),
        )?;
        begun = line;
    }
}

fn confirmation(
    call: &ToolCall,
    confirmed: bool,
    input: Option<String>,
    rules: Vec<PermissionRule>,
) -> Decision {
    // An empty input means: not edited.
    let tool_call = ToolCall::new(&call.id, &call.name, input.unwrap_or_default());
    let rules = Some(rules).filter(|rules| !rules.is_empty());
    let result = ConfirmResult { confirmed, tool_call, rules, ..ConfirmResult::default() };
    Decision::Respond(UserConfirmResult { confirm_results: vec![result] }.into())
}

fn tool_result(call: &ToolCall, result: ToolResult) -> Decision {
    let execution_results = vec![result.named(&call.name)];
    Decision::Respond(ExternalExecutionResult { execution_results }.into())
}
