//! A provider that streams Chat Completions, one HTTP chunk per token, as the requested model's name says.

use crate::Result;
use std::net::SocketAddr;
use std::str::FromStr;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// The time between two tokens: longer than a client under valgrind needs for one, so that it reads them
/// one by one.
const PACE: Duration = Duration::from_millis(2);

/// What the provider sends.
#[derive(Debug, Clone, Copy)]
pub enum Script {
    /// A whole reply, at a steady pace.
    Reply { tokens: u32 },
    /// The start of a reply. The rest never comes.
    Hold { tokens: u32 },
}

impl Script {
    pub fn to_model_name(self) -> String {
        match self {
            Self::Reply { tokens } => format!("reply-{tokens}"),
            Self::Hold { tokens } => format!("hold-{tokens}"),
        }
    }
}

impl FromStr for Script {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(name: &str) -> Result<Self> {
        match name.split_once('-') {
            Some(("reply", tokens)) => Ok(Self::Reply { tokens: tokens.parse()? }),
            Some(("hold", tokens)) => Ok(Self::Hold { tokens: tokens.parse()? }),
            _ => Err(format!("no such script: {name}").into()),
        }
    }
}

/// Starts a provider in a thread of its own, for the rest of the process.
pub fn start() -> Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        runtime.block_on(async {
            while let Ok((connection, _)) = listener.accept().await {
                // A client that closes its connection early ends this task.
                tokio::spawn(async move { drop(serve(connection).await) });
            }
        });
    });
    Ok(address)
}

async fn serve(mut connection: TcpStream) -> Result<()> {
    connection.set_nodelay(true)?;
    let mut request = Vec::new();
    let script: Script = loop {
        if connection.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if let Some(name) = model_name(&String::from_utf8_lossy(&request)) {
            break name.parse()?;
        }
    };
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes()).await?;
    let (Script::Reply { tokens } | Script::Hold { tokens }) = script;
    for _ in 0..tokens {
        sleep(PACE).await;
        send(&mut connection, r#"{"content":" breeze,"},"finish_reason":null"#).await?;
    }
    if let Script::Reply { .. } = script {
        send(&mut connection, r#"{},"finish_reason":"stop""#).await?;
        connection.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await?;
    }
    // Until the client closes the connection.
    while connection.read_buf(&mut request).await? > 0 {}
    Ok(())
}

/// The model's name, once the body has arrived.
fn model_name(request: &str) -> Option<&str> {
    let (_, body) = request.split_once("\r\n\r\n")?;
    let (_, name) = body.strip_suffix('}')?.split_once(r#""model":""#)?;
    Some(name.split_once('"')?.0)
}

async fn send(connection: &mut TcpStream, delta: &str) -> Result<()> {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\
         \"created\":1741570283,\"model\":\"clock\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"
    );
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    Ok(connection.write_all(chunk.as_bytes()).await?)
}
