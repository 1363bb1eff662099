//! `turnwire chat`: a conversation at a terminal or in a pipe.
//!
//! It is always a client of a server: that of `--url`, the one that has the store open, or one that it starts in this process.
//!
//! | module | what is in it |
//! |---|---|
//! | `prompt` | the loop of an interactive conversation: input and slash commands |
//! | `conversation` | sends messages and follows one reply to its end |
//! | `approval` | decisions on pending tool calls |
//! | `view` | the output: `render` (terminal), `plain` (pipe), or JSON |
//! | `render`, `markdown`, `code`, `page` | events to terminal text |
//! | `message_events` | a stored message as events |
//! | `screen`, `line_editor`, `key_press` | the terminal: output and input |
//! | `attachments` | files of the next message |
//! | `saved_files` | images and files of a reply |
//! | `local_server` | the server that has the store open, or one in this process |
//! | `resume_hint` | the command that continues a conversation |

mod approval;
mod attachments;
mod code;
mod conversation;
mod key_press;
mod line_editor;
mod local_server;
mod markdown;
mod message_events;
mod page;
mod plain;
mod prompt;
mod render;
mod resume_hint;
mod saved_files;
mod screen;
mod view;

pub(crate) use render::Renderer;
pub(crate) use saved_files::SaveFolder;
pub(crate) use screen::{Screen, Terminal};

use crate::client::{Client, ClientError, Endpoint, RetryLimit, SessionInfo};
use crate::input::{CommandError, print_stderr};
use crate::store;
use approval::Approver;
use attachments::Attachments;
use clap::Args;
use conversation::{ChatError, Conversation, ReplyOutcome};
use line_editor::LineEditor;
use local_server::{LocalOptions, StoreServer};
use page::Style;
use plain::PlainRenderer;
use resume_hint::ResumeHint;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use turnwire_server::config::StoreUrl;
use view::View;

/// The environment variable for the token, which process lists do not show.
pub(crate) const TOKEN_VARIABLE: &str = "TURNWIRE_TOKEN";
/// How many messages `--resume` shows.
const RESUMED_MESSAGES: usize = 6;
/// How long to retry a request.
const REQUEST_RETRY: RetryLimit = RetryLimit::For(Duration::from_secs(15));
/// How long to wait for a lost server in a pipe.
const PIPE_RETRY: RetryLimit = RetryLimit::For(Duration::from_mins(1));
/// The exit status of an interrupted program.
const INTERRUPTED: u8 = 130;

/// Chat with an agent, in the terminal or in a pipe
///
/// Without --url it uses the server that has the store open, if there is one. Otherwise it starts its
/// own for the time of the conversation, with the settings of turnwire.toml. The agent `demo` needs no API key: write weather, approve, browser, image, team,
/// json or fail to see what an agent can do.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Chat {
    /// The message; prints the reply and exits. Without it: a conversation, or standard input
    message: Option<String>,

    /// Use this model, such as demo or anthropic:claude-sonnet-4-5
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["agent", "url"])]
    model: Option<String>,

    /// Use this agent of the settings or of the server [default: its default agent]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Connect to a running server, such as `http://127.0.0.1:4747`
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    url: Option<String>,

    /// Token for the server; better in `TURNWIRE_TOKEN`, which process lists do not show
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,

    /// Use this session; it is created if it does not exist [default: a new one]
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Continue the latest session (or that of --session): shows its last messages, and asks for
    /// pending approvals
    #[arg(long)]
    resume: bool,

    /// Attach an image or another file to the message; may be repeated
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,

    /// Print one event per line as JSON, and nothing else on standard output
    #[arg(long)]
    json: bool,

    /// Allow tool calls that need approval, when there is no user to ask
    #[arg(long)]
    yes: bool,

    /// The store: sqlite:PATH, a URL of Postgres, or memory: [default: as for `turnwire serve`]
    #[arg(long, value_name = "URL")]
    store: Option<StoreUrl>,

    /// The settings file [default: turnwire.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder for images and files of a reply [default: a folder in your data folder]
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
}

/// What is known before the server.
struct ChatSetup {
    terminal: Terminal,
    /// The message of a conversation without a user.
    message: Option<String>,
    /// The user talks at the terminal.
    talks: bool,
    attachments: Attachments,
}

const AFTER: &str = "\
In the terminal:
  y, n, a, e   decide on a tool call with one key: yes, no, always, edit its input first
  Ctrl-C       stops the reply; a second one quits
  /help        lists the commands: /retry /stop /new /agent /attach /sessions /quit

In a pipe the reply goes to standard output, and notes go to standard error. Tool calls that need
approval are denied, unless --yes is given. A lost connection is restored without losing events.

Exit status:
  0    the reply was completed
  1    the reply failed or was stopped
  2    wrong usage, or the server cannot be used
  130  interrupted
  141  the reader of the output closed the pipe

Examples:
  turnwire chat
  turnwire chat --resume
  turnwire chat --url https://turnwire.example --agent friday
  echo \"how is the weather?\" | turnwire chat
  turnwire chat --attach photo.png \"what is this?\"
  turnwire chat --json \"approve it\" --yes | jq -r .type
  NO_COLOR=1 turnwire chat --store memory: \"show me an image\" --save .";

impl Chat {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let runtime = store::new_runtime()?;
        let done = runtime.block_on(self.start());
        // A thread may still wait for a line of input.
        runtime.shutdown_background();
        done
    }

    async fn start(self) -> Result<ExitCode, CommandError> {
        let terminal = Terminal::detect();
        let talks = terminal.is_interactive && self.message.is_none() && !self.json;
        let mut attachments = Attachments::default();
        for path in &self.attach {
            attachments.add(path).map_err(|why| CommandError::new(one_line(&why), ""))?;
        }
        let message = if talks { None } else { self.read_message()? };
        let setup = ChatSetup { terminal, message, talks, attachments };
        let token = self.token.clone();
        let server = if let Some(url) = &self.url {
            StoreServer::Found(remote_endpoint(url, token)?)
        } else {
            let (config, store) = (self.config.as_deref(), self.store.clone());
            let model = self.model.as_deref();
            StoreServer::find_or_start(LocalOptions { config, store, model, token }).await?
        };
        match server {
            StoreServer::Found(endpoint) => {
                self.run_chat(setup, endpoint, ResumeHint::new(&self)).await
            }
            StoreServer::Started(local) => {
                let hint =
                    if local.is_in_memory { ResumeHint::none() } else { ResumeHint::new(&self) };
                let endpoint = local.endpoint.clone();
                let done = self.run_chat(setup, endpoint, hint).await;
                local.stop().await;
                done
            }
        }
    }

    /// The message of a conversation without a user: the argument, or standard input.
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
                "the message is empty",
                "pass a message on standard input or as an argument: turnwire chat \"hello\"",
            ));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    async fn run_chat(
        &self,
        setup: ChatSetup,
        endpoint: Endpoint,
        resume: ResumeHint,
    ) -> Result<ExitCode, CommandError> {
        let ChatSetup { terminal, message, talks, attachments } = setup;
        // A wrong address is reported at once; later, a lost server is retried.
        let first = Client::new(endpoint.clone(), RetryLimit::For(Duration::ZERO));
        let session =
            self.find_or_create_session(&first).await.map_err(|error| to_command_error(&error))?;
        let client = Client::new(endpoint, REQUEST_RETRY);
        let saver = Box::new(SaveFolder::for_session(self.save.as_deref(), &session.id));
        // Styles are only for a terminal on both sides.
        let view = if self.json {
            View::Json
        } else if terminal.is_interactive {
            View::Terminal(Box::new(Renderer::new(terminal.display, saver)), Screen::new(terminal))
        } else {
            View::Plain(Box::new(PlainRenderer::new(saver)))
        };
        let asks = terminal.is_interactive && !self.json && !self.yes;
        let approver = if talks || asks {
            let colour = terminal.display.colour;
            Approver::Interactive(
                LineEditor::open(colour).map_err(|error| CommandError::new(error, ""))?,
            )
        } else {
            Approver::NonInteractive { yes: self.yes }
        };
        let retry_limit = if talks { RetryLimit::Unlimited } else { PIPE_RETRY };
        let mut conversation = Conversation::new(client, &session, view, approver, retry_limit)
            .map_err(|error| {
                CommandError::new(format!("cannot listen for signals: {error}"), "")
            })?;
        conversation.resume = resume;
        conversation.attachments = attachments;
        let done = match prompt::line_editor(&conversation.approver).filter(|_| talks) {
            Some(lines) => self
                .run_interactive(&mut conversation, &lines)
                .await
                .map(|()| ReplyOutcome::Completed),
            None => self.run_once(&mut conversation, message).await,
        };
        match done {
            Ok(ReplyOutcome::Completed) => Ok(ExitCode::SUCCESS),
            Ok(ReplyOutcome::Failed | ReplyOutcome::Stopped) => Ok(ExitCode::FAILURE),
            Ok(ReplyOutcome::Detached) => Ok(ExitCode::from(INTERRUPTED)),
            Err(ChatError::Write(error)) => Err(error.into()),
            Err(ChatError::Server(error) | ChatError::NotSent(error)) => {
                Err(to_command_error(&error))
            }
        }
    }

    /// The session of the options.
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
            print_stderr("there is no session to resume; starting a new one");
        }
        let session = client.create_session(self.session.as_deref(), agent).await?;
        if agent.is_some_and(|agent| session.agent != agent) {
            let (id, there) = (one_line(&session.id), one_line(&session.agent));
            print_stderr(format_args!(
                "note: the session {id} already exists, with the agent {there}"
            ));
        }
        Ok(session)
    }

    async fn run_interactive(
        &self,
        conversation: &mut Conversation,
        lines: &LineEditor,
    ) -> Result<(), ChatError> {
        let (agent, session) = (one_line(&conversation.agent), conversation.session.clone());
        let endpoint = match &self.url {
            Some(_) => format!(" · {}", conversation.client.endpoint().url()),
            None => String::new(),
        };
        let hello = format!("Turnwire · agent {agent} · session {session}{endpoint} · /help");
        conversation.view.show_note(Style::DIM, &hello)?;
        if self.resume
            && self.show_and_follow_open(conversation).await? == Some(ReplyOutcome::Detached)
        {
            return Ok(());
        }
        prompt::run_prompt(conversation, lines).await?;
        if let Some(command) = conversation.resume.command(&conversation.session) {
            conversation.view.show_command(&format!("resume with: {command}"))?;
        }
        Ok(())
    }

    /// Shows the history, and follows the open reply. `None` if there was none.
    async fn show_and_follow_open(
        &self,
        conversation: &mut Conversation,
    ) -> Result<Option<ReplyOutcome>, ChatError> {
        let history =
            conversation.client.get_history(&conversation.session, RESUMED_MESSAGES).await?;
        conversation.set_cursor_after(&history);
        conversation.view.show_history(&history)?;
        if history.status == "idle" {
            return Ok(None);
        }
        conversation.follow_open_reply(&history).await.map(Some)
    }

    /// One message and its reply.
    async fn run_once(
        &self,
        conversation: &mut Conversation,
        message: Option<String>,
    ) -> Result<ReplyOutcome, ChatError> {
        let went = if self.resume { self.show_and_follow_open(conversation).await? } else { None };
        match (message, went) {
            (_, Some(ReplyOutcome::Detached)) => Ok(ReplyOutcome::Detached),
            (Some(message), _) => conversation.send_message(&message).await,
            (None, Some(went)) => Ok(went),
            (None, None) => {
                conversation
                    .view
                    .show_note(Style::DIM, "nothing to do: no open reply and no message")?;
                Ok(ReplyOutcome::Completed)
            }
        }
    }
}

/// The endpoint of a remote server, with the given token or that of the environment.
pub(crate) fn remote_endpoint(url: &str, token: Option<String>) -> Result<Endpoint, CommandError> {
    let token =
        token.or_else(|| std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()));
    Endpoint::new(url, token).map_err(|why| CommandError::new(why, ""))
}

pub(crate) fn to_command_error(error: &ClientError) -> CommandError {
    CommandError::new(error.to_string(), error.hint())
}

/// Makes untrusted text safe for one line of a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
