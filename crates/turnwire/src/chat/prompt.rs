//! A conversation at a terminal: line by line, until the person leaves.

use super::ask::Asker;
use super::follow::{Over, Questions, Talk, Went};
use super::line::{Lines, Typed};
use super::one_line;
use super::page::Style;
use crate::client::Trouble;
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
const LISTED: usize = 20;
/// How many messages are looked at for the one to answer again.
const LOOKED_AT: usize = 50;

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    On,
    /// A reply was stopped: the next Ctrl-C is the second one.
    Stopped,
    Leave,
}

impl From<Went> for Then {
    fn from(went: Went) -> Self {
        match went {
            Went::Completed | Went::Failed => Self::On,
            Went::Stopped => Self::Stopped,
            Went::Left => Self::Leave,
        }
    }
}

/// Asks for lines, and does what they say.
pub(crate) async fn run(talk: &mut Talk, lines: &Lines) -> Result<(), Over> {
    // A Ctrl-C that comes right after another one leaves.
    let mut is_leaving = false;
    let mut begun = String::new();
    loop {
        talk.view.part()?;
        let typed = tokio::select! {
            typed = lines.read("› ", &begun) => typed,
            () = talk.interrupted() => return Ok(()),
        };
        let line = match typed {
            Typed::Line(line) => line,
            Typed::End => return Ok(()),
            Typed::Interrupt if is_leaving => return Ok(()),
            Typed::Interrupt => {
                is_leaving = true;
                talk.view.note(Style::DIM, "Ctrl-C again leaves, and so does Ctrl-D")?;
                continue;
            }
        };
        begun.clear();
        is_leaving = false;
        if line.trim().is_empty() {
            continue;
        }
        // As in a shell, what begins with a space is not remembered.
        lines.remember(&line);
        let line = line.trim().to_owned();
        let done = match line.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => command(talk, rest).await,
            Some(text) => talk.say(text).await.map(Then::from),
            None => talk.say(&line).await.map(Then::from),
        };
        let then = match done {
            Ok(then) => then,
            Err(error @ Over::Write(_)) => return Err(error),
            Err(Over::Server(trouble)) => told(talk, &trouble).await?,
            Err(Over::NotSent(trouble)) => {
                // It can be sent again.
                begun = line;
                told(talk, &trouble).await?
            }
        };
        match then {
            Then::On => {}
            Then::Stopped => is_leaving = true,
            Then::Leave => return Ok(()),
        }
    }
}

/// Says what did not work. Where another reply runs, it is shown.
async fn told(talk: &mut Talk, trouble: &Trouble) -> Result<Then, Over> {
    let hint = trouble.hint();
    let hint = if hint.is_empty() { hint } else { format!("\n{hint}") };
    talk.view.note(Style::RED, &format!("✗ {trouble}{hint}"))?;
    if !trouble.is("busy") {
        return Ok(Then::On);
    }
    let done = match talk.client.history(&talk.session, 1).await {
        Ok(history) if history.status != "idle" => talk.follow_open(&history).await,
        _ => return Ok(Then::On),
    };
    match done {
        Ok(went) => Ok(went.into()),
        Err(Over::Server(trouble) | Over::NotSent(trouble)) => {
            talk.view.note(Style::RED, &format!("✗ {trouble}"))?;
            Ok(Then::On)
        }
        Err(error @ Over::Write(_)) => Err(error),
    }
}

/// Does what a line says that begins with a slash.
async fn command(talk: &mut Talk, command: &str) -> Result<Then, Over> {
    match command.trim() {
        "quit" | "exit" => return Ok(Then::Leave),
        "help" | "?" => talk.view.note(Style::PLAIN, HELP)?,
        "retry" => return retry(talk).await,
        "stop" => {
            let is_idle = talk.client.session(&talk.session).await?.status == "idle";
            if is_idle {
                talk.view.note(Style::DIM, "Nothing runs in this session.")?;
            } else {
                talk.stop_now().await?;
                talk.view.note(Style::YELLOW, "■ stopped")?;
            }
        }
        "new" => {
            let agent = talk.agent.clone();
            let session = talk.client.create(None, Some(&agent)).await?;
            talk.enter(&session);
            talk.view.note(Style::DIM, &format!("A new session: {}", session.id))?;
        }
        "sessions" => {
            for session in talk.client.sessions(LISTED).await? {
                let here = if session.id == talk.session { "*" } else { " " };
                let title = session.title.as_deref().map(one_line).unwrap_or_default();
                let (id, agent, status) = (&session.id, one_line(&session.agent), &session.status);
                let begun = session.created_at.get(..16).unwrap_or_default().replace('T', " ");
                let row = format!("{here} {id}  {begun}  {agent}  {status}  {title}");
                talk.view.note(Style::PLAIN, row.trim_end())?;
            }
            talk.view.note(Style::DIM, "turnwire chat --resume --session ID goes on with one")?;
        }
        other => {
            let other = one_line(other);
            talk.view
                .note(Style::YELLOW, &format!("There is no /{other}; /help lists what there is"))?;
        }
    }
    Ok(Then::On)
}

async fn retry(talk: &mut Talk) -> Result<Then, Over> {
    let history = talk.client.history(&talk.session, LOOKED_AT).await?;
    let last = history.messages.iter().rev().find(|msg| msg.role() == Role::User);
    let Some(message) = last else {
        talk.view.note(Style::DIM, "There is no message to answer yet.")?;
        return Ok(Then::On);
    };
    let sent = talk.client.retry(&talk.session, message.id()).await.map_err(Over::NotSent)?;
    talk.follow(sent.reply_id, Questions::None).await.map(Then::from)
}

/// The line editor, where a person answers.
pub(crate) fn lines(asker: &Asker) -> Option<Lines> {
    match asker {
        Asker::Person(lines) => Some(lines.clone()),
        Asker::Nobody { .. } => None,
    }
}
