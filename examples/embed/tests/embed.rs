//! The program runs as `docs/embed.md` says, and the page shows its files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/embed.md");
const DEADLINE: Duration = Duration::from_mins(1);

/// The program, in a folder for its store.
struct Program {
    process: Child,
    address: String,
    token: String,
}

impl Program {
    fn start(folder: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_embed"))
            .env("LISTEN", "127.0.0.1:0")
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let lines: Vec<_> = output.lines().take(2).map(Result::unwrap).collect();
        let [address, token] = lines.as_slice() else { panic!("it does not start: {lines:?}") };
        let address = address.strip_prefix("listening on http://").unwrap().to_owned();
        let token = token.strip_prefix("token: ").unwrap().to_owned();
        Self { process, address, token }
    }

    /// Sends a request, and returns the response to read. HTTP/1.0: the body ends with the connection.
    fn send(&self, request: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let length = body.len();
        write!(stream, "{request} HTTP/1.0\r\nHost: {}\r\n{headers}", self.address).unwrap();
        write!(stream, "Content-Length: {length}\r\n\r\n{body}").unwrap();
        BufReader::new(stream)
    }

    fn send_as_ann(&self, request: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
        let headers = format!("Authorization: Bearer {}\r\n{headers}", self.token);
        self.send(request, &headers, body)
    }

    /// The whole response; its status must be this one.
    fn request(&self, request: &str, body: &str, status: u16) -> String {
        read_whole(self.send_as_ann(request, "", body), status)
    }

    /// Ctrl-C.
    fn interrupt(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let (sender, ended) = mpsc::channel();
        // The program is killed if it does not end in time.
        std::thread::spawn(move || match ended.recv_timeout(DEADLINE) {
            Ok(()) => {}
            Err(_) => drop(Command::new("kill").args(["-KILL", &id]).status()),
        });
        let status = self.process.wait().unwrap();
        let _ = sender.send(());
        assert!(status.success(), "{status}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read_whole(mut response: BufReader<TcpStream>, status: u16) -> String {
    let mut text = String::new();
    response.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.0 {status} ")), "{text}");
    body.to_owned()
}

/// A frame of a stream.
#[derive(Debug, PartialEq)]
struct Frame {
    id: String,
    name: String,
    data: String,
}

/// The next frame; `None` at the end of the stream.
fn next_frame(stream: &mut BufReader<TcpStream>) -> Option<Frame> {
    let mut frame = Frame { id: String::new(), name: String::new(), data: String::new() };
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some(("id", id)) => frame.id = id.into(),
            Some(("event", name)) => frame.name = name.into(),
            Some(("data", data)) => frame.data = data.into(),
            None if !frame.data.is_empty() => return Some(frame),
            _ => {}
        }
    }
}

/// A text field of a JSON object.
fn field<'j>(json: &'j str, name: &str) -> &'j str {
    let start = format!("\"{name}\":\"");
    let (_, value) = json.split_once(&start).unwrap_or_else(|| panic!("no {name} in {json}"));
    value.split('"').next().unwrap()
}

#[test]
fn the_program_serves_both_routers_and_continues_after_a_kill() {
    const CAPTIONS: &str = "GET /v1/sessions/s1/events?wire=captions";
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::start(folder.path());
    for path in ["/todos", "/v1/sessions"] {
        read_whole(program.send(&format!("GET {path}"), "", ""), 401);
    }
    program.request("POST /v1/sessions", r#"{"id":"s1"}"#, 201);
    program.request("POST /v1/sessions/s1/messages", r#"{"content":"I am out of milk"}"#, 202);

    let mut stream = program.send_as_ann(CAPTIONS, "", "");
    let said = next_frame(&mut stream).unwrap();
    assert_eq!((&*said.name, &*said.data), ("say", r#""One moment.""#));
    let (_, seq) = said.id.split_once('.').unwrap();
    let shown = format!("```\nevent: say\nid: EPOCH.{seq}\ndata: {}\n```", said.data);
    assert!(PAGE.contains(&shown), "docs/embed.md lacks {shown}");
    let asked = next_frame(&mut stream).unwrap();
    assert_eq!((&*asked.name, field(&asked.data, "tool")), ("ask", "add_todo"));
    assert_eq!(program.request("GET /todos", "", 200), "[]");
    let writes = program.request("GET /writes", "", 200);
    assert!(!writes.contains(r#""events":0,"#), "{writes}");

    // The approval is pending: a kill takes nothing back.
    program.process.kill().unwrap();
    program.process.wait().unwrap();
    let program = Program::start(folder.path());
    let headers = format!("Last-Event-ID: {}\r\n", asked.id);
    let mut stream = program.send_as_ann(&format!("{CAPTIONS}&until=idle"), &headers, "");
    let answer = format!(
        r#"{{"type":"USER_CONFIRM_RESULT","id":"answer-1","reply_id":"{}",
        "confirm_results":[{{"confirmed":true,"tool_call":{{"id":"{}"}}}}]}}"#,
        field(&asked.data, "reply"),
        field(&asked.data, "call"),
    );
    program.request("POST /v1/sessions/s1/events", &answer, 200);
    let rest: Vec<_> = std::iter::from_fn(|| next_frame(&mut stream)).collect();
    let rest: Vec<_> = rest.iter().map(|frame| (&*frame.name, &*frame.data)).collect();
    assert_eq!(rest, [("say", r#""It is on your list.""#), ("end", r#""completed""#)]);
    assert_eq!(program.request("GET /todos", "", 200), r#"["buy milk"]"#);

    // It stops while a client is connected.
    let mut stream = program.send_as_ann(CAPTIONS, "", "");
    let all: Vec<_> = (0..4).filter_map(|_| next_frame(&mut stream)).collect();
    let names: Vec<_> = all.iter().map(|frame| &*frame.name).collect();
    assert_eq!(names, ["say", "ask", "say", "end"]);
    program.interrupt();
    assert_eq!(next_frame(&mut stream), None);
}

/// The code blocks of a page in one language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let start = format!("```{language}\n");
    page.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_page_shows_the_files() {
    // What only this repository needs is not on the page.
    const LINTS: &str =
        "#![expect(clippy::print_stdout, reason = \"an example shows what it does\")]\n\n";
    let main = include_str!("../src/main.rs").replace(LINTS, "");
    let (wire, engine) = (include_str!("../src/captions.rs"), include_str!("../src/metered.rs"));
    let shown = blocks(PAGE, "rust");
    for block in &shown {
        let is_code = [&main, wire, engine].iter().any(|file| file.contains(block));
        assert!(is_code, "docs/embed.md differs from examples/embed/src:\n{block}");
    }
    assert!(shown.contains(&&*main) && shown.contains(&wire), "docs/embed.md lacks a file");

    // The page has versions in place of the folders.
    let (manifest, _) = include_str!("../Cargo.toml").split_once("\n[lints]").unwrap();
    let manifest: Vec<_> = manifest
        .lines()
        .filter(|line| !line.starts_with("license") && !line.starts_with("publish"))
        .map(|line| match line.split_once("path = \"") {
            None => line.to_owned(),
            Some((before, rest)) => before.to_owned() + rest.split_once("\", ").unwrap().1,
        })
        .map(|line| line.replace("{ version = \"0.1\" }", "\"0.1\""))
        .collect();
    assert_eq!(blocks(PAGE, "toml"), [manifest.join("\n") + "\n"]);
}
