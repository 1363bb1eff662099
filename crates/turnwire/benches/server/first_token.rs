//! What Turnwire adds to the first token of a client that sends its whole history: the same requests, alternating,
//! straight at a provider and at a Turnwire in front of it.

use crate::Result;
use crate::figures::Figure;
use crate::running_server::{RunningServer, ServerKind, TempFolder};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How many messages a conversation has before its first measured turn.
const MESSAGES: usize = 200;
/// Each conversation begins elsewhere, so that its first turn takes the history in.
const CONVERSATIONS: usize = 8;
/// The measured turns of a conversation, after the first.
const TURNS: usize = 25;
const ANSWER: &str = "Certainly.";
/// The end of a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

pub fn first_token() -> Result<Vec<Figure>> {
    let provider = start_provider()?;
    let folder = TempFolder::new()?;
    let settings = format!(
        "default_agent = \"m\"\n[agents.m]\nmodel = \"openai:m\"\nbase_url = \"http://{provider}/v1\"\n"
    );
    let running = RunningServer::start(&ServerKind::Agents(settings), &folder)?;
    let server = running.url.trim_start_matches("http://").to_owned();
    let mut straight = TimedClient::connect(&provider)?;
    let mut through = TimedClient::connect(&server)?;
    let mut first = Times::default();
    let mut later = Times::default();
    for number in 0..CONVERSATIONS {
        let mut messages = history(number);
        for turn in 0..=TURNS {
            messages.push(json!({"role": "user", "content": format!("Question {turn}?")}));
            let times = if turn == 0 { &mut first } else { &mut later };
            times.straight.push(straight.time_to_first_token(&messages)?);
            times.through.push(through.time_to_first_token(&messages)?);
            messages.push(json!({"role": "assistant", "content": ANSWER}));
        }
    }
    let name = |what| format!("added to the first token, {MESSAGES} messages, {what}");
    let shown = |times: &Times| {
        format!(
            "{:.2} ms ({:.2} instead of {:.2})",
            times.added(),
            p50(&times.through),
            p50(&times.straight)
        )
    };
    let added = later.added();
    Ok(vec![
        Figure::at_most(name("known history: p50"), shown(&later), added, 3.0, "3 ms"),
        Figure::informational(name("unknown history: p50"), shown(&first)),
    ])
}

/// The times of the same requests, in milliseconds.
#[derive(Default)]
struct Times {
    straight: Vec<f64>,
    through: Vec<f64>,
}

impl Times {
    fn added(&self) -> f64 {
        p50(&self.through) - p50(&self.straight)
    }
}

fn p50(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn history(number: usize) -> Vec<Value> {
    let message = |at: usize| {
        let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
        let text = "as long as the messages of a conversation usually are, some sentences in all";
        json!({"role": role, "content": format!("Message {at} of conversation {number}: {text}; {text}.")})
    };
    (0..MESSAGES).map(message).collect()
}

/// A client with one connection.
struct TimedClient {
    stream: TcpStream,
    address: String,
}

impl TimedClient {
    fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, address: address.to_owned() })
    }

    /// Sends a request, and reads its whole answer. Returns the milliseconds to the first token.
    fn time_to_first_token(&mut self, messages: &[Value]) -> Result<f64> {
        let body = json!({"model": "m", "messages": messages, "stream": true}).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let begin = Instant::now();
        self.stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut read = Vec::new();
        let mut found = None;
        while !read.ends_with(LAST_CHUNK) {
            let mut part = [0; 16 * 1024];
            let count = self.stream.read(&mut part)?;
            read.extend_from_slice(part.get(..count).unwrap_or_default());
            if found.is_none() && contains(&read, ANSWER) {
                found = Some(begin.elapsed());
            }
            if count == 0 {
                return Err(format!("no answer: {}", String::from_utf8_lossy(&read)).into());
            }
        }
        let time = found.ok_or_else(|| format!("no token: {}", String::from_utf8_lossy(&read)))?;
        Ok(time.as_secs_f64() * 1000.0)
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// A provider that answers at once. Its threads end with the process.
fn start_provider() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let chunk = |delta: Value, end: Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
        format!("data: {chunk}\n\n")
    };
    let token = chunk(json!({"role": "assistant", "content": ANSWER}), Value::Null);
    let end = chunk(json!({}), json!("stop")) + "data: [DONE]\n\n";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let parts = [token, end].map(|part| format!("{:x}\r\n{part}\r\n", part.len()));
    let answer = [head.as_bytes(), parts.concat().as_bytes(), LAST_CHUNK].concat();
    let mut inbox = Vec::new();
    loop {
        let mut part = [0; 16 * 1024];
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        inbox.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Some(length) = request_length(&inbox)
            && inbox.len() >= length
        {
            inbox.drain(..length);
            stream.write_all(&answer)?;
        }
    }
}

/// The length of a request, once its head is complete.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some(head.len() + 4 + length?)
}
