//! Serving: an agent of your own behind a server. Any client that speaks one of its protocols can talk
//! to it, watch it, drop, and come back.
//!
//! Give it an address (`127.0.0.1:4747`), and it serves until it is interrupted. Without one it asks
//! itself a question over HTTP, shows what a client gets, and ends.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::{Agent, Replier};
use turnwire_log::{Log, MemoryStore};
use turnwire_server::config::Config;
use turnwire_server::{App, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let asked = std::env::args().nth(1);
    let listen = asked.as_deref().unwrap_or("127.0.0.1:0");
    let config = Config::parse("example", &format!("listen = \"{listen}\""))?;

    let model = ScriptedModel::new([vec![ScriptStep::text("Hello over HTTP.")]]);
    let friday: Arc<dyn Replier> = Arc::new(Agent::builder("friday", model).build());
    let agents = [("friday".to_owned(), friday)].into();

    let log = Arc::new(Log::new(Arc::new(MemoryStore::default()), "example"));
    let server = Server::bind(App::new(config, log, agents)?)?;
    println!("listening on {}", server.url());

    if asked.is_some() {
        server.run(async { drop(tokio::signal::ctrl_c().await) }).await;
        return Ok(());
    }
    let address = server.address();
    let (done, stop) = tokio::sync::oneshot::channel::<()>();
    let (shown, ()) = tokio::join!(
        async {
            let shown = ask(address).await;
            drop(done);
            shown
        },
        server.run(async { drop(stop.await) }),
    );
    Ok(shown?)
}

/// Says hello as any HTTP client would, and prints the events of the reply.
async fn ask(address: SocketAddr) -> std::io::Result<()> {
    let body = r#"{"content":"Hi!"}"#;
    let session = r#"{"id":"talk","agent":"friday"}"#;
    post(address, "/v1/sessions", "application/json", session).await?;
    let shown = post(address, "/v1/sessions/talk/messages", "text/event-stream", body).await?;
    for line in shown.lines().filter(|line| line.starts_with("data: {")) {
        println!("{line}");
    }
    Ok(())
}

async fn post(to: SocketAddr, path: &str, accept: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
