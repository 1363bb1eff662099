//! `turnwire replay`: a session again, or its state at a point.

use crate::chat::{self, Renderer, SaveFolder, Screen, Terminal};
use crate::client::{Client, RetryLimit};
use crate::input::IoFailure;
use crate::store::{self, CommandError, Mode, StoreArgs};
use clap::Args;
use jiff::Timestamp;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::sleep;
use turnwire_core::event::Message;
use turnwire_core::{Event, Msg, Seq};
use turnwire_log::store::{SessionKey, Store};
use turnwire_log::transfer::{self, ExportError};

/// Nobody watches an hour in which an approval waited.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Watch a session again, or print its state at a point
///
/// It looks as it did in `turnwire chat`, at the pace at which it happened; pauses of more than 5 seconds
/// are cut short. With --at it prints the messages as they stood behind that event, one JSON a line.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Replay {
    /// Which session
    #[arg(long, value_name = "ID")]
    session: String,

    /// Print the messages as they stood behind the event with this number, instead
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,

    /// How fast: 2 is twice as fast as it happened, 0 is at once
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,

    /// Whose session, in a store
    #[arg(long, value_name = "NAME", default_value = turnwire_server::auth::DEFAULT_TENANT, conflicts_with = "url")]
    tenant: String,

    /// A server that has the session [default: the store itself, also beside its server]
    #[arg(long, value_name = "URL", conflicts_with = "store")]
    url: Option<String>,

    /// Credentials for the server; better in `TURNWIRE_TOKEN`
    #[arg(long, value_name = "TOKEN", requires = "url")]
    token: Option<String>,

    /// Where pictures and files go [default: a folder in your data folder]
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER: &str = "\
Exit status:
  0    it was shown
  1    there is no such session
  2    wrong usage, or the store or the server cannot be used
  141  whoever read our output has gone away

Examples:
  turnwire replay --session chat-1
  turnwire replay --session chat-1 --speed 4 --url http://127.0.0.1:4747
  turnwire replay --session chat-1 --at 40 | jq -r .role";

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed >= 0.0 => Ok(speed),
        _ => Err("a number such as 2, or 0 for at once".to_owned()),
    }
}

impl Replay {
    pub(crate) fn run(self) -> ExitCode {
        store::block_on(self.start())
    }

    async fn start(mut self) -> Result<ExitCode, CommandError> {
        let which = std::mem::take(&mut self.which);
        let lines = match &self.url {
            Some(url) => self.read_from_server(url).await?,
            None => self.read_from_store(which).await?,
        };
        let Some(lines) = lines else {
            let id = chat::one_line(&self.session);
            crate::input::print_stderr(format_args!("error: there is no session {id}"));
            crate::input::print_stderr("hint: `turnwire sessions` lists those of a store");
            return Ok(ExitCode::FAILURE);
        };
        let events = parse_events(&lines)?;
        let done = match self.at {
            Some(at) => print_messages_at(&events, at),
            None => self.show(&events).await,
        };
        Ok(match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => IoFailure::Write(error).report(Path::new("-")),
        })
    }

    async fn read_from_server(&self, url: &str) -> Result<Option<String>, CommandError> {
        let place = chat::remote_endpoint(url, self.token.clone())?;
        let client = Client::new(place, RetryLimit::For(Duration::from_secs(5)));
        match client.read_log(&self.session).await {
            Ok(lines) => Ok(Some(lines)),
            Err(trouble) if trouble.is_not_found() => Ok(None),
            Err(trouble) if trouble.has_type("trimmed") => Err(CommandError::new(
                trouble.to_string(),
                "the store itself has the messages whole: leave out --url, and name it with --store",
            )),
            Err(trouble) => Err(chat::to_command_error(&trouble)),
        }
    }

    async fn read_from_store(&self, which: StoreArgs) -> Result<Option<String>, CommandError> {
        let store = which.open(Mode::Read)?;
        let key = SessionKey::new(self.tenant.as_str(), self.session.as_str());
        let Some(record) = store.find_session(&key).await? else { return Ok(None) };
        let mut out = Vec::new();
        match transfer::export(&*store, &record, &mut out).await {
            Ok(_) => {}
            Err(ExportError::Log(error)) => return Err(error.into()),
            Err(ExportError::Write(error)) => return Err(CommandError::new(error.to_string(), "")),
        }
        let text =
            String::from_utf8(out).map_err(|_| CommandError::new("the log is no UTF-8", ""))?;
        // The first line says what the session is.
        Ok(Some(text.split_once('\n').map_or("", |(_, rest)| rest).to_owned()))
    }

    async fn show(&self, events: &[Event<'static>]) -> io::Result<()> {
        let terminal = Terminal::detect();
        let keep = Box::new(SaveFolder::for_session(self.save.as_deref(), &self.session));
        let mut renderer = Renderer::new(terminal.display, keep);
        let mut screen = Screen::new(terminal);
        let mut before: Option<Timestamp> = None;
        for event in events {
            let now: Option<Timestamp> = event.created_at.parse().ok();
            if let (Some(before), Some(now)) = (before, now) {
                let passed = Duration::try_from(now.duration_since(before)).unwrap_or_default();
                wait_scaled(passed, self.speed).await;
            }
            before = now.or(before);
            let text = renderer.render_event(event);
            screen.write(&text)?;
        }
        let rest = renderer.finish_block();
        screen.write(&rest)
    }
}

async fn wait_scaled(passed: Duration, speed: f64) {
    if speed <= 0.0 || passed.is_zero() {
        return;
    }
    let time = Duration::try_from_secs_f64(passed.min(MAX_PAUSE).as_secs_f64() / speed);
    sleep(time.unwrap_or(MAX_PAUSE)).await;
}

/// The events of a log; messages whose events are gone come whole.
fn parse_events(lines: &str) -> Result<Vec<Event<'static>>, CommandError> {
    let strange = |error: &dyn std::fmt::Display| {
        CommandError::new(
            format!("the log cannot be understood: {error}"),
            "`turnwire doctor` checks a store",
        )
    };
    let lines = lines.lines().filter(|line| !line.is_empty());
    let read = lines.map(|line| match Event::from_json(line) {
        Ok(event) => Ok(event.into_owned()),
        Err(error) => {
            #[derive(serde::Deserialize)]
            struct MessageLine {
                message: Msg,
            }
            let whole: MessageLine = serde_json::from_str(line).map_err(|_| strange(&error))?;
            Ok(Event::new("", Message { message: Box::new(whole.message) }))
        }
    });
    read.collect()
}

/// The messages as they stood behind an event. Those of sub-agents are no part of the conversation.
fn print_messages_at(events: &[Event<'static>], at: u64) -> io::Result<()> {
    let mut folder = turnwire_core::Folder::default();
    let mut of_others = HashSet::new();
    for event in events.iter().filter(|event| event.seq.map_or(0, Seq::get) <= at) {
        if event.is_from_sub_agent() {
            of_others.insert(event.reply_id.to_string());
        }
        // The log was folded strictly when it was written.
        let _ = folder.push_tolerant(event);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for msg in folder.history().filter(|msg| !of_others.contains(msg.id())) {
        writeln!(out, "{}", msg.to_json())?;
    }
    out.flush()
}
