//! A real Postgres for tests: in a folder and on a port of its own, run by an ordinary user.
//!
//! The server ends with the process that started it, however that ends, and its folder is removed.

use crate::skip::skip;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The user of the database, who may do everything.
const USER: &str = "turnwire";

/// How long a server may take to start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs the program that its arguments name until standard input ends, which is when the process that
/// started it ends, and removes the folder. `$1` prepares the folder.
const SCRIPT: &str = r#"
folder=$1 prepare=$2; shift 2
mkdir -p "$folder" && cd "$folder" || exit 1
trap : INT TERM
eval "$prepare" >prepare.log 2>&1 || { cat prepare.log >&2; rm -rf "$folder"; exit 1; }
exec >server.log 2>&1
"$@" </dev/null &
server=$!
cat
kill -QUIT $server; kill -TERM $server; wait $server
cd / && rm -rf "$folder"
"#;

/// A running server.
#[derive(Debug)]
pub struct PostgresServer {
    folder: String,
    port: u16,
    bouncer_port: Option<u16>,
    /// Each ends when its standard input is closed, so they are only kept.
    children: Vec<Child>,
    databases: AtomicU32,
}

impl PostgresServer {
    /// Starts a server with settings such as `fsync=on`. `None`, and a skip of `what`, where Postgres
    /// is not installed.
    pub fn start(what: &str, settings: &[&str]) -> Option<Self> {
        let Some(programs) = server_programs() else {
            skip(what, "Postgres is not installed (Debian package postgresql)");
            return None;
        };
        Self::start_prepared(what, &programs, &init(&programs), free_port(), settings)
    }

    /// Starts a server with TLS. Certificate and key are PEM.
    pub fn start_with_tls(what: &str, certificate: &str, key: &str) -> Option<Self> {
        let programs = server_programs().or_else(|| {
            skip(what, "Postgres is not installed (Debian package postgresql)");
            None
        })?;
        let prepare = format!(
            "{}; printf '%s' '{certificate}' > data/server.crt; umask 077; printf '%s' '{key}' > data/server.key",
            init(&programs)
        );
        Self::start_prepared(what, &programs, &prepare, free_port(), &["ssl=on"])
    }

    /// Starts a standby on a port that is free, and waits until this server acknowledges no commit that the standby
    /// does not have.
    pub fn start_standby(&self, what: &str, port: u16) -> Option<Self> {
        let programs = server_programs()?;
        let prepare = format!(
            "'{}' -D data -R -X stream -c fast --no-sync -h 127.0.0.1 -p {} -U {USER}",
            programs.join("pg_basebackup").display(),
            self.port
        );
        let standby = Self::start_prepared(what, &programs, &prepare, port, &[])?;
        self.run("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.run("postgres", "SELECT pg_reload_conf()");
        let state = "SELECT sync_state FROM pg_stat_replication";
        wait_until(&standby.folder, || self.run("postgres", state) == "sync");
        Some(standby)
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    ///
    /// If it does not become one.
    pub fn promote(&self) {
        assert_eq!(self.run("postgres", "SELECT pg_promote()"), "t", "it is not promoted");
    }

    /// SIGKILL.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn kill(&self) {
        let file = Path::new(&self.folder).join("data/postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let pid = text.lines().next().unwrap_or_default();
        let killed = Command::new("kill").args(["-KILL", pid]).status();
        assert!(killed.is_ok_and(|status| status.success()), "{} has {pid:?}", file.display());
        // Its other processes notice.
        wait_until(&self.folder, || TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).is_ok());
    }

    fn start_prepared(
        what: &str,
        programs: &Path,
        prepare: &str,
        port: u16,
        settings: &[&str],
    ) -> Option<Self> {
        let folder = new_folder("server");
        let mut server = vec![programs.join("postgres").display().to_string()];
        server.extend(["-D".to_owned(), "data".to_owned(), "-k".to_owned(), folder.clone()]);
        // Without syncs, because no test cuts the power.
        let defaults = [
            "fsync=off",
            "full_page_writes=off",
            "max_connections=200",
            "listen_addresses=127.0.0.1",
        ];
        for setting in defaults.iter().chain(settings) {
            server.extend(["-c".to_owned(), (*setting).to_owned()]);
        }
        server.extend(["-p".to_owned(), port.to_string()]);
        let children = vec![start(what, &folder, prepare, &server)?];
        let databases = AtomicU32::new(0);
        let server = Self { folder, port, bouncer_port: None, children, databases };
        wait_until(&server.folder, || {
            server.psql("postgres", "SELECT 1").is_ok_and(|out| out.status.success())
        });
        Some(server)
    }

    /// The same behind pgbouncer in transaction mode: the URLs lead to pgbouncer.
    pub fn start_with_pgbouncer(what: &str) -> Option<Self> {
        let Some(pgbouncer) = find_program("pgbouncer", &[PathBuf::from("/usr/sbin")]) else {
            skip(what, "pgbouncer is not installed (Debian package pgbouncer)");
            return None;
        };
        let mut server = Self::start(what, &[])?;
        let (folder, port) = (new_folder("pgbouncer"), free_port());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = users.txt\npool_mode = transaction\n\
             default_pool_size = 8\nmax_client_conn = 500\nserver_idle_timeout = 5\n",
            server.port
        );
        let prepare = format!(
            "printf '%s' '{settings}' > pgbouncer.ini; printf '\"{USER}\" \"\"\\n' > users.txt"
        );
        let command = [pgbouncer.display().to_string(), "pgbouncer.ini".to_owned()];
        server.children.push(start(what, &folder, &prepare, &command)?);
        wait_until(&folder, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        server.bouncer_port = Some(port);
        Some(server)
    }

    /// Creates an empty database, and returns its name.
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Removes a database, also if someone uses it.
    pub fn drop_database(&self, name: &str) {
        self.run("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        self.url_for(USER, database)
    }

    /// The URL of a database for another user.
    pub fn url_for(&self, user: &str, database: &str) -> String {
        let port = self.url_port();
        format!("postgres://{user}@127.0.0.1:{port}/{database}")
    }

    /// The port that the URLs name: that of pgbouncer, if there is one.
    pub fn url_port(&self) -> u16 {
        self.bouncer_port.unwrap_or(self.port)
    }

    /// The port of the server itself.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs statements, and returns what psql prints: one row per line.
    ///
    /// # Panics
    ///
    /// If one fails.
    pub fn run(&self, database: &str, sql: &str) -> String {
        let out = self.psql(database, sql);
        let out = out.unwrap_or_else(|error| unreachable_program("psql", &error));
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{sql}: {errors}");
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> io::Result<Output> {
        let options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql];
        self.program("psql").args(options).stdin(Stdio::null()).output()
    }

    /// A program of Postgres, such as `pg_dump`, that connects to this server.
    pub fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", USER]);
        command
    }

    /// The commits per second of `pgbench`: one-row INSERTs of so many random letters.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn pgbench(&self, clients: usize, letters: usize, seconds: u32) -> f64 {
        let database = self.create_database();
        let table = "CREATE TABLE events (no bigserial PRIMARY KEY, session int8, bytes bytea)";
        self.run(&database, table);
        let value: String = (0..letters).map(|_| fastrand::alphanumeric()).collect();
        let script = format!("INSERT INTO events (session, bytes) VALUES (1, '{value}');\n");
        let mut pgbench = self
            .program("pgbench")
            .args(["-n", "-j", "2", "-c", &clients.to_string(), "-T", &seconds.to_string()])
            .args(["-f", "-", &database])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| unreachable_program("pgbench", &error));
        let written = pgbench.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
        let out = pgbench.wait_with_output();
        let out = out.unwrap_or_else(|error| unreachable_program("pgbench", &error));
        let text = String::from_utf8_lossy(&out.stdout);
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = rate.and_then(|rate| rate.split(' ').next()?.parse().ok());
        self.drop_database(&database);
        assert!(written.is_some_and(|written| written.is_ok()) && rate.is_some(), "{text}");
        rate.unwrap_or_default()
    }

    /// The processor time that the processes of the server have used since its start (Linux).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn processor_time(&self) -> Duration {
        let file = Path::new(&self.folder).join("data/postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let ticks: u64 = processes
            .filter_map(|process| {
                let pid = process.file_name().into_string().ok()?;
                let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
                // The name of the program may have spaces.
                let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
                let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
                let own = number(11)? + number(12)?;
                if pid == first {
                    // And that of processes which have ended.
                    Some(own + number(13)? + number(14)?)
                } else {
                    (fields.get(1) == Some(&first)).then_some(own)
                }
            })
            .sum();
        assert!(ticks > 0, "{} has {first:?}, and its time is unknown", file.display());
        // Linux counts in hundredths of a second for programs, whatever its own clock is.
        Duration::from_millis(ticks * 10)
    }

    /// How many statements the clients of a database send in this time.
    pub fn count_statements(&self, database: &str, time: Duration) -> usize {
        let set = |what: &str| {
            self.run("postgres", &format!("ALTER SYSTEM {what}"));
            self.run("postgres", "SELECT pg_reload_conf()");
        };
        set("SET log_line_prefix = '%d '");
        set("SET log_statement = 'all'");
        // The processes of the server read their settings when their next statement arrives.
        std::thread::sleep(Duration::from_secs(1));
        let count = || {
            let log = std::fs::read_to_string(Path::new(&self.folder).join("server.log"));
            let kinds = ["statement", "execute"].map(|kind| format!("{database} LOG:  {kind}"));
            let log = log.unwrap_or_default();
            log.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind))).count()
        };
        let before = count();
        std::thread::sleep(time);
        let statements = count() - before;
        set("RESET log_statement");
        set("RESET log_line_prefix");
        statements
    }
}

#[expect(clippy::panic, reason = "a test that cannot go on has failed")]
fn unreachable_program(name: &str, error: &io::Error) -> ! {
    panic!("{name} cannot be run: {error}")
}

/// The command that makes the folder of a server.
fn init(programs: &Path) -> String {
    format!(
        "'{}' --no-sync --auth=trust --username={USER} --encoding=UTF8 --locale=C -D data",
        programs.join("initdb").display()
    )
}

/// Starts the script as an ordinary user: the server refuses to run as root.
fn start(what: &str, folder: &str, prepare: &str, command: &[String]) -> Option<Child> {
    let mut script = if is_root() {
        let user = ["postgres", "nobody"].into_iter().find(|user| has_user(user));
        let Some(user) = user else {
            skip(what, "this is root, and there is no other user to run Postgres");
            return None;
        };
        let mut script = Command::new("runuser");
        script.args(["-u", user, "--", "sh"]);
        script
    } else {
        Command::new("sh")
    };
    script.args(["-c", SCRIPT, "sh", folder, prepare]).args(command).current_dir("/");
    let child = script.stdin(Stdio::piped()).spawn();
    Some(child.unwrap_or_else(|error| unreachable_program("sh", &error)))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0\n"))
}

fn has_user(name: &str) -> bool {
    let id = Command::new("id").arg(name).stdout(Stdio::null()).stderr(Stdio::null()).status();
    id.is_ok_and(|status| status.success())
}

fn new_folder(kind: &str) -> String {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), FOLDERS.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(format!("turnwire-{kind}-{process}-{number}")).display().to_string()
}

/// A free port that the system gives to no outgoing connection meanwhile.
pub fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(20_000..32_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

fn wait_until(folder: &str, is_ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_ready() {
        let log = || std::fs::read_to_string(Path::new(folder).join("server.log"));
        assert!(start.elapsed() < START_TIMEOUT, "the server does not start: {:?}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The folder with `postgres` and `initdb`; of several versions the latest.
fn server_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    let number = |folder: &PathBuf| {
        let version = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        version.and_then(|version| version.parse::<u32>().ok())
    };
    folders.sort_by_key(|folder| std::cmp::Reverse(number(folder)));
    find_program("initdb", &folders)?.parent().map(Path::to_owned)
}

fn find_program(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&path).collect::<Vec<_>>();
    let folders = folders.iter().chain(&path);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
