//! A fake server with the minimum for `turnwire bench`, and selectable faults.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use turnwire_core::{Event, Folder};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Requires `Authorization: Bearer secret`.
    WantsToken,
    /// Omits the second delta from every stream.
    LosesOne,
    /// Refuses events.
    RefusesEvents,
    /// Closes the connection on events.
    BreaksOff,
}

#[derive(Default)]
struct Session {
    folder: Folder,
    events: Vec<String>,
}

struct Shared {
    fault: Fault,
    sessions: Mutex<HashMap<String, Session>>,
    more: Condvar,
}

/// The fake server; it ends with the test process.
pub struct FakeServer {
    pub url: String,
    shared: Arc<Shared>,
}

impl FakeServer {
    pub fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { fault, sessions: Mutex::default(), more: Condvar::new() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || serve(&shared, stream.unwrap()));
            }
        });
        Self { url, shared }
    }

    /// The number of remaining sessions and of their events.
    pub fn remaining(&self) -> (usize, usize) {
        let sessions = self.shared.sessions.lock().unwrap();
        (sessions.len(), sessions.values().map(|session| session.events.len()).sum())
    }
}

/// Serves a connection until the client or the fault closes it.
fn serve(shared: &Shared, stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut out = stream;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&count| count > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (mut length, mut token) = (0, false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim();
            if header.is_empty() {
                break;
            }
            token |= header == "Authorization: Bearer secret";
            if let Some(text) = header.strip_prefix("Content-Length: ") {
                length = text.parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if shared.fault == Fault::WantsToken && !token {
            send_response(
                &mut out,
                401,
                r#"{"error":{"type":"auth","message":"who are you","hint":"?"}}"#,
            )?;
            continue;
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let parts: Vec<&str> = path.trim_start_matches("/v1/sessions").split('/').collect();
        match (method.as_str(), parts.as_slice()) {
            ("POST", [""]) => {
                let session: serde_json::Value = serde_json::from_slice(&body).ok()?;
                let id = session["id"].as_str()?.to_owned();
                shared.sessions.lock().unwrap().insert(id, Session::default());
                send_response(&mut out, 201, "{}")?;
            }
            ("POST", ["", id, "events"]) => match shared.fault {
                Fault::BreaksOff => return None,
                Fault::RefusesEvents => {
                    let error = r#"{"error":{"type":"fold","message":"no","hint":"Stop it."}}"#;
                    send_response(&mut out, 422, error)?;
                }
                Fault::None | Fault::WantsToken | Fault::LosesOne => {
                    append_events(shared, id, std::str::from_utf8(&body).ok()?);
                    send_response(&mut out, 200, r#"{"stored":1}"#)?;
                }
            },
            ("GET", ["", id, "events"]) => return stream_events(shared, &mut out, id, query),
            ("GET", ["", id, "messages", message]) => {
                let json = shared.sessions.lock().unwrap()[*id].folder.get(message)?.to_json();
                send_response(&mut out, 200, &json)?;
            }
            ("GET", ["", id]) => {
                let last = shared.sessions.lock().unwrap()[*id].events.len();
                send_response(&mut out, 200, &format!(r#"{{"last_event_id":"e.{last}"}}"#))?;
            }
            ("DELETE", ["", id]) => {
                shared.sessions.lock().unwrap().remove(*id);
                send_response(&mut out, 204, "")?;
            }
            _ => send_response(&mut out, 404, "")?,
        }
    }
}

fn send_response(out: &mut TcpStream, status: u16, body: &str) -> Option<()> {
    let length = match status {
        204 => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    write!(out, "HTTP/1.1 {status} X\r\n{length}\r\n{body}").ok()
}

/// Events that do not fold fail the test: the thread panics, and the connection closes.
fn append_events(shared: &Shared, id: &str, body: &str) {
    let mut sessions = shared.sessions.lock().unwrap();
    let session = sessions.get_mut(id).unwrap();
    for line in body.lines() {
        session.folder.push(&Event::from_json(line).unwrap()).unwrap();
        session.events.push(line.to_owned());
    }
    shared.more.notify_all();
}

fn stream_events(shared: &Shared, out: &mut TcpStream, id: &str, query: &str) -> Option<()> {
    write!(out, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n").ok()?;
    let mut sessions = shared.sessions.lock().unwrap();
    let mut at = match query.strip_prefix("after=") {
        Some("now") => sessions[id].events.len(),
        Some(cursor) => cursor.strip_prefix("e.")?.parse().ok()?,
        None => 0,
    };
    loop {
        let mut frames = Vec::new();
        for (nth, line) in (at..).zip(&sessions.get(id)?.events[at..]) {
            if shared.fault != Fault::LosesOne || nth != 3 {
                write!(frames, "id: e.{}\ndata: {line}\n\n", nth + 1).ok()?;
            }
        }
        at = sessions[id].events.len();
        drop(sessions);
        if !frames.is_empty() {
            write!(out, "{:x}\r\n", frames.len()).ok()?;
            frames.extend_from_slice(b"\r\n");
            out.write_all(&frames).ok()?;
        }
        if query == "until=idle" {
            return write!(out, "0\r\n\r\n").ok();
        }
        sessions = shared.sessions.lock().unwrap();
        sessions = shared
            .more
            .wait_while(sessions, |sessions| {
                sessions.get(id).is_some_and(|session| session.events.len() == at)
            })
            .unwrap();
    }
}
