//! A PostgreSQL server that the tests start themselves. If PostgreSQL is missing, they fail instead of being skipped.
//!
//! Its data and its socket are in a temporary folder, and it listens on no port. It ends with the process that started
//! it, however that ends: a shell waits for the end of a pipe that only this process holds. PostgreSQL refuses to run
//! as root, so root runs it as another user.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// The server that the tests of one binary share. It does not sync the disk: its tests kill no server.
static SHARED: LazyLock<Server> = LazyLock::new(|| Server::start("fsync = off\nfull_page_writes = off"));

/// Counts the databases, so that each test has one of its own.
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// The port in the name of a socket, unless another is set.
const SOCKET_PORT: u16 = 5432;

/// A running server.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    /// The port in the name of its socket. A server with TLS also listens on it.
    port: u16,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    /// Stops the server when its input ends.
    watch: Child,
}

/// Returns the address of an empty database on the server that the tests of this binary share.
pub(crate) fn database() -> String {
    SHARED.database("")
}

/// Returns the address of an empty database with these options of `CREATE DATABASE`, such as an encoding.
pub(crate) fn database_with(options: &str) -> String {
    SHARED.database(options)
}

/// Returns the socket of the server that the tests of this binary share.
#[allow(dead_code, reason = "not every binary of tests needs it")]
pub(crate) fn socket() -> PathBuf {
    SHARED.socket()
}

/// Executes SQL in a database of the shared server and returns what it prints.
#[allow(dead_code, reason = "not every binary of tests needs it")]
pub(crate) fn sql(database: &str, sql: &str) -> String {
    SHARED.sql(database, sql)
}

/// Writes a dump of a database of the shared server into a file.
#[allow(dead_code, reason = "not every binary of tests needs it")]
pub(crate) fn dump(database: &str, file: &str) {
    let file = SHARED.folder.path().join(file).display().to_string();
    SHARED.run("pg_dump", &["-h", &SHARED.host(), "-U", "reseed", "-F", "custom", "-f", &file, database]);
}

/// Restores such a dump into a database of the shared server, with these options of `pg_restore`.
#[allow(dead_code, reason = "not every binary of tests needs it")]
pub(crate) fn restore(database: &str, file: &str, options: &[&str]) {
    let file = SHARED.folder.path().join(file).display().to_string();
    let host = SHARED.host();
    SHARED.run("pg_restore", &[&["-h", &host, "-U", "reseed", "-e", "-d", database], options, &[&file]].concat());
}

impl Server {
    /// Returns the folder with its socket, as clients name it.
    fn host(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Starts a server with these lines in its configuration.
    ///
    /// # Panics
    /// If there is no PostgreSQL, or it does not start.
    pub(crate) fn start(configuration: &str) -> Self {
        let server = Self::prepare(SOCKET_PORT);
        server.init(&format!("listen_addresses = ''\n{configuration}"));
        server.control(&["start"]);
        server
    }

    /// Starts a server that also listens on a port of `localhost`, with TLS only. Its certificate and key are in these
    /// files.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn with_tls(certificate: &Path, key: &Path) -> Self {
        let free = std::net::TcpListener::bind("localhost:0").unwrap();
        let server = Self::prepare(free.local_addr().unwrap().port());
        let file = |name: &str| server.folder.path().join(name);
        for (from, name) in [(certificate, "server.pem"), (key, "server.key")] {
            fs::copy(from, file(name)).unwrap();
            fs::set_permissions(file(name), fs::Permissions::from_mode(0o600)).unwrap();
            if let Some((user, group)) = server.user {
                chown(file(name), Some(user), Some(group)).unwrap();
            }
        }
        let [certificate, key] = ["server.pem", "server.key"].map(|name| file(name).display().to_string());
        server.init(&format!(
            "listen_addresses = 'localhost'\nport = {}\nssl = on\nssl_cert_file = '{certificate}'\n\
             ssl_key_file = '{key}'\nfsync = off",
            server.port
        ));
        let rules = "local all all trust\nhostssl all all all trust\n";
        fs::write(Path::new(&server.data()).join("pg_hba.conf"), rules).unwrap();
        drop(free);
        server.control(&["start"]);
        server
    }

    fn init(&self, configuration: &str) {
        let initdb = ["--auth=trust", "--username=reseed", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"];
        self.run("initdb", &[&initdb[..], &[&self.data()]].concat());
        self.configure(&format!(
            "unix_socket_directories = '{}'\nmax_connections = 400\nshared_buffers = 32MB\n{configuration}",
            self.folder.path().display(),
        ));
    }

    /// Starts a standby of this server, which follows it and can be promoted.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn standby(&self) -> Self {
        let standby = Self::prepare(SOCKET_PORT);
        let primary = self.folder.path().display().to_string();
        let copy = ["-h", &primary, "-U", "reseed", "-X", "stream", "-c", "fast", "--no-sync", "-R", "-D"];
        standby.run("pg_basebackup", &[&copy[..], &[&standby.data()]].concat());
        standby.configure(&format!("unix_socket_directories = '{}'", standby.folder.path().display()));
        standby.control(&["start"]);
        standby
    }

    /// Creates the folder of a server, and the process that ends it.
    fn prepare(port: u16) -> Self {
        let bin = binaries();
        let folder = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        let user = other_user();
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let data = folder.path().join("data");
        let quoted = |path: &Path| path.display().to_string();
        let stop = format!(
            "cat >/dev/null; '{bin}/pg_ctl' -D '{data}' -m immediate stop; rm -rf '{folder}'",
            bin = quoted(&bin),
            data = quoted(&data),
            folder = quoted(folder.path()),
        );
        let mut watch = command(Path::new("/bin/sh"), user, folder.path());
        watch.args(["-c", &stop]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A signal that ends the tests, such as Ctrl-C, must not end the shell before it has stopped the server.
        watch.process_group(0);
        Self { watch: watch.spawn().unwrap(), folder, port, bin, user }
    }

    /// Adds lines to the configuration.
    fn configure(&self, lines: &str) {
        let path = Path::new(&self.data()).join("postgresql.conf");
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        writeln!(file, "{lines}").unwrap();
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    /// Returns the id of its first process.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn pid(&self) -> u32 {
        let path = self.folder.path().join("data/postmaster.pid");
        let text = fs::read_to_string(&path).unwrap();
        text.lines().next().and_then(|line| line.parse().ok()).unwrap()
    }

    /// Runs `pg_ctl` and waits until it is done.
    pub(crate) fn control(&self, arguments: &[&str]) {
        let data = self.data();
        let log = self.folder.path().join("log").display().to_string();
        self.run("pg_ctl", &[&["-D", &data, "-l", &log, "-w"], arguments].concat());
    }

    /// Returns what the server has logged.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Creates a database and returns its address.
    pub(crate) fn database(&self, options: &str) -> String {
        let name = format!("test{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} {options}"));
        self.address(&name)
    }

    /// Returns the address of a database.
    pub(crate) fn address(&self, database: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://reseed@{folder}/{database}")
    }

    /// Returns the address of a database on this server or another one; clients use the one that accepts writes.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn address_or(&self, other: &Self, database: &str) -> String {
        let folder = |server: &Self| server.folder.path().display().to_string().replace('/', "%2F");
        let hosts = [folder(self), folder(other)].join(",");
        format!("postgres://reseed@{hosts}/{database}?target_session_attrs=read-write")
    }

    /// Returns the address of a database through the port, by this name of the host.
    #[allow(dead_code, reason = "not every binary of tests needs it")]
    pub(crate) fn address_at(&self, host: &str, database: &str) -> String {
        format!("postgres://reseed@{host}:{}/{database}", self.port)
    }

    /// Returns the path of the socket on which the server listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join(format!(".s.PGSQL.{}", self.port))
    }

    /// Executes SQL in a database and returns what it prints.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let folder = self.host();
        self.run(
            "psql",
            &[
                "-h",
                &folder,
                "-p",
                &self.port.to_string(),
                "-U",
                "reseed",
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                database,
                "-c",
                sql,
            ],
        )
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = command(&self.bin.join(program), self.user, self.folder.path());
        // A server that `pg_ctl` starts keeps its output, so a pipe would never end.
        let path = self.folder.path().join(format!("{program}.out"));
        let output = || fs::OpenOptions::new().create(true).write(true).truncate(true).open(&path).unwrap();
        let (status, text) = if program == "psql" {
            let done = command.args(arguments).output().unwrap();
            (done.status, String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
        } else {
            let file = output();
            command.args(arguments).stdin(Stdio::null()).stderr(file.try_clone().unwrap()).stdout(file);
            let status = command.status().unwrap();
            (status, fs::read_to_string(&path).unwrap())
        };
        assert!(status.success(), "{program} {arguments:?}: {text}");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        // The folder is gone afterwards.
        let _ = self.watch.wait();
    }
}

/// Returns a command that runs as the server's user.
fn command(program: &Path, user: Option<(u32, u32)>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env_remove("PGOPTIONS").env("LC_ALL", "C");
    if let Some((user, group)) = user {
        command.gid(group).uid(user);
    }
    command
}

/// Returns the folder with the server's binaries: in PATH, or where Debian puts each version.
fn binaries() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort_by_key(|path| std::cmp::Reverse(version_of(path)));
    folders.extend(versions);
    let has_all = |folder: &PathBuf| ["initdb", "pg_ctl", "psql"].iter().all(|name| folder.join(name).is_file());
    let found = folders.into_iter().find(has_all);
    found.expect("these tests need PostgreSQL: `apt-get install postgresql`, or put its binaries into PATH")
}

fn version_of(bin: &Path) -> u32 {
    let version = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Returns the user and group that the server runs as, if this process runs as root.
fn other_user() -> Option<(u32, u32)> {
    if !is_root().unwrap() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |wanted: &str| {
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = fields.into_iter().find(|fields| fields[0] == wanted)?;
        Some((found[2].parse().ok()?, found[3].parse().ok()?))
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("a user other than root"))
}

fn is_root() -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}
