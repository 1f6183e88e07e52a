//! Tests of what `MCP_FILE` may contain.

use super::{Link, Listed, parsed, read};
use secrecy::SecretString;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path, time::Duration};

fn variable(name: &str) -> Option<SecretString> {
    match name {
        "KEY" => Some("hunter2".into()),
        "HOST" => Some("mcp.example.org".into()),
        "USER_URL" => Some("https://u:hunter2@h/".into()),
        _ => None,
    }
}

fn listed(file: &Value) -> Result<Listed, String> {
    parsed(file.to_string().as_bytes(), Path::new("/srv"), &variable)
}

fn one(server: Value) -> Result<Listed, String> {
    listed(&json!({ "mcpServers": { "a": server } }))
}

#[test]
fn the_usual_form_is_read() {
    let file = json!({
        "mcpServers": {
            "web": { "type": "http", "url": "https://${HOST}/mcp", "headers": { "X-Key": "${KEY}" }, "timeout": 5000 },
            "files": {
                "command": "npx", "args": ["-y", "server-${KEY}", "${DIR:-/data}"], "env": { "TOKEN": "${KEY}", "MODE": "fast" },
                "cwd": "here", "startupTimeout": 90000, "idleTimeout": 600000,
                "disabledTools": ["rm"], "enabledTools": ["ls", "rm"], "alwaysAllow": ["ls"],
            },
            "own": { "command": "./bin/own" },
            "off": { "command": "x", "disabled": true, "args": "wrong, and nobody minds" },
            "off too": { "url": "x", "enabled": false },
        },
        "globalShortcut": "",
    });
    let Listed { servers, disabled, warnings } = listed(&file).unwrap();
    assert_eq!(servers.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["files", "own", "web"]);
    assert_eq!(disabled, ["off", "off too"]);
    assert_eq!(warnings, ["server `files`: ignored: `alwaysAllow`"]);

    let [files, own, web] = &servers[..] else { panic!("{servers:?}") };
    let Link::Stdio(program) = &files.link else { panic!("{files:?}") };
    assert_eq!((program.command.to_str(), program.cwd.to_str()), (Some("npx"), Some("/srv/here")));
    assert_eq!(program.args, ["-y", "server-hunter2", "/data"]);
    assert_eq!(program.env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["MODE=fast", "TOKEN=hunter2"]);
    assert_eq!((files.startup, files.idle), (Duration::from_secs(90), Some(Duration::from_secs(600))));
    assert_eq!(files.only, Some(BTreeSet::from(["ls".to_owned(), "rm".to_owned()])));
    assert_eq!(files.without, BTreeSet::from(["rm".to_owned()]));

    let Link::Stdio(program) = &own.link else { panic!("{own:?}") };
    assert_eq!((program.command.to_str(), program.cwd.to_str()), (Some("/srv/./bin/own"), Some("/srv")));
    assert_eq!((own.startup, own.idle, own.timeout_ms), (Duration::from_secs(60), None, None));

    let Link::Http(address) = &web.link else { panic!("{web:?}") };
    assert_eq!(address.url.as_str(), "https://mcp.example.org/mcp");
    assert_eq!(address.headers["x-key"], "hunter2");
    assert_eq!(web.timeout_ms, Some(5000));
    let shown = format!("{servers:?} {:?}", address.headers);
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(files.secrets.mask("TOKEN is hunter2"), "TOKEN is ***");
}

#[test]
fn transports_are_told_apart() {
    for (server, expected) in [
        (json!({ "command": "x" }), "stdio"),
        (json!({ "type": "stdio", "command": "x" }), "stdio"),
        (json!({ "transport": "stdio", "command": "x" }), "stdio"),
        (json!({ "url": "http://localhost:1/mcp" }), "http"),
        (json!({ "httpUrl": "http://localhost:1/mcp" }), "http"),
        (json!({ "serverUrl": "http://localhost:1/mcp" }), "http"),
        (json!({ "type": "streamable-http", "url": "http://localhost:1/mcp" }), "http"),
        (json!({ "type": "streamableHttp", "url": "http://localhost:1/mcp" }), "http"),
        (json!({ "transport": "http", "url": "http://[::1]:1/mcp" }), "http"),
    ] {
        let listed = one(server.clone()).unwrap();
        assert_eq!(listed.servers[0].link.transport(), expected, "{server}");
        assert_eq!(listed.warnings.len(), 0, "{server}: {:?}", listed.warnings);
    }
    let unencrypted = json!({ "url": "http://mcp:3000/mcp", "headers": { "Authorization": "Bearer ${KEY}" } });
    let warnings = one(unencrypted).unwrap().warnings;
    assert!(warnings[0].contains("unencrypted") && !warnings[0].contains("hunter2"), "{warnings:?}");
}

#[test]
fn a_fault_names_server_and_field_and_no_value() {
    for (server, expected) in [
        (json!("x"), "it is not an object"),
        (json!({}), "it is missing `command`, or `url` for a server with an address"),
        (json!({ "type": "http", "command": "x" }), "it has `command` and an address"),
        (json!({ "type": "stdio", "url": "https://h/" }), "it is missing `command`"),
        (json!({ "command": "x", "url": "https://h/" }), "it has `command` and an address"),
        (json!({ "type": "http" }), "it is missing `url`"),
        (json!({ "type": "sse", "url": "https://h/sse" }), "`type` is `sse`, which newer revisions of MCP replaced"),
        (json!({ "type": "hunter2", "url": "https://h/" }), "`type` is not one of `stdio`, `http`, `streamable-http`"),
        (json!({ "command": 5 }), "`command` is not a string"),
        (json!({ "command": " " }), "`command` is empty"),
        (json!({ "command": "x", "args": "hunter2" }), "`args` is not a list"),
        (json!({ "command": "x", "args": ["a", 5] }), "`args[1]` is not a string"),
        (json!({ "command": "x", "args": ["${NONE}"] }), "`args[0]` names the variable `NONE`, which is not set"),
        (json!({ "command": "x", "args": ["a\u{0}"] }), "`command`, `args` or `env` has a NUL character"),
        (json!({ "command": "x", "env": ["A=hunter2"] }), "`env` is not an object"),
        (json!({ "command": "x", "env": { "A": 5 } }), "`env.A` is not a string"),
        (json!({ "command": "x", "env": { "A=B": "hunter2" } }), "`env` has `A=B`, which is no name of a variable"),
        (json!({ "command": "x", "env": { "A": "${B" } }), "`env.A` has a `${` without `}`"),
        (json!({ "command": "x", "disabled": "hunter2" }), "`disabled` is not true or false"),
        (
            json!({ "command": "x", "timeout": 60 }),
            "`timeout` is in milliseconds; allowed: a whole number from 1000 to ",
        ),
        (json!({ "command": "x", "startupTimeout": 1.5 }), "`startupTimeout` is in milliseconds"),
        (json!({ "url": "https://h/", "idleTimeout": 5000 }), "`idleTimeout` stops processes"),
        (json!({ "command": "x", "enabledTools": "hunter2" }), "`enabledTools` is not a list"),
        (json!({ "url": "hunter2" }), "`url` is not a valid address"),
        (json!({ "url": "ftp://h/" }), "`url` starts with neither https:// nor http://"),
        (json!({ "url": "${USER_URL}" }), "`url` contains a user name or password; use `headers`"),
        (
            json!({ "url": "https://h/", "headers": { "a b": "hunter2" } }),
            "`headers` has `a b`, which is no header's name",
        ),
        (json!({ "url": "https://h/", "headers": { "Accept": "hunter2" } }), "`headers` has `Accept`, which is set by"),
        (json!({ "url": "https://h/", "headers": { "A": "hunter2\n" } }), "`headers.A` has characters that no header"),
    ] {
        let told = one(server.clone()).map(|_| ()).unwrap_err();
        assert!(told.starts_with(&format!("server `a`: {expected}")), "{server}: {told}");
        assert!(!told.contains("hunter2"), "{server}: {told}");
    }
    for (file, expected) in [
        (json!([]), "it is not a JSON object"),
        (json!({ "servers": {} }), "it has no `mcpServers`"),
        (json!({ "mcpServers": [] }), "`mcpServers` is not an object"),
        (json!({ "mcpServers": { "": { "command": "x" } } }), "server ``: the name of a server needs a letter"),
        (
            json!({ "mcpServers": { "a b": { "command": "x" }, "a.b": { "command": "x" } } }),
            "server `a.b`: its tools would have the same names as those of `a b`: both begin with `a_b__`",
        ),
    ] {
        let told = listed(&file).map(|_| ()).unwrap_err();
        assert!(told.starts_with(expected), "{file}: {told}");
    }
    let many: serde_json::Map<String, Value> = (0..65).map(|n| (format!("s{n}"), json!({ "command": "x" }))).collect();
    let told = listed(&json!({ "mcpServers": many })).map(|_| ()).unwrap_err();
    assert_eq!(told, "`mcpServers` has 65 servers; at most 64 are allowed");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let told = read(Path::new("no/such.json"), Path::new("."), &variable).map(|_| ()).unwrap_err().to_string();
    assert!(told.starts_with("MCP_FILE no/such.json: cannot be read: "), "{told}");
    let told = parsed(b"{\n\"mcpServers\": [}", Path::new("."), &variable).map(|_| ()).unwrap_err();
    assert_eq!(told, "it is not JSON (line 2, column 16)");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.json");
    std::fs::write(&path, " ".repeat(1024 * 1024 + 1)).unwrap();
    let told = read(&path, Path::new("."), &variable).map(|_| ()).unwrap_err().to_string();
    assert!(told.ends_with("cannot be read: it has more than 1048576 bytes"), "{told}");
}
