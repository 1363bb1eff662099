//! `turnwire replay`: shows a stored session again, or prints its messages at an event.

use crate::chat::{self, Renderer, SaveFolder, Screen, Terminal};
use crate::client::{Client, RetryLimit};
use crate::input::CommandError;
use crate::store::{self, Mode, OpenStore, StoreArgs};
use clap::Args;
use jiff::Timestamp;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::sleep;
use turnwire_core::event::Message;
use turnwire_core::{Event, Head, Msg};
use turnwire_log::store::SessionKey;
use turnwire_log::transfer::{self, ExportError, ExportedBlobs};

/// Longer pauses are cut: nobody watches an hour of waiting for an approval.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Replay a session, or print its messages at an event
///
/// It looks as in `turnwire chat` and runs at the original pace, with pauses of at most 5 seconds.
/// With --at it prints the messages after that event, one JSON object per line.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct Replay {
    /// The session
    #[arg(long, value_name = "ID")]
    session: String,

    /// Instead, print the messages after the event with this number
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,

    /// Speed: 2 is twice as fast, 0 is without pauses
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,

    /// The tenant of the session, in a store
    #[arg(long, value_name = "NAME", default_value = turnwire_server::auth::DEFAULT_TENANT, conflicts_with = "url")]
    tenant: String,

    /// Read from this server [default: from the store, also while a server uses it]
    #[arg(long, value_name = "URL", conflicts_with = "store")]
    url: Option<String>,

    /// Token for the server; better in `TURNWIRE_TOKEN`
    #[arg(long, value_name = "TOKEN", requires = "url")]
    token: Option<String>,

    /// Folder for images and files [default: a folder in your data folder]
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,

    #[command(flatten)]
    which: StoreArgs,
}

const AFTER: &str = "\
Exit status:
  0    the session was shown
  1    there is no such session
  2    wrong usage, or the store or the server cannot be used
  141  the reader of the output closed the pipe

Examples:
  turnwire replay --session chat-1
  turnwire replay --session chat-1 --speed 4 --url http://127.0.0.1:4747
  turnwire replay --session chat-1 --at 40 | jq -r .role";

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed >= 0.0 => Ok(speed),
        _ => Err("expected a number such as 2, or 0 for no pauses".to_owned()),
    }
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
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
            crate::input::print_stderr("hint: `turnwire sessions` lists the sessions of a store");
            return Ok(ExitCode::FAILURE);
        };
        let events = parse_events(&lines)?;
        match self.at {
            Some(at) => print_messages_at(&events, Head::new(at))?,
            None => self.show(&events).await?,
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn read_from_server(&self, url: &str) -> Result<Option<String>, CommandError> {
        let endpoint = chat::remote_endpoint(url, self.token.clone())?;
        let client = Client::new(endpoint, RetryLimit::For(Duration::from_secs(5)));
        match client.read_log(&self.session).await {
            Ok(lines) => Ok(Some(lines)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) if error.has_type("trimmed") => Err(CommandError::new(
                error.to_string(),
                "read the store instead, which has the whole messages: leave out --url, and use --store",
            )),
            Err(error) => Err(chat::to_command_error(&error)),
        }
    }

    async fn read_from_store(&self, which: StoreArgs) -> Result<Option<String>, CommandError> {
        let OpenStore { store, .. } = which.open(Mode::Read).await?;
        let key = SessionKey::new(self.tenant.as_str(), self.session.as_str());
        let Some(record) = store.find_session(&key).await? else { return Ok(None) };
        let mut out = Vec::new();
        let mut blobs = ExportedBlobs::without_blobs();
        match transfer::export(&*store, &record, &mut blobs, &mut out).await {
            Ok(report) => {
                for what in &report.left_out {
                    let what = chat::one_line(what);
                    crate::input::print_stderr(format_args!("warning: left out: {what}"));
                }
            }
            Err(ExportError::Log(error)) => return Err(error.into()),
            Err(ExportError::Write(error)) => return Err(CommandError::new(error.to_string(), "")),
        }
        let text =
            String::from_utf8(out).map_err(|_| CommandError::new("the log is not UTF-8", ""))?;
        // The first line describes the session.
        Ok(Some(text.split_once('\n').map_or("", |(_, rest)| rest).to_owned()))
    }

    async fn show(&self, events: &[Event<'static>]) -> io::Result<()> {
        let terminal = Terminal::detect();
        let saver = Box::new(SaveFolder::for_session(self.save.as_deref(), &self.session));
        let mut renderer = Renderer::new(terminal.display, saver);
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

/// Parses the events of a log. Messages whose events retention removed are whole.
fn parse_events(lines: &str) -> Result<Vec<Event<'static>>, CommandError> {
    let strange = |error: &dyn std::fmt::Display| {
        CommandError::new(
            format!("the log cannot be understood: {error}"),
            "`turnwire doctor` checks a store",
        )
    };
    // Queued messages are not part of the conversation yet.
    let lines =
        lines.lines().filter(|line| !line.is_empty() && !line.starts_with("{\"turnwire\":"));
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

/// Prints the messages after an event. Messages of sub-agents are not part of the conversation.
fn print_messages_at(events: &[Event<'static>], at: Head) -> io::Result<()> {
    let mut folder = turnwire_core::Folder::default();
    let mut of_others = HashSet::new();
    for event in events.iter().filter(|event| event.seq.is_none_or(|seq| at.includes(seq))) {
        if event.is_from_sub_agent() {
            of_others.insert(event.reply_id.to_string());
        }
        // The log was checked when it was written.
        let _ = folder.push_tolerant(event);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for msg in folder.history().filter(|msg| !of_others.contains(msg.id())) {
        writeln!(out, "{}", msg.to_json())?;
    }
    out.flush()
}
