//! One server for all tests, and a database for each.

use std::sync::LazyLock;
use turnwire_testkit::postgres::PostgresServer;

static SERVER: LazyLock<Option<PostgresServer>> =
    LazyLock::new(|| PostgresServer::start("the Postgres engine", &[]));

static BEHIND_PGBOUNCER: LazyLock<Option<PostgresServer>> =
    LazyLock::new(|| PostgresServer::start_with_pgbouncer("the Postgres engine behind pgbouncer"));

/// A database of its own, removed with this.
pub struct TestDatabase {
    server: &'static PostgresServer,
    pub name: String,
}

impl TestDatabase {
    /// `None` where Postgres cannot run; then a skip is recorded.
    pub fn new() -> Option<Self> {
        SERVER.as_ref().map(Self::on)
    }

    /// The same behind pgbouncer.
    pub fn behind_pgbouncer() -> Option<Self> {
        BEHIND_PGBOUNCER.as_ref().map(Self::on)
    }

    fn on(server: &'static PostgresServer) -> Self {
        Self { server, name: server.create_database() }
    }

    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Where the server listens.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    pub fn url_for(&self, user: &str) -> String {
        self.server.url_for(user, &self.name)
    }

    /// Changes a setting of the database for connections that begin later.
    pub fn set(&self, setting: &str) {
        self.server.run("postgres", &format!("ALTER DATABASE {} SET {setting}", self.name));
    }

    /// Runs statements without the engine, and returns their rows.
    pub fn run(&self, sql: &str) -> String {
        self.server.run(&self.name, sql)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server.drop_database(&self.name);
        }
    }
}
