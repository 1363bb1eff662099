//! Connections to a provider: opening one, also through a proxy, and sending a request over it.
//!
//! The task that awaits the response polls the connection itself. `docs/benchmarks.md` has the measurement
//! against `hyper::client::conn::http1`, which costs more instructions per token and more memory per reply.

use crate::http_client;
use crate::http1::{self, ResponseHead};
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue};
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

/// The interval of TCP keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How many bytes are read at once.
pub(super) const READ_SIZE: usize = 8 << 10;

/// An open connection.
pub(super) type Connection = Box<dyn Transport>;

/// What a connection must implement.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

type BoxError = Box<dyn Error + Send + Sync>;

/// Opens connections to one address.
pub(super) struct Connector {
    address: Url,
    tcp: HttpConnector,
    /// `None` for plain http.
    tls: Option<TlsConnector>,
    proxy: Option<Intercept>,
}

impl Connector {
    /// Prepares connections to an address; opens none.
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

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection, BoxError> {
        let Some(tls) = &self.tls else { return self.tcp(self.address.as_str()).await };
        let connection = match &self.proxy {
            Some(proxy) => self.tunnel(tls, proxy).await?,
            None => self.tcp(self.address.as_str()).await?,
        };
        start_tls(tls, &self.address, connection).await
    }

    async fn tcp(&self, address: &str) -> Result<Connection, BoxError> {
        Ok(Box::new(self.tcp.clone().oneshot(address.parse()?).await?.into_inner()))
    }

    /// Opens a connection through a proxy, which sees only the name of the host.
    async fn tunnel(&self, tls: &TlsConnector, proxy: &Intercept) -> Result<Connection, BoxError> {
        let at = Url::parse(&proxy.uri().to_string())?;
        let mut connection = match at.scheme() {
            "http" => self.tcp(at.as_str()).await?,
            "https" => start_tls(tls, &at, self.tcp(at.as_str()).await?).await?,
            other => return Err(format!("a proxy with the scheme {other} is not supported").into()),
        };
        let host = &self.address[Position::BeforeHost..Position::AfterHost];
        let target = format!("{host}:{}", self.address.port_or_known_default().unwrap_or(443));
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n").into_bytes();
        if let Some(value) = proxy.basic_auth() {
            push_header(&mut head, "proxy-authorization", value);
        }
        head.extend_from_slice(b"\r\n");
        let reply = send_request(&mut connection, &head.into(), &Bytes::new()).await?;
        if reply.head.status.is_success() && reply.after.is_empty() {
            return Ok(connection);
        }
        let proxy = &at[Position::BeforeHost..Position::AfterPort];
        Err(format!("the proxy {proxy} answered {}", reply.head.status).into())
    }
}

async fn start_tls(
    tls: &TlsConnector,
    address: &Url,
    connection: Connection,
) -> Result<Connection, BoxError> {
    let name = match address.host().ok_or("the address has no host")? {
        Host::Domain(name) => ServerName::try_from(name.to_owned())?,
        Host::Ipv4(ip) => ServerName::from(std::net::IpAddr::from(ip)),
        Host::Ipv6(ip) => ServerName::from(std::net::IpAddr::from(ip)),
    };
    Ok(Box::new(tls.connect(name, connection).await?))
}

/// Appends a header to the head of a request.
pub(super) fn push_header(head: &mut Vec<u8>, name: &str, value: &HeaderValue) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// A connection broke before the response.
#[derive(Debug)]
pub(super) struct ExchangeError {
    /// Whether no byte arrived. On a reused connection the provider may have closed it before it saw the
    /// request.
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

/// The beginning of a response.
pub(super) struct ResponseStart {
    pub head: ResponseHead,
    pub headers: HeaderMap,
    /// The bytes after the head that arrived with it.
    pub after: Vec<u8>,
}

/// Sends a request, and waits for the head of the response.
pub(super) async fn send_request(
    connection: &mut Connection,
    head: &Bytes,
    body: &Bytes,
) -> Result<ResponseStart, ExchangeError> {
    let unsent = head.clone().chain(body.clone());
    let received = Vec::new();
    let mut exchange =
        Exchange { connection, unsent, is_flushed: false, write_error: None, received, head: None };
    let head = poll_fn(|cx| exchange.poll(cx)).await;
    let has_no_response = exchange.received.is_empty();
    let mut head = head.map_err(|why| ExchangeError { has_no_response, why })?;
    // An unsent rest of this request would be read as the next request.
    head.is_reusable &= exchange.is_flushed;
    let after = exchange.received.split_off(head.length);
    Ok(ResponseStart { head, headers: http1::headers(&exchange.received), after })
}

struct Exchange<'a> {
    connection: &'a mut Connection,
    unsent: bytes::buf::Chain<Bytes, Bytes>,
    is_flushed: bool,
    /// Why the request could not be written. A provider that rejects a request may respond before it closes.
    write_error: Option<io::Error>,
    received: Vec<u8>,
    /// The head of the response, while the rest of the request is sent.
    head: Option<ResponseHead>,
}

impl Exchange<'_> {
    /// Writes and reads at the same time: a response may start before the request is sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, BoxError>> {
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
            while let Some(head) = ResponseHead::parse(&self.received)? {
                match head.status.as_u16() {
                    101 => return Poll::Ready(Err("it switched the protocol".into())),
                    100..=199 => drop(self.received.drain(..head.length)),
                    // A provider that starts to respond may still read the rest of the request.
                    200..=299 => {
                        self.head = Some(head);
                        break;
                    }
                    _ => return Poll::Ready(Ok(head)),
                }
            }
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut buffer = ReadBuf::uninit(&mut space);
        let read = ready!(Pin::new(&mut *self.connection).poll_read(cx, &mut buffer));
        if read.is_ok() && !buffer.filled().is_empty() {
            self.received.extend_from_slice(buffer.filled());
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(match self.write_error.take().or(read.err()) {
            Some(error) => error.into(),
            None => "it closed the connection".into(),
        }))
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unsent.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = self.unsent.chunks_vectored(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let written = ready!(Pin::new(&mut *self.connection).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(written);
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut *self.connection).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}
