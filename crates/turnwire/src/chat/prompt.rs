//! A conversation at a terminal: line by line, until the person leaves.

use super::approval::Approver;
use super::conversation::{ChatError, Conversation, PendingCheck, ReplyOutcome};
use super::line_editor::{LineEditor, LineInput};
use super::one_line;
use super::page::Style;
use crate::client::ClientError;
use turnwire_core::Role;

const HELP: &str = "\
Write a message and press Enter. While an answer comes, Ctrl-C stops it.
  /retry      have the last message answered again
  /stop       stop what runs in this session
  /new        begin a new session
  /sessions   the sessions that changed last
  /quit       leave; so do Ctrl-D, and Ctrl-C twice
  //…         a message that begins with a slash
Arrow keys go through what you wrote before; Ctrl-R searches it.";

/// How many sessions are listed.
const LISTED_SESSIONS: usize = 20;
/// How many messages are looked at for the one to answer again.
const SEARCHED_MESSAGES: usize = 50;

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Continue,
    /// A reply was stopped: the next Ctrl-C is the second one.
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

/// Asks for lines, and does what they say.
pub(crate) async fn run_prompt(
    talk: &mut Conversation,
    lines: &LineEditor,
) -> Result<(), ChatError> {
    // A Ctrl-C that comes right after another one leaves.
    let mut is_leaving = false;
    let mut begun = String::new();
    loop {
        talk.view.finish_block_with_gap()?;
        let typed = tokio::select! {
            typed = lines.read_line("› ", &begun) => typed,
            () = talk.wait_for_interrupt() => return Ok(()),
        };
        let line = match typed {
            LineInput::Line(line) => line,
            LineInput::End => return Ok(()),
            LineInput::Interrupt if is_leaving => return Ok(()),
            LineInput::Interrupt => {
                is_leaving = true;
                talk.view.show_note(Style::DIM, "Ctrl-C again leaves, and so does Ctrl-D")?;
                continue;
            }
        };
        begun.clear();
        is_leaving = false;
        if line.trim().is_empty() {
            continue;
        }
        // As in a shell, what begins with a space is not remembered.
        lines.add_to_history(&line);
        let line = line.trim().to_owned();
        let done = match line.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => run_command(talk, rest).await,
            Some(text) => talk.send_message(text).await.map(NextStep::from),
            None => talk.send_message(&line).await.map(NextStep::from),
        };
        let then = match done {
            Ok(then) => then,
            Err(error @ ChatError::Write(_)) => return Err(error),
            Err(ChatError::Server(trouble)) => report_error(talk, &trouble).await?,
            Err(ChatError::NotSent(trouble)) => {
                // It can be sent again.
                begun = line;
                report_error(talk, &trouble).await?
            }
        };
        match then {
            NextStep::Continue => {}
            NextStep::Stopped => is_leaving = true,
            NextStep::Quit => return Ok(()),
        }
    }
}

/// Says what did not work. Where another reply runs, it is shown.
async fn report_error(
    talk: &mut Conversation,
    trouble: &ClientError,
) -> Result<NextStep, ChatError> {
    let hint = trouble.hint();
    let hint = if hint.is_empty() { hint } else { format!("\n{hint}") };
    talk.view.show_note(Style::RED, &format!("✗ {trouble}{hint}"))?;
    if !trouble.has_type("busy") {
        return Ok(NextStep::Continue);
    }
    let done = match talk.client.get_history(&talk.session, 1).await {
        Ok(history) if history.status != "idle" => talk.follow_open_reply(&history).await,
        _ => return Ok(NextStep::Continue),
    };
    match done {
        Ok(went) => Ok(went.into()),
        Err(ChatError::Server(trouble) | ChatError::NotSent(trouble)) => {
            talk.view.show_note(Style::RED, &format!("✗ {trouble}"))?;
            Ok(NextStep::Continue)
        }
        Err(error @ ChatError::Write(_)) => Err(error),
    }
}

/// Does what a line says that begins with a slash.
async fn run_command(talk: &mut Conversation, command: &str) -> Result<NextStep, ChatError> {
    match command.trim() {
        "quit" | "exit" => return Ok(NextStep::Quit),
        "help" | "?" => talk.view.show_note(Style::PLAIN, HELP)?,
        "retry" => return retry_last_message(talk).await,
        "stop" => {
            let is_idle = talk.client.get_session(&talk.session).await?.status == "idle";
            if is_idle {
                talk.view.show_note(Style::DIM, "Nothing runs in this session.")?;
            } else {
                talk.stop_reply().await?;
                talk.view.show_note(Style::YELLOW, "■ stopped")?;
            }
        }
        "new" => {
            let agent = talk.agent.clone();
            let session = talk.client.create_session(None, Some(&agent)).await?;
            talk.enter_session(&session);
            talk.view.show_note(Style::DIM, &format!("A new session: {}", session.id))?;
        }
        "sessions" => {
            for session in talk.client.list_sessions(LISTED_SESSIONS).await? {
                let here = if session.id == talk.session { "*" } else { " " };
                let title = session.title.as_deref().map(one_line).unwrap_or_default();
                let (id, agent, status) = (&session.id, one_line(&session.agent), &session.status);
                let begun = session.created_at.get(..16).unwrap_or_default().replace('T', " ");
                let row = format!("{here} {id}  {begun}  {agent}  {status}  {title}");
                talk.view.show_note(Style::PLAIN, row.trim_end())?;
            }
            talk.view
                .show_note(Style::DIM, "turnwire chat --resume --session ID goes on with one")?;
        }
        other => {
            let other = one_line(other);
            talk.view.show_note(
                Style::YELLOW,
                &format!("There is no /{other}; /help lists what there is"),
            )?;
        }
    }
    Ok(NextStep::Continue)
}

async fn retry_last_message(talk: &mut Conversation) -> Result<NextStep, ChatError> {
    let history = talk.client.get_history(&talk.session, SEARCHED_MESSAGES).await?;
    let last = history.messages.iter().rev().find(|msg| msg.role() == Role::User);
    let Some(message) = last else {
        talk.view.show_note(Style::DIM, "There is no message to answer yet.")?;
        return Ok(NextStep::Continue);
    };
    let sent =
        talk.client.retry_message(&talk.session, message.id()).await.map_err(ChatError::NotSent)?;
    talk.follow_reply(sent.reply_id, PendingCheck::None).await.map(NextStep::from)
}

/// The line editor, where a person answers.
pub(crate) fn line_editor(asker: &Approver) -> Option<LineEditor> {
    match asker {
        Approver::Interactive(lines) => Some(lines.clone()),
        Approver::NonInteractive { .. } => None,
    }
}
