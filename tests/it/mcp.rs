//! MCP servers as users run them: `@modelcontextprotocol/server-everything` from npm over both transports, killed in
//! the middle of a call, and `reseed check`, which lists them.
//!
//! `tests/run` installs the package from `tests/mcp/package-lock.json`; without it the tests of the real server say
//! that they were skipped.

mod everything;
mod listed;
mod reloading;
#[cfg(target_os = "linux")]
mod shell;

use crate::{
    mcp::{
        everything::everything,
        reloading::{called, server, until_tools},
    },
    support::{
        binary::{self, Binary},
        client::Client,
    },
};
use serde_json::json;
use std::{fs, path::Path};

/// Writes a file of servers and returns the setting that names it.
fn servers(folder: &Path, servers: serde_json::Value) -> (&'static str, &'static str) {
    fs::write(folder.join("mcp.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
    ("MCP_FILE", "mcp.json")
}

#[tokio::test]
async fn check_says_which_servers_failed_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = servers(
        folder.path(),
        json!({
            "missing": { "command": "no-such-program", "env": { "KEY": "${KEY}" } },
            "failing": { "command": "sh", "args": ["-c", "echo key $KEY is wrong >&2; exit 3"], "env": { "KEY": "${KEY}" } },
            "away": { "url": "http://127.0.0.1:1/mcp" },
            "off": { "command": "x", "disabled": true },
        }),
    );
    let ended = binary::run(folder.path(), &["check"], &[file, ("KEY", "hunter2"), ("PATH", "/usr/bin:/bin")]).await;
    assert_eq!(ended.code, Some(0), "{}{}", ended.printed, ended.faults);
    let expected = [
        "mcp         4 servers, 0 tools, 0 tokens in every request",
        "  away: FAILED: the server cannot be reached (connection refused)",
        "  failing: FAILED: the server ended with code 3 before it answered",
        "    stderr: key *** is wrong",
        "  missing: FAILED: the server cannot be started: `no-such-program`: entity not found",
        "  off: disabled",
    ];
    let printed: Vec<&str> =
        ended.printed.lines().skip_while(|line| !line.starts_with("mcp ")).take(expected.len()).collect();
    assert_eq!(printed, expected, "{}", ended.printed);
}

#[tokio::test]
async fn what_a_tool_says_is_not_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let mut fails = server("fails", "badger-failed", "");
    fails["env"]["FAILS"] = json!("true");
    let file = servers(folder.path(), json!({ "says": server("says", "badger-said", ""), "fails": fails }));
    let path = std::env::var("PATH").unwrap();
    let settings = [file, ("MODEL", "offline"), ("LOG_LEVEL", "trace"), ("PATH", &*path)];
    let binary = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&binary.ws()).await;
    until_tools(&mut client, &["fails__do", "says__do"]).await;
    assert_eq!(called(&mut client, "says__do").await["output"], "badger-said");
    let failed = called(&mut client, "fails__do").await;
    assert_eq!((&failed["output"], &failed["isError"]), (&json!("badger-failed"), &json!(true)));
    binary.stop().await;
    let log = binary::logged(folder.path());
    assert!(log.contains("turn finished"), "{log}");
    assert_eq!(log.lines().find(|line| line.contains("badger")), None);
}

#[tokio::test]
async fn a_file_of_servers_that_is_wrong_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (listed, expected) in [
        (
            json!({ "a": { "command": "x", "args": ["${NONE}"] } }),
            "MCP_FILE ./mcp.json: server `a`: `args[0]` names the variable `NONE`, which is not set",
        ),
        (json!({ "a": { "type": "sse", "url": "https://h/" } }), "MCP_FILE ./mcp.json: server `a`: `type` is `sse`"),
    ] {
        let file = servers(folder.path(), listed);
        let ended = binary::run(folder.path(), &["check"], &[file]).await;
        assert_eq!(ended.code, Some(1), "{}", ended.printed);
        let faults = ended.faults.replace("./mcp.json", "mcp.json");
        assert!(faults.contains(&expected.replace("./mcp.json", "mcp.json")), "{faults}");
    }
}

#[tokio::test]
async fn check_lists_the_tools_of_a_real_server_with_their_tokens() {
    let Some(everything) = everything() else { return };
    let folder = tempfile::tempdir().unwrap();
    let listed =
        json!({ "everything": { "command": "node", "args": [everything, "stdio"], "disabledTools": ["echo"] } });
    let file = servers(folder.path(), listed);
    let path = std::env::var("PATH").unwrap();
    let ended = binary::run(folder.path(), &["check"], &[file, ("PATH", &path)]).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{}", ended.printed);
    let lines: Vec<&str> = ended.printed.lines().skip_while(|line| !line.starts_with("mcp ")).collect();
    let number = |line: &str, unit: &str| -> u64 {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words
            .iter()
            .position(|word| word.trim_end_matches(',') == unit)
            .unwrap_or_else(|| panic!("{unit} in {line}"));
        words[at - 1].parse().unwrap()
    };
    let tools: Vec<&&str> = lines.iter().filter(|line| line.starts_with("    everything__")).collect();
    assert!(tools.len() >= 10 && !ended.printed.contains("everything__echo"), "{}", ended.printed);
    assert_eq!(number(lines[0], "tools"), tools.len() as u64);
    let sum: u64 = tools.iter().map(|line| number(line, "tokens")).sum();
    assert_eq!((number(lines[0], "tokens"), number(lines[1], "tokens")), (sum, sum), "{}", ended.printed);
    assert!(tools.iter().all(|line| number(line, "tokens") > 20), "{}", ended.printed);
    assert!(lines[1].contains("over stdio (mcp-servers/everything"), "{}", lines[1]);
}
