//! Our HTTP/1 client for models beside hyper's: `cargo bench -p turnwire-agent --bench http_client`.
//!
//! Both read the same Chat Completions stream from a provider in another process, one chunk per token, and
//! both return owned events. hyper's connection is polled by the task that reads its body, as ours is. Ours
//! does more: it also applies the time limits of [`HttpModel`].
//!
//! Each figure is measured in a child process: user-mode instructions per token with valgrind, where it is
//! installed, processor time per token, and resident memory per open stream.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::print_stderr, reason = "and its progress")]

mod hyper_client;
mod provider;

use futures_util::future::try_join_all;
use futures_util::{Stream, StreamExt};
use provider::Script;
use std::env;
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Command;
use turnwire_agent::model::http::{ApiKey, HttpModel};
use turnwire_agent::model::{Model, ModelRequest, ModelSettings};
use turnwire_core::{Event, EventKind, Msg};
use turnwire_wires::model_request::ToolChoice;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
type Events = Pin<Box<dyn Stream<Item = Result<Event<'static>>>>>;

/// Two lengths of a stream: their difference leaves out what a connection and a request cost.
const SHORT: u32 = 500;
const LONG: u32 = 2_500;
/// The number of open streams whose memory is measured, and the tokens that each has read.
const STREAMS: u32 = 500;
const TOKENS_READ: u32 = 20;
const ROUNDS: usize = 3;
/// The argument that makes this program a child process; client, script and address follow.
const CHILD: &str = "child";

#[derive(Debug, Clone, Copy)]
enum Client {
    Turnwire,
    Hyper,
}

impl Client {
    const ALL: [Self; 2] = [Self::Turnwire, Self::Hyper];

    fn name(self) -> &'static str {
        match self {
            Self::Turnwire => "turnwire",
            Self::Hyper => "hyper",
        }
    }

    async fn start(self, script: Script, address: SocketAddr) -> Result<Events> {
        match self {
            Self::Turnwire => {
                let model = HttpModel::builder(format!("openai:{}", script.to_model_name()))
                    .base_url(format!("http://{address}"))
                    .key(ApiKey::none())
                    .build()?;
                let request = ModelRequest {
                    reply_id: "r",
                    block_prefix: "b",
                    messages: &[Msg::user("ann", "Hi!")],
                    tools: &[],
                    tool_choice: &ToolChoice::Auto,
                    output: None,
                    settings: &ModelSettings::default(),
                    options: &turnwire_wires::ModelOptions::default(),
                };
                Ok(Box::pin(model.stream(request).await?.map(|event| Ok(event?))))
            }
            Self::Hyper => Ok(Box::pin(hyper_client::start(script, address).await?)),
        }
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [CHILD, client, script, address, ..] =
        args.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
    {
        return run_child(client, script.parse()?, address.parse()?);
    }
    // `cargo test --all-targets` starts this program too: unoptimized, and without `--bench`.
    if !args.iter().any(|arg| arg == "--bench") {
        println!("nothing was measured; start it with `cargo bench`");
        return Ok(());
    }
    let address = provider::start()?;
    println!("| client | instructions per token | processor µs per token | KiB per open stream |");
    println!("|---|---|---|---|");
    for client in Client::ALL {
        eprintln!("{} ...", client.name());
        let instructions =
            per_token(|tokens| count_instructions(client, Script::Reply { tokens }, address));
        let instructions = match instructions {
            Ok(count) => format!("{count:.0}"),
            Err(why) => {
                eprintln!("instructions are not counted: {why}");
                "-".to_owned()
            }
        };
        let mut micros = f64::MAX;
        for _ in 0..ROUNDS {
            micros =
                micros.min(per_token(|tokens| measure(client, Script::Reply { tokens }, address))?);
        }
        let kib = measure(client, Script::Hold { tokens: TOKENS_READ }, address)?;
        println!("| {} | {instructions} | {micros:.2} | {kib:.1} |", client.name());
    }
    Ok(())
}

/// The figure of a long stream minus that of a short one, for each token between.
fn per_token(mut figure: impl FnMut(u32) -> Result<f64>) -> Result<f64> {
    Ok((figure(LONG)? - figure(SHORT)?) / f64::from(LONG - SHORT))
}

/// Runs a child process and returns what it prints.
fn measure(client: Client, script: Script, address: SocketAddr) -> Result<f64> {
    let mut command = Command::new(env::current_exe()?);
    let output = command.args(child_args(client, script, address)).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(str::from_utf8(&output.stdout)?.trim().parse()?)
}

/// Runs a child process under callgrind.
fn count_instructions(client: Client, script: Script, address: SocketAddr) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(child_args(client, script, address))
        .output()?;
    let report = String::from_utf8_lossy(&output.stderr);
    let count = report.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = count.filter(|_| output.status.success()).ok_or_else(|| report.clone())?;
    Ok(count.trim().parse()?)
}

fn child_args(client: Client, script: Script, address: SocketAddr) -> [String; 4] {
    [CHILD.to_owned(), client.name().to_owned(), script.to_model_name(), address.to_string()]
}

/// Prints the microseconds of a whole reply, or the KiB of an open stream.
fn run_child(client: &str, script: Script, address: SocketAddr) -> Result<()> {
    let client = Client::ALL.into_iter().find(|it| it.name() == client).ok_or("no such client")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let figure = runtime.block_on(async {
        match script {
            Script::Reply { tokens } => {
                let start = processor_micros()?;
                read_tokens(&mut client.start(script, address).await?, tokens).await?;
                Ok::<_, Box<dyn Error + Send + Sync>>(processor_micros()? - start)
            }
            Script::Hold { tokens } => {
                // The first stream pays for what all share.
                let _first = hold(client, script, address, tokens).await?;
                let before = resident_kib()?;
                let streams = (0..STREAMS).map(|_| hold(client, script, address, tokens));
                let _open = try_join_all(streams).await?;
                Ok((resident_kib()? - before) / f64::from(STREAMS))
            }
        }
    })?;
    println!("{figure}");
    Ok(())
}

/// Opens a stream and reads tokens.
async fn hold(client: Client, script: Script, address: SocketAddr, tokens: u32) -> Result<Events> {
    let mut events = client.start(script, address).await?;
    read_tokens(&mut events, tokens).await?;
    Ok(events)
}

async fn read_tokens(events: &mut Events, tokens: u32) -> Result<()> {
    let mut read = 0;
    while read < tokens {
        let event = events.next().await.ok_or("the stream ended early")??;
        read += u32::from(matches!(event.kind, EventKind::TextBlockDelta(_)));
    }
    Ok(())
}

/// The processor time of this thread, as Linux reports it. Reading a clock through the vDSO, as the other
/// benchmarks do, crashes under valgrind.
fn processor_micros() -> Result<f64> {
    let times = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos: f64 = times.split_whitespace().next().ok_or("no processor time")?.parse()?;
    Ok(nanos / 1e3)
}

/// The resident memory of this process, as Linux reports it.
fn resident_kib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.ok_or("the system does not report memory")?.trim().trim_end_matches(" kB").parse()?)
}
