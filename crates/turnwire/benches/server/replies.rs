//! Figures of replying agents: token latency, concurrent replies, memory.

use crate::Result;
use crate::figures::{Figure, number, thousands};
use crate::running_server::{RunningServer, ServerKind, TempFolder};
use serde_json::Value;
use std::net::TcpListener;

/// Where the model is.
#[derive(Clone, Copy)]
pub enum Model {
    /// In the server.
    InProcess,
    /// Over HTTP, in the load generator.
    OverHttp,
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Self::InProcess => "model in process",
            Self::OverHttp => "model over HTTP",
        }
    }

    /// Measures on a fresh server.
    fn bench(self, args: &[&str]) -> Result<Value> {
        let folder = TempFolder::new()?;
        let provider = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let settings = match self {
            Self::InProcess => "[agents.clock]\nmodel = \"clock\"\n".to_owned(),
            Self::OverHttp => format!(
                "[agents.clock]\nmodel = \"openai:clock\"\nbase_url = \"http://{provider}\"\n"
            ),
        };
        let running = RunningServer::start(&ServerKind::Agents(settings), &folder)?;
        let pid = running.pid().to_string();
        let mut all = vec!["replies", "--pid", &pid];
        if let Self::OverHttp = self {
            all.extend(["--provider", &provider]);
        }
        all.extend(args);
        running.bench(&all)
    }
}

/// The latency between the provider's byte and the subscriber's.
pub fn token_time(seconds: u32) -> Result<Vec<Figure>> {
    let seconds = seconds.to_string();
    let mut table = Vec::new();
    for (model, replies) in
        [(Model::OverHttp, "1"), (Model::OverHttp, "10"), (Model::InProcess, "10")]
    {
        let figures = model.bench(&["--replies", replies, "--seconds", &seconds])?;
        let (p50, p99) =
            (number(&figures, "/latency_ms/p50")?, number(&figures, "/latency_ms/p99")?);
        let plural = if replies == "1" { "reply" } else { "replies" };
        let name = |what| format!("added to a token, {replies} {plural}, {}: {what}", model.name());
        let shown = |ms: f64| format!("{ms:.2} ms");
        table.extend(match model {
            Model::OverHttp => [
                Figure::at_most(name("p50"), shown(p50), p50, 1.0, "1 ms"),
                Figure::at_most(name("p99"), shown(p99), p99, 10.0, "10 ms"),
            ],
            // From when a token was due: timers have a resolution of a millisecond.
            Model::InProcess => [
                Figure::informational(name("p50 from when due"), shown(p50)),
                Figure::informational(name("p99 from when due"), shown(p99)),
            ],
        });
    }
    Ok(table)
}

/// The largest number of concurrent replies.
pub fn most_replies(model: Model, seconds: u32) -> Result<Vec<Figure>> {
    let (least, begin) = match model {
        Model::InProcess => (1000.0, "500"),
        Model::OverHttp => (400.0, "200"),
    };
    let seconds = seconds.to_string();
    let figures = model.bench(&["--begin-with", begin, "--seconds", &seconds])?;
    let most = number(&figures, "/most_replies")?;
    let p99 = number(&figures, "/latency_ms/p99")?;
    let name = format!("replies at once, 50 tokens/s, p99 below 100 ms, {}", model.name());
    let micros = number(&figures, "/processor_us_per_token")?;
    Ok(vec![
        Figure::at_least(name.clone(), thousands(most), most, least, &thousands(least)),
        Figure::informational(format!("{name}: p99 there"), format!("{p99:.1} ms")),
        Figure::informational(
            format!("{name}: processor time of a token there"),
            format!("{micros:.1} µs"),
        ),
    ])
}

/// The memory of a followed reply.
pub fn memory() -> Result<Vec<Figure>> {
    let figure = |model: Model| {
        // Many replies, so that fixed memory such as the store's cache does not count.
        let figures = model.bench(&["--replies", "1000", "--seconds", "5"])?;
        let each = number(&figures, "/kib_per_reply")?;
        let name = format!("memory of a running, watched reply, {}", model.name());
        Ok(Figure::at_most(name, format!("{each:.1} KiB"), each, 100.0, "100 KiB"))
    };
    [Model::InProcess, Model::OverHttp].into_iter().map(figure).collect()
}
