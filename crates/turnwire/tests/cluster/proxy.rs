//! A TCP proxy that a test can cut, stall and heal: between a node and the database, or between clients and a node.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// What the proxy does with all its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Open,
    /// Connections stay, and no byte comes through.
    Stalled,
    /// Connections break, and so does each new one.
    Cut,
}

/// A proxy. Its threads end with the process.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    link: Link,
    /// `None`: nobody is there.
    target: Option<SocketAddr>,
    /// Both ends of each connection since the last cut.
    open: Vec<TcpStream>,
}

impl Proxy {
    pub fn start(target: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { link: Link::Open, target, open: Vec::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let serving = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let shared = serving.clone();
                // Without a thread for it the connection breaks, as by a cut.
                let _ = thread::Builder::new().spawn(move || forward(&shared, client.ok()?));
            }
        });
        Self { address, shared }
    }

    /// Leads new connections elsewhere.
    pub fn set_target(&self, target: Option<SocketAddr>) {
        self.shared.lock().target = target;
    }

    pub fn set(&self, link: Link) {
        let mut state = self.shared.lock();
        state.link = link;
        if link == Link::Cut {
            for end in state.open.drain(..) {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
    }

    /// Breaks the connections that there are; new ones work.
    pub fn break_connections(&self) {
        self.set(Link::Cut);
        self.set(Link::Open);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits while the link is stalled. Returns whether bytes may go through.
    fn wait(&self) -> bool {
        let state = self.lock();
        let state = self.changed.wait_while(state, |state| state.link == Link::Stalled).unwrap();
        state.link == Link::Open
    }
}

fn forward(shared: &Arc<Shared>, client: TcpStream) -> Option<()> {
    let target = shared.wait().then(|| shared.lock().target)??;
    let server = TcpStream::connect(target).ok()?;
    let ends = [client, server];
    for end in &ends {
        end.set_nodelay(true).ok()?;
    }
    {
        let mut state = shared.lock();
        if state.link == Link::Cut {
            return None;
        }
        state.open.retain(|end| end.peer_addr().is_ok());
        for end in &ends {
            state.open.push(end.try_clone().ok()?);
        }
    }
    let [client, server] = &ends;
    thread::scope(|scope| {
        scope.spawn(|| pump(shared, client, server));
        pump(shared, server, client);
    });
    Some(())
}

/// Forwards one direction until either end closes.
fn pump(shared: &Shared, mut from: &TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !shared.wait() || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // HTTP and Postgres have no use for a connection that is half closed.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
