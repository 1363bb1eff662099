//! The authorisation matrix: every route of the API and every command of the sockets, as every kind of
//! caller. What each may do is in `expected.txt`; `TURNWIRE_WRITE=1 cargo test -p turnwire-server --test
//! authorization matrix` writes that file anew, for a person to read.

use crate::checked_http::check_http;
use crate::harness::{ADMIN, Endless, Server, hash, jwt, now, token};
use crate::rows::{ROWS, Row, RowRequest};
use crate::running::within;
use crate::scene::{SECRETS, Scene};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use turnwire_agent::{DemoAgent, Replier};
use turnwire_testkit::net::StreamingResponse;

/// Every kind of caller: the column's name, and what they do to get in.
const CALLERS: [(&str, Caller); 17] = [
    ("none", Caller::Nobody),
    ("wrong", Caller::Token("tw_unknown")),
    ("jwt", Caller::Jwt),
    ("oldjwt", Caller::OldJwt),
    ("tenant", Caller::Token("tw_tenant")),
    ("empty", Caller::EmptyJwt),
    ("read", Caller::Token("tw_read")),
    ("chat", Caller::Token("tw_chat")),
    ("publish", Caller::Token("tw_publish")),
    ("approve", Caller::Token("tw_approve")),
    ("admin", Caller::Token(ADMIN)),
    ("here", Caller::Token("tw_here")),
    ("there", Caller::Token("tw_there")),
    ("ticket", Caller::Ticket),
    ("used", Caller::UsedTicket),
    ("old", Caller::OldTicket),
    ("tickets", Caller::TicketOfTicket),
];

/// What the columns mean, for who reads the file.
const LEGEND: &str = "\
none     no credentials                         here     all scopes but admin, limited to these sessions
wrong    an unknown token                       there    all scopes but admin, limited to other sessions
jwt      a JWT with all scopes but admin        ticket   a ticket of a token with all scopes but admin
oldjwt   the same JWT, expired                  used     the same ticket, a second time
tenant   all scopes, of another tenant          old      a ticket whose maker's credentials have expired
empty    a JWT without any scope                tickets  a ticket that was to be made with a ticket
read, chat, publish, approve, admin: a token with this scope alone
A cell is the status; of a command on a socket 200 where it is accepted, otherwise the status of its error.
";

#[derive(Debug, Clone, Copy)]
enum Caller {
    Nobody,
    Token(&'static str),
    Jwt,
    OldJwt,
    EmptyJwt,
    Ticket,
    UsedTicket,
    OldTicket,
    TicketOfTicket,
}

impl Caller {
    /// Whether they may see what is in the session.
    fn may_read(self) -> bool {
        match self {
            Self::Token(token) => matches!(token, "tw_read" | ADMIN | "tw_here"),
            Self::Jwt | Self::Ticket => true,
            Self::Nobody
            | Self::OldJwt
            | Self::EmptyJwt
            | Self::UsedTicket
            | Self::OldTicket
            | Self::TicketOfTicket => false,
        }
    }
}

/// What shows who it is: a header, or a part of the query.
#[derive(Debug, Default)]
struct Credentials {
    bearer: Option<String>,
    ticket: Option<String>,
}

/// A server, and credentials that take a while to get.
struct Matrix {
    server: Server,
    methods: HashMap<String, String>,
    blob: String,
    asset: String,
    old_jwt: String,
    old_tickets: Vec<String>,
}

const ALL: &str = r#""read","chat","publish","approve""#;
const PREFIX: &str = "s-";

impl Matrix {
    async fn new() -> Self {
        let tokens = [
            token(ADMIN, "acme", "\"admin\"", ""),
            token("tw_read", "acme", "\"read\"", ""),
            token("tw_chat", "acme", "\"chat\"", ""),
            token("tw_publish", "acme", "\"publish\"", ""),
            token("tw_approve", "acme", "\"approve\"", ""),
            token("tw_tenant", "other", &format!("{ALL},\"admin\""), ""),
            token("tw_here", "acme", ALL, &format!("sessions = [\"{PREFIX}*\"]\n")),
            token("tw_there", "acme", ALL, "sessions = [\"t-*\"]\n"),
        ];
        let limits = "[limits]\nrequests_per_second = 100000\n";
        // Behind a proxy nobody is on this machine, so that /metrics takes its scope, too.
        let settings = format!("behind_proxy = true\n{limits}{}", tokens.concat());
        let demo: Arc<dyn Replier> = Arc::new(DemoAgent::with_rate(0.0));
        let endless: Arc<dyn Replier> = Arc::new(Endless);
        let server = Server::start(&settings, vec![("demo", demo), ("endless", endless)]);
        assert_eq!(server.call("POST", "/v1/blobs", ADMIN, "opal-blob").await.status, 201);
        let made = r#"{"id":"wait"}"#;
        assert_eq!(server.call("POST", "/v1/sessions", ADMIN, made).await.status, 201);

        // Credentials that have expired: their stream has come to its end.
        let old_jwt = jwt("ada", "read chat publish approve", now() + 4.0);
        let mut old_tickets = Vec::new();
        for _ in ROWS {
            let ticket = server.call("POST", "/v1/tickets", &old_jwt, "").await;
            assert_eq!(ticket.status, 201, "{}", ticket.text());
            old_tickets.push(ticket.json()["ticket"].as_str().unwrap().to_owned());
        }
        let stream = server.open("GET", "/v1/sessions/wait/events", &old_jwt, "").await;
        within(stream.read_to_end()).await.unwrap();

        let document = server.call("GET", "/openapi.json", "", "").await.json();
        let mut methods = HashMap::new();
        for item in document["paths"].as_object().unwrap().values() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                methods.insert(id.to_owned(), method.to_uppercase());
            }
        }
        let page = server.call("GET", "/", "", "").await.text();
        let asset = page.split("./assets/").nth(1).unwrap().split('"').next().unwrap().to_owned();
        Self { server, methods, blob: hash("opal-blob"), asset, old_jwt, old_tickets }
    }

    async fn ticket(&self) -> String {
        let good = jwt("ada", "read chat publish approve", now() + 600.0);
        let made = self.server.call("POST", "/v1/tickets", &good, "").await;
        made.json()["ticket"].as_str().unwrap().to_owned()
    }

    async fn credentials_for(&self, caller: Caller, row: usize) -> Credentials {
        let bearer = |text: &str| Credentials { bearer: Some(text.to_owned()), ticket: None };
        let ticket = |text: String| Credentials { bearer: None, ticket: Some(text) };
        match caller {
            Caller::Nobody => Credentials::default(),
            Caller::Token(text) => bearer(text),
            Caller::Jwt => bearer(&jwt("ada", "read chat publish approve", now() + 600.0)),
            Caller::EmptyJwt => bearer(&jwt("ada", "openid", now() + 600.0)),
            Caller::OldJwt => bearer(&self.old_jwt),
            Caller::Ticket => ticket(self.ticket().await),
            Caller::UsedTicket => {
                let used = self.ticket().await;
                let path = format!("/v1/agents?ticket={used}");
                assert_eq!(self.server.call("GET", &path, "", "").await.status, 200);
                ticket(used)
            }
            Caller::OldTicket => ticket(self.old_tickets[row].clone()),
            Caller::TicketOfTicket => {
                let path = format!("/v1/tickets?ticket={}", self.ticket().await);
                let made = self.server.call("POST", &path, "", "").await.json();
                ticket(made["ticket"].as_str().unwrap_or("none").to_owned())
            }
        }
    }

    /// The status, and what the caller was shown.
    async fn cell(&self, row: &Row, at: usize, column: usize) -> (u16, String) {
        let (name, caller) = CALLERS[column];
        let id = format!("{PREFIX}{at}-{name}");
        let scene = row.given.set_up(&self.server, &id, &self.blob).await;
        let shown = self.credentials_for(caller, at).await;
        match (row.ask)(&scene) {
            RowRequest::Http { path, headers, body } => {
                let may_read = caller.may_read();
                self.http(row, &path, headers, &body, &shown, may_read).await
            }
            RowRequest::Socket { wire, commands } => {
                self.socket(wire, &commands, &shown, &scene).await
            }
            RowRequest::ResponseSocket(message) => self.response_socket(message, &shown).await,
        }
    }

    async fn http(
        &self,
        row: &Row,
        path: &str,
        headers: Vec<(&'static str, String)>,
        body: &str,
        shown: &Credentials,
        may_read: bool,
    ) -> (u16, String) {
        let mut path = path.replace("NAME", &self.asset);
        if let Some(ticket) = &shown.ticket {
            let joint = if path.contains('?') { '&' } else { '?' };
            let _ = write!(path, "{joint}ticket={ticket}");
        }
        let method = &self.methods[row.route];
        let bearer =
            shown.bearer.as_ref().map(|token| ("authorization", format!("Bearer {token}")));
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.server.address());
        for (name, value) in headers.into_iter().chain(bearer) {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let length = body.len();
        let _ = write!(head, "connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        let incoming = StreamingResponse::send(self.server.address(), head.as_bytes());
        let incoming = within(incoming).await.unwrap();
        let status = incoming.status;
        // A stream for somebody who may see everything need not come to its end.
        if may_read && incoming.head.contains("text/event-stream") {
            return (status, String::new());
        }
        let whole = within(incoming.read_to_end()).await.unwrap();
        check_http(method, &path, &whole).await;
        (status, whole.head.clone() + &whole.text())
    }

    async fn response_socket(&self, message: Value, shown: &Credentials) -> (u16, String) {
        let ticket = shown.ticket.as_ref().map(|ticket| format!("?ticket={ticket}"));
        let path = format!("/v1/responses{}", ticket.unwrap_or_default());
        let opened = self.server.try_socket_at(&path, shown.bearer.as_deref()).await;
        let mut socket = match opened {
            Ok(socket) => socket,
            Err(status) => return (status, String::new()),
        };
        socket.send(message).await;
        let mut received = String::new();
        loop {
            let event = socket.next().await.unwrap();
            let _ = write!(received, "{event}");
            match event["type"].as_str().unwrap() {
                "error" => {
                    return (u16::try_from(event["status"].as_u64().unwrap()).unwrap(), received);
                }
                "response.completed" => return (200, received),
                _ => {}
            }
        }
    }

    async fn socket(
        &self,
        wire: &str,
        commands: &[Value],
        shown: &Credentials,
        scene: &Scene,
    ) -> (u16, String) {
        let mut query = format!("wire={wire}");
        if let Some(ticket) = &shown.ticket {
            let _ = write!(query, "&ticket={ticket}");
        }
        let opened = self.server.try_socket(&query, shown.bearer.as_deref()).await;
        let mut socket = match opened {
            Ok(socket) => socket,
            Err(status) => return (status, String::new()),
        };
        let mut received = String::new();
        let mut status = 0;
        for (number, command) in commands.iter().enumerate() {
            let mut command = command.clone();
            command["id"] = number.into();
            socket.send(command).await;
            let answer = loop {
                let message = socket.next().await.unwrap();
                let _ = write!(received, "{message}");
                if message["id"] == number {
                    break message;
                }
            };
            status = match answer["code"].as_str() {
                None => 200,
                Some("unauthorized") => 401,
                Some("forbidden") => 403,
                Some("not_found") => 404,
                Some("not_subscribed") => 409,
                Some(other) => panic!("{other}: {answer} {scene:?}"),
            };
        }
        // What comes before the answer to another command came of these.
        socket.send(serde_json::json!({"type": "ping", "id": "last"})).await;
        loop {
            let message = socket.next().await.unwrap();
            if message["id"] == "last" {
                return (status, received);
            }
            let _ = write!(received, "{message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_may_do_what_the_matrix_says_and_nothing_else() {
    let world = Matrix::new().await;
    let listed: BTreeSet<&str> = world.methods.keys().map(String::as_str).collect();
    let tested: BTreeSet<&str> = ROWS.iter().map(|row| row.route).collect();
    assert_eq!(listed, tested, "every route has a row in tests/authorization/rows.rs");

    let mut table = String::new();
    let _ = write!(table, "{LEGEND}\n{:<58}", "");
    for (name, _) in CALLERS {
        let _ = write!(table, " {name:<7}");
    }
    table = table.trim_end().to_owned() + "\n";
    let mut problems = Vec::new();
    for (at, row) in ROWS.iter().enumerate() {
        let method = &world.methods[row.route];
        let joint = if row.case.is_empty() { "" } else { ": " };
        let mut line = format!("{method:<6} {:<51}", format!("{}{joint}{}", row.route, row.case));
        for (column, (name, caller)) in CALLERS.iter().enumerate() {
            let (status, received) = world.cell(row, at, column).await;
            let _ = write!(line, " {status:<7}");
            let is_good = (200..300).contains(&status);
            let is_refused = (400..500).contains(&status);
            // Whoever may do everything shows that the request is good.
            let fits = if *name == "admin" { is_good } else { is_good || is_refused };
            if !fits {
                problems
                    .push(format!("{} ({}) as {name}: {status} {received}", row.route, row.case));
            }
            // A blob belongs to the tenant: it is found by its hash, whatever session it is used in.
            let is_blob = row.route == "getBlob" && *name == "there";
            if is_good && (caller.may_read() || is_blob) {
                continue;
            }
            for secret in SECRETS.iter().filter(|secret| received.contains(**secret)) {
                problems.push(format!(
                    "{} ({}) as {name} tells {secret}: {received}",
                    row.route, row.case
                ));
            }
        }
        table += line.trim_end();
        table.push('\n');
    }
    world.server.stop().await;
    assert!(problems.is_empty(), "{}\n{}", table, problems.join("\n"));

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/authorization/expected.txt");
    if std::env::var_os("TURNWIRE_WRITE").is_some() {
        std::fs::write(file, &table).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    let only_in = |lines: &str, other: &str, mark: char| -> Vec<String> {
        let missing = lines.lines().filter(|line| !other.lines().any(|known| known == *line));
        missing.map(|line| format!("{mark} {line}")).collect()
    };
    let mut differs = only_in(&expected, &table, '-');
    differs.extend(only_in(&table, &expected, '+'));
    assert!(
        expected == table,
        "what callers may do has changed; TURNWIRE_WRITE=1 writes expected.txt anew:\n{}",
        differs.join("\n")
    );
}

#[tokio::test]
async fn the_matrix_has_every_command_of_the_sockets() {
    let server = Server::start(&token(ADMIN, "acme", "\"admin\"", ""), Vec::new());
    for wire in ["turnwire", "blocks"] {
        let mut socket = server.socket(&format!("wire={wire}"), Some(ADMIN)).await;
        socket.send(serde_json::json!({"type": "dance"})).await;
        let refused = socket.wait_for("error").await;
        // It lists the commands that there are.
        let text = format!("{} {}", refused["message"], refused["hint"]);
        let (_, list) = text.split_once("commands are ").unwrap_or_else(|| panic!("{refused}"));
        let commands = list.split([',', ' ', '"']).filter(|word| !["", "and"].contains(word));
        // Who authenticates brings the credentials with it.
        for command in commands.filter(|command| *command != "auth") {
            let start = format!("{wire} {command}");
            let has_row = ROWS.iter().any(|row| row.case.starts_with(&start));
            assert!(has_row, "{start} has no row in tests/authorization/rows.rs");
        }
    }
    server.stop().await;
}
