//! A real server on a free port.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use turnwire_agent::Replier;
use turnwire_log::{Log, Store};
use turnwire_server::config::Config;
use turnwire_server::{App, Server};

/// No wait in these tests takes so long.
pub const PATIENCE: Duration = Duration::from_mins(3);

pub struct Running {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a server over a store, with agents.
    pub fn start(
        store: Arc<dyn Store>,
        settings: &str,
        agents: impl IntoIterator<Item = (&'static str, Arc<dyn Replier>)>,
    ) -> (Self, Arc<App>) {
        let settings = format!("listen = \"127.0.0.1:0\"\n{settings}");
        let config = Config::parse("test", &settings).unwrap();
        let agents: BTreeMap<String, Arc<dyn Replier>> =
            agents.into_iter().map(|(name, agent)| (name.to_owned(), agent)).collect();
        let app = App::new(config, Arc::new(Log::new(store, "test")), agents).unwrap();
        let server = Server::bind(app.clone()).unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        (Self { address, stop, task }, app)
    }

    /// Stops it, and waits until it has stopped.
    pub async fn stop(self) {
        drop(self.stop);
        within(self.task).await.unwrap();
    }
}

/// Fails a test that would hang.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("this takes too long")
}
