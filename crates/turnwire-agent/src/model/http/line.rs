//! Connections to a provider: how one is made, and how a question goes over it.
//!
//! An answer is read by whoever waits for it, straight from its connection. A client with a task for
//! each connection would cost every token another wake-up, and every running reply 25 KiB of buffers.

use super::framing::Head;
use crate::web;
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
pub(super) const PIECE: usize = 8 << 10;

/// An open connection.
pub(super) type Line = Box<dyn ReadWrite>;

/// What a connection can do.
pub(super) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Any error, for people.
type Any = Box<dyn Error + Send + Sync>;

/// How one address is reached.
pub(super) struct Way {
    address: Url,
    tcp: HttpConnector,
    /// Nothing for plain http.
    tls: Option<TlsConnector>,
    proxy: Option<Intercept>,
}

impl Way {
    /// The way to an address. Nothing is connected.
    pub fn to(address: &Url) -> Result<Self, rustls::Error> {
        let is_plain = address.scheme() == "http";
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.enforce_http(false);
        let uri = address.as_str().parse().ok();
        let tls = if is_plain { None } else { Some(Arc::new(web::tls(false)?).into()) };
        Ok(Self {
            address: address.clone(),
            tcp,
            tls,
            proxy: uri.filter(|_| !is_plain).and_then(|uri| Matcher::from_env().intercept(&uri)),
        })
    }

    /// Connects.
    pub async fn connect(&self) -> Result<Line, Any> {
        let Some(tls) = &self.tls else { return self.tcp(self.address.as_str()).await };
        let line = match &self.proxy {
            Some(proxy) => self.tunnel(tls, proxy).await?,
            None => self.tcp(self.address.as_str()).await?,
        };
        secure(tls, &self.address, line).await
    }

    async fn tcp(&self, address: &str) -> Result<Line, Any> {
        Ok(Box::new(self.tcp.clone().oneshot(address.parse()?).await?.into_inner()))
    }

    /// A connection through a proxy, which sees nothing but the host's name.
    async fn tunnel(&self, tls: &TlsConnector, proxy: &Intercept) -> Result<Line, Any> {
        let at = Url::parse(&proxy.uri().to_string())?;
        let mut line = match at.scheme() {
            "http" => self.tcp(at.as_str()).await?,
            "https" => secure(tls, &at, self.tcp(at.as_str()).await?).await?,
            other => return Err(format!("a proxy by {other} cannot be used").into()),
        };
        let host = &self.address[Position::BeforeHost..Position::AfterHost];
        let place = format!("{host}:{}", self.address.port_or_known_default().unwrap_or(443));
        let mut head = format!("CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n").into_bytes();
        if let Some(value) = proxy.basic_auth() {
            push(&mut head, "proxy-authorization", value);
        }
        head.extend_from_slice(b"\r\n");
        let (head, behind) = ask(&mut line, &head.into(), &Bytes::new()).await?;
        if head.status.is_success() && behind.is_empty() {
            return Ok(line);
        }
        let proxy = &at[Position::BeforeHost..Position::AfterPort];
        Err(format!("the proxy {proxy} answered {}", head.status).into())
    }
}

async fn secure(tls: &TlsConnector, address: &Url, line: Line) -> Result<Line, Any> {
    let name = match address.host().ok_or("there is no host")? {
        Host::Domain(name) => ServerName::try_from(name.to_owned())?,
        Host::Ipv4(ip) => ServerName::from(std::net::IpAddr::from(ip)),
        Host::Ipv6(ip) => ServerName::from(std::net::IpAddr::from(ip)),
    };
    Ok(Box::new(tls.connect(name, line).await?))
}

/// Adds a header to a head.
pub(super) fn push(head: &mut Vec<u8>, name: &str, value: &HeaderValue) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// A connection that broke before there was an answer.
#[derive(Debug)]
pub(super) struct Broken {
    /// Whether nothing at all came. On a connection that was used before, the other side may have
    /// closed it before it saw the question.
    pub is_silent: bool,
    why: Any,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.why.fmt(f)
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.why.source()
    }
}

/// Asks, and waits for the head of the answer. What came behind it is given with it.
pub(super) async fn ask(
    line: &mut Line,
    head: &Bytes,
    body: &Bytes,
) -> Result<(Head, Vec<u8>), Broken> {
    let unsent = head.clone().chain(body.clone());
    let got = Vec::new();
    let mut asking = Asking { line, unsent, is_flushed: false, unwritten: None, got, head: None };
    let asked = poll_fn(|cx| asking.poll(cx)).await;
    let is_silent = asking.got.is_empty();
    let (length, mut head) = asked.map_err(|why| Broken { is_silent, why })?;
    // What was not read of the question would be taken for the next one.
    head.is_kept &= asking.is_flushed;
    Ok((head, asking.got.split_off(length)))
}

struct Asking<'a> {
    line: &'a mut Line,
    unsent: bytes::buf::Chain<Bytes, Bytes>,
    is_flushed: bool,
    /// Why it could not be written whole. Whoever refuses a question may say so before he hangs up.
    unwritten: Option<io::Error>,
    got: Vec<u8>,
    /// The head of the answer, and how long it is, while the rest of the question is sent.
    head: Option<(usize, Head)>,
}

impl Asking<'_> {
    /// Writes and reads, whatever can be done: an answer may come before the question is sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(usize, Head), Any>> {
        loop {
            let written = match self.unwritten {
                None => self.write(cx),
                Some(_) => Poll::Ready(Ok(())),
            };
            if let Poll::Ready(Err(error)) = written {
                self.unwritten = Some(error);
            } else if written.is_pending() && self.head.is_some() {
                return Poll::Pending;
            }
            if let Some(head) = self.head.take() {
                return Poll::Ready(Ok(head));
            }
            ready!(self.read(cx))?;
            while let Some((length, head)) = Head::parse(&self.got)? {
                match head.status.as_u16() {
                    101 => return Poll::Ready(Err("it changed the protocol".into())),
                    100..=199 => drop(self.got.drain(..length)),
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

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Any>> {
        let mut space = [MaybeUninit::uninit(); PIECE];
        let mut piece = ReadBuf::uninit(&mut space);
        let read = ready!(Pin::new(&mut *self.line).poll_read(cx, &mut piece));
        if read.is_ok() && !piece.filled().is_empty() {
            self.got.extend_from_slice(piece.filled());
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(match self.unwritten.take().or(read.err()) {
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
