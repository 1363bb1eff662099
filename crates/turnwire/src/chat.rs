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

mod again;
mod ask;
mod files;
mod follow;
mod line;
mod local;
mod markdown;
mod page;
mod plain;
mod prompt;
mod render;
mod screen;
mod view;

pub(crate) use files::Folder;
pub(crate) use render::Renderer;
pub(crate) use screen::{Screen, Terminal};

use crate::client::{Client, Patience, Place, SessionInfo, Trouble};
use crate::input::{Failed, say};
use crate::store::Cannot;
use ask::Asker;
use clap::Args;
use follow::{Over, Talk, Went};
use line::Lines;
use local::{Local, Wanted};
use page::Style;
use plain::Plain;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use turnwire_server::config::StoreUrl;
use view::View;

/// Where credentials are, so that they need not stand on the command line.
pub(crate) const TOKEN: &str = "TURNWIRE_TOKEN";
/// How many messages `--resume` shows.
const SHOWN: usize = 6;
/// How long a request is sent again.
const REQUEST: Patience = Patience::For(Duration::from_secs(15));
/// How long a pipe waits for a server that went away.
const PIPE: Patience = Patience::For(Duration::from_mins(1));
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
                return Cannot::new(format!("the system gives no threads: {error}"), "").tell();
            }
        };
        let done = runtime.block_on(self.start());
        // A thread may wait for a line that nobody will type.
        runtime.shutdown_background();
        done.unwrap_or_else(|cannot| cannot.tell())
    }

    async fn start(self) -> Result<ExitCode, Cannot> {
        let terminal = Terminal::find();
        let talks = terminal.is_there && self.message.is_none() && !self.json;
        let message = if talks { None } else { self.said()? };
        let local = if self.url.is_none() {
            let (config, store) = (self.config.as_deref(), self.store.clone());
            let model = self.model.as_deref();
            Some(Local::start(Wanted { config, store, model }).await?)
        } else {
            None
        };
        let place = match (&local, &self.url) {
            (Some(local), _) => local.place.clone(),
            (None, url) => place(url.as_deref().unwrap_or_default(), self.token.clone())?,
        };
        let done = self.talk(terminal, place, message, talks).await;
        if let Some(local) = local {
            local.stop().await;
        }
        done
    }

    /// What is to be said, where nobody is there to talk.
    fn said(&self) -> Result<Option<String>, Cannot> {
        if let Some(message) = &self.message {
            return Ok(Some(message.clone()));
        }
        if io::IsTerminal::is_terminal(&io::stdin()) {
            say("reading a message from standard input; end with Ctrl-D, or see --help");
        }
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| Cannot::new(format!("cannot read standard input: {error}"), ""))?;
        let text = text.trim().to_owned();
        if text.is_empty() && !self.resume {
            return Err(Cannot::new(
                "there is nothing to say",
                "write a message on standard input, or as an argument: turnwire chat \"hello\"",
            ));
        }
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    async fn talk(
        &self,
        terminal: Terminal,
        place: Place,
        message: Option<String>,
        talks: bool,
    ) -> Result<ExitCode, Cannot> {
        // An address where nobody listens is said at once; a server that was there comes back.
        let first = Client::new(place.clone(), Patience::For(Duration::ZERO));
        let session = self.session(&first).await.map_err(|trouble| cannot(&trouble))?;
        let client = Client::new(place, REQUEST);
        let keep = Box::new(Folder::of(self.save.as_deref(), &session.id));
        // What comes out of a pipe, or goes into one, is plain: nobody knows who reads it.
        let view = if self.json {
            View::Json
        } else if terminal.is_there {
            View::Terminal(Box::new(Renderer::new(terminal.look, keep)), Screen::new(terminal))
        } else {
            View::Plain(Box::new(Plain::new(keep)))
        };
        let asks = terminal.is_there && !self.json && !self.yes;
        let asker = if talks || asks {
            let colour = terminal.look.colour;
            Asker::Person(Lines::open(colour).map_err(|error| Cannot::new(error, ""))?)
        } else {
            Asker::Nobody { yes: self.yes }
        };
        let patience = if talks { Patience::Endless } else { PIPE };
        let mut talk = Talk::new(client, &session, view, asker, patience)
            .map_err(|error| Cannot::new(format!("the system gives no signals: {error}"), ""))?;
        let done = match prompt::lines(&talk.asker).filter(|_| talks) {
            Some(lines) => self.conversation(&mut talk, &lines).await.map(|()| Went::Completed),
            None => self.once(&mut talk, message).await,
        };
        Ok(match done {
            Ok(Went::Completed) => ExitCode::SUCCESS,
            Ok(Went::Failed | Went::Stopped) => ExitCode::FAILURE,
            Ok(Went::Left) => ExitCode::from(INTERRUPTED),
            Err(Over::Write(error)) => Failed::Write(error).tell(Path::new("-")),
            Err(Over::Server(trouble) | Over::NotSent(trouble)) => return Err(cannot(&trouble)),
        })
    }

    /// The session that is meant.
    async fn session(&self, client: &Client) -> Result<SessionInfo, Trouble> {
        let agent = self.agent.as_deref().or(self.model.as_deref());
        if self.resume {
            if let Some(id) = &self.session {
                return client.session(id).await;
            }
            let latest = client.sessions(200).await?;
            let fits = |session: &SessionInfo| agent.is_none_or(|agent| session.agent == agent);
            if let Some(latest) = latest.into_iter().find(fits) {
                return Ok(latest);
            }
            say("there is no session to go on with; this is a new one");
        }
        let session = client.create(self.session.as_deref(), agent).await?;
        if agent.is_some_and(|agent| session.agent != agent) {
            let (id, there) = (one_line(&session.id), one_line(&session.agent));
            say(format_args!("note: the session {id} is there already, and its agent is {there}"));
        }
        Ok(session)
    }

    async fn conversation(&self, talk: &mut Talk, lines: &Lines) -> Result<(), Over> {
        let (agent, session) = (one_line(&talk.agent), talk.session.clone());
        let place = match &self.url {
            Some(_) => format!(" · {}", talk.client.place().url()),
            None => String::new(),
        };
        let hello = format!("Turnwire · agent {agent} · session {session}{place} · /help");
        talk.view.note(Style::DIM, &hello)?;
        if self.resume && self.open(talk).await? == Some(Went::Left) {
            return Ok(());
        }
        prompt::run(talk, lines).await?;
        let session = &talk.session;
        let again = format!("turnwire chat --resume --session {session} goes on here");
        talk.view.note(Style::DIM, &again)?;
        Ok(())
    }

    /// Shows what is there, and follows what is open. `None`: nothing was.
    async fn open(&self, talk: &mut Talk) -> Result<Option<Went>, Over> {
        let history = talk.client.history(&talk.session, SHOWN).await?;
        talk.go_behind(&history);
        talk.view.history(&history)?;
        if history.status == "idle" {
            return Ok(None);
        }
        talk.follow_open(&history).await.map(Some)
    }

    /// One message and its answer.
    async fn once(&self, talk: &mut Talk, message: Option<String>) -> Result<Went, Over> {
        let went = if self.resume { self.open(talk).await? } else { None };
        match (message, went) {
            (_, Some(Went::Left)) => Ok(Went::Left),
            (Some(message), _) => talk.say(&message).await,
            (None, Some(went)) => Ok(went),
            (None, None) => {
                talk.view.note(Style::DIM, "nothing was open, and nothing was said")?;
                Ok(Went::Completed)
            }
        }
    }
}

/// A server elsewhere, with the credentials that were given.
pub(crate) fn place(url: &str, token: Option<String>) -> Result<Place, Cannot> {
    let token = token.or_else(|| std::env::var(TOKEN).ok().filter(|token| !token.is_empty()));
    Place::new(url, token).map_err(|why| Cannot::new(why, ""))
}

pub(crate) fn cannot(trouble: &Trouble) -> Cannot {
    Cannot::new(trouble.to_string(), trouble.hint())
}

/// What came from outside, on one line of a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}
