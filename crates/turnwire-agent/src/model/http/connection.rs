//! Connections to a provider: how one is made, and how a question goes over it.
//!
//! An answer is read by whoever waits for it, straight from its connection. A client with a task for
//! each connection would cost every token another wake-up, and every running reply 25 KiB of buffers.

use super::framing::ResponseHead;
use crate::http_client;
use bytes::{Buf, Bytes};
use http::HeaderValue;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls_pki_types::ServerName;
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tower::ServiceExt;
use url::{Host, Position, Url};

/// How often a silent connection is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How much is read at once.
pub(super) const READ_SIZE: usize = 8 << 10;

/// An open connection.
pub(super) type Connection = Box<dyn Transport>;

/// What a connection can do.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Any error, for people.
type BoxError = Box<dyn Error + Send + Sync>;

/// How one address is reached.
pub(super) struct Connector {
    address: Url,
    tcp: HttpConnector,
    /// Nothing for plain http.
    tls: Option<TlsConnector>,
    proxy: Option<Intercept>,
}

impl Connector {
    /// The way to an address. Nothing is connected.
    pub fn new(address: &Url) -> Result<Self, rustls::Error> {
        let is_plain = address.scheme() == "http";
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.enforce_http(false);
        let uri = address.as_str().parse().ok();
        let tls =
            if is_plain { None } else { Some(Arc::new(http_client::tls_config(false)?).into()) };
        Ok(Self {
            address: address.clone(),
            tcp,
            tls,
            proxy: uri.filter(|_| !is_plain).and_then(|uri| Matcher::from_env().intercept(&uri)),
        })
    }

    /// Connects.
    pub async fn connect(&self) -> Result<Connection, BoxError> {
        let Some(tls) = &self.tls else { return self.tcp(self.address.as_str()).await };
        let line = match &self.proxy {
            Some(proxy) => self.tunnel(tls, proxy).await?,
            None => self.tcp(self.address.as_str()).await?,
        };
        start_tls(tls, &self.address, line).await
    }

    async fn tcp(&self, address: &str) -> Result<Connection, BoxError> {
        Ok(Box::new(self.tcp.clone().oneshot(address.parse()?).await?.into_inner()))
    }

    /// A connection through a proxy, which sees nothing but the host's name.
    async fn tunnel(&self, tls: &TlsConnector, proxy: &Intercept) -> Result<Connection, BoxError> {
        let at = Url::parse(&proxy.uri().to_string())?;
        let mut line = match at.scheme() {
            "http" => self.tcp(at.as_str()).await?,
            "https" => start_tls(tls, &at, self.tcp(at.as_str()).await?).await?,
            other => return Err(format!("a proxy by {other} cannot be used").into()),
        };
        let host = &self.address[Position::BeforeHost..Position::AfterHost];
        let place = format!("{host}:{}", self.address.port_or_known_default().unwrap_or(443));
        let mut head = format!("CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n").into_bytes();
        if let Some(value) = proxy.basic_auth() {
            push_header(&mut head, "proxy-authorization", value);
        }
        head.extend_from_slice(b"\r\n");
        let (head, behind) = send_request(&mut line, &head.into(), &Bytes::new()).await?;
        if head.status.is_success() && behind.is_empty() {
            return Ok(line);
        }
        let proxy = &at[Position::BeforeHost..Position::AfterPort];
        Err(format!("the proxy {proxy} answered {}", head.status).into())
    }
}

async fn start_tls(
    tls: &TlsConnector,
    address: &Url,
    line: Connection,
) -> Result<Connection, BoxError> {
    let name = match address.host().ok_or("there is no host")? {
        Host::Domain(name) => ServerName::try_from(name.to_owned())?,
        Host::Ipv4(ip) => ServerName::from(std::net::IpAddr::from(ip)),
        Host::Ipv6(ip) => ServerName::from(std::net::IpAddr::from(ip)),
    };
    Ok(Box::new(tls.connect(name, line).await?))
}

/// Adds a header to a head.
pub(super) fn push_header(head: &mut Vec<u8>, name: &str, value: &HeaderValue) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// A connection that broke before there was an answer.
#[derive(Debug)]
pub(super) struct ExchangeError {
    /// Whether nothing at all came. On a connection that was used before, the other side may have
    /// closed it before it saw the question.
    pub has_no_response: bool,
    why: BoxError,
}

impl std::fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.why.fmt(f)
    }
}

impl Error for ExchangeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.why.source()
    }
}

/// Asks, and waits for the head of the answer. What came behind it is given with it.
pub(super) async fn send_request(
    line: &mut Connection,
    head: &Bytes,
    body: &Bytes,
) -> Result<(ResponseHead, Vec<u8>), ExchangeError> {
    let unsent = head.clone().chain(body.clone());
    let got = Vec::new();
    let mut asking =
        Exchange { line, unsent, is_flushed: false, write_error: None, received: got, head: None };
    let asked = poll_fn(|cx| asking.poll(cx)).await;
    let is_silent = asking.received.is_empty();
    let (length, mut head) =
        asked.map_err(|why| ExchangeError { has_no_response: is_silent, why })?;
    // What was not read of the question would be taken for the next one.
    head.is_reusable &= asking.is_flushed;
    Ok((head, asking.received.split_off(length)))
}

struct Exchange<'a> {
    line: &'a mut Connection,
    unsent: bytes::buf::Chain<Bytes, Bytes>,
    is_flushed: bool,
    /// Why it could not be written whole. Whoever refuses a question may say so before he hangs up.
    write_error: Option<io::Error>,
    received: Vec<u8>,
    /// The head of the answer, and how long it is, while the rest of the question is sent.
    head: Option<(usize, ResponseHead)>,
}

impl Exchange<'_> {
    /// Writes and reads, whatever can be done: an answer may come before the question is sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(usize, ResponseHead), BoxError>> {
        loop {
            let written = match self.write_error {
                None => self.write(cx),
                Some(_) => Poll::Ready(Ok(())),
            };
            if let Poll::Ready(Err(error)) = written {
                self.write_error = Some(error);
            } else if written.is_pending() && self.head.is_some() {
                return Poll::Pending;
            }
            if let Some(head) = self.head.take() {
                return Poll::Ready(Ok(head));
            }
            ready!(self.read(cx))?;
            while let Some((length, head)) = ResponseHead::parse(&self.received)? {
                match head.status.as_u16() {
                    101 => return Poll::Ready(Err("it changed the protocol".into())),
                    100..=199 => drop(self.received.drain(..length)),
                    // Whoever begins to answer may still want the rest of the question.
                    200..=299 => {
                        self.head = Some((length, head));
                        break;
                    }
                    _ => return Poll::Ready(Ok((length, head))),
                }
            }
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut piece = ReadBuf::uninit(&mut space);
        let read = ready!(Pin::new(&mut *self.line).poll_read(cx, &mut piece));
        if read.is_ok() && !piece.filled().is_empty() {
            self.received.extend_from_slice(piece.filled());
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(match self.write_error.take().or(read.err()) {
            Some(error) => error.into(),
            None => "it hung up".into(),
        }))
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unsent.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = self.unsent.chunks_vectored(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let written = ready!(Pin::new(&mut *self.line).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(written);
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut *self.line).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}
