//! The real server of MCP's own project, over stdio and streamable HTTP.

use reseed::{
    config::Settings,
    tools::{
        Call, Output, Progress, Tool,
        mcp::{Mcp, ServerState},
    },
};
use serde_json::{Value, json};
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
    time::timeout,
};

/// Time for what takes a second; only a test that fails waits for it.
const SOON: Duration = Duration::from_secs(60);

/// Attempts to start a server on a port that was free a moment ago.
const PORTS_MAX: usize = 10;

/// Returns the program of the server. If `tests/run` has installed it, its absence is a failure.
pub(super) fn everything() -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/node_modules");
    let program = folder.join("@modelcontextprotocol/server-everything/dist/index.js");
    let found = program.exists();
    assert!(found || std::env::var_os("RESEED_TOOLS").is_none(), "server-everything is missing: npm ci in tests/mcp");
    if !found {
        eprintln!("skipped: server-everything is missing; `tests/run` installs it");
    }
    found.then(|| program.to_str().unwrap().to_owned())
}

/// A file with one server, and what was opened from it.
struct Opened {
    _folder: tempfile::TempDir,
    mcp: Mcp,
}

async fn opened(server: impl FnOnce(&Path) -> Value) -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mcp.json");
    fs::write(&file, json!({ "mcpServers": { "all": server(folder.path()) } }).to_string()).unwrap();
    let settings = Settings::from_iter([("MCP_KEY", "hunter2"), ("OPENAI_API_KEY", "sk-hunter2")]).unwrap();
    let mcp = Mcp::open(&file, folder.path(), &settings.variables).unwrap();
    mcp.settled(SOON).await;
    Opened { _folder: folder, mcp }
}

impl Opened {
    fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let found = self.mcp.tools().into_iter().find(|tool| tool.offer().name == name);
        found.unwrap_or_else(|| panic!("no {name}: {:?}", self.mcp.status()))
    }

    async fn call(&self, name: &str, arguments: Value) -> Output {
        self.call_with(name, arguments, Progress::new(|_| {})).await
    }

    async fn call_with(&self, name: &str, arguments: Value, progress: Progress) -> Output {
        timeout(SOON, run(self.tool(name), arguments, progress)).await.expect("the call ends")
    }

    /// Makes a call that runs for minutes. Returns it with its reports, once it has begun to report.
    async fn long_call(&self) -> tokio::task::JoinHandle<Output> {
        let (told, mut reports) = mpsc::unbounded_channel();
        let progress = Progress::new(move |message| drop(told.send(message)));
        let arguments = json!({ "duration": 600, "steps": 12_000 });
        let call = tokio::spawn(run(self.tool("all__trigger-long-running-operation"), arguments, progress));
        for expected in ["1 of 12000", "2 of 12000"] {
            let report = timeout(SOON, reports.recv()).await.expect("the call reports progress").unwrap();
            assert_eq!(report.as_deref(), Some(expected));
        }
        call
    }

    /// Checks everything that does not depend on the transport.
    async fn check(&self, transport: &str) {
        let status = &self.mcp.status()[0];
        assert_eq!((status.transport, status.state), (transport, ServerState::Ready), "{status:?}");
        assert!(status.software.as_deref().unwrap().starts_with("mcp-servers/everything"), "{status:?}");
        assert!(status.tools.len() >= 11 && status.left_out.is_empty(), "{status:?}");

        let offer = self.tool("all__get-sum").offer();
        assert_eq!(offer.parameters["required"], json!(["a", "b"]));
        assert_eq!(self.call("all__echo", json!({ "message": "Grüße" })).await, Output::text("Echo: Grüße"));
        assert_eq!(
            self.call("all__get-sum", json!({ "a": 2, "b": 3 })).await,
            Output::text("The sum of 2 and 3 is 5.")
        );
        let wrong = self.call("all__get-sum", json!({ "a": "two" })).await;
        assert!(wrong.is_error && wrong.text.contains("expected number"), "{wrong:?}");
        let image = self.call("all__get-tiny-image", json!({})).await;
        assert!(image.images.len() == 1 && image.images[0].starts_with("data:image/png;base64,iVBOR"), "{image:?}");
        let structure = self.call("all__get-structured-content", json!({ "location": "Chicago" })).await;
        let structure: Value = serde_json::from_str(&structure.text).unwrap();
        assert!(structure["temperature"].is_number(), "{structure}");
        let links = self.call("all__get-resource-links", json!({ "count": 2 })).await;
        assert_eq!(links.text.lines().filter(|line| line.starts_with("[link to ")).count(), 2, "{links:?}");
        let resource =
            self.call("all__get-resource-reference", json!({ "resourceType": "Text", "resourceId": 1 })).await;
        assert!(resource.text.contains("[resource demo://resource/dynamic/text/1]\n"), "{resource:?}");

        let hint = self.tool("all__trigger-long-running-operation").offer().annotations.unwrap();
        assert_eq!((hint.read_only, hint.idempotent, hint.open_world), (Some(true), Some(true), Some(false)));
        let short = self.call("all__trigger-long-running-operation", json!({ "duration": 0.05, "steps": 2 })).await;
        assert_eq!(short, Output::text("Long running operation completed. Duration: 0.05 seconds, Steps: 2."));
    }
}

async fn run(tool: Arc<dyn Tool>, arguments: Value, progress: Progress) -> Output {
    let (call_id, session) = ("call_1".parse().unwrap(), "ses_1".parse().unwrap());
    tool.call(Call { call_id, session, leaf: None, arguments, progress }).await
}

/// Returns true if this is the result of a call that was lost.
fn is_lost(output: &Output) -> bool {
    output.is_error && output.text.contains("before it answered. The call may have been carried out")
}

#[tokio::test]
async fn over_stdio() {
    let Some(program) = everything() else { return };
    let opened =
        opened(|_| json!({ "command": "node", "args": [program, "stdio"], "env": { "MINE": "${MCP_KEY}" } })).await;
    opened.check("stdio").await;
    let env = opened.call("all__get-env", json!({})).await;
    let env: Value = serde_json::from_str(&env.text).unwrap();
    assert_eq!(env["MINE"], "hunter2");
    // Cargo sets many variables in this process.
    assert!(env["PATH"].is_string() && env["OPENAI_API_KEY"].is_null() && env["CARGO_MANIFEST_DIR"].is_null(), "{env}");
    let cancelled = opened.long_call().await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    assert_eq!(opened.call("all__echo", json!({ "message": "still here" })).await, Output::text("Echo: still here"));
    opened.mcp.close().await;
    assert_eq!(opened.mcp.status()[0].state, ServerState::Stopping);
}

#[tokio::test]
async fn killed_in_a_call_over_stdio() {
    let Some(program) = everything() else { return };
    let mut pids = PathBuf::new();
    let opened = opened(|folder| {
        pids = folder.join("pids");
        json!({ "command": "sh", "args": ["-c", "echo $$ >> pids; exec node \"$0\" stdio", program] })
    })
    .await;
    for deaths in 1..=2 {
        let call = opened.long_call().await;
        let lived = fs::read_to_string(&pids).unwrap();
        assert_eq!(lived.lines().count(), deaths, "{lived}");
        let pid = rustix::process::Pid::from_raw(lived.lines().last().unwrap().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let output = timeout(SOON, call).await.expect("the call ends").unwrap();
        assert!(is_lost(&output), "{output:?}");
        // The next call waits for the next process.
        assert_eq!(opened.call("all__echo", json!({ "message": "again" })).await, Output::text("Echo: again"));
    }
    opened.mcp.close().await;
}

/// The server on a port; killed on drop.
struct Serving {
    child: Child,
    port: u16,
}

/// Starts the server on this port. `None` if the port is taken.
async fn serve_on(program: &str, port: u16) -> Option<Serving> {
    let mut command = Command::new("node");
    command.args([program, "streamableHttp"]).env("PORT", port.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listens = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening on port") {
                return true;
            }
        }
        false
    };
    let listens = timeout(SOON, listens).await.expect("it listens or ends");
    // Its output must be read, or its next line would end it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    listens.then_some(Serving { child, port })
}

/// Starts the server on a port that is free.
async fn serve(program: &str) -> Serving {
    for _ in 0..PORTS_MAX {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if let Some(serving) = serve_on(program, port).await {
            return serving;
        }
    }
    panic!("{PORTS_MAX} ports that were free were taken");
}

fn at(serving: &Serving) -> Value {
    json!({ "type": "http", "url": format!("http://127.0.0.1:{}/mcp", serving.port), "headers": { "X-Key": "${MCP_KEY}" } })
}

#[tokio::test]
async fn over_http() {
    let Some(program) = everything() else { return };
    let serving = serve(&program).await;
    let opened = opened(|_| at(&serving)).await;
    opened.check("http").await;
    let cancelled = opened.long_call().await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    assert_eq!(opened.call("all__echo", json!({ "message": "still here" })).await, Output::text("Echo: still here"));
    opened.mcp.close().await;
}

#[tokio::test]
async fn killed_in_a_call_over_http() {
    let Some(program) = everything() else { return };
    let mut serving = serve(&program).await;
    let opened = opened(|_| at(&serving)).await;
    let call = opened.long_call().await;
    serving.child.kill().await.unwrap();
    let output = timeout(SOON, call).await.expect("the call ends").unwrap();
    assert!(is_lost(&output), "{output:?}");

    // While the server is away, its tools stay offered, and each call fails in bounded time.
    let down = opened.call("all__echo", json!({ "message": "?" })).await;
    assert!(down.is_error && down.text.ends_with("The call was not made."), "{down:?}");
    assert!(down.text.contains("cannot be reached (connection refused)"), "{down:?}");

    let mut again = None;
    for _ in 0..PORTS_MAX {
        again = serve_on(&program, serving.port).await;
        if again.is_some() {
            break;
        }
    }
    let Some(mut again) = again else { panic!("port {} was taken by somebody else", serving.port) };
    // A call starts the connection, however long the wait would be.
    let output = opened.call("all__echo", json!({ "message": "back" })).await;
    assert_eq!(output, Output::text("Echo: back"), "{:?}", opened.mcp.status());

    // The server is killed and started again between calls. It does not know the connection, so the call was not made,
    // and goes to the next connection by itself.
    again.child.kill().await.unwrap();
    let _third = loop {
        if let Some(serving) = serve_on(&program, serving.port).await {
            break serving;
        }
    };
    assert_eq!(opened.call("all__echo", json!({ "message": "anew" })).await, Output::text("Echo: anew"));
    opened.mcp.close().await;
}
