//! Tool calls, each in a line: what it is about, and how it went.

use super::screen::{Screen, number, one_line};
use crate::core::approval::visible;
use reseed_protocol::{
    CallId, Entry, Message, Part, Timestamp,
    reply::{SessionTool, ToolServer, ToolServerFailure, ToolServerState, Tools},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write as _};

/// Characters of what a call is about.
const ABOUT_CHARS_MAX: usize = 120;

/// Calls whose results are awaited: an answer makes a handful. A result of one that was forgotten names no tool.
const CALLS_MAX: usize = 1_000;

/// The beginning of a result whose call was never made: the server's words.
const NOT_MADE: &str = "Not called: ";

/// The calls without a result.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<CallId, Call>);

#[derive(Debug)]
struct Call {
    /// Its tool and what it is about.
    told: String,
    /// The time of the answer that made it; `None` if a person was asked since, whose time is not the tool's.
    since: Option<Timestamp>,
}

impl Calls {
    /// Notes the calls of an answer.
    pub(super) fn made(&mut self, entry: &Entry, message: &Message) {
        for part in &message.content {
            if let Part::ToolCall { call_id, name, arguments } = part
                && self.0.len() < CALLS_MAX
            {
                let call = Call { told: told(name, arguments), since: Some(entry.timestamp) };
                self.0.insert(call_id.clone(), call);
            }
        }
    }

    /// Notes that a person was asked about a call.
    pub(super) fn asked(&mut self, call: &CallId) {
        if let Some(call) = self.0.get_mut(call) {
            call.since = None;
        }
    }

    /// Returns what is told of the results in an entry, a line each.
    pub(super) fn ended(&mut self, entry: &Entry, message: &Message, screen: Screen) -> Vec<String> {
        let results = message.content.iter().filter_map(|part| match part {
            Part::ToolResult { call_id, output, is_error, .. } => Some((call_id, output, *is_error)),
            _ => None,
        });
        let lines = results.map(|(call_id, output, is_error)| {
            let call = self.0.remove(call_id);
            let since = call.as_ref().and_then(|call| call.since);
            let told = call.map_or_else(|| "a tool".to_owned(), |call| call.told);
            let took = since.map(|since| entry.timestamp.millis_since(since));
            let took = took.map(|millis| format!(", {:.1} s", millis as f64 / 1000.0)).unwrap_or_default();
            match is_error {
                true if output.starts_with(NOT_MADE) => screen.warning(&format!("{told}: not run")),
                true => screen.warning(&format!("{told}: failed{took}: {}", shortened(&one_line(output)))),
                false => screen.note(&format!("{told}: done{took}")),
            }
        });
        lines.collect()
    }

    /// Forgets all of them: their turn is over, or another session is shown.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns a tool's name, and what its call is about.
pub(super) fn told(name: &str, arguments: &str) -> String {
    let about = about(arguments);
    let name = one_line(&visible(name));
    if about.is_empty() { name } else { format!("{name} {about}") }
}

/// Says in a few words what a call is about: the values of its arguments, those that are texts first.
fn about(arguments: &str) -> String {
    let Ok(Value::Object(arguments)) = serde_json::from_str::<Value>(arguments) else {
        return shortened(&one_line(&visible(arguments)));
    };
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for (name, value) in &arguments {
        match value {
            Value::String(text) => texts.push(text.clone()),
            value => match words(value) {
                Some(words) => texts.push(command_line(&words)),
                None => others.push(format!("{name}: {value}")),
            },
        }
    }
    texts.append(&mut others);
    shortened(&one_line(&visible(&texts.join(", "))))
}

/// Returns the words of a list that consists of texts.
fn words(value: &Value) -> Option<Vec<String>> {
    let words: Option<Vec<String>> = value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect();
    words.filter(|words| !words.is_empty())
}

/// Returns a command line in one line. Words that do not mean themselves are quoted as in JSON.
fn command_line(words: &[String]) -> String {
    let is_plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c));
    let quoted = words.iter().map(|word| match is_plain(word) {
        true => word.clone(),
        false => Value::String(word.clone()).to_string(),
    });
    visible(&quoted.collect::<Vec<_>>().join(" ")).into_owned()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(ABOUT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl Screen {
    /// Lists the tools of the session and the MCP servers, a line each.
    pub(super) fn tools(self, tools: &Tools) -> String {
        let servers: String = tools.servers.iter().map(|server| self.tool_server(server)).collect();
        if tools.items.is_empty() {
            return servers + &self.note("this session has no tools");
        }
        let mut out = String::new();
        for tool in &tools.items {
            let mark = if tool.off { "off" } else { "on" };
            let name = one_line(&visible(&tool.name));
            let facts =
                format!("{:>7} tokens{}  {}", number(tool.tokens), does(tool), shortened(&one_line(&tool.description)));
            let _ = writeln!(out, "  {mark:<3} {name:<24} {}", self.note(&facts));
        }
        let on = tools.items.iter().filter(|tool| !tool.off).count();
        let total = format!(
            "{on} of {} are on and take about {} tokens of every request",
            tools.items.len(),
            number(tools.tokens)
        );
        out + &servers + &self.note(&format!("{total}; /tools off NAME and /tools on NAME switch"))
    }

    /// Returns a line about an MCP server.
    fn tool_server(self, server: &ToolServer) -> String {
        let state = match server.state {
            ToolServerState::Starting => "starting",
            ToolServerState::Ready => "running",
            ToolServerState::Idle => "stopped until it is needed",
            ToolServerState::Failing => "not running",
            ToolServerState::Disabled => "switched off",
            ToolServerState::Stopping => "stopping",
        };
        let why = server.failure.map(|failure| match failure {
            ToolServerFailure::CannotStart => ": its program cannot be started",
            ToolServerFailure::Ended => ": its program ended",
            ToolServerFailure::Timeout => ": it did not start in time",
            ToolServerFailure::Unreachable => ": it cannot be reached",
            ToolServerFailure::Refused => ": it refused the connection",
            ToolServerFailure::WrongAnswer => ": it gave a wrong answer",
            ToolServerFailure::Disconnected => ": the connection was lost",
        });
        let name = one_line(&visible(&server.name));
        format!("  MCP {name:<24} {}\n", self.note(&format!("{state}{}", why.unwrap_or_default())))
    }
}

/// Says what a tool does to the world, by its own account.
fn does(tool: &SessionTool) -> &'static str {
    let hints = tool.annotations.unwrap_or_default();
    match (hints.read_only, hints.destructive) {
        (Some(true), _) => ", only reads",
        (_, Some(true)) => ", may destroy",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_what_it_is_about() {
        let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(300));
        let cut = format!("t {}…", "x".repeat(ABOUT_CHARS_MAX));
        let table = [
            (r#"{"path":"a.txt"}"#, "t a.txt"),
            (r#"{"limit":3,"query":"reseed"}"#, "t reseed, limit: 3"),
            (r#"{"command":["ls","-l","two words"]}"#, r#"t ls -l "two words""#),
            (r#"{"path":"a\u202egpj.exe\u001b[2J"}"#, "t a⟨U+202E⟩gpj.exe⟨U+001B⟩[2J"),
            ("{}", "t"),
            ("no\n JSON", "t no JSON"),
            (long.as_str(), cut.as_str()),
        ];
        for (arguments, expected) in table {
            assert_eq!(told("t", arguments), expected, "{arguments}");
        }
    }
}
