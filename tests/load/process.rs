//! The servers as processes of their own, so that their processor time and memory can be measured separately.

use crate::upstream::Upstream;
use anyhow::{Context as _, bail, ensure};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The time that a server may take to start, on a machine that does other things as well.
const START_TIME: Duration = Duration::from_secs(30);

/// The time that a server may take to stop: running turns have a grace of 10 s by default.
const STOP_TIME: Duration = Duration::from_secs(60);

/// The interval at which a starting server is polled.
const START_STEP: Duration = Duration::from_micros(500);

/// The environment of the measurements.
pub(crate) struct Bench {
    /// The model server.
    pub(crate) upstream: Upstream,
    reseed: PathBuf,
    /// For databases and logs; on the disk that holds the build, not in memory.
    directory: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(upstream: Upstream) -> anyhow::Result<Self> {
        let reseed = std::env::var_os("RESEED_BIN").context("RESEED_BIN does not name the server's binary")?;
        let reseed = fs::canonicalize(&reseed).with_context(|| format!("find {}", reseed.display()))?;
        let own = std::env::current_exe()?;
        let parent = own.parent().context("this program is in no folder")?;
        let directory = tempfile::Builder::new().prefix("load-").tempdir_in(parent)?;
        Ok(Self { upstream, reseed, directory })
    }

    /// Returns the path of a database with this name.
    pub(crate) fn database(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.db"))
    }

    /// Starts the server over this database, with the model server behind it.
    pub(crate) async fn reseed(&self, database: &Path) -> anyhow::Result<Process> {
        let base_url = self.upstream.base_url();
        self.reseed_with(database, &[("OPENAI_BASE_URL", &base_url), ("CONTEXT_WINDOW", "1000000")]).await
    }

    /// Starts the server with these settings.
    pub(crate) async fn reseed_with(&self, database: &Path, settings: &[(&str, &str)]) -> anyhow::Result<Process> {
        let url = format!("sqlite://{}", database.display());
        let settings = [settings, &[("DATABASE_URL", &url)]].concat();
        self.reseed_at(free_address()?, &settings).await
    }

    /// Starts the server at this address with these settings.
    pub(crate) async fn reseed_at(&self, address: SocketAddr, settings: &[(&str, &str)]) -> anyhow::Result<Process> {
        let mut command = Command::new(&self.reseed);
        command.env_clear().envs(settings.iter().copied());
        command.env("WS_PORT", address.port().to_string());
        self.start(command, address).await
    }

    /// Starts the floor.
    pub(crate) async fn floor(&self) -> anyhow::Result<Process> {
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["floor", &address.port().to_string(), &self.upstream.base_url()]);
        self.start(command, address).await
    }

    /// Starts the floor of a relay, to this server.
    pub(crate) async fn bare_relay(&self, server: SocketAddr) -> anyhow::Result<Process> {
        let address = free_address()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["relay", &address.port().to_string(), &server.to_string()]);
        self.start(command, address).await
    }

    /// Starts attackers of this server, who have the token of one user. They get what the server and its users leave of
    /// the processors: elsewhere they would bring their own. `ATTACKS` names those that attack, all without it.
    pub(crate) fn attackers(&self, server: SocketAddr, token: &str) -> anyhow::Result<Attackers> {
        let own = std::env::current_exe()?;
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(own).args(["attack", &server.to_string(), token]);
        command.args(std::env::var("ATTACKS").unwrap_or_default().split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {command:?}"))?;
        Ok(Attackers { child })
    }

    async fn start(&self, mut command: Command, address: SocketAddr) -> anyhow::Result<Process> {
        let log = self.directory.path().join(format!("{}.log", address.port()));
        let file = fs::File::create(&log)?;
        // Without a `.env` nearby.
        command.current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let began = Instant::now();
        let child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let mut process = Process { child, address, threads: Mutex::default(), started_in: Duration::ZERO };
        while !answers(address).await {
            if let Some(status) = process.child.try_wait()? {
                bail!("{command:?} ended with {status}: {}", fs::read_to_string(&log)?);
            }
            if began.elapsed() > START_TIME {
                bail!("{command:?} did not start within {START_TIME:?}: {}", fs::read_to_string(&log)?);
            }
            tokio::time::sleep(START_STEP).await;
        }
        process.started_in = began.elapsed();
        Ok(process)
    }
}

/// Returns an address whose port was free a moment ago: a server that finds it taken says so and fails the measurement.
pub(crate) fn free_address() -> std::io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Returns true if a server at this address takes sessions. While it still loads the model's tokenizer, it is alive but
/// answers sockets with 503.
async fn answers(address: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    asked.await.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

/// Running attackers; ended when dropped.
pub(crate) struct Attackers {
    child: Child,
}

impl Attackers {
    /// Fails if they are gone: then nothing was attacked.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the attackers ended with {status}"),
        }
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // They may have ended by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running server; ended when dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Nanoseconds of processor time by thread, ended ones included.
    threads: Mutex<HashMap<OsString, u64>>,
    /// The time from its start until it answered.
    pub(crate) started_in: Duration,
}

impl Process {
    /// Returns the processor time used so far, to the nanosecond. (`/proc/PID/stat` has only hundredths of a second.)
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?;
            // A thread that ends at this moment keeps its last known value.
            let Ok(schedule) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let nanos = schedule.split_whitespace().next().context("schedstat is empty")?.parse()?;
            threads.insert(thread.file_name(), nanos);
        }
        Ok(Duration::from_nanos(threads.values().sum()))
    }

    /// Returns the number of its open descriptors.
    pub(crate) fn descriptors(&self) -> anyhow::Result<u64> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count() as u64)
    }

    /// Ends it without a warning.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        ensure!(asked.success(), "kill ended with {asked}");
        let began = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) => {
                    ensure!(status.success(), "the server ended with {status}");
                    break Ok(());
                }
                None if began.elapsed() > STOP_TIME => bail!("the server did not stop within {STOP_TIME:?}"),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Returns its resident memory, in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
