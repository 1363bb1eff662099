//! A client that subscribes to several sessions on one WebSocket.

use crate::client::{ClientPlan, ClientState, has_all};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::sync::watch;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::{Error, Message};

/// A session, and where it ends, once that is known.
type WatchedSession = (ClientPlan, watch::Receiver<Option<u64>>);

/// Subscribes until it has everything that was ever written to its sessions.
pub async fn watch(
    proxy: SocketAddr,
    wire: &str,
    mut plans: Vec<WatchedSession>,
) -> Vec<ClientState> {
    let mut seen: Vec<ClientState> = plans.iter().map(|_| ClientState::default()).collect();
    while !all_done(&plans, &seen) {
        seen[0].connections += 1;
        // However a connection ends, it resumes from what it has.
        let _ = watch_once(proxy, wire, &mut plans, &mut seen).await;
    }
    seen
}

fn all_done(plans: &[WatchedSession], seen: &[ClientState]) -> bool {
    plans.iter().zip(seen).all(|((_, end), seen)| has_all(seen, *end.borrow()))
}

async fn watch_once(
    proxy: SocketAddr,
    wire: &str,
    plans: &mut [WatchedSession],
    seen: &mut [ClientState],
) -> Result<(), Error> {
    let (mut socket, _) = connect_async(format!("ws://{proxy}/v1/ws?wire={wire}")).await?;
    for ((plan, _), seen) in plans.iter().zip(&*seen) {
        let token = seen.token.as_deref().unwrap_or_default();
        let command = json!({
            "type": "subscribe", "id": plan.session, "session_id": plan.session,
            "last_event_id": token, "raw": plan.raw,
        });
        socket.send(Message::text(command.to_string())).await?;
    }
    while !all_done(plans, seen) {
        let ends = plans.iter_mut().map(|(_, end)| Box::pin(end.changed()));
        let message = tokio::select! {
            message = socket.next() => message,
            _ = futures_util::future::select_all(ends) => continue,
        };
        let Some(message) = message else { return Ok(()) };
        let Message::Text(text) = message? else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        let session = frame["session_id"].as_str().unwrap();
        let at = plans.iter().position(|(plan, _)| plan.session == session).expect(&text);
        if frame["type"] == "subscribed" {
            assert_eq!(frame["id"], *session);
            continue;
        }
        let token = frame["event_id"].as_str().map(str::to_owned);
        seen[at].take(&plans[at].0, &text, token);
    }
    Ok(())
}
