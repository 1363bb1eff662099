//! The prompt: reads lines and commands until the user quits.

use super::approval::Approver;
use super::attachments::split_paths;
use super::conversation::{ChatError, Conversation, PendingCheck, ReplyOutcome};
use super::line_editor::{LineEditor, LineInput};
use super::one_line;
use super::page::Style;
use crate::client::ClientError;
use std::io;
use turnwire_core::Role;

const HELP: &str = "\
Write a message and press Enter. Ctrl-C stops a running reply.
  /retry      request a new reply to the last message
  /stop       stop the running reply of this session
  /new        start a new session
  /agent      list the agents; /agent NAME starts a new session with that one
  /attach     attach files to the next message: /attach PATH…; /detach removes them
  /sessions   list the latest sessions
  /quit       quit; so do Ctrl-D, and Ctrl-C twice
  //…         a message that starts with a slash
Arrow keys recall earlier input; Ctrl-R searches it.";

/// How many sessions `/sessions` lists.
const LISTED_SESSIONS: usize = 20;
/// How many messages `/retry` searches.
const SEARCHED_MESSAGES: usize = 50;

/// What the prompt does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Continue,
    /// A reply was stopped: the next Ctrl-C quits.
    Stopped,
    Quit,
}

impl From<ReplyOutcome> for NextStep {
    fn from(went: ReplyOutcome) -> Self {
        match went {
            ReplyOutcome::Completed | ReplyOutcome::Failed => Self::Continue,
            ReplyOutcome::Stopped => Self::Stopped,
            ReplyOutcome::Detached => Self::Quit,
        }
    }
}

/// Reads lines and handles them.
pub(crate) async fn run_prompt(
    conversation: &mut Conversation,
    lines: &LineEditor,
) -> Result<(), ChatError> {
    // The second of two Ctrl-C in a row quits.
    let mut is_leaving = false;
    let mut begun = String::new();
    loop {
        conversation.view.finish_block_with_gap()?;
        let typed = tokio::select! {
            typed = lines.read_line("› ", &begun) => typed,
            () = conversation.wait_for_interrupt() => return Ok(()),
        };
        let line = match typed {
            LineInput::Line(line) => line,
            LineInput::End => return Ok(()),
            LineInput::Interrupt if is_leaving => return Ok(()),
            LineInput::Interrupt => {
                is_leaving = true;
                conversation
                    .view
                    .show_note(Style::DIM, "press Ctrl-C again, or Ctrl-D, to quit")?;
                continue;
            }
        };
        begun.clear();
        is_leaving = false;
        if line.trim().is_empty() {
            continue;
        }
        // As in a shell, lines that start with a space are not added to the history.
        lines.add_to_history(&line);
        let line = line.trim().to_owned();
        let done = match line.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => run_command(conversation, rest).await,
            Some(text) => conversation.send_message(text).await.map(NextStep::from),
            None => conversation.send_message(&line).await.map(NextStep::from),
        };
        let then = match done {
            Ok(then) => then,
            Err(error @ ChatError::Write(_)) => return Err(error),
            Err(ChatError::Server(error)) => report_error(conversation, &error).await?,
            Err(ChatError::NotSent(error)) => {
                // Keep it for another try.
                begun = line;
                report_error(conversation, &error).await?
            }
        };
        match then {
            NextStep::Continue => {}
            NextStep::Stopped => is_leaving = true,
            NextStep::Quit => return Ok(()),
        }
    }
}

/// Reports an error. If the session is busy, follows its running reply.
async fn report_error(
    conversation: &mut Conversation,
    error: &ClientError,
) -> Result<NextStep, ChatError> {
    let hint = error.hint();
    let hint = if hint.is_empty() { hint } else { format!("\n{hint}") };
    conversation.view.show_note(Style::RED, &format!("✗ {error}{hint}"))?;
    if !error.has_type("busy") {
        return Ok(NextStep::Continue);
    }
    let done = match conversation.client.get_history(&conversation.session, 1).await {
        Ok(history) if history.status != "idle" => conversation.follow_open_reply(&history).await,
        _ => return Ok(NextStep::Continue),
    };
    match done {
        Ok(went) => Ok(went.into()),
        Err(ChatError::Server(error) | ChatError::NotSent(error)) => {
            conversation.view.show_note(Style::RED, &format!("✗ {error}"))?;
            Ok(NextStep::Continue)
        }
        Err(error @ ChatError::Write(_)) => Err(error),
    }
}

/// Runs a slash command.
async fn run_command(
    conversation: &mut Conversation,
    command: &str,
) -> Result<NextStep, ChatError> {
    let (name, rest) = command.trim().split_once(' ').unwrap_or((command.trim(), ""));
    match name {
        "agent" => return run_agent_command(conversation, rest.trim()).await,
        "attach" => return attach_files(conversation, rest).map_err(ChatError::from),
        "detach" => {
            conversation.attachments.clear();
            conversation.view.show_note(Style::DIM, "No files are attached.")?;
            return Ok(NextStep::Continue);
        }
        _ => {}
    }
    match command.trim() {
        "quit" | "exit" => return Ok(NextStep::Quit),
        "help" | "?" => conversation.view.show_note(Style::PLAIN, HELP)?,
        "retry" => return retry_last_message(conversation).await,
        "stop" => {
            let is_idle =
                conversation.client.get_session(&conversation.session).await?.status == "idle";
            if is_idle {
                conversation.view.show_note(Style::DIM, "No reply is running.")?;
            } else {
                conversation.stop_reply().await?;
                conversation.view.show_note(Style::YELLOW, "■ stopped")?;
            }
        }
        "new" => {
            let agent = conversation.agent.clone();
            let session = conversation.client.create_session(None, Some(&agent)).await?;
            conversation.enter_session(&session);
            conversation.view.show_note(Style::DIM, &format!("New session: {}", session.id))?;
        }
        "sessions" => {
            for session in conversation.client.list_sessions(LISTED_SESSIONS).await? {
                let here = if session.id == conversation.session { "*" } else { " " };
                let title = session.title.as_deref().map(one_line).unwrap_or_default();
                let (id, agent, status) = (&session.id, one_line(&session.agent), &session.status);
                let begun = session.created_at.get(..16).unwrap_or_default().replace('T', " ");
                let row = format!("{here} {id}  {begun}  {agent}  {status}  {title}");
                conversation.view.show_note(Style::PLAIN, row.trim_end())?;
            }
            if let Some(command) = conversation.resume.command("ID") {
                conversation.view.show_command(&format!("resume one with: {command}"))?;
            }
        }
        other => {
            let other = one_line(other);
            conversation.view.show_note(
                Style::YELLOW,
                &format!("Unknown command /{other}; /help lists the commands"),
            )?;
        }
    }
    Ok(NextStep::Continue)
}

/// Lists the agents, or starts a session with another one.
async fn run_agent_command(
    conversation: &mut Conversation,
    name: &str,
) -> Result<NextStep, ChatError> {
    if name.is_empty() {
        for agent in conversation.client.list_agents().await? {
            let here = if agent.name == conversation.agent { "*" } else { " " };
            let default = if agent.default { " (default)" } else { "" };
            let row = format!("{here} {}{default}  {}  {}", agent.name, agent.model, agent.about);
            conversation.view.show_note(Style::PLAIN, one_line(&row).trim_end())?;
        }
        conversation
            .view
            .show_note(Style::DIM, "/agent NAME starts a new session with another one")?;
        return Ok(NextStep::Continue);
    }
    if name == conversation.agent {
        let note = format!("This session has the agent {} already.", one_line(name));
        conversation.view.show_note(Style::DIM, &note)?;
        return Ok(NextStep::Continue);
    }
    // A session keeps its agent.
    let session = conversation.client.create_session(None, Some(name)).await?;
    conversation.enter_session(&session);
    let note = format!("New session with the agent {}: {}", one_line(&session.agent), session.id);
    conversation.view.show_note(Style::DIM, &note)?;
    Ok(NextStep::Continue)
}

/// Attaches files to the next message, or lists those that are attached.
fn attach_files(conversation: &mut Conversation, paths: &str) -> io::Result<NextStep> {
    let paths = match split_paths(paths) {
        Ok(paths) => paths,
        Err(why) => {
            conversation.view.show_note(Style::RED, &format!("✗ {why}"))?;
            return Ok(NextStep::Continue);
        }
    };
    for path in &paths {
        match conversation.attachments.add(path) {
            Ok(file) => {
                let note = format!("▣ attached to the next message: {}", one_line(&file));
                conversation.view.show_note(Style::GREEN, &note)?;
            }
            Err(why) => {
                conversation.view.show_note(Style::RED, &format!("✗ {}", one_line(&why)))?;
            }
        }
    }
    if paths.is_empty() {
        let note = match &*conversation.attachments.names() {
            [] => "No files are attached; /attach PATH attaches one.".to_owned(),
            names => format!("attached to the next message: {}", one_line(&names.join(", "))),
        };
        conversation.view.show_note(Style::DIM, &note)?;
    }
    Ok(NextStep::Continue)
}

async fn retry_last_message(conversation: &mut Conversation) -> Result<NextStep, ChatError> {
    let history = conversation.client.get_history(&conversation.session, SEARCHED_MESSAGES).await?;
    let last = history.messages.iter().rev().find(|msg| msg.role() == Role::User);
    let Some(message) = last else {
        conversation.view.show_note(Style::DIM, "There is no message to retry.")?;
        return Ok(NextStep::Continue);
    };
    let sent = conversation
        .client
        .retry_message(&conversation.session, message.id())
        .await
        .map_err(ChatError::NotSent)?;
    conversation.follow_reply(sent.reply_id, PendingCheck::None).await.map(NextStep::from)
}

/// The line editor of an interactive conversation.
pub(crate) fn line_editor(approver: &Approver) -> Option<LineEditor> {
    match approver {
        Approver::Interactive(lines) => Some(lines.clone()),
        Approver::NonInteractive { .. } => None,
    }
}
