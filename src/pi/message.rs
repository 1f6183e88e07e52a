//! The messages of a path in pi's form.

use super::{
    export,
    json::{Json, Object},
};
use reseed_protocol::{Entry, EntryData, Role};
use std::fmt::Write as _;

/// Returns the message that an entry contributes to pi's context; `None` if it contributes none.
#[must_use]
pub fn of_entry(entry: &Entry) -> Option<Object> {
    let line = export::object(entry);
    of_line(&line, entry.timestamp.0)
}

/// Returns the message that a line contributes. `time` (milliseconds) is the time of messages without their own.
#[must_use]
pub fn of_line(line: &Object, time: i64) -> Option<Object> {
    let text = |name: &str| Json::from(line.text(name).unwrap_or_default());
    let time = || Json::from(time);
    match line.text("type")? {
        "message" => line.get("message")?.as_object().cloned(),
        "custom_message" => {
            let mut message = Object::of([("role", "custom".into()), ("customType", text("customType"))]);
            for name in ["content", "display", "details"] {
                message.set_some(name, line.get(name).cloned());
            }
            message.set("timestamp", time());
            Some(message)
        }
        "branch_summary" if line.text("summary").is_some_and(|summary| !summary.is_empty()) => Some(Object::of([
            ("role", "branchSummary".into()),
            ("summary", text("summary")),
            ("fromId", text("fromId")),
            ("timestamp", time()),
        ])),
        "compaction" => Some(Object::of([
            ("role", "compactionSummary".into()),
            ("summary", text("summary")),
            ("tokensBefore", line.get("tokensBefore").cloned().unwrap_or_default()),
            ("timestamp", time()),
        ])),
        _ => None,
    }
}

/// Returns the messages of these entries in pi's form.
#[must_use]
pub fn of_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Object> {
    entries.into_iter().filter_map(of_entry).collect()
}

/// The model and reasoning level that a path sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The provider and name of the model that was chosen, or that answered, last.
    pub model: Option<(String, String)>,
    /// The reasoning level.
    pub thinking_level: String,
}

/// Returns the settings at the end of a path.
#[must_use]
pub fn settings<'a>(path: impl IntoIterator<Item = &'a Entry>) -> Settings {
    let mut settings = Settings { model: None, thinking_level: "off".to_owned() };
    for entry in path {
        match &entry.data {
            EntryData::ThinkingLevelChange(change) => settings.thinking_level.clone_from(&change.thinking_level),
            EntryData::ModelChange(change) => {
                settings.model = Some((change.provider.clone().unwrap_or_default(), change.model.clone()));
            }
            EntryData::Message(message) if message.role == Role::Assistant => {
                let Some(message) = of_entry(entry) else { continue };
                let text = |name: &str| message.text(name).unwrap_or_default().to_owned();
                settings.model = Some((text("provider"), text("model")));
            }
            _ => {}
        }
    }
    settings
}

/// Returns the text that describes to a model a command that the user ran.
#[must_use]
pub fn shell_text(message: &Object) -> String {
    let mut text = format!("Ran `{}`\n", message.text("command").unwrap_or_default());
    match message.text("output") {
        Some(output) if !output.is_empty() => {
            let _ = write!(text, "```\n{output}\n```");
        }
        _ => text.push_str("(no output)"),
    }
    let exit_code = message.get("exitCode").filter(|code| code.as_f64().is_some_and(|code| code != 0.0));
    if message.get("cancelled").and_then(Json::as_bool) == Some(true) {
        text.push_str("\n\n(command cancelled)");
    } else if let Some(code) = exit_code {
        let _ = write!(text, "\n\nCommand exited with code {}", code.to_js_text());
    }
    if message.get("truncated").and_then(Json::as_bool) == Some(true)
        && let Some(path) = message.text("fullOutputPath").filter(|path| !path.is_empty())
    {
        let _ = write!(text, "\n\n[Output truncated. Full output: {path}]");
    }
    text
}
