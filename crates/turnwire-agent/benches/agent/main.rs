//! Processor time per token in an agent, from the model's chunk to the bytes of its server-sent event:
//! `make bench-agent`.
//!
//! The model plays a script; the journal encodes the events and stores nothing. AgentScope's agent does the
//! same in Python, if `AGENTSCOPE_PYTHON` names an interpreter that has it. Both are measured in processor
//! time, in alternating rounds; the best reply counts.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::print_stderr, reason = "and its progress")]

mod agentscope;

use agentscope::AgentScope;
use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::{Agent, AgentError, Journal, Replier, ReplyRequest};
use turnwire_core::stamp::SystemStamp;
use turnwire_core::{Event, Msg};
use turnwire_wires::{Encode, EncoderOptions, Frames, Wire, sse};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Tokens per reply.
const TOKENS: u32 = 20_000;
/// The text of a token.
const TOKEN: &str = " breeze,";
/// Replies per round.
const REPLIES: usize = 15;
const ROUNDS: usize = 3;
/// The required ratio to AgentScope's processor time.
const GOAL: f64 = 20.0;

fn main() -> Result<()> {
    // `cargo test --all-targets` starts this program too: unoptimized, and without `--bench`.
    if !std::env::args().any(|arg| arg == "--bench") {
        println!("nothing was measured; start it with `cargo bench`");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let agentscope = AgentScope::from_env();
    if agentscope.is_none() {
        eprintln!("AGENTSCOPE_PYTHON is not set: Turnwire is measured alone");
    }
    let mut ours = f64::MAX;
    let mut theirs: Option<agentscope::Run> = None;
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        for _ in 0..REPLIES {
            let (seconds, size) = runtime.block_on(reply())?;
            ours = ours.min(seconds);
            bytes = size;
        }
        if let Some(agentscope) = &agentscope {
            let run = agentscope.run(TOKENS, TOKEN)?;
            let is_better = theirs.as_ref().is_none_or(|best| run.seconds < best.seconds);
            theirs = if is_better { Some(run) } else { theirs };
        }
    }
    let micros = |seconds: f64| seconds * 1e6;
    let each = f64::from(u32::try_from(bytes)?) / f64::from(TOKENS);
    println!("a token, from the model's chunk to its server-sent event ({each:.0} bytes):");
    println!("  Turnwire             {:>8.3} µs", micros(ours));
    if let Some(theirs) = theirs {
        let times = theirs.seconds / ours;
        let verdict = if times >= GOAL { "reached" } else { "FALLS SHORT" };
        println!("  AgentScope {:<9} {:>8.3} µs", theirs.version, micros(theirs.seconds));
        println!("  times less           {times:>8.1}     at least {GOAL}  {verdict}");
    }
    Ok(())
}

/// Processor seconds per token, and the bytes of the encoded reply.
async fn reply() -> Result<(f64, usize)> {
    let text = ScriptStep::Text((0..TOKENS).map(|_| TOKEN.to_owned()).collect());
    let agent = Agent::builder("friday", ScriptedModel::new([vec![text]]))
        .system("You are Friday.")
        .build();
    let history = vec![Msg::user("ann", "Hi!")];
    let request = ReplyRequest::new("session-1", "0192f0c1a2b34c5d6e7f8091a2b3c4d5", history);
    let encode =
        Wire::named("turnwire").ok_or("no such wire")?.encoder(&EncoderOptions::default())?;
    let mut journal = EncodingJournal {
        encode,
        frames: Frames::default(),
        out: String::new(),
        bytes: 0,
        deltas: 0,
    };
    let start = processor_seconds();
    Replier::run(&agent, request, &mut journal).await?;
    let seconds = processor_seconds() - start;
    if journal.deltas != TOKENS {
        return Err(format!("{TOKENS} tokens became {} deltas", journal.deltas).into());
    }
    Ok((seconds / f64::from(TOKENS), journal.bytes))
}

/// Encodes each commit to the bytes that a subscriber would get, and stores nothing.
struct EncodingJournal {
    encode: Box<dyn Encode>,
    frames: Frames,
    out: String,
    bytes: usize,
    deltas: u32,
}

#[async_trait]
impl Journal for EncodingJournal {
    async fn commit(&mut self, mut events: Vec<Event<'static>>) -> Result<(), AgentError> {
        for event in &mut events {
            event.stamp(&SystemStamp);
            self.deltas += u32::from(event.kind.type_name() == "TEXT_BLOCK_DELTA");
            self.encode.encode(event, &mut self.frames);
            sse::write(&self.frames, None, &mut self.out);
            self.frames.clear();
        }
        self.bytes += self.out.len();
        self.out.clear();
        Ok(())
    }
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |count: i64| f64::from(i32::try_from(count).unwrap_or(i32::MAX));
    part(time.tv_sec) + part(time.tv_nsec) * 1e-9
}
