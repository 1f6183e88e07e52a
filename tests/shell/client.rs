//! An MCP client that is no more than lines of JSON, so that the protocol is tested without the library of the other
//! side.

use serde_json::{Value, json};
use std::{
    collections::HashMap,
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Mutex as AsyncMutex, oneshot},
    time::timeout,
};

/// The patience with a machine that is busy; only a failing test reaches it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Who waits for which answer; `None` when there are no more answers.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>>;

/// A running server, and the client's end of its connection.
pub(super) struct Client {
    child: AsyncMutex<Child>,
    input: AsyncMutex<Option<ChildStdin>>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Client {
    /// Starts the server in this directory.
    pub(super) fn start(directory: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reseed-shell"));
        command.args(flags).current_dir(directory).kill_on_drop(true);
        command.env_clear().env("SECRET", "secret-3f9d71").env("LD_LIBRARY_PATH", "/secret-3f9d71");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let waiting = Waiting::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(read(child.stdout.take().unwrap(), waiting.clone()));
        let input = AsyncMutex::new(child.stdin.take());
        Self { child: AsyncMutex::new(child), input, waiting, next: AtomicU64::new(1) }
    }

    /// Shakes hands; returns what the server says of itself, or `None` if it ends.
    pub(super) async fn initialize(&self) -> Option<Value> {
        let about = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": about });
        let answer = self.request("initialize", params).await.1.await.ok()?;
        self.notify("notifications/initialized", json!({})).await;
        Some(answer["result"].clone())
    }

    /// Writes a line. The server may have ended.
    pub(super) async fn line(&self, text: &str) {
        if let Some(input) = &mut *self.input.lock().await {
            let _ = input.write_all(format!("{text}\n").as_bytes()).await;
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Value) {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
    }

    /// Sends a request; returns its id, and its whole answer when that comes.
    pub(super) async fn request(&self, method: &str, params: Value) -> (u64, oneshot::Receiver<Value>) {
        let (id, (told, answer)) = (self.next.fetch_add(1, Ordering::Relaxed), oneshot::channel());
        if let Some(waiting) = &mut *self.waiting.lock().unwrap() {
            waiting.insert(id, told);
        }
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
        (id, answer)
    }

    /// Sends a request and returns its result.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params).await;
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// Sends a request and returns its whole answer.
    pub(super) async fn answer(&self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await.1;
        timeout(PATIENCE * 2, answer).await.expect("it answers in time").expect("it answers")
    }

    /// Closes the server's input and waits for its end; returns its exit code and its standard error.
    pub(super) async fn ended(&self) -> (Option<i32>, String) {
        drop(self.input.lock().await.take());
        let mut child = self.child.lock().await;
        let mut told = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            let _ = timeout(PATIENCE, stderr.read_to_string(&mut told)).await.expect("it ends in time");
        }
        (timeout(PATIENCE, child.wait()).await.expect("it ends in time").unwrap().code(), told)
    }

    /// Kills the server.
    pub(super) async fn kill(&self) {
        self.child.lock().await.kill().await.unwrap();
    }
}

/// Hands out answers until there are no more.
async fn read(output: ChildStdout, waiting: Waiting) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let answer: Value = serde_json::from_str(&line).unwrap();
        let id = answer["id"].as_u64().unwrap_or_default();
        let asked = waiting.lock().unwrap().as_mut().and_then(|waiting| waiting.remove(&id));
        if let Some(asked) = asked {
            let _ = asked.send(answer);
        }
    }
    *waiting.lock().unwrap() = None;
}
