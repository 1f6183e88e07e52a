//! TypeScript types, one file per module, and the frames that contain them.
//!
//! Invariants: types only, and constants in a file of their own; every name except v1's is unique, so that `index.ts`
//! can export all of them.

use super::{NOTICE, layout, schema};
use reseed_protocol::{
    Entry, command, event,
    hooks::{HookAnswer, HookPoint},
    reply, v1,
};
use std::{
    any::type_name,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
};
use ts_rs::{Config, TS, TypeVisitor};

/// The file for the types of each module, in the order of `index.ts`.
const FILES: &[(&str, &str)] = &[
    ("command", "commands"),
    ("reply", "replies"),
    ("event", "events"),
    ("session", "session"),
    ("turn", "turn"),
    ("hooks", "hooks"),
    ("tools", "tools"),
    ("tree", "tree"),
    ("compaction", "compaction"),
    ("context", "context"),
    ("content", "content"),
    ("receipt", "receipt"),
    ("error", "errors"),
    ("ids", "basics"),
    ("leaf", "basics"),
    ("time", "basics"),
    ("v1", "v1"),
];

/// The root types, and the file of each.
const ROOTS: &[(&str, &str)] = &[
    ("Command", "commands"),
    ("Reply", "replies"),
    ("Event", "events"),
    ("EphemeralEvent", "events"),
    ("Entry", "tree"),
    ("HookAnswer", "hooks"),
    ("Command", "v1"),
    ("Event", "v1"),
];

/// Returns every file below `typescript/`, by name.
pub(crate) fn files() -> Vec<(String, String)> {
    let mut types = Types { config: Config::new().with_large_int("number"), declared: Vec::new() };
    types.visit::<command::Command>();
    types.visit::<reply::Reply>();
    types.visit::<event::Event>();
    types.visit::<event::EphemeralEvent>();
    types.visit::<Entry>();
    // A webhook's answer; over the socket it is `hook_result`.
    types.visit::<HookAnswer>();
    types.visit::<v1::Command>();
    types.visit::<v1::Event>();

    types.put_in_order();

    let mut files = BTreeMap::new();
    for (_, file) in FILES {
        files.entry(*file).or_insert_with(|| types.file(file));
    }
    files.insert("frames", frames());
    files.insert("command-table", command_table());
    files.insert("index", index());
    let sources = files.into_iter().map(|(name, text)| (format!("{name}.ts"), text));
    sources.chain([("package.json".to_owned(), PACKAGE.to_owned())]).collect()
}

/// Says that these are ES modules: compilers otherwise refuse the values that they export.
const PACKAGE: &str = "{\n  \"private\": true,\n  \"type\": \"module\"\n}\n";

struct Declared {
    file: &'static str,
    name: String,
    text: String,
    /// The names it uses, and their files.
    uses: BTreeSet<(String, &'static str)>,
}

struct Types {
    config: Config,
    declared: Vec<Declared>,
}

impl TypeVisitor for Types {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        let Some(file) = file_of::<T>() else { return };
        let name = T::ident(&self.config);
        if self.declared.iter().any(|known| known.name == name && known.file == file) {
            return;
        }
        let mut uses = Uses { config: &self.config, found: BTreeSet::new() };
        T::visit_dependencies(&mut uses);
        let mut declaration = T::decl(&self.config);
        if file == "commands" && name == "Command" {
            declaration = with_optional_payloads(declaration);
        }
        let text = layout::declaration(T::docs().as_deref(), &declaration);
        self.declared.push(Declared { file, name, text, uses: uses.found });
        T::visit_dependencies(self);
    }
}

impl Types {
    /// Sorts in reading order: a type before those that it names. The visitor's own order differs between builds.
    fn put_in_order(&mut self) {
        let mut waiting = std::mem::take(&mut self.declared);
        waiting.sort_by(|a, b| (a.file, &a.name).cmp(&(b.file, &b.name)));
        let mut words: VecDeque<(String, Option<&'static str>)> =
            ROOTS.iter().map(|(name, file)| ((*name).to_owned(), Some(*file))).collect();
        while let Some((word, file)) = words.pop_front() {
            let found = waiting.iter().position(|d| d.name == word && file.is_none_or(|file| d.file == file));
            let Some(found) = found else { continue };
            let next = waiting.remove(found);
            let inner = next.text.split(not_of_a_name).map(|word| {
                let file = next.uses.iter().find(|(name, _)| name == word).map(|(_, file)| *file);
                (word.to_owned(), file.or(Some(next.file)))
            });
            // Depth first keeps a payload's own types below it.
            inner.collect::<Vec<_>>().into_iter().rev().for_each(|word| words.push_front(word));
            self.declared.push(next);
        }
        assert!(waiting.is_empty(), "{} is named by nothing", waiting[0].name);
    }

    fn file(&self, file: &str) -> String {
        let here: Vec<&Declared> = self.declared.iter().filter(|declared| declared.file == file).collect();
        let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, from) in here.iter().flat_map(|declared| &declared.uses) {
            // A flattened type is among the dependencies without being named.
            if *from != file && here.iter().any(|declared| names(&declared.text, name)) {
                imports.entry(from).or_default().insert(name);
            }
        }
        let mut out = format!("// {NOTICE}\n\n");
        for (from, names) in &imports {
            let names: Vec<&str> = names.iter().copied().collect();
            let _ = writeln!(out, "import type {{ {} }} from \"./{from}.js\";", names.join(", "));
        }
        if !imports.is_empty() {
            out.push('\n');
        }
        let texts: Vec<&str> = here.iter().map(|declared| declared.text.as_str()).collect();
        out.push_str(&texts.join("\n"));
        out
    }
}

struct Uses<'c> {
    config: &'c Config,
    found: BTreeSet<(String, &'static str)>,
}

impl TypeVisitor for Uses<'_> {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        if let Some(file) = file_of::<T>() {
            self.found.insert((T::ident(self.config), file));
        }
    }
}

/// Returns the file of a type of this crate; `None` for others, and for boxes and lists, whose content is visited
/// separately.
fn file_of<T: TS + ?Sized>() -> Option<&'static str> {
    let module = type_name::<T>().strip_prefix("reseed_protocol::")?.split("::").next()?;
    let (_, file) = FILES.iter().find(|(name, _)| *name == module).expect("each module has a file in FILES");
    Some(file)
}

/// Returns true if `text` contains `name` as a whole word.
fn names(text: &str, name: &str) -> bool {
    text.split(not_of_a_name).any(|word| word == name)
}

fn not_of_a_name(c: char) -> bool {
    !layout::is_of_name(c)
}

/// Makes a payload without required fields optional.
fn with_optional_payloads(mut declaration: String) -> String {
    let schema = schema::v2().schema;
    for name in command::Command::NAMES {
        let required = &schema["$defs"][format!("command.{name}")]["required"];
        if required.as_array().is_some_and(|names| !names.iter().any(|name| name == "payload")) {
            let tag = format!("\"type\": \"{name}\", \"payload\"");
            declaration = declaration.replace(&format!("{tag}:"), &format!("{tag}?:"));
        }
    }
    declaration
}

fn frames() -> String {
    let mut out = format!("// {NOTICE}\n\n");
    out.push_str(
        r#"import type { REPLIES } from "./command-table.js";
import type { Command } from "./commands.js";
import type { EphemeralEvent, Event } from "./events.js";
import type { HookAnswer, HookCall, HookPoint } from "./hooks.js";
import type { Reply } from "./replies.js";

/**
 * Client to server. The client chooses the `id`, which does not begin with `s_`; that of a writing command has 16 to 64
 * characters. `sessionId` names the session that the command is about: see `Addresses`. `traceparent` is the W3C trace
 * context that it belongs to.
 */
export type CommandFrame = { id: string; sessionId?: string; traceparent?: string } & Command;

/** The one answer to a command. `re` is the command's `id`; an `error` without it is about the connection. */
export type ReplyFrame =
  | { re: string; sessionId?: string; seq?: undefined } & Reply
  | { re?: undefined; sessionId?: string; seq?: undefined } & Extract<Reply, { type: "error" }>;

/** A stored event: 1, 2, 3 … in each session, without a gap. */
export type DurableFrame = { re?: undefined; sessionId: string; seq: number } & Event;

/**
 * An event that is not stored and may be missed. `session_changed` is about the list and `token_expiring` about the
 * connection; they have no `sessionId`.
 */
export type EphemeralFrame = { re?: undefined; sessionId?: string; seq?: undefined } & EphemeralEvent;

/** Server to client. Ignore a `type` that is not among these: a newer server sends more. */
export type ServerFrame = ReplyFrame | DurableFrame | EphemeralFrame;

/** The command called `T`. */
export type CommandOf<T extends Command["type"]> = Extract<Command, { type: T }>;

/** The reply to each command; every command may also be answered by `error`. */
export type ReplyTypes = typeof REPLIES;

/** Whether a command's frame names a session. */
export interface Addresses {
"#,
    );
    for spec in command::Command::TABLE {
        let address = match spec.address {
            command::Address::None => "none",
            command::Address::Optional => "optional",
            command::Address::Required => "required",
        };
        let _ = writeln!(out, "  {}: \"{address}\";", spec.name);
    }
    out.push_str(
        r#"}

/** The replies that the command called `T` can get. */
export type ReplyTo<T extends Command["type"]> = Extract<Reply, { type: ReplyTypes[T] | "error" }>;

/** The call to a hook at point `P`. */
export type HookCallAt<P extends HookPoint> = Extract<HookCall, { point: P }>;

/** The fields that an answer may have at each point, besides `error`. */
export interface HookAnswerFields {
"#,
    );
    for point in HookPoint::ALL {
        let fields: Vec<String> = point.answer_fields().iter().map(|field| format!("\"{field}\"")).collect();
        let _ = writeln!(out, "  {}: {};", point.as_str(), fields.join(" | "));
    }
    out.push_str(
        r#"}

/** The answer of a hook at point `P`; with the call's `hookCallId`, it is the payload of `hook_result`. */
export type HookAnswerAt<P extends HookPoint> = Pick<HookAnswer, HookAnswerFields[P] | "error">;
"#,
    );
    out
}

/// Returns what programs need from the table of commands, as constants.
fn command_table() -> String {
    let mut out = format!("// {NOTICE}\n\nimport type {{ Command }} from \"./commands.js\";\n");
    let mut list = |name: &str, docs: &str, is_listed: fn(&command::Spec) -> bool| {
        let _ = writeln!(out, "\n/** {docs} */\nexport const {name} = [");
        for spec in command::Command::TABLE.iter().filter(|spec| is_listed(spec)) {
            let _ = writeln!(out, "  \"{}\",", spec.name);
        }
        out.push_str("] as const satisfies readonly Command[\"type\"][];\n");
    };
    let writing = "Commands that change a session, once for each `id`: send one again if its reply was lost.";
    list("WRITING_COMMANDS", writing, |spec| spec.does.writes());
    list("QUERIES", "Commands that only read: repeating them changes nothing.", command::Spec::is_query);
    list("WITHOUT_SUBSCRIPTION", "Commands that work without a subscription to their session.", |spec| {
        !spec.needs_subscription() || spec.address == command::Address::Optional
    });
    out.push_str("\n/** A command that changes a session. */\n");
    out.push_str("export type WritingCommand = (typeof WRITING_COMMANDS)[number];\n\n");
    out.push_str("/** The reply to each command that was not refused. */\nexport const REPLIES = {\n");
    for spec in command::Command::TABLE {
        let _ = writeln!(out, "  {}: \"{}\",", spec.name, spec.reply);
    }
    out.push_str("} as const satisfies Record<Command[\"type\"], string>;\n");
    out
}

fn index() -> String {
    let mut out =
        format!("// {NOTICE}\n\nexport type * from \"./frames.js\";\nexport * from \"./command-table.js\";\n");
    let mut seen = BTreeSet::from(["v1"]);
    for (_, file) in FILES {
        if seen.insert(file) {
            let _ = writeln!(out, "export type * from \"./{file}.js\";");
        }
    }
    out.push_str("/** The older dialect. */\nexport type * as v1 from \"./v1.js\";\n");
    out
}
