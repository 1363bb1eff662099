//! The table itself, in the order of the documentation.

use super::Access::{Anyone, Local, Open, Scope as Needs, Socket};
use super::Kind::{Flag, Integer, Text};
use super::Place::{Header, Path, Query};
use super::Verb::{Delete, Get, Patch, Post};
use super::{Answer, Body, Kind, Param, Place, Route};
use crate::auth::Scope::{Admin, Chat, Publish, Read};
use crate::{health, routes};
use axum::routing::{delete, get, patch, post};

const JSON: &[&str] = &["application/json"];
const NDJSON: &[&str] = &["application/x-ndjson", "application/json"];
const STREAM: &[&str] = &["text/event-stream", "application/x-ndjson"];
const SSE: &[&str] = &["application/json", "text/event-stream"];
const ANY: &[&str] = &["*/*"];
const HTML: &[&str] = &["text/html"];
const PLAIN: &[&str] = &["text/plain"];
const NONE: &[&str] = &[];

const fn param(name: &'static str, place: Place, kind: Kind, about: &'static str) -> Param {
    Param { name, place, kind, about }
}

const fn body(types: &'static [&'static str], about: &'static str) -> Body {
    Body { types, about }
}

const fn answer(status: u16, types: &'static [&'static str], about: &'static str) -> Answer {
    Answer { status, types, about }
}

const SESSION: Param = param("s", Path, Text, "The session's id: 1 to 128 of A-Z a-z 0-9 . _ : -");
const MESSAGE: Param = param("id", Path, Text, "The message's id");
const LIMIT: Param = param("limit", Query, Integer, "How many at the most");
const WIRE: Param = param("wire", Query, Text, "The protocol; `turnwire` when it is not given");
const KEY: Param =
    param("Idempotency-Key", Header, Text, "The same key and body again gives the same answer");
const PRODUCER: Param = param(
    "Turnwire-Producer",
    Header,
    Text,
    "ID.FENCE of an agent elsewhere: a higher fence takes over, a lower one gets 409",
);

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Post,
        path: "/v1/sessions",
        access: Needs(Chat),
        id: "createSession",
        summary: "Make a session",
        params: &[],
        body: Some(body(JSON, "{id?, agent?, title?, metadata?}")),
        answers: &[answer(201, JSON, "Made"), answer(200, JSON, "It was there already")],
        handler: || post(routes::create_session),
    },
    Route {
        method: Get,
        path: "/v1/sessions",
        access: Needs(Read),
        id: "listSessions",
        summary: "List and search sessions, the latest change first",
        params: &[
            param("q", Query, Text, "Words that a message or the title has"),
            param("status", Query, Text, "Only those that are idle, running or waiting"),
            param("cursor", Query, Text, "The `next_cursor` of the page before"),
            LIMIT,
        ],
        body: None,
        answers: &[answer(200, JSON, "{sessions, next_cursor}")],
        handler: || get(routes::list_sessions),
    },
    Route {
        method: Get,
        path: "/v1/sessions/{s}",
        access: Needs(Read),
        id: "getSession",
        summary: "A session: what it is doing, what waits, where its log ends",
        params: &[SESSION],
        body: None,
        answers: &[answer(200, JSON, "The session")],
        handler: || get(routes::get_session),
    },
    Route {
        method: Patch,
        path: "/v1/sessions/{s}",
        access: Needs(Chat),
        id: "patchSession",
        summary: "Change a session's title or metadata",
        params: &[SESSION],
        body: Some(body(JSON, "{title?, metadata?}")),
        answers: &[answer(200, JSON, "The session")],
        handler: || patch(routes::patch_session),
    },
    Route {
        method: Delete,
        path: "/v1/sessions/{s}",
        access: Needs(Chat),
        id: "deleteSession",
        summary: "Remove a session with all it has",
        params: &[SESSION],
        body: None,
        answers: &[answer(204, NONE, "Gone, also after a crash")],
        handler: || delete(routes::delete_session),
    },
    Route {
        method: Get,
        path: "/v1/sessions/{s}/messages",
        access: Needs(Read),
        id: "listMessages",
        summary: "Messages, and the point from which to watch with no gap",
        params: &[
            SESSION,
            param("before", Query, Text, "Only messages before the one with this id"),
            LIMIT,
            param("agents", Query, Text, "`all`: also those of sub-agents"),
        ],
        body: None,
        answers: &[answer(200, JSON, "{messages, cursors, last_event_id, status, pending}")],
        handler: || get(routes::list_messages),
    },
    Route {
        method: Post,
        path: "/v1/sessions/{s}/messages",
        access: Needs(Chat),
        id: "sendMessage",
        summary: "Say something; the agent replies",
        params: &[
            SESSION,
            param("queue", Query, Flag, "Wait for the reply that runs, rather than 409"),
            KEY,
        ],
        body: Some(body(JSON, "A message, or {content}")),
        answers: &[
            answer(202, SSE, "{message_id, reply_id, last_event_id}, durable"),
            answer(200, SSE, "The reply as it grows, with `Accept: text/event-stream`"),
        ],
        handler: || post(routes::send_message),
    },
    Route {
        method: Get,
        path: "/v1/sessions/{s}/messages/{id}",
        access: Needs(Read),
        id: "getMessage",
        summary: "A message, or how it stood at any point",
        params: &[SESSION, MESSAGE, param("at", Query, Integer, "The seq of an event")],
        body: None,
        answers: &[answer(200, JSON, "The message")],
        handler: || get(routes::get_message),
    },
    Route {
        method: Delete,
        path: "/v1/sessions/{s}/messages/{id}",
        access: Needs(Chat),
        id: "cancelMessage",
        summary: "Take back a message that still waits in the queue",
        params: &[SESSION, MESSAGE],
        body: None,
        answers: &[answer(204, NONE, "It waits no more")],
        handler: || delete(routes::cancel_message),
    },
    Route {
        method: Post,
        path: "/v1/sessions/{s}/messages/{id}/retry",
        access: Needs(Chat),
        id: "retryMessage",
        summary: "Answer again; the old reply leaves the history",
        params: &[SESSION, MESSAGE, KEY],
        body: None,
        answers: &[answer(202, SSE, "{message_id, reply_id, last_event_id}")],
        handler: || post(routes::retry_message),
    },
    Route {
        method: Post,
        path: "/v1/sessions/{s}/fork",
        access: Needs(Chat),
        id: "forkSession",
        summary: "A new session with the log up to a point",
        params: &[SESSION, param("at", Query, Integer, "The last seq that it keeps")],
        body: None,
        answers: &[answer(201, JSON, "The new session")],
        handler: || post(routes::fork_session),
    },
    Route {
        method: Get,
        path: "/v1/sessions/{s}/events",
        access: Needs(Read),
        id: "watchEvents",
        summary: "Events from any point, then live",
        params: &[
            SESSION,
            param("after", Query, Text, "A token EPOCH.SEQ, a SEQ, or `now`"),
            WIRE,
            param("until", Query, Text, "`idle`: end when nothing runs"),
            param("raw", Query, Flag, "Backlog as it was written, not merged"),
            param("Last-Event-ID", Header, Text, "Wins over `after`"),
        ],
        body: None,
        answers: &[answer(200, STREAM, "The events")],
        handler: || get(routes::watch_events),
    },
    Route {
        method: Post,
        path: "/v1/sessions/{s}/events",
        access: Anyone,
        id: "publishEvents",
        summary: "Events in: all or none, durable when answered (scope publish; answers of a person: approve or chat)",
        params: &[
            SESSION,
            WIRE,
            param("tolerant", Query, Flag, "Leave out what does not fit, and report it"),
            PRODUCER,
        ],
        body: Some(body(NDJSON, "Events, one a line or as an array")),
        answers: &[answer(200, JSON, "{last_event_id, stored, repeated}")],
        handler: || post(routes::publish_events),
    },
    Route {
        method: Post,
        path: "/v1/sessions/{s}/replies",
        access: Needs(Publish),
        id: "pipeReply",
        summary: "One streaming body is one reply, such as a provider's stream piped through",
        params: &[
            SESSION,
            WIRE,
            param(
                "reply_id",
                Query,
                Text,
                "The reply's id; otherwise the stream's own, or a new one",
            ),
            param("tolerant", Query, Flag, "Leave out what does not fit, and report it"),
            PRODUCER,
        ],
        body: Some(body(ANY, "The stream of a wire")),
        answers: &[answer(200, JSON, "{reply_id, last_event_id, finished_reason}")],
        handler: || post(routes::pipe_reply),
    },
    Route {
        method: Get,
        path: "/v1/ws",
        access: Socket,
        id: "openSocket",
        summary: "A WebSocket for several sessions",
        params: &[param(
            "wire",
            Query,
            Text,
            "`blocks` when it is not given; `turnwire`, `agentscope`",
        )],
        body: None,
        answers: &[answer(101, NONE, "The socket")],
        handler: || get(routes::open_socket),
    },
    Route {
        method: Post,
        path: "/v1/blobs",
        access: Anyone,
        id: "putBlob",
        summary: "Store bytes, once per tenant (scope chat or publish)",
        params: &[],
        body: Some(body(ANY, "The bytes; their type is the content-type")),
        answers: &[
            answer(201, JSON, "{id, url, size, media_type}"),
            answer(200, JSON, "They were there already"),
        ],
        handler: || post(routes::put_blob),
    },
    Route {
        method: Get,
        path: "/v1/blobs/{hash}",
        access: Needs(Read),
        id: "getBlob",
        summary: "Bytes by their SHA-256",
        params: &[param("hash", Path, Text, "64 hexadecimal digits")],
        body: None,
        answers: &[answer(200, ANY, "The bytes")],
        handler: || get(routes::get_blob),
    },
    Route {
        method: Get,
        path: "/v1/agents",
        access: Needs(Read),
        id: "listAgents",
        summary: "What can be talked to",
        params: &[],
        body: None,
        answers: &[answer(200, JSON, "{agents, default_agent}")],
        handler: || get(routes::list_agents),
    },
    Route {
        method: Get,
        path: "/v1/approvals",
        access: Needs(Read),
        id: "listApprovals",
        summary: "What waits for a person, over all sessions",
        params: &[LIMIT],
        body: None,
        answers: &[answer(200, JSON, "{approvals}")],
        handler: || get(routes::list_approvals),
    },
    Route {
        method: Post,
        path: "/v1/tickets",
        access: Anyone,
        id: "createTicket",
        summary: "A ?ticket= for EventSource and WebSocket: one use, 60 seconds",
        params: &[],
        body: None,
        answers: &[answer(201, JSON, "{ticket, expires_in}")],
        handler: || post(health::create_ticket),
    },
    Route {
        method: Get,
        path: "/healthz",
        access: Open,
        id: "healthz",
        summary: "Whether the process answers",
        params: &[],
        body: None,
        answers: &[answer(200, JSON, "It does")],
        handler: || get(health::healthz),
    },
    Route {
        method: Get,
        path: "/readyz",
        access: Open,
        id: "readyz",
        summary: "Whether requests should be sent here",
        params: &[],
        body: None,
        answers: &[answer(200, JSON, "They should")],
        handler: || get(health::readyz),
    },
    Route {
        method: Get,
        path: "/metrics",
        access: Local(Admin),
        id: "metrics",
        summary: "Counters for Prometheus",
        params: &[],
        body: None,
        answers: &[answer(200, PLAIN, "The counters")],
        handler: || get(health::metrics),
    },
    Route {
        method: Get,
        path: "/openapi.json",
        access: Open,
        id: "openapi",
        summary: "This document",
        params: &[],
        body: None,
        answers: &[answer(200, JSON, "OpenAPI 3.1")],
        handler: || get(health::openapi),
    },
    Route {
        method: Get,
        path: "/",
        access: Open,
        id: "index",
        summary: "A page for people",
        params: &[],
        body: None,
        answers: &[answer(200, HTML, "The page")],
        handler: || get(health::index),
    },
];
