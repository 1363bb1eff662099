//! A TCP proxy that behaves like a bad network: it cuts connections at any byte, forwards tiny pieces, delays
//! them, or stalls.

use crate::{one_in, pick};
use fastrand::Rng;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A proxy for one server. It stops when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    /// Its listening address.
    pub address: SocketAddr,
    cuts: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy. The seed determines what it does to its n-th connection.
    pub async fn start(to: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let cuts = Arc::new(AtomicU64::new(0));
        let counted = cuts.clone();
        let task = tokio::spawn(async move {
            let mut rng = Rng::with_seed(seed);
            while let Ok((client, _)) = listener.accept().await {
                let (plan, cuts) = (ConnectionPlan::random(&mut rng), counted.clone());
                tokio::spawn(async move {
                    if !matches!(plan.run(client, to).await, Ok(Ended::ByItself)) {
                        cuts.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Ok(Self { address, cuts, task })
    }

    /// Number of connections that it cut or that failed.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    ByItself,
    Cut,
}

/// What the proxy does to one connection.
#[derive(Debug, Clone, Copy)]
struct ConnectionPlan {
    up: DirectionPlan,
    down: DirectionPlan,
    /// Time without traffic before the cut.
    stall: Duration,
    /// Whether the cut is a reset, which discards data in flight.
    resets: bool,
}

/// What the proxy does to the bytes of one direction.
#[derive(Debug, Clone, Copy)]
struct DirectionPlan {
    /// Bytes until the cut.
    bytes: usize,
    /// Bytes per piece.
    piece: usize,
    /// Delay of every 16th piece.
    delay: Duration,
}

impl ConnectionPlan {
    fn random(rng: &mut Rng) -> Self {
        let piece = *pick(rng, &[1, 7, 100, 1500, 1 << 16]);
        // Tiny pieces are slow, so there are fewer bytes.
        let most = if piece < 10 { 11 } else { 17 };
        let bytes = if one_in(rng, 10) && piece > 10 { usize::MAX } else { 1 << rng.u32(4..most) };
        let bytes = rng.usize(bytes / 8..=bytes);
        let delay = Duration::from_micros(*pick(rng, &[0, 0, 100, 2000]));
        let up = if one_in(rng, 8) { rng.usize(..400) } else { usize::MAX };
        let stall = if one_in(rng, 8) { rng.u64(..300) } else { 0 };
        Self {
            up: DirectionPlan { bytes: up, piece, delay: Duration::ZERO },
            down: DirectionPlan { bytes, piece, delay },
            stall: Duration::from_millis(stall),
            resets: rng.bool(),
        }
    }

    async fn run(self, mut client: TcpStream, to: SocketAddr) -> io::Result<Ended> {
        let mut server = TcpStream::connect(to).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ended = {
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            tokio::select! {
                ended = self.up.forward(&mut from_client, &mut to_server) => match ended? {
                    // The client has sent everything and may still wait for the response.
                    Ended::ByItself => self.down.forward(&mut from_server, &mut to_client).await?,
                    Ended::Cut => Ended::Cut,
                },
                ended = self.down.forward(&mut from_server, &mut to_client) => ended?,
            }
        };
        if ended == Ended::Cut {
            sleep(self.stall).await;
            if self.resets {
                client.set_zero_linger()?;
                server.set_zero_linger()?;
            }
        }
        Ok(ended)
    }
}

impl DirectionPlan {
    async fn forward(
        self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<Ended> {
        let mut buffer = vec![0; self.piece];
        let mut left = self.bytes;
        let mut pieces = 0_u32;
        loop {
            let room = self.piece.min(left);
            let Some(room) = buffer.get_mut(..room).filter(|room| !room.is_empty()) else {
                return Ok(Ended::Cut);
            };
            let count = from.read(room).await?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                to.shutdown().await?;
                return Ok(Ended::ByItself);
            };
            to.write_all(bytes).await?;
            left -= count;
            pieces += 1;
            if !self.delay.is_zero() && pieces.is_multiple_of(16) {
                sleep(self.delay).await;
            }
        }
    }
}
