//! A to-do list with an agent: an axum program with Turnwire inside. `docs/embed.md` explains it.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod captions;
mod metered;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use turnwire_agent::model::script::{ScriptStep, ScriptedModel};
use turnwire_agent::{Agent, Replier, ToolError, function};
use turnwire_log::sqlite::Options;
use turnwire_log::{Log, SqliteStore};
use turnwire_server::auth::{Scopes, generate_token};
use turnwire_server::config::{Config, ListenAddress, TokenConfig};
use turnwire_server::{App, Caller};
use turnwire_wires::Wire;

/// What the program and the agent share.
type Todos = Arc<Mutex<Vec<String>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let (token, sha256) = generate_token().ok_or("the system has no random numbers")?;

    // The settings of turnwire.toml, in code.
    let mut config = Config::default();
    config.listen = ListenAddress(listener.local_addr()?);
    config.default_agent = Some("secretary".to_owned());
    config.auth.tokens.push(TokenConfig {
        tenant: "home".to_owned(),
        sha256: sha256.parse()?,
        scopes: Scopes::all(),
        subject: Some("ann".to_owned()),
        sessions: None,
    });

    Wire::register(&captions::CAPTIONS)?;
    let store = SqliteStore::open("embed.db", Options::default())?;
    let store = Arc::new(metered::Metered::new(store));
    let todos = Todos::default();
    let secretary: Arc<dyn Replier> = Arc::new(secretary(Arc::clone(&todos)));
    let log = Arc::new(Log::new(Arc::clone(&store) as _, "embed"));
    let app = App::new(config, log, [("secretary".to_owned(), secretary)].into())?;

    let own = Router::new()
        .route("/todos", get(list_todos).with_state(todos))
        .route("/writes", get(async move |_: Caller| Json(store.totals())));
    let router = own
        .merge(turnwire_server::router(Arc::clone(&app)))
        .layer(from_fn_with_state(Arc::clone(&app), log_in));

    println!("listening on http://{}\ntoken: {token}", listener.local_addr()?);
    // Replies that the end of the last process interrupted continue.
    app.turns.recover().await?;
    tokio::spawn(Arc::clone(&app).run_maintenance());
    let stopping = Arc::clone(&app);
    let stop = async move {
        let _ = tokio::signal::ctrl_c().await;
        // Streams of sessions end, and their clients resume later. Requests that wait for a reply get ten seconds.
        stopping.shutdown.cancel();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            stopping.force_stop.cancel();
        });
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await?;
    app.turns.shutdown().await;
    app.tasks.close();
    app.tasks.wait().await;
    Ok(())
}

/// Says who calls. A program with a login of its own makes the `Caller` from its user instead.
async fn log_in(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if let Ok(caller) = app.auth.authenticate_token(token) {
        request.extensions_mut().insert(caller);
    }
    next.run(request).await
}

/// A route of the program. `Caller` refuses requests without credentials.
async fn list_todos(_: Caller, State(todos): State<Todos>) -> Json<Vec<String>> {
    Json(todos.lock().await.clone())
}

#[derive(Deserialize, JsonSchema)]
struct Todo {
    /// What to do, in a few words.
    text: String,
}

fn secretary(todos: Todos) -> Agent {
    // Plays a script, so that it needs no key. With one: HttpModel::builder("anthropic:claude-sonnet-4-5").build()?
    let model = ScriptedModel::new([
        vec![
            ScriptStep::text("One moment."),
            ScriptStep::call("c1", "add_todo", r#"{"text":"buy milk"}"#),
        ],
        vec![ScriptStep::text("It is on your list.")],
    ]);
    let add = move |Todo { text }: Todo| {
        let todos = Arc::clone(&todos);
        async move {
            todos.lock().await.push(text);
            Ok::<_, ToolError>("added")
        }
    };
    Agent::builder("secretary", model.by_history())
        .system("You keep the user's to-do list.")
        .tool(function("add_todo", "Adds to the user's list", add).requires_approval())
        .build()
}
