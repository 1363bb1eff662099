//! What the database needs: bytes of an event, processor time of an append and of a reply, bytes of a session.

use crate::Result;
use crate::cluster::{Cluster, start_postgres};
use crate::figures::{Figure, thousands};
use turnwire_testkit::postgres::PostgresServer;

/// Agents whose model writes tokens at a fixed rate.
const CLOCK: &str = "[agents.clock]\nmodel = \"clock\"\n";
/// Tokens per second of a reply.
const RATE: u32 = 50;
/// Sessions of one finished reply with so many events.
const SESSIONS: u32 = 20_000;
const EVENTS: u32 = 100;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// The figures of `docs/cluster.md`, section "Sizing", that are about the database.
pub fn sizing(seconds: u32) -> Result<Vec<Figure>> {
    let server = start_postgres()?;
    let mut table = Vec::new();
    for batch in [1, 64] {
        table.extend(measure_events(&server, batch, seconds)?);
    }
    for replies in [100, 400] {
        table.push(measure_replies(&server, replies, seconds)?);
    }
    table.extend(measure_sessions(&server)?);
    Ok(table)
}

/// What the server has done so far.
struct Meter {
    processor_seconds: f64,
    wal_bytes: f64,
}

impl Meter {
    fn read(server: &PostgresServer) -> Result<Self> {
        let wal = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')";
        Ok(Self {
            processor_seconds: server.processor_time().as_secs_f64(),
            wal_bytes: server.run("postgres", wal).parse()?,
        })
    }

    fn since(server: &PostgresServer, before: &Self) -> Result<Self> {
        let now = Self::read(server)?;
        Ok(Self {
            processor_seconds: now.processor_seconds - before.processor_seconds,
            wal_bytes: now.wal_bytes - before.wal_bytes,
        })
    }
}

/// The number that a query returns.
fn query(server: &PostgresServer, cluster: &Cluster, sql: &str) -> Result<f64> {
    Ok(server.run(&cluster.database, sql).parse()?)
}

const COUNT_EVENTS: &str = "SELECT sum(count) FROM turnwire.segments";

fn measure_events(server: &PostgresServer, batch: u32, seconds: u32) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(server, 1, "")?;
    let before = Meter::read(server)?;
    let (count, seconds) = (batch.to_string(), seconds.to_string());
    cluster.node(0)?.bench(&["ingest", "--batch", &count, "--seconds", &seconds])?;
    let used = Meter::since(server, &before)?;
    let query = |sql: &str| query(server, &cluster, sql);
    let events = query(COUNT_EVENTS)?;
    let each = |bytes: f64| format!("{:.0} bytes", bytes / events);
    let json = query("SELECT sum(size) FROM turnwire.segments")?;
    let table = query("SELECT pg_table_size('turnwire.segments')")?;
    let indexes = query("SELECT pg_indexes_size('turnwire.segments')")?;
    cluster.stop(server)?;
    let name = |what: &str| format!("database, {batch} events per POST: {what}");
    Ok(vec![
        Figure::informational(name("JSON of an event"), each(json)),
        Figure::informational(name("table, for each event"), each(table)),
        Figure::informational(name("indexes, for each event"), each(indexes)),
        Figure::informational(name("write-ahead log, for each event"), each(used.wal_bytes)),
        Figure::informational(
            name("events/s for each of its cores"),
            thousands(events / used.processor_seconds),
        ),
    ])
}

fn measure_replies(server: &PostgresServer, replies: u32, seconds: u32) -> Result<Figure> {
    let cluster = Cluster::start(server, 1, CLOCK)?;
    let before = Meter::read(server)?;
    let (count, rate, seconds) = (replies.to_string(), RATE.to_string(), seconds.to_string());
    let args = ["replies", "--replies", &count, "--rate", &rate, "--seconds", &seconds];
    cluster.node(0)?.bench(&args)?;
    let used = Meter::since(server, &before)?;
    let events = query(server, &cluster, COUNT_EVENTS)?;
    cluster.stop(server)?;
    // An event is a token, but for some at the begin and the end of a reply.
    let replies_of_a_core = events / used.processor_seconds / f64::from(RATE);
    Ok(Figure::informational(
        format!("database, {replies} replies of {RATE} tokens/s: replies for each of its cores"),
        thousands(replies_of_a_core),
    ))
}

fn measure_sessions(server: &PostgresServer) -> Result<Vec<Figure>> {
    let cluster = Cluster::start(server, 1, "")?;
    let size = format!("SELECT pg_database_size('{}')", cluster.database);
    let before = query(server, &cluster, &size)?;
    let (sessions, events) = (SESSIONS.to_string(), EVENTS.to_string());
    cluster.node(0)?.bench(&["fill", "--sessions", &sessions, "--events", &events])?;
    let each = (query(server, &cluster, &size)? - before) / f64::from(SESSIONS);
    cluster.stop(server)?;
    let name = |what: &str| format!("database, a session of one reply of {EVENTS} events: {what}");
    Ok(vec![
        Figure::informational(name("all tables and indexes"), format!("{each:.0} bytes")),
        Figure::informational(name("sessions in a GiB"), thousands(GIB / each)),
    ])
}
