//! A WebSocket on the wire `turnwire`.

use crate::PATIENCE;
use serde_json::json;
use std::io;
use std::net::TcpStream;
use tokio_tungstenite::tungstenite::{self, Error, Message, WebSocket};

pub enum Received {
    Text(String),
    /// A ping.
    SignOfLife,
    /// The node closes the connection.
    Closed,
}

pub struct Socket(WebSocket<TcpStream>);

impl Socket {
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let socket = tungstenite::client("ws://localhost/v1/ws?wire=turnwire", stream);
        let (socket, _) = socket.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(socket))
    }

    pub fn subscribe(&mut self, session: &str, token: Option<&str>) -> io::Result<()> {
        let token = token.unwrap_or_default();
        let command = json!({"type": "subscribe", "session_id": session, "last_event_id": token, "raw": true});
        self.0.send(Message::text(command.to_string())).map_err(io::Error::other)
    }

    /// What comes next.
    pub fn next(&mut self) -> io::Result<Received> {
        match self.0.read() {
            Ok(Message::Text(text)) => Ok(Received::Text(text.to_string())),
            Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => Ok(Received::Closed),
            Ok(_) => Ok(Received::SignOfLife),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
