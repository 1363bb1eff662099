//! Listens, serves connections, and stops without losing anything.

mod connection;
mod http2_frames;
mod io;
mod tls;

pub(crate) use connection::{ActiveRequest, ClientConnection, Signal, TrackedBody};

use crate::guard::Guard;
use crate::{App, StartError};
use connection::{Connections, Registration};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use io::{MeteredIo, Protocol};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How many connections the system queues until they are accepted.
const ACCEPT_BACKLOG: u32 = 4096;
/// How long unfinished responses have to send their error.
const FINAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How many requests one HTTP/2 connection may have open.
const MAX_STREAMS: u32 = 200;
/// How many body bytes an HTTP/2 client may send before they are read.
const WINDOW_BYTES: u32 = 256 * 1024;

/// A listener that is ready to serve.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Server {
    /// Binds the address. Connections queue from now on; [`run`](Self::run) serves them.
    pub fn bind(app: Arc<App>) -> Result<Self, StartError> {
        let address = app.config.listen.0;
        check_address_allowed(&app, address)?;
        let tls = app.config.tls.as_ref().map(tls::acceptor).transpose()?;
        let listener = listen(address).map_err(|error| StartError::bind(address, &error))?;
        let address = listener.local_addr().map_err(|error| StartError::bind(address, &error))?;
        app.config.set_bound(address);
        Ok(Self { app, listener, address, tls })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for a browser on this machine.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The URL for a client on this machine: the one that the certificate is for, or an address that can be reached.
    pub fn local_url(&self) -> String {
        let public = self.app.config.public_url.as_ref().filter(|_| self.tls.is_some());
        if let Some(url) = public {
            return url.0.as_str().trim_end_matches('/').to_owned();
        }
        let mut reached = self.address;
        match reached.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => reached.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => reached.set_ip(Ipv6Addr::LOCALHOST.into()),
            IpAddr::V4(_) | IpAddr::V6(_) => {}
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{reached}")
    }

    /// Serves until `stop`, then finishes open requests, for at most `limits.stop_timeout`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let all = Arc::new(Connections::new(Arc::clone(&self.app)));
        let shared = Arc::new(ServerContext {
            guard: Guard::new(Arc::clone(&self.app), self.address),
            http1: http1(&self.app),
            http2: http2(&self.app),
            tls: self.tls,
        });
        let looking = tokio::spawn(check_deadlines(Arc::clone(&all)));
        let chores = tokio::spawn(Arc::clone(&self.app).run_maintenance());
        let node = self.app.cluster.clone();
        let node_work = node.clone().map(|node| tokio::spawn(node.run(Arc::clone(&self.app))));
        if let Err(error) = self.app.turns.recover().await {
            // A session that is opened later is recovered then.
            tracing::error!(%error, "recovering open replies failed");
        }
        {
            let mut stop = pin!(stop);
            loop {
                tokio::select! {
                    () = &mut stop => break,
                    accepted = self.listener.accept() => match accepted {
                        Ok((stream, peer)) => accept(&shared, &all, stream, peer),
                        Err(error) => pause_after_accept_error(&error).await,
                    },
                }
            }
        }
        drop(self.listener);
        // First: a client that sees that the server stops sends no more requests.
        all.signal_all(Signal::Stop);
        self.app.shutdown.cancel();
        let limit = self.app.config.limits.stop_timeout.0;
        tracing::info!(connections = all.count(), "stopping; new connections are refused");
        if timeout(limit, all.wait_all_closed()).await.is_err() {
            tracing::warn!(
                connections = all.count(),
                "ending requests that did not finish in time"
            );
            self.app.force_stop.cancel();
            if timeout(FINAL_TIMEOUT, all.wait_all_closed()).await.is_err() {
                all.signal_all(Signal::Kill);
                let _ = timeout(FINAL_TIMEOUT, all.wait_all_closed()).await;
            }
        }
        self.app.force_stop.cancel();
        looking.abort();
        self.app.turns.shutdown().await;
        self.app.tasks.close();
        self.app.tasks.wait().await;
        // It ends with the token that was cancelled above.
        let _ = chores.await;
        if let (Some(node), Some(work)) = (node, node_work) {
            node.leave().await;
            // Its listener closes last: other nodes of this machine take a closed one for a process that has ended.
            work.abort();
        }
    }
}

/// Checks that it is safe to listen on an address.
fn check_address_allowed(app: &App, address: SocketAddr) -> Result<(), StartError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if app.auth.is_open() {
        return Err(StartError::new(format!(
            "{address} is reachable from other machines, and no credentials are configured: anybody could read and write everything"
        ))
        .hint("create a token with `turnwire token new` and add it to turnwire.toml, or listen on 127.0.0.1"));
    }
    if app.config.tls.is_none() && !app.config.behind_proxy {
        return Err(StartError::new(format!(
            "{address} is reachable from other machines, and without TLS tokens are sent in plain text"
        ))
        .hint("set --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS"));
    }
    Ok(())
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart need not wait for connections that the system still remembers. On Windows this
    // option would let another process listen on the same port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG)
}

/// What all connections share.
struct ServerContext {
    guard: Guard,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
}

fn http1(app: &App) -> http1::Builder {
    let limits = &app.config.limits;
    let headers = limits.headers.bytes();
    let mut builder = http1::Builder::new();
    builder
        // Deadlines are kept in `connection`.
        .header_read_timeout(None)
        .max_header_size(headers)
        // A head that does not fit ends the connection before it uses more memory.
        .max_buf_size(headers.max(64 * 1024))
        .half_close(false);
    builder
}

fn http2(app: &App) -> http2::Builder<TokioExecutor> {
    let limits = &app.config.limits;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.headers.0).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        // How many unread body bytes a connection may hold, over all its streams.
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .max_send_buf_size(64 * 1024)
        .keep_alive_interval(limits.heartbeat.0)
        .keep_alive_timeout(limits.write_stall.0);
    builder
}

async fn check_deadlines(all: Arc<Connections>) {
    let mut tick = tokio::time::interval(all.tick());
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        all.close_late();
    }
}

/// The system gave no connection, perhaps because no file descriptors are left. Some may be closed
/// soon.
async fn pause_after_accept_error(error: &std::io::Error) {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset) {
        tracing::error!(%error, "cannot accept connections; will retry");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn accept(
    shared: &Arc<ServerContext>,
    all: &Arc<Connections>,
    stream: TcpStream,
    peer: SocketAddr,
) {
    const FULL: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\n\
        content-type: application/json\r\ncontent-length: 66\r\n\r\n\
        {\"error\":{\"type\":\"unavailable\",\"message\":\"too many connections\"}}\n";
    let Some((registered, conn)) = all.open(peer) else {
        if shared.tls.is_none() {
            let _ = stream.try_write(FULL);
        }
        return;
    };
    let _ = stream.set_nodelay(true);
    let shared = Arc::clone(shared);
    match shared.tls.clone() {
        None => {
            tokio::spawn(serve_http1(shared, registered, conn, stream));
        }
        Some(tls) => {
            tokio::spawn(async move {
                let limit = shared.guard.app.config.limits.headers_timeout.0;
                let Ok(Ok(stream)) = timeout(limit, tls.accept(stream)).await else {
                    return;
                };
                if stream.get_ref().1.alpn_protocol() == Some(tls::H2) {
                    serve_http2(shared, registered, conn, stream).await;
                } else {
                    serve_http1(shared, registered, conn, stream).await;
                }
            });
        }
    }
}

async fn serve_http1<S>(
    shared: Arc<ServerContext>,
    registered: Registration,
    conn: Arc<ClientConnection>,
    stream: S,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = MeteredIo::new(stream, Arc::clone(&conn), &shared.guard.app, Protocol::Http1);
    let service = service_fn(|request: Request<Incoming>| serve_request(&shared, &conn, request));
    let connection = shared.http1.serve_connection(TokioIo::new(io), service).with_upgrades();
    let mut connection = pin!(connection);
    run_connection(&conn, connection.as_mut(), http1::UpgradeableConnection::graceful_shutdown)
        .await;
    drop(registered);
}

async fn serve_http2<S>(
    shared: Arc<ServerContext>,
    registered: Registration,
    conn: Arc<ClientConnection>,
    stream: S,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let io = MeteredIo::new(stream, Arc::clone(&conn), &shared.guard.app, Protocol::Http2);
    // Each stream is a task of its own and owns what it uses.
    let service = {
        let (shared, conn) = (Arc::clone(&shared), Arc::clone(&conn));
        service_fn(move |request: Request<Incoming>| {
            let (shared, conn) = (Arc::clone(&shared), Arc::clone(&conn));
            async move { Ok::<_, Infallible>(shared.guard.serve(&conn, request).await) }
        })
    };
    let mut connection = pin!(shared.http2.serve_connection(TokioIo::new(io), service));
    run_connection(&conn, connection.as_mut(), http2::Connection::graceful_shutdown).await;
    drop(registered);
}

async fn serve_request(
    shared: &ServerContext,
    conn: &Arc<ClientConnection>,
    request: Request<Incoming>,
) -> Result<http::Response<TrackedBody>, Infallible> {
    Ok(shared.guard.serve(conn, request).await)
}

/// Serves a connection until it ends or is told to.
async fn run_connection<C>(
    conn: &ClientConnection,
    mut connection: Pin<&mut C>,
    stop: impl Fn(Pin<&mut C>),
) where
    C: Future<Output = hyper::Result<()>>,
{
    let mut stopping = false;
    poll_fn(|cx| {
        conn.listen_for_signals(cx.waker());
        match conn.signal() {
            Signal::None => {}
            Signal::Stop if stopping => {}
            Signal::Stop => {
                stopping = true;
                stop(connection.as_mut());
            }
            Signal::Kill => return Poll::Ready(()),
        }
        connection.as_mut().poll(cx).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        })
    })
    .await;
}
