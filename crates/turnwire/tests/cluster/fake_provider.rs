//! A fake OpenAI Chat provider. The first word of the last user message says what it answers, and the second names the
//! tool call: the same request gets the same call id, so that a call that runs again is noticed.

use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// The time between two pieces of a text.
const PIECE_TIME: Duration = Duration::from_millis(15);

/// Starts it; it ends with the process.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A node that is killed breaks its requests off.
            thread::spawn(move || stream.and_then(|stream| serve(&stream)));
        }
    });
    address
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body)?;
    let mut out = stream;
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )?;
    let mut send = |delta: Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "fake", "choices": [choice]});
        out.write_all(format!("data: {chunk}\n\n").as_bytes())
    };
    let reason = match answer(&request) {
        Output::Call { id, tool, millis } => {
            let input = json!({"call": id, "millis": millis}).to_string();
            let function = json!({"name": tool, "arguments": input});
            let call = json!({"index": 0, "id": id, "type": "function", "function": function});
            send(json!({"tool_calls": [call]}), None)?;
            "tool_calls"
        }
        Output::Text(words) => {
            for word in words {
                send(json!({"role": "assistant", "content": format!("{word} ")}), None)?;
                thread::sleep(PIECE_TIME);
            }
            "stop"
        }
    };
    send(json!({}), Some(reason))?;
    out.write_all(b"data: [DONE]\n\n")
}

enum Output {
    Text(Vec<String>),
    Call { id: String, tool: &'static str, millis: u64 },
}

/// `mark NAME MILLIS` calls a tool, `ask NAME MILLIS` one that a person has to allow, `say COUNT` is a text.
fn answer(request: &Value) -> Output {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = messages.last().unwrap_or(&Value::Null);
    let text = last["content"].as_str().unwrap_or_default();
    let words: Vec<&str> = text.split(' ').collect();
    let (id, number) = (words.get(1), words.last().and_then(|number| number.parse().ok()));
    match (last["role"].as_str(), words.first(), id) {
        (Some("user"), Some(&"mark"), Some(id)) => {
            Output::Call { id: (*id).to_owned(), tool: "marks__mark", millis: number.unwrap_or(0) }
        }
        (Some("user"), Some(&"ask"), Some(id)) => {
            Output::Call { id: (*id).to_owned(), tool: "marks__ask", millis: number.unwrap_or(0) }
        }
        _ => Output::Text((0..number.unwrap_or(4)).map(|word| format!("word{word}")).collect()),
    }
}
