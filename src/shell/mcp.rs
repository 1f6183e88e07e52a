//! MCP over standard input and output: one message per line, and only what a server with two tools needs.
//!
//! Beyond MCP, it requests the names of sessions, as `src/tools/mcp/sessions.rs` sends them. A client that names none
//! works in one folder, if the flags allow that.
//!
//! Invariants:
//! - a call is answered once, or was cancelled;
//! - when the input has ended, every call is ended too.

use crate::{
    folders::Session,
    shell::{Ended, Shell},
    tools,
};
use serde_json::{Value, json};
use std::{collections::HashMap, io, sync::Arc};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc,
    task::JoinHandle,
};

/// Maximum bytes of a message: the arguments of a command, which the system limits to 2 MiB, escaped as JSON.
const MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum number of calls that run or wait.
const CALLS_MAX: usize = 1_024;

/// The revisions with `initialize`, newest first: all of them have the same form of what is used here.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// JSON-RPC's error codes.
const NOT_JSON: i32 = -32_700;
const NO_METHOD: i32 = -32_601;
const WRONG_PARAMS: i32 = -32_602;
const INTERNAL: i32 = -32_603;

/// Serves until the input ends.
///
/// # Errors
/// A stream fails, or a message is too long.
pub(crate) async fn serve(shell: Arc<Shell>, shared: bool) -> io::Result<()> {
    let (done, ended) = mpsc::channel(16);
    let mut server = Server { shell, shared, calls: HashMap::new(), done };
    let outcome = server.run(tokio::io::stdin(), tokio::io::stdout(), ended).await;
    server.calls.values().for_each(|call| call.work.abort());
    server.shell.close().await;
    outcome
}

struct Server {
    shell: Arc<Shell>,
    /// True if calls without a session share a folder.
    shared: bool,
    /// The unanswered calls, by their ids as JSON.
    calls: HashMap<String, Call>,
    done: mpsc::Sender<(String, Value)>,
}

/// A running call.
struct Call {
    session: Session,
    work: JoinHandle<()>,
}

impl Call {
    /// Ends the call. When this returns, its command is killed, and its patch knows that it is no longer wanted.
    async fn end(self) {
        self.work.abort();
        let _ = self.work.await;
    }
}

impl Server {
    async fn run(
        &mut self,
        input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin,
        mut ended: mpsc::Receiver<(String, Value)>,
    ) -> io::Result<()> {
        let (mut input, mut line) = (BufReader::new(input), Vec::new());
        loop {
            let answer = tokio::select! {
                read = next_line(&mut input, &mut line) => {
                    if !read? {
                        return Ok(());
                    }
                    let answer = self.take(&line).await;
                    line.clear();
                    answer
                }
                // A call that was cancelled in the meantime is not answered.
                Some((key, answer)) = ended.recv() => self.calls.remove(&key).map(|_| answer),
            };
            if let Some(answer) = answer {
                output.write_all(format!("{answer}\n").as_bytes()).await?;
                output.flush().await?;
            }
        }
    }

    /// Handles a message. Returns the answer that is due at once, if any.
    async fn take(&mut self, line: &[u8]) -> Option<Value> {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return Some(refusal(&Value::Null, NOT_JSON, "this is not JSON"));
        };
        let (id, params) = (&message["id"], &message["params"]);
        let result = match (message["method"].as_str()?, id) {
            ("notifications/cancelled", _) => {
                if let Some(call) = self.calls.remove(&params["requestId"].to_string()) {
                    call.end().await;
                }
                return None;
            }
            ("notifications/reseed/session_deleted", _) => {
                self.forget(params["sessionId"].as_str().and_then(Session::parse)?).await;
                return None;
            }
            // Other notifications do not matter here.
            (_, Value::Null) => return None,
            ("initialize", _) => json!({
                "protocolVersion": revision(&params["protocolVersion"]),
                "capabilities": { "tools": {}, "experimental": { "reseed/sessions": {} } },
                "serverInfo": { "name": "reseed-shell", "version": env!("CARGO_PKG_VERSION") },
            }),
            ("ping", _) => json!({}),
            ("reseed/sessions/list", _) => match self.shell.sessions() {
                Ok(sessions) => json!({ "sessionIds": sessions }),
                Err(error) => return Some(refusal(id, INTERNAL, &format!("the folders cannot be listed: {error}"))),
            },
            ("tools/list", _) => json!({ "tools": tools::definitions(&self.shell) }),
            ("tools/call", _) => return self.call(id, params),
            (method, _) => return Some(refusal(id, NO_METHOD, &format!("there is no method `{method}`"))),
        };
        Some(answer(id, &result))
    }

    /// Starts a call. Returns an answer if it is refused.
    fn call(&mut self, id: &Value, params: &Value) -> Option<Value> {
        let session = match &params["_meta"]["reseed/session"] {
            // Something between the client and this program may have lost the session. The call must not get the files
            // of others.
            Value::Null if !self.shared => {
                let why = "the call names no session in `_meta[\"reseed/session\"]`; `--shared` lets such calls share a \
                           folder";
                return Some(refusal(id, WRONG_PARAMS, why));
            }
            Value::Null => Some(Session::shared()),
            session => session.as_str().and_then(Session::parse),
        };
        let Some(session) = session else {
            return Some(refusal(id, WRONG_PARAMS, "this id of a session cannot be the name of a folder"));
        };
        if self.calls.contains_key(&id.to_string()) {
            return Some(refusal(id, WRONG_PARAMS, "a call with this id is not answered yet"));
        }
        if self.calls.len() >= CALLS_MAX {
            return Some(answer(id, &result(&Ended::error("too many calls are waiting"))));
        }
        let (shell, done, id, params) = (self.shell.clone(), self.done.clone(), id.clone(), params.clone());
        let (key, of) = (id.to_string(), session.clone());
        let work = tokio::spawn(async move {
            let ended =
                tools::call(&shell, &of, params["name"].as_str().unwrap_or_default(), &params["arguments"]).await;
            // The receiver is gone only when everything ends.
            let _ = done.send((id.to_string(), answer(&id, &result(&ended)))).await;
        });
        self.calls.insert(key, Call { session, work });
        None
    }

    /// Ends the calls of a session that was deleted, and removes its folder.
    async fn forget(&mut self, session: Session) {
        for (_, call) in self.calls.extract_if(|_, call| call.session == session) {
            call.end().await;
        }
        if let Err(error) = self.shell.remove(&session) {
            eprintln!("reseed-shell: the folder of a deleted session stays: {error}");
        }
    }
}

/// Reads on to the end of a line. Returns false at the end of the input. If this is dropped, the next call continues.
///
/// # Errors
/// The input fails, or the line is too long.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<bool> {
    let room = MESSAGE_BYTES_MAX.saturating_sub(line.len() as u64);
    input.take(room).read_until(b'\n', line).await?;
    match line.last() {
        Some(b'\n') => Ok(true),
        _ if line.len() as u64 >= MESSAGE_BYTES_MAX => {
            Err(io::Error::other(format!("a message has more than {MESSAGE_BYTES_MAX} bytes")))
        }
        _ => Ok(false),
    }
}

/// Returns the revision for a client that asks for this one: the same, or the newest if it is none of these.
fn revision(asked: &Value) -> &'static str {
    REVISIONS.into_iter().find(|known| asked == known).unwrap_or(REVISIONS[0])
}

/// Returns the result of a call in MCP's form.
fn result(ended: &Ended) -> Value {
    json!({ "content": [{ "type": "text", "text": ended.text }], "isError": ended.is_error })
}

fn answer(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn refusal(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}
