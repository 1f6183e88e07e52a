//! `MCP_FILE`: the MCP servers, in the JSON form that MCP clients share.
//!
//! ```json
//! { "mcpServers": {
//!     "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"] },
//!     "search": { "type": "http", "url": "https://mcp.example.org/mcp",
//!                 "headers": { "Authorization": "Bearer ${SEARCH_TOKEN}" } }
//! } }
//! ```
//!
//! Invariant: no error repeats a value of the file. It names the server and the field.

mod fields;

use super::{InvalidMcp, names::prefix, variables::Secrets};
use crate::config::listed::{Variable, contents, is_this_machine};
use fields::Fields;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

/// Maximum number of servers. Each has a task, and over stdio also a process.
const SERVERS_MAX: usize = 64;

/// The time limit for a server to come up and list its tools, unless it sets its own. `npx` and `uvx` may have to
/// install the server first.
const STARTUP: Duration = Duration::from_secs(60);

/// The allowed times, in milliseconds: from a second to an hour for starting, and up to a day for the others.
const STARTUP_MS: std::ops::RangeInclusive<u64> = 1_000..=3_600_000;
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;

/// Headers that the transport sets itself.
const OWN_HEADERS: &[&str] =
    &["accept", "content-length", "content-type", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id"];

/// The contents of the file.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// The servers, sorted by name.
    pub(super) servers: Vec<Spec>,
    /// The names of disabled servers.
    pub(super) disabled: Vec<String>,
    /// Warnings for the operator, without values.
    pub(super) warnings: Vec<String>,
}

/// A server of the file. Two specs are equal if a server that runs under one of them needs no change for the other.
#[derive(Debug, PartialEq)]
pub(super) struct Spec {
    /// Its name in the file.
    pub(super) name: String,
    /// The prefix of its tools' names.
    pub(super) prefix: String,
    pub(super) link: Link,
    /// The time limit for coming up and listing its tools.
    pub(super) startup: Duration,
    /// The time limit of a call in milliseconds, if the file overrides the server's own.
    pub(super) timeout_ms: Option<u64>,
    /// How long its process may be idle before it is stopped; `None` keeps it until this server stops.
    pub(super) idle: Option<Duration>,
    /// The tools that are offered; `None` means all.
    pub(super) only: Option<BTreeSet<String>>,
    /// The tools that are not offered.
    pub(super) without: BTreeSet<String>,
    /// Texts that its errors must not repeat.
    pub(super) secrets: Secrets,
}

/// The way to reach a server.
pub(super) enum Link {
    /// A process that is started here.
    Stdio(Program),
    /// An address.
    Http(Address),
    /// A server inside a test. Each call of the function makes one more connection.
    #[cfg(test)]
    Scripted(std::sync::Arc<dyn Fn() -> tokio::io::DuplexStream + Send + Sync>),
}

impl Spec {
    /// Returns true if the tool with this name, which is the server's own, may be offered.
    pub(super) fn allows(&self, tool: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(tool)) && !self.without.contains(tool)
    }
}

impl PartialEq for Link {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stdio(ours), Self::Stdio(theirs)) => ours == theirs,
            (Self::Http(ours), Self::Http(theirs)) => ours == theirs,
            #[cfg(test)]
            (Self::Scripted(ours), Self::Scripted(theirs)) => std::sync::Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }
}

/// A program to start.
#[derive(PartialEq)]
pub(super) struct Program {
    /// The command as it is written in the file, for messages.
    pub(super) shown: String,
    pub(super) command: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: PathBuf,
}

/// An address with its headers.
#[derive(PartialEq)]
pub(super) struct Address {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
}

impl Link {
    /// Returns the name of the transport.
    pub(super) fn transport(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
            #[cfg(test)]
            Self::Scripted(_) => "scripted",
        }
    }
}

impl std::fmt::Debug for Link {
    /// Omits everything that may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.transport())
    }
}

/// Reads the file. `variable` looks up what `${VAR}` names. Relative paths start at `folder`.
///
/// # Errors
/// The file cannot be read, or a server's field is invalid. The error names both and repeats no value.
pub(super) fn read(file: &Path, folder: &Path, variable: Variable<'_>) -> Result<Listed, InvalidMcp> {
    let text = contents(file).map_err(|error| format!("cannot be read: {error}"));
    let listed = text.and_then(|text| parsed(&text, folder, variable));
    listed.map_err(|message| InvalidMcp { place: format!("MCP_FILE {}", file.display()), message })
}

fn parsed(text: &[u8], folder: &Path, variable: Variable<'_>) -> Result<Listed, String> {
    let value: serde_json::Value = serde_json::from_slice(text)
        .map_err(|error| format!("it is not JSON (line {}, column {})", error.line(), error.column()))?;
    let serde_json::Value::Object(mut top) = value else { return Err("it is not a JSON object".to_owned()) };
    let servers = match top.remove("mcpServers") {
        Some(serde_json::Value::Object(servers)) => servers,
        Some(_) => return Err("`mcpServers` is not an object".to_owned()),
        None => return Err("it has no `mcpServers`".to_owned()),
    };
    if servers.len() > SERVERS_MAX {
        return Err(format!("`mcpServers` has {} servers; at most {SERVERS_MAX} are allowed", servers.len()));
    }
    let mut listed = Listed::default();
    let mut prefixes: BTreeMap<String, String> = BTreeMap::new();
    // Sorted by name, so that the order of the tools does not depend on a parser.
    for (name, value) in servers.into_iter().collect::<BTreeMap<_, _>>() {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        let at = |wrong: String| format!("server `{shown}`: {wrong}");
        let serde_json::Value::Object(fields) = value else { return Err(at("it is not an object".to_owned())) };
        let mut fields = Fields::new(fields, variable);
        if fields.flag("disabled").map_err(at)? == Some(true) || fields.flag("enabled").map_err(at)? == Some(false) {
            listed.disabled.push(shown);
            continue;
        }
        let spec = spec(&shown, &mut fields, folder, &mut listed.warnings).map_err(at)?;
        if let Some(other) = prefixes.insert(spec.prefix.clone(), shown.clone()) {
            let prefix = &spec.prefix;
            return Err(at(format!(
                "its tools would have the same names as those of `{other}`: both begin with `{prefix}__`"
            )));
        }
        let unknown = fields.rest();
        if !unknown.is_empty() {
            listed.warnings.push(format!("server `{shown}`: ignored: `{}`", unknown.join("`, `")));
        }
        listed.servers.push(spec);
    }
    Ok(listed)
}

/// Reads one server.
fn spec(name: &str, fields: &mut Fields<'_>, folder: &Path, warnings: &mut Vec<String>) -> Result<Spec, String> {
    let prefix = prefix(name)?;
    let kind = fields.text("type")?.or(fields.text("transport")?);
    let url = ["url", "httpUrl", "serverUrl"].into_iter().find(|field| fields.has(field));
    let is_http = match kind.as_deref() {
        None => !fields.has("command") && url.is_some(),
        Some("stdio") => false,
        Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => true,
        Some("sse") => {
            return Err(
                "`type` is `sse`, which newer revisions of MCP replaced; use `http` with the server's streamable \
                        HTTP address, which often ends in /mcp"
                    .to_owned(),
            );
        }
        Some(_) => return Err("`type` is not one of `stdio`, `http`, `streamable-http`".to_owned()),
    };
    let link = match (is_http, fields.has("command"), url) {
        (true, true, _) | (false, true, Some(_)) => {
            return Err("it has `command` and an address; allowed: one of them, as its `type` says".to_owned());
        }
        (true, false, Some(url)) => Link::Http(address(name, url, fields, warnings)?),
        (true, false, None) => return Err("it is missing `url`".to_owned()),
        (false, true, None) => Link::Stdio(program(fields, folder)?),
        (false, false, _) => return Err("it is missing `command`, or `url` for a server with an address".to_owned()),
    };
    let startup = fields.millis(&["startupTimeout"], STARTUP_MS)?.map_or(STARTUP, Duration::from_millis);
    let timeout_ms = fields.millis(&["timeout"], TIMEOUT_MS)?;
    let idle = fields.millis(&["idleTimeout"], TIMEOUT_MS)?.map(Duration::from_millis);
    if idle.is_some() && matches!(link, Link::Http(_)) {
        return Err("`idleTimeout` stops processes and is not allowed with an address".to_owned());
    }
    let only = fields.texts(&["enabledTools", "includeTools"])?.map(BTreeSet::from_iter);
    let without = fields.texts(&["disabledTools", "excludeTools"])?.map(BTreeSet::from_iter).unwrap_or_default();
    let secrets = fields.secrets();
    Ok(Spec { name: name.to_owned(), prefix, link, startup, timeout_ms, idle, only, without, secrets })
}

fn program(fields: &mut Fields<'_>, folder: &Path) -> Result<Program, String> {
    let shown = fields.raw("command").unwrap_or_default();
    let command = fields.text("command")?.filter(|command| !command.trim().is_empty()).ok_or("`command` is empty")?;
    let args = fields.texts(&["args"])?.unwrap_or_default();
    let env = fields.map("env")?;
    if let Some((name, _)) = env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
        let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        return Err(format!("`env` has `{name}`, which is no name of a variable"));
    }
    let cwd = fields.text("cwd")?.map_or_else(|| folder.to_path_buf(), |cwd| folder.join(cwd));
    if args.iter().chain(env.values()).chain([&command]).any(|text| text.contains('\0')) {
        return Err("`command`, `args` or `env` has a NUL character".to_owned());
    }
    // A path is relative to the working directory. A bare name is looked up in PATH.
    let command = PathBuf::from(command);
    let command = if command.components().count() > 1 { folder.join(command) } else { command };
    Ok(Program { shown, command, args, env, cwd })
}

fn address(name: &str, field: &str, fields: &mut Fields<'_>, warnings: &mut Vec<String>) -> Result<Address, String> {
    let text = fields.text(field)?.unwrap_or_default();
    let url = Url::parse(&text).map_err(|_| format!("`{field}` is not a valid address"))?;
    if !matches!(url.scheme(), "https" | "http") || !url.has_host() {
        return Err(format!("`{field}` starts with neither https:// nor http://"));
    }
    // Credentials would end up in other servers' logs. A header does not.
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("`{field}` contains a user name or password; use `headers`"));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in fields.map("headers")? {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        let header: HeaderName =
            name.parse().map_err(|_| format!("`headers` has `{shown}`, which is no header's name"))?;
        if OWN_HEADERS.contains(&header.as_str()) {
            return Err(format!("`headers` has `{shown}`, which is set by the transport"));
        }
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| format!("`headers.{shown}` has characters that no header may have"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    if url.scheme() == "http" && !headers.is_empty() && !is_this_machine(url.host_str().unwrap_or_default()) {
        warnings
            .push(format!("server `{name}`: its headers are sent unencrypted, since `{field}` is an http:// address"));
    }
    Ok(Address { url, headers })
}

#[cfg(test)]
mod tests;
