//! `turnwire sessions`: lists and searches sessions.

use super::{DEFAULT_TENANT, one_line};
use crate::input::{CommandError, print_stderr};
use crate::store::{self, Mode, OpenStore, StoreArgs};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use turnwire_core::{Fields, Head, Seq, Usage};
use turnwire_log::SearchQuery;
use turnwire_log::store::{SessionNumber, SessionQuery, SessionRecord, SessionStatus, Store};

/// How many sessions are read at a time.
const PAGE_SIZE: usize = 500;

#[derive(Args)]
pub(crate) struct List {
    /// Only sessions with these words in a message or the title
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    /// Only sessions with this status
    #[arg(long, value_parser = PossibleValuesParser::new(["idle", "running", "waiting"]))]
    status: Option<String>,

    /// The tenant
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TENANT)]
    tenant: String,

    /// The largest number of sessions, latest change first; 0: all
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,

    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    which: StoreArgs,
}

/// A session as JSON.
#[derive(Serialize)]
struct SessionLine<'a> {
    tenant: &'a str,
    id: &'a str,
    agent: &'a str,
    title: Option<&'a str>,
    status: SessionStatus,
    epoch: &'a str,
    first_seq: Seq,
    last_seq: Head,
    usage: &'a Usage,
    created_at: String,
    updated_at: String,
    metadata: &'a Fields,
}

impl List {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        store::block_on(self.list())
    }

    async fn list(mut self) -> Result<ExitCode, CommandError> {
        let opened = std::mem::take(&mut self.which).open(Mode::Read).await?;
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        let (records, is_more) = self.find_sessions(&*opened.store, limit).await?;
        let text = if self.json { to_json_lines(&records) } else { to_table(&records) };
        io::stdout().lock().write_all(text.as_bytes())?;
        if is_more {
            print_stderr(format_args!("there are more: --limit 0 shows all"));
        }
        if records.is_empty() {
            self.explain_empty_list(&opened).await?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn find_sessions(
        &self,
        store: &dyn Store,
        limit: usize,
    ) -> Result<(Vec<SessionRecord>, bool), CommandError> {
        let status = self.status.as_deref().map(|status| match status {
            "running" => SessionStatus::Running,
            "waiting" => SessionStatus::Waiting,
            _ => SessionStatus::Idle,
        });
        let search = SearchQuery::new(self.search.as_deref().unwrap_or_default());
        let search = search.map_err(|why| CommandError::new(why.to_string(), "use fewer words"))?;
        let page = PAGE_SIZE.min(limit.saturating_add(1));
        let mut query =
            SessionQuery { search, status, ..SessionQuery::latest(self.tenant.as_str(), page) };
        let mut found: Vec<SessionRecord> = Vec::new();
        loop {
            let page = store.list_sessions(&query).await?;
            let is_last = page.len() < query.limit;
            query.after = page.last().map(|record| (record.updated_ms, record.number));
            found.extend(page);
            if found.len() > limit {
                found.truncate(limit);
                return Ok((found, true));
            }
            if is_last {
                return Ok((found, false));
            }
        }
    }

    async fn explain_empty_list(&self, opened: &OpenStore) -> Result<(), CommandError> {
        let some = opened.store.list_all_sessions(SessionNumber(0), 1000).await?;
        let others = some.iter().find(|record| *record.key.tenant != *self.tenant);
        let own = some.iter().any(|record| *record.key.tenant == *self.tenant);
        match others {
            Some(other) if !own => print_stderr(format_args!(
                "no sessions of tenant {}; there are some of tenant {}, see --tenant",
                one_line(&self.tenant),
                one_line(&other.key.tenant)
            )),
            _ if own => print_stderr("no matching sessions"),
            _ => print_stderr(format_args!("no sessions in {}", opened.name)),
        }
        Ok(())
    }
}

fn format_time(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

fn to_json_lines(records: &[SessionRecord]) -> String {
    let mut text = String::new();
    for record in records {
        let line = SessionLine {
            tenant: &record.key.tenant,
            id: &record.key.id,
            agent: &record.agent,
            title: Some(record.title.as_str()).filter(|title| !title.is_empty()),
            status: record.state.status,
            epoch: &record.epoch,
            first_seq: record.first,
            last_seq: record.head,
            usage: &record.state.usage,
            created_at: format_time(record.created_ms),
            updated_at: format_time(record.updated_ms),
            metadata: &record.metadata,
        };
        // This type always serialises.
        text.push_str(&serde_json::to_string(&line).unwrap_or_default());
        text.push('\n');
    }
    text
}

fn to_table(records: &[SessionRecord]) -> String {
    if records.is_empty() {
        return String::new();
    }
    let cells = |record: &SessionRecord| {
        let status = match record.state.status {
            SessionStatus::Idle => "idle",
            SessionStatus::Running => "running",
            SessionStatus::Waiting => "waiting",
        };
        // Down to the minute.
        let changed: String = format_time(record.updated_ms).chars().take(16).collect();
        [
            record.key.id.to_string(),
            one_line(&record.agent),
            status.to_owned(),
            record.head.to_string(),
            changed.replace('T', " "),
            one_line(&record.title),
        ]
    };
    let head = ["SESSION", "AGENT", "STATUS", "EVENTS", "CHANGED (UTC)", "TITLE"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(records.iter().map(cells));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a string never fails.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
