//! SIGHUP with another `MCP_FILE`, on the real binary: servers that are new, gone, changed, wrong or the same.

use crate::{
    reload::reload,
    support::{
        binary::{self, Binary},
        client::Client,
    },
};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// A server in `sh`. Each start adds a line to `NAME.lives`. A call returns `REPLY`, as an error if `FAILS` is `true`;
/// with `HELD`, it waits for that file first.
const SERVER: &str = r#"
echo $$ >> "$NAME.lives"
trap 'echo "$NAME" >> told; exit 0' TERM
while IFS= read -r line; do
    id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
    *'"server/discover"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"?"}}' ;;
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"do","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}}' ;;
    *'"tools/call"'*)
        touch "$NAME.called"
        while [ -n "$HELD" ] && [ ! -e "$HELD" ]; do sleep 0.02; done
        echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"'"$REPLY"'"}],"isError":'"$FAILS"'}}' ;;
    esac
done
# It stays until it is asked to end.
while :; do sleep 0.05; done
"#;

pub(super) fn server(name: &str, reply: &str, held: &str) -> Value {
    let env = json!({ "NAME": name, "REPLY": reply, "HELD": held, "FAILS": "false" });
    json!({ "command": "sh", "args": ["-c", SERVER], "env": env })
}

fn lives(folder: &Path, name: &str) -> usize {
    fs::read_to_string(folder.join(format!("{name}.lives"))).map_or(0, |lives| lives.lines().count())
}

/// Returns the tools of MCP servers that the session has.
async fn tools(client: &mut Client) -> Vec<String> {
    let reply = client.ask("list_tools", json!({})).await;
    let items = reply["payload"]["items"].as_array().unwrap();
    let names = items.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.contains("__")).collect()
}

/// Has the model call the tool; returns the result.
pub(super) async fn called(client: &mut Client, tool: &str) -> Value {
    client.forget("entry_appended");
    let ended = client.turn(&format!("Use the tool {tool}")).await;
    assert_eq!(ended["status"], "completed", "{ended}");
    let results = client.forget("entry_appended").into_iter();
    let mut results = results.filter(|frame| frame["payload"]["entry"]["role"] == "tool");
    results.next().expect("the tool was called")["payload"]["entry"]["content"][0].clone()
}

/// Talks until the session has these tools: they join at a turn, once their server is up.
pub(super) async fn until_tools(client: &mut Client, expected: &[&str]) {
    while tools(client).await != expected {
        client.turn("Go on.").await;
    }
}

#[tokio::test]
async fn servers_join_leave_restart_and_run_on() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("mcp.json"), text).unwrap();
    let list = |servers: Value| write(&json!({ "mcpServers": servers }).to_string());
    fs::write(folder.path().join(".env"), "OPERATOR_TOKENS=ops:operator-token-of-some-length\nMCP_FILE=mcp.json\n")
        .unwrap();
    let stays = server("stays", "stayed", "go");
    list(json!({ "goes": server("goes", "gone", "never"), "stays": stays, "turns": server("turns", "one", "") }));
    let path = std::env::var("PATH").unwrap();
    let settings = [("MODEL", "offline"), ("DATABASE_URL", "sqlite://./r.db"), ("PATH", &*path)];
    let binary = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&binary.ws()).await;
    let (mut other, _) = Client::v2_session(&binary.ws()).await;
    until_tools(&mut client, &["goes__do", "stays__do", "turns__do"]).await;
    until_tools(&mut other, &["goes__do", "stays__do", "turns__do"]).await;
    assert_eq!(called(&mut client, "turns__do").await["output"], "one");

    // A call of a server that stays and one of a server that goes both run across the reload.
    client.ask("user_input", json!({ "input": "Use the tool stays__do" })).await;
    other.ask("user_input", json!({ "input": "Use the tool goes__do" })).await;
    for called in ["stays.called", "goes.called"] {
        while !folder.path().join(called).exists() {
            tokio::task::yield_now().await;
        }
    }
    list(json!({ "comes": server("comes", "came", ""), "stays": stays, "turns": server("turns", "two", "") }));
    assert!(reload(&binary).await, "{}", binary::logged(folder.path()));
    let of_tool = |frame: &Value| frame["type"] == "entry_appended" && frame["payload"]["entry"]["role"] == "tool";
    let lost = other.until(of_tool).await["payload"]["entry"]["content"][0].clone();
    assert_eq!(lost["isError"], true, "{lost}");
    assert!(lost["output"].as_str().unwrap().contains("may have been carried out"), "{lost}");
    assert_eq!(other.event("turn_finished").await["payload"]["status"], "completed");
    fs::write(folder.path().join("go"), "").unwrap();
    let kept = client.until(of_tool).await["payload"]["entry"]["content"][0].clone();
    assert_eq!(kept["output"], "stayed", "{kept}");
    client.event("turn_finished").await;
    until_tools(&mut client, &["comes__do", "stays__do", "turns__do"]).await;
    assert_eq!(called(&mut client, "comes__do").await["output"], "came");
    assert_eq!(called(&mut client, "turns__do").await["output"], "two");
    let counts = ["comes", "goes", "stays", "turns"].map(|name| lives(folder.path(), name));
    assert_eq!(counts, [1, 1, 1, 2]);

    // A faulty file changes nothing, and is logged without its values.
    for (wrong, why) in [
        ("{".to_owned(), "it is not JSON"),
        (
            json!({ "mcpServers": { "comes": { "args": ["hunter2"] } } }).to_string(),
            "server `comes`: it is missing `command`",
        ),
    ] {
        write(&wrong);
        assert!(!reload(&binary).await);
        let log = binary::logged(folder.path());
        assert!(log.contains(why) && !log.contains("hunter2"), "{log}");
        assert_eq!(called(&mut client, "comes__do").await["output"], "came");
    }

    // Without a file there are no servers.
    fs::write(folder.path().join(".env"), "OPERATOR_TOKENS=ops:operator-token-of-some-length\n").unwrap();
    assert!(reload(&binary).await, "{}", binary::logged(folder.path()));
    until_tools(&mut client, &[]).await;
    assert!(!binary::logged(folder.path()).contains("only a restart takes it up"));
    binary.stop().await;
    assert_eq!(["comes", "goes", "stays", "turns"].map(|name| lives(folder.path(), name)), [1, 1, 1, 2]);
    let told = fs::read_to_string(folder.path().join("told")).unwrap();
    let mut told: Vec<&str> = told.lines().collect();
    told.sort_unstable();
    assert_eq!(told, ["comes", "goes", "stays", "turns", "turns"], "SIGTERM came before SIGKILL");
}
