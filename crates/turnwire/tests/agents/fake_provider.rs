//! A fake OpenAI Chat provider with scripted responses.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A piece of a response.
pub enum FakeOutput {
    Text(String),
    /// A tool call: id, tool, input.
    Call(&'static str, &'static str, Value),
    /// Waits for a permit of the gate.
    Hold,
    /// Only this status.
    Status(u16),
}

pub fn text(text: impl Into<String>) -> Vec<FakeOutput> {
    vec![FakeOutput::Text(text.into())]
}

/// A received request.
#[derive(Clone)]
pub struct ReceivedRequest {
    pub head: String,
    pub body: Value,
}

impl ReceivedRequest {
    pub fn last_message(&self) -> &Value {
        self.body["messages"].as_array().unwrap().last().unwrap()
    }

    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
    }
}

type Answers = dyn Fn(&ReceivedRequest) -> Vec<FakeOutput> + Send + Sync;

pub struct FakeProvider {
    pub address: SocketAddr,
    pub gate: Arc<Semaphore>,
    request: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl FakeProvider {
    pub async fn start(
        answers: impl Fn(&ReceivedRequest) -> Vec<FakeOutput> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gate, request) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let answers: Arc<Answers> = Arc::new(answers);
        let (open, noted) = (gate.clone(), request.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (open, noted, answers) = (open.clone(), noted.clone(), answers.clone());
                tokio::spawn(async move {
                    // A closed connection is a cancelled request.
                    let _ = serve(stream, &open, &noted, &*answers).await;
                });
            }
        });
        Self { address, gate, request }
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.request.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    gate: &Semaphore,
    noted: &Mutex<Vec<ReceivedRequest>>,
    answers: &Answers,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.unwrap().trim().parse().unwrap();
    while bytes.len() < end + length {
        stream.read_buf(&mut bytes).await?;
    }
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let request = ReceivedRequest { head, body: serde_json::from_slice(&bytes[end..]).unwrap() };
    let outputs = answers(&request);
    noted.lock().unwrap().push(request);
    if let [FakeOutput::Status(status)] = outputs.as_slice() {
        let body = json!({"error": {"message": "no", "type": "t"}}).to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 {status} No\r\ncontent-length: {length}\r\n\r\n{body}");
        return stream.write_all(head.as_bytes()).await;
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut reason = "stop";
    let mut calls = 0;
    for output in outputs {
        let delta = match output {
            FakeOutput::Text(text) => json!({"role": "assistant", "content": text}),
            FakeOutput::Call(id, name, input) => {
                reason = "tool_calls";
                let function = json!({"name": name, "arguments": input.to_string()});
                calls += 1;
                json!({"tool_calls": [{"index": calls - 1, "id": id, "type": "function",
                    "function": function}]})
            }
            FakeOutput::Hold => {
                gate.acquire().await.unwrap().forget();
                continue;
            }
            FakeOutput::Status(_) => continue,
        };
        send(&mut stream, &json!({"choices": [{"index": 0, "delta": delta}]})).await?;
    }
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    send(&mut stream, &end).await?;
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 400}});
    send(&mut stream, &json!({"choices": [], "usage": usage})).await?;
    stream.write_all(b"data: [DONE]\n\n").await
}

async fn send(stream: &mut TcpStream, chunk: &Value) -> std::io::Result<()> {
    let mut chunk = chunk.clone();
    chunk["id"] = "chatcmpl-1".into();
    chunk["object"] = "chat.completion.chunk".into();
    chunk["model"] = "fake".into();
    stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await
}
