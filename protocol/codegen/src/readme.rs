//! Generates the tables of README.md: the commands, and the limits of a server.

use reseed_protocol::{
    ErrorCode,
    command::{
        Command, Does, OTHER_NAMES, Sender, Spec,
        outcomes::{NEVER_REPLIED, OF_A_FRAME, OF_ANY, OF_HOOKS, OF_THE_MODEL, Work},
    },
};
use serde_json::Value;
use std::fmt::Write as _;

/// Fields that fit into a cell. Only the answer of a hook has more; a table of its own lists them.
const FIELDS_MAX: usize = 12;

/// A field of `welcome.limits`.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The field.
    pub field: &'static str,
    /// Its value unless the server is configured otherwise.
    pub default: u64,
    /// The setting that changes it; `None` if nothing does.
    pub setting: Option<&'static str>,
    /// The consequence of exceeding it.
    pub beyond: &'static str,
}

/// Every field of `welcome.limits`, in the order of the type.
pub const LIMITS: &[Limit] = &[
    limit("messageBytesMax", 1_048_576, Some("MESSAGE_BYTES_MAX"), "the connection is closed with 1009"),
    limit("depthMax", 32, None, "`too_deep`"),
    limit("queueItemsMax", 32, None, "`queue_full`"),
    limit("toolsMax", 128, None, "`invalid_tools`"),
    limit("hooksMax", 32, None, "`invalid_hooks`"),
    limit("subscriptionsMax", 64, None, "`too_many_subscriptions`"),
    limit("presenceMax", 100, None, "further connections work, but presence does not list them"),
    limit("pageEntriesMax", 500, None, "`invalid_field` (`limit`)"),
    limit("replayEventsMax", 5_000, None, "`resume` is answered with a snapshot"),
    limit("badFramesMax", 50, None, "the connection is closed with 4400"),
    limit("previewSecs", 600, None, "`preview_not_found`"),
    limit("hostAwaySecs", 30, None, "the first connection on standby becomes the host"),
];

const fn limit(field: &'static str, default: u64, setting: Option<&'static str>, beyond: &'static str) -> Limit {
    Limit { field, default, setting, beyond }
}

/// Returns the table of limits.
pub(crate) fn limits(schema: &Value) -> String {
    let mut text = "| field | limits | default | setting | beyond it |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for Limit { field, default, setting, beyond } in LIMITS {
        let says = schema["$defs"]["Limits"]["properties"][field]["description"].as_str().unwrap_or_default();
        let says = says.trim_end_matches('.').replace('\n', " ");
        let setting = setting.map_or("fixed".to_owned(), |setting| format!("`{setting}`"));
        let _ = writeln!(text, "| `{field}` | {says} | {default} | {setting} | {beyond} |");
    }
    text
}

/// Returns the table of commands, with what its short forms stand for.
pub(crate) fn commands(schema: &Value) -> String {
    let mut text = "| command | who may | payload | reply | events | errors |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for spec in Command::TABLE {
        let cells = [
            named(spec),
            who(spec),
            payload(schema, spec.name),
            format!("`{}`", spec.reply),
            events(spec),
            errors(spec),
        ];
        let cells: Vec<&str> = cells.iter().map(|cell| if cell.is_empty() { "–" } else { cell.as_str() }).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push_str("\nThe short forms in the table stand for these:\n\n| short form | stands for |\n| --- | --- |\n");
    for work in Work::ALL {
        let _ = writeln!(text, "| *{}* | {} |", work.name(), names(work.events().iter().copied()));
    }
    for (name, group) in [("hook", OF_HOOKS), ("model", OF_THE_MODEL)] {
        let _ = writeln!(text, "| *{name} errors* | {} |", codes(group));
    }
    text.push_str("\nThese errors are not repeated in each row:\n\n| commands | errors |\n| --- | --- |\n");
    let free = Command::TABLE.iter().filter(|spec| !spec.needs_subscription()).map(|spec| spec.name);
    let rows: [(&str, Vec<ErrorCode>); 7] = [
        ("every frame", OF_A_FRAME.to_vec()),
        ("every command", OF_ANY.to_vec()),
        (&format!("all but {}; `ping` if it names a session", names(free)), vec![ErrorCode::NoSession]),
        ("the same, if the session is deleted while the command waits", vec![ErrorCode::SessionNotFound]),
        ("*writers* and *all but observers*", vec![ErrorCode::ReadOnly]),
        ("*once* and *always*", vec![ErrorCode::IdempotencyConflict]),
        ("*once*", vec![ErrorCode::SessionDamaged]),
    ];
    for (commands, errors) in rows {
        let _ = writeln!(text, "| {commands} | {} |", codes(&errors));
    }
    text.push_str("\nThese codes refuse no command of this version:\n\n| code | occurs in |\n| --- | --- |\n");
    for (code, place) in NEVER_REPLIED {
        let _ = writeln!(text, "| `{code}` | {place} |");
    }
    text
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn codes(codes: &[ErrorCode]) -> String {
    names(codes.iter().map(|code| code.as_str()))
}

/// Returns a command's name, with its other names.
fn named(spec: &Spec) -> String {
    let others = OTHER_NAMES.into_iter().filter(|(_, of)| *of == spec.name);
    let others: String = others.map(|(other, _)| format!(" (also `{other}`)")).collect();
    format!("`{}`{others}", spec.name)
}

fn who(spec: &Spec) -> String {
    let who = match spec.sender {
        Sender::Anyone => "anyone",
        Sender::NonObserver => "*all but observers*",
        Sender::Writer => "*writers*",
    };
    match spec.does {
        Does::Transient | Does::Previews => who.to_owned(),
        Does::Creates => format!("{who}; *creates*"),
        Does::Writes => format!("{who}; *once*"),
        Does::Ends | Does::Cancels => format!("{who}; *always*"),
    }
}

/// Lists the fields of a command's payload; those that may be absent have a question mark.
fn payload(schema: &Value, command: &str) -> String {
    let payload = &schema["$defs"][format!("command.{command}")]["properties"]["payload"];
    let named = payload["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
    let payload = named.map_or(payload, |name| &schema["$defs"][name]);
    let required: Vec<&str> = payload["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = payload["properties"].as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let mut fields: Vec<&str> = fields.collect();
    if fields.len() > FIELDS_MAX {
        return format!("{}, and [what its point takes](#hooks)", names(required.into_iter()));
    }
    fields.sort_by_key(|field| !required.contains(field));
    let shown = fields.iter().map(|field| match required.contains(field) {
        true => format!("`{field}`"),
        false => format!("`{field}?`"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn events(spec: &Spec) -> String {
    let own = spec.events.iter().map(|event| format!("`{event}`"));
    let work = spec.work.iter().map(|work| format!("*{}*", work.name()));
    own.chain(work).collect::<Vec<_>>().join(", ")
}

fn errors(spec: &Spec) -> String {
    let refusals = spec.refusals().into_iter();
    let found = refusals.filter(|code| *code == ErrorCode::SessionNotFound && !spec.needs_subscription());
    let own: Vec<ErrorCode> = found.chain(spec.errors.iter().copied()).collect();
    let group = |group: &&[ErrorCode]| if *group == OF_HOOKS { "*hook errors*" } else { "*model errors*" };
    let groups = spec.groups.iter().map(|codes| group(codes).to_owned());
    own.iter().map(|code| format!("`{code}`")).chain(groups).collect::<Vec<_>>().join(", ")
}
