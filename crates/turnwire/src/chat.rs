//! `turnwire chat`: a conversation, at a terminal or in a pipe.
//!
//! It is always a client of a server: of one elsewhere, or of one that it starts for itself.
//!
//! | module | what is in it |
//! |---|---|
//! | `prompt` | the conversation at a terminal, line by line |
//! | `follow` | one reply, from its first event to its end |
//! | `ask` | questions to a person |
//! | `view` | where events are shown: `render` (terminal), `plain` (pipe), or as JSON |
//! | `render`, `markdown`, `page` | events to text, without a terminal |
//! | `again` | a message as the events that made it |
//! | `screen`, `line` | the terminal: what is written there, what is typed |
//! | `files` | pictures of an answer |
//! | `local` | a server of one's own |

mod approval;
mod conversation;
mod line_editor;
mod local_server;
mod markdown;
mod message_events;
mod page;
mod plain;
mod prompt;
mod render;
mod saved_files;
mod screen;
mod view;

pub(crate) use render::Renderer;
pub(crate) use saved_files::SaveFolder;
pub(crate) use screen::{Screen, Terminal};

use crate::client::{Client, ClientError, Endpoint, RetryLimit, SessionInfo};
use crate::input::{IoFailure, print_stderr};
use crate::store::CommandError;
use approval::Approver;
use clap::Args;
use conversation::{ChatError, Conversation, ReplyOutcome};
use line_editor::LineEditor;
use local_server::{LocalOptions, LocalServer};
use page::Style;
use plain::PlainRenderer;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use turnwire_server::config::StoreUrl;
use view::View;

/// Where credentials are, so that they need not stand on the command line.
pub(crate) const TOKEN_VARIABLE: &str = "TURNWIRE_TOKEN";
/// How many messages `--resume` shows.
const RESUMED_MESSAGES: usize = 6;
/// How long a request is sent again.
const REQUEST_RETRY: RetryLimit = RetryLimit::For(Duration::from_secs(15));
/// How long a pipe waits for a server that went away.
const PIPE_RETRY: RetryLimit = RetryLimit::For(Duration::from_mins(1));
/// What the shell shows for a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// Talk to an agent: in the terminal, or in a pipe
///
/// Without --url it starts a server of its own, for as long as the conversation lasts, with the settings
/// of turnwire.toml. The agent `demo` needs no key: write weather, approve, browser, image, team, json or
/// fail to see what an agent can do.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Chat {
    /// What to say; the answer comes, and that is all. Without it: a conversation, or standard input
    message: Option<String>,

    /// Talk to this model, such as demo
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["agent", "url"])]
    model: Option<String>,

    /// Talk to this agent of the settings, or of the server [default: its default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// A server that runs already, such as `http://127.0.0.1:4747`
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    url: Option<String>,

    /// Credentials for the server; better in `TURNWIRE_TOKEN`, where no list of processes shows it
    #[arg(long, value_name = "TOKEN", requires = "url")]
    token: Option<String>,

    /// Talk in this session; it is made where there is none [default: a new one]
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Go on with the latest session (or that of --session): shows its last messages, and asks what
    /// still waits for an answer
    #[arg(long)]
    resume: bool,

    /// One event a line, as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,

    /// Allow what asks, where nobody can be asked
    #[arg(long)]
    yes: bool,

    /// Where sessions are kept: sqlite:PATH or memory: [default: as for `turnwire serve`]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,

    /// The settings [default: turnwire.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where pictures and files of an answer go [default: a folder in your data folder]
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
}

const AFTER: &str = "\
In the terminal:
  y, n, a, e   answer a tool that asks: yes, no, always, edit its input first
  Ctrl-C       stops the answer; a second one leaves
  /help        lists the commands: /retry /stop /new /sessions /quit

In a pipe the answer goes to standard output, notes go to standard error. A tool that asks is denied,
unless --yes is given. A lost connection comes back by itself, without a gap.

Exit status:
  0    the reply was completed
  1    the reply failed, or was stopped
  2    wrong usage, or the server cannot be used
  130  interrupted
  141  whoever read our output has gone away

Examples:
  turnwire chat
  turnwire chat --resume
  turnwire chat --url https://turnwire.example --agent friday
  echo \"how is the weather?\" | turnwire chat
  turnwire chat --json \"approve it\" --yes | jq -r .type
  NO_COLOR=1 turnwire chat --store memory: \"show me an image\" --save .";

impl Chat {
    pub(crate) fn run(self) -> ExitCode {
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                return CommandError::new(format!("the system gives no threads: {error}"), "")
                    .report();
            }
        };
        let done = runtime.block_on(self.start());
        // A thread may wait for a line that nobody will type.
        runtime.shutdown_background();
        done.unwrap_or_else(|cannot| cannot.report())
    }

    async fn start(self) -> Result<ExitCode, CommandError> {
        let terminal = Terminal::detect();
        let talks = terminal.is_interactive && self.message.is_none() && !self.json;
        let message = if talks { None } else { self.read_message()? };
        let local = if self.url.is_none() {
            let (config, store) = (self.config.as_deref(), self.store.clone());
            let model = self.model.as_deref();
            Some(LocalServer::start(LocalOptions { config, store, model }).await?)
        } else {
            None
        };
        let place = match (&local, &self.url) {
            (Some(local), _) => local.endpoint.clone(),
            (None, url) => remote_endpoint(url.as_deref().unwrap_or_default(), self.token.clone())?,
        };
        let done = self.run_chat(terminal, place, message, talks).await;
        if let Some(local) = local {
            local.stop().await;
        }
        done
    }

    /// What is to be said, where nobody is there to talk.
    fn read_message(&self) -> Result<Option<String>, CommandError> {
        if let Some(message) = &self.message {
            return Ok(Some(message.clone()));
        }
        if io::IsTerminal::is_terminal(&io::stdin()) {
            print_stderr("reading a message from standard input; end with Ctrl-D, or see --help");
        }
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|error| {
            CommandError::new(format!("cannot read standard input: {error}"), "")
        })?;
        let text = text.trim().to_owned();
        if text.is_empty() && !self.resume {
            return Err(CommandError::new(
                "there is nothing to say",
                "write a message on standard input, or as an argument: turnwire chat \"hello\"",
            ));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    async fn run_chat(
        &self,
        terminal: Terminal,
        place: Endpoint,
        message: Option<String>,
        talks: bool,
    ) -> Result<ExitCode, CommandError> {
        // An address where nobody listens is said at once; a server that was there comes back.
        let first = Client::new(place.clone(), RetryLimit::For(Duration::ZERO));
        let session = self
            .find_or_create_session(&first)
            .await
            .map_err(|trouble| to_command_error(&trouble))?;
        let client = Client::new(place, REQUEST_RETRY);
        let keep = Box::new(SaveFolder::for_session(self.save.as_deref(), &session.id));
        // What comes out of a pipe, or goes into one, is plain: nobody knows who reads it.
        let view = if self.json {
            View::Json
        } else if terminal.is_interactive {
            View::Terminal(Box::new(Renderer::new(terminal.display, keep)), Screen::new(terminal))
        } else {
            View::Plain(Box::new(PlainRenderer::new(keep)))
        };
        let asks = terminal.is_interactive && !self.json && !self.yes;
        let asker = if talks || asks {
            let colour = terminal.display.colour;
            Approver::Interactive(
                LineEditor::open(colour).map_err(|error| CommandError::new(error, ""))?,
            )
        } else {
            Approver::NonInteractive { yes: self.yes }
        };
        let patience = if talks { RetryLimit::Unlimited } else { PIPE_RETRY };
        let mut talk =
            Conversation::new(client, &session, view, asker, patience).map_err(|error| {
                CommandError::new(format!("the system gives no signals: {error}"), "")
            })?;
        let done = match prompt::line_editor(&talk.approver).filter(|_| talks) {
            Some(lines) => {
                self.run_interactive(&mut talk, &lines).await.map(|()| ReplyOutcome::Completed)
            }
            None => self.run_once(&mut talk, message).await,
        };
        Ok(match done {
            Ok(ReplyOutcome::Completed) => ExitCode::SUCCESS,
            Ok(ReplyOutcome::Failed | ReplyOutcome::Stopped) => ExitCode::FAILURE,
            Ok(ReplyOutcome::Detached) => ExitCode::from(INTERRUPTED),
            Err(ChatError::Write(error)) => IoFailure::Write(error).report(Path::new("-")),
            Err(ChatError::Server(trouble) | ChatError::NotSent(trouble)) => {
                return Err(to_command_error(&trouble));
            }
        })
    }

    /// The session that is meant.
    async fn find_or_create_session(&self, client: &Client) -> Result<SessionInfo, ClientError> {
        let agent = self.agent.as_deref().or(self.model.as_deref());
        if self.resume {
            if let Some(id) = &self.session {
                return client.get_session(id).await;
            }
            let latest = client.list_sessions(200).await?;
            let fits = |session: &SessionInfo| agent.is_none_or(|agent| session.agent == agent);
            if let Some(latest) = latest.into_iter().find(fits) {
                return Ok(latest);
            }
            print_stderr("there is no session to go on with; this is a new one");
        }
        let session = client.create_session(self.session.as_deref(), agent).await?;
        if agent.is_some_and(|agent| session.agent != agent) {
            let (id, there) = (one_line(&session.id), one_line(&session.agent));
            print_stderr(format_args!(
                "note: the session {id} is there already, and its agent is {there}"
            ));
        }
        Ok(session)
    }

    async fn run_interactive(
        &self,
        talk: &mut Conversation,
        lines: &LineEditor,
    ) -> Result<(), ChatError> {
        let (agent, session) = (one_line(&talk.agent), talk.session.clone());
        let place = match &self.url {
            Some(_) => format!(" · {}", talk.client.endpoint().url()),
            None => String::new(),
        };
        let hello = format!("Turnwire · agent {agent} · session {session}{place} · /help");
        talk.view.show_note(Style::DIM, &hello)?;
        if self.resume && self.show_and_follow_open(talk).await? == Some(ReplyOutcome::Detached) {
            return Ok(());
        }
        prompt::run_prompt(talk, lines).await?;
        let session = &talk.session;
        let again = format!("turnwire chat --resume --session {session} goes on here");
        talk.view.show_note(Style::DIM, &again)?;
        Ok(())
    }

    /// Shows what is there, and follows what is open. `None`: nothing was.
    async fn show_and_follow_open(
        &self,
        talk: &mut Conversation,
    ) -> Result<Option<ReplyOutcome>, ChatError> {
        let history = talk.client.get_history(&talk.session, RESUMED_MESSAGES).await?;
        talk.set_cursor_after(&history);
        talk.view.show_history(&history)?;
        if history.status == "idle" {
            return Ok(None);
        }
        talk.follow_open_reply(&history).await.map(Some)
    }

    /// One message and its answer.
    async fn run_once(
        &self,
        talk: &mut Conversation,
        message: Option<String>,
    ) -> Result<ReplyOutcome, ChatError> {
        let went = if self.resume { self.show_and_follow_open(talk).await? } else { None };
        match (message, went) {
            (_, Some(ReplyOutcome::Detached)) => Ok(ReplyOutcome::Detached),
            (Some(message), _) => talk.send_message(&message).await,
            (None, Some(went)) => Ok(went),
            (None, None) => {
                talk.view.show_note(Style::DIM, "nothing was open, and nothing was said")?;
                Ok(ReplyOutcome::Completed)
            }
        }
    }
}

/// A server elsewhere, with the credentials that were given.
pub(crate) fn remote_endpoint(url: &str, token: Option<String>) -> Result<Endpoint, CommandError> {
    let token =
        token.or_else(|| std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()));
    Endpoint::new(url, token).map_err(|why| CommandError::new(why, ""))
}

pub(crate) fn to_command_error(trouble: &ClientError) -> CommandError {
    CommandError::new(trouble.to_string(), trouble.hint())
}

/// What came from outside, on one line of a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
