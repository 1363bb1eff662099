//! The same stream through `hyper::client::conn::http1`, polled by the task that reads the events.

use crate::Result;
use crate::provider::Script;
use bytes::Bytes;
use futures_util::Stream;
use http_body_util::Full;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection};
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use turnwire_core::Event;
use turnwire_wires::Wire;
use turnwire_wires::stream::{Decoded, Decoder, DecoderOptions, StreamScope};

/// Sends a request, and waits for the head of the response.
pub async fn start(script: Script, address: SocketAddr) -> Result<HyperStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let (mut sender, mut connection) = http1::handshake(TokioIo::new(tcp)).await?;
    let body = format!(r#"{{"stream":true,"model":"{}"}}"#, script.to_model_name());
    let request = Request::post("/v1/chat/completions")
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .body(Full::from(body))?;
    let mut response = Box::pin(sender.send_request(request));
    let response = poll_fn(|cx| {
        if let Poll::Ready(Err(error)) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Err(error));
        }
        response.as_mut().poll(cx)
    })
    .await?;
    let options = DecoderOptions {
        reply_id: Some("r".to_owned()),
        block_prefix: Some("b".to_owned()),
        scope: StreamScope::ModelCall,
        ..DecoderOptions::default()
    };
    let wire = Wire::named("openai-chat").ok_or("no such wire")?;
    Ok(HyperStream {
        connection: Some(connection),
        body: response.into_body(),
        decoder: wire.decoder(&options)?,
        queue: VecDeque::new(),
    })
}

/// The events of a response.
pub struct HyperStream {
    /// `None` after it was closed.
    connection: Option<Connection<TokioIo<TcpStream>, Full<Bytes>>>,
    body: Incoming,
    decoder: Decoder,
    /// Decoded events that were not returned yet.
    queue: VecDeque<Result<Event<'static>>>,
}

impl Stream for HyperStream {
    type Item = Result<Event<'static>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { connection, body, decoder, queue } = &mut *self;
        loop {
            if let Some(event) = queue.pop_front() {
                return Poll::Ready(Some(event));
            }
            if let Some(open) = connection
                && let Poll::Ready(ended) = Pin::new(open).poll(cx)
            {
                *connection = None;
                ended?;
            }
            let mut each = |decoded: Decoded<'_>| {
                queue.push_back(decoded.event.map(Event::into_owned).map_err(Into::into));
            };
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(frame)) => {
                    if let Some(data) = frame?.data_ref() {
                        decoder.feed(data, &mut each);
                    }
                }
            }
        }
    }
}
