//! Questions to a person: may this run, and what did that give.

use super::line::{Lines, Typed};
use super::one_line;
use super::page::Style;
use super::render::called;
use super::view::View;
use serde_json::Value;
use std::io;
use turnwire_agent::permission::describe_rule;
use turnwire_core::event::{ConfirmResult, ExternalExecutionResult, UserConfirmResult};
use turnwire_core::{EventKind, PermissionRule, ToolCall, ToolResult};

/// Who answers.
pub(crate) enum Asker {
    /// Whoever sits at the terminal.
    Person(Lines),
    /// Nobody: what asks is allowed, or it is not.
    Nobody { yes: bool },
}

/// What came of a question.
pub(crate) enum Answer {
    Say(EventKind<'static>),
    /// The reply is to be stopped.
    Stop,
    /// The person goes away; the question stays.
    Leave,
}

/// What a tool is told that nobody executes.
const NOBODY: &str = "Nobody executes this tool here: the client is a terminal.";

impl Asker {
    /// Asks whether a call may run.
    pub(crate) async fn confirm(&self, view: &mut View, call: &ToolCall) -> io::Result<Answer> {
        let lines = match self {
            Self::Person(lines) => lines,
            Self::Nobody { yes: true } => return Ok(confirmed(call, true, None, Vec::new())),
            Self::Nobody { yes: false } => {
                let note =
                    format!("{} was denied: nobody is here to ask; --yes allows", called(call));
                view.note(Style::YELLOW, &note)?;
                return Ok(confirmed(call, false, None, Vec::new()));
            }
        };
        let name = one_line(&call.name);
        loop {
            view.settle()?;
            let prompt = format!("Allow {name}? [y]es [n]o [a]lways [e]dit: ");
            let line = match lines.read(&prompt, "").await {
                Typed::Line(line) => line,
                Typed::Interrupt => return Ok(Answer::Stop),
                Typed::End => return Ok(Answer::Leave),
            };
            match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(confirmed(call, true, None, Vec::new())),
                "n" | "no" => return Ok(confirmed(call, false, None, Vec::new())),
                "a" | "always" => {
                    if let Some(rule) = self.rule(lines, view, call).await? {
                        return Ok(confirmed(call, true, None, vec![rule]));
                    }
                }
                "e" | "edit" => {
                    if let Some(input) = edited(lines, view, call).await? {
                        return Ok(confirmed(call, true, Some(input), Vec::new()));
                    }
                }
                _ => view.note(
                    Style::DIM,
                    "y: run it · n: do not, and tell the model · a: run it, and do not ask again in this \
                     session · e: change its input first · Ctrl-C: stop the reply",
                )?,
            }
        }
    }

    /// Which rule is to be remembered.
    async fn rule(
        &self,
        lines: &Lines,
        view: &mut View,
        call: &ToolCall,
    ) -> io::Result<Option<PermissionRule>> {
        match call.suggested_rules.as_slice() {
            [] => {
                view.note(Style::DIM, "This tool asks each time; y allows it once.")?;
                Ok(None)
            }
            rules => {
                // What a rule covers is read before it is accepted, also where there is only one.
                for (at, rule) in rules.iter().enumerate() {
                    let what = one_line(&describe_rule(rule));
                    view.note(Style::PLAIN, &format!("  {}: {what}", at + 1))?;
                }
                let prompt = "Which rule, for the rest of this session? (empty: none) ";
                let Typed::Line(line) = lines.read(prompt, "").await else {
                    return Ok(None);
                };
                let number = line.trim().parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                Ok(number.and_then(|at| rules.get(at)).cloned())
            }
        }
    }

    /// Asks what a tool gave that the client executes.
    pub(crate) async fn execute(&self, view: &mut View, call: &ToolCall) -> io::Result<Answer> {
        let Self::Person(lines) = self else {
            let note =
                format!("{} was not executed: that is for a client with tools", called(call));
            view.note(Style::YELLOW, &note)?;
            return Ok(executed(call, ToolResult::error(&call.id, NOBODY)));
        };
        view.settle()?;
        let prompt =
            format!("What did {} give? (empty: nobody executes it) ", one_line(&call.name));
        Ok(match lines.read(&prompt, "").await {
            Typed::Line(line) if line.trim().is_empty() => {
                executed(call, ToolResult::error(&call.id, NOBODY))
            }
            Typed::Line(line) => executed(call, ToolResult::success(&call.id, line)),
            Typed::Interrupt => Answer::Stop,
            Typed::End => Answer::Leave,
        })
    }
}

/// The input as a person leaves it; `None`: they changed their mind.
async fn edited(lines: &Lines, view: &mut View, call: &ToolCall) -> io::Result<Option<String>> {
    let mut begun = call.input.replace('\n', " ");
    loop {
        let Typed::Line(line) = lines.read("Input: ", &begun).await else { return Ok(None) };
        if line.trim().is_empty() {
            return Ok(None);
        }
        let why = match serde_json::from_str::<Value>(&line) {
            Ok(Value::Object(_)) => return Ok(Some(line)),
            Ok(_) => "it is no JSON object".to_owned(),
            Err(error) => error.to_string(),
        };
        view.note(Style::RED, &format!("That cannot be used: {why}. An empty line goes back."))?;
        begun = line;
    }
}

fn confirmed(
    call: &ToolCall,
    confirmed: bool,
    input: Option<String>,
    rules: Vec<PermissionRule>,
) -> Answer {
    // An empty input leaves it as it was.
    let tool_call = ToolCall::new(&call.id, &call.name, input.unwrap_or_default());
    let rules = Some(rules).filter(|rules| !rules.is_empty());
    let result = ConfirmResult { confirmed, tool_call, rules, ..ConfirmResult::default() };
    Answer::Say(UserConfirmResult { confirm_results: vec![result] }.into())
}

fn executed(call: &ToolCall, result: ToolResult) -> Answer {
    let execution_results = vec![result.named(&call.name)];
    Answer::Say(ExternalExecutionResult { execution_results }.into())
}
