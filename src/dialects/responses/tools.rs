//! The client's tools: functions, tools that take free text, a search for more tools, and namespaces.
//!
//! A model knows functions by one name each, and gives them JSON. So a tool of a namespace is offered to it as
//! `NAMESPACE__NAME`, and a tool that takes free text as a function with the text as its argument. The client gets the
//! calls as it has named the tools. The names in force are stored with each input, so calls are found again later.

use super::request::Invalid;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use reseed_protocol::tools::ToolOffer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, hash_map::Entry},
    io::{Read as _, Write as _},
};

/// The namespace whose tools keep their names, because clients take calls of them without a namespace, too.
const PLAIN: &str = "functions";

/// Maximum length of a name that the model knows.
const NAME_LENGTH_MAX: usize = 64;

/// Bytes of a digest, as hexadecimal digits at the end of a name that was too long.
const DIGEST_BYTES: usize = 4;

/// Maximum bytes of a name that a client gives: that of a namespace is read once more with each of its tools.
const GIVEN_NAME_BYTES_MAX: usize = 512;

/// Maximum tools of a list, and of those in force. The server takes no more from one client.
const TOOLS_MAX: usize = 128;

/// Maximum bytes of tools before they are packed. No more are unpacked.
const UNPACKED_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The argument of a function that stands for a tool with free text.
const TEXT: &str = "input";

/// The type of a tool that holds others.
const NAMESPACE: &str = "namespace";

/// The type of a tool that finds others, and the model's name of it.
pub(super) const SEARCH: &str = "tool_search";

/// A tool of the client.
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tool {
    /// `function`, `custom`, `namespace`, or `tool_search` by the client. Others are left out.
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(test, schema(value_type = Object))]
    parameters: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    /// The form of the text that a `custom` tool takes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[cfg_attr(test, schema(value_type = Object))]
    format: Value,
    /// Who makes the calls of `tool_search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    execution: Option<String>,
    /// The functions and custom tools of a `namespace`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schema(no_recursion))]
    tools: Vec<Tool>,
}

impl Tool {
    /// Returns the tool as the response repeats it; `None` if it is of another server. Clients such as Codex offer
    /// those to everyone, and the response says which were taken.
    pub(super) fn shown(&self) -> Option<Value> {
        let mut shown = json!(self);
        match self.kind.as_str() {
            "function" => {
                shown["parameters"] = self.parameters.clone();
                shown["strict"] = self.strict.unwrap_or(false).into();
            }
            NAMESPACE => {}
            _ => return self.kind().map(|_| shown),
        }
        Some(shown)
    }

    /// Returns its kind, if the client makes its calls.
    fn kind(&self) -> Option<Kind> {
        Kind::of(&self.kind).filter(|kind| *kind != Kind::Search || self.execution.as_deref() == Some("client"))
    }

    /// Returns the tools that it stands for, and their namespace.
    fn inner(&self) -> (Option<&str>, &[Self]) {
        match self.kind == NAMESPACE {
            true => (Some(self.name.as_str()), &self.tools[..]),
            false => (None, std::slice::from_ref(self)),
        }
    }

    /// Returns the tools that it stands for, except those of other servers.
    fn members(&self) -> impl Iterator<Item = Member<'_>> {
        let (namespace, tools) = self.inner();
        tools.iter().filter_map(move |tool| Some(Member { joined: tool.joined(namespace)?, namespace, tool }))
    }

    /// Returns how the client names the tool in this namespace, if it makes its calls.
    fn named(&self, namespace: Option<&str>) -> Option<Named> {
        let kind = self.kind()?;
        let name = if kind == Kind::Search { SEARCH } else { self.name.as_str() };
        Some(Named { name: name.to_owned(), namespace: namespace.map(str::to_owned), kind })
    }

    /// Returns the model's name of the tool in this namespace, if the client makes its calls.
    fn joined(&self, namespace: Option<&str>) -> Option<String> {
        self.named(namespace).map(|named| named.joined())
    }

    /// Returns the description that the model gets, and the schema of the arguments.
    fn described(&self) -> (String, Value) {
        let mut description = self.description.clone().unwrap_or_default();
        if self.kind != "custom" {
            return (description, self.parameters.clone());
        }
        description.push_str(&format!("\n\nIts argument `{TEXT}` is the raw text."));
        if let Some(grammar) = self.format["definition"].as_str() {
            let syntax = self.format["syntax"].as_str().unwrap_or("formal");
            description.push_str(&format!(" The text follows this {syntax} grammar:\n{grammar}"));
        }
        let parameters = json!({
            "type": "object", "properties": { TEXT: { "type": "string" } }, "required": [TEXT],
            "additionalProperties": false,
        });
        (description, parameters)
    }
}

/// A tool that the model gets.
struct Member<'a> {
    /// The model's name of it.
    joined: String,
    namespace: Option<&'a str>,
    tool: &'a Tool,
}

/// The kind of input that a tool takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Arguments, as JSON.
    Function,
    /// Free text.
    Custom,
    /// Words, to find tools that the client has not sent. Its result has them.
    Search,
}

impl Kind {
    fn of(kind: &str) -> Option<Self> {
        [Self::Function, Self::Custom, Self::Search].into_iter().find(|known| known.name() == kind)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Custom => "custom",
            Self::Search => SEARCH,
        }
    }
}

/// The name of a tool as its client knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) kind: Kind,
}

impl Named {
    fn joined(&self) -> String {
        join(self.namespace.as_deref(), &self.name)
    }

    /// Returns the type of its calls, and their field for what it is given.
    pub(super) fn kind(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Function => ("function_call", "arguments"),
            Kind::Custom => ("custom_tool_call", "input"),
            Kind::Search => ("tool_search_call", "arguments"),
        }
    }

    /// Returns the beginning of the types of events with what it is given.
    pub(super) fn event(&self) -> String {
        let (kind, field) = self.kind();
        format!("response.{kind}_{field}")
    }

    /// Returns a call of the tool as clients get it.
    pub(super) fn call(&self, id: &str, call_id: &str, given: &str, status: &str) -> Value {
        let (kind, field) = self.kind();
        let mut call = json!({ "type": kind, "id": id, "call_id": call_id, "status": status });
        if self.kind == Kind::Search {
            call["execution"] = "client".into();
            call[field] = serde_json::from_str(given).unwrap_or_else(|_| json!({}));
            return call;
        }
        call["name"] = self.name.as_str().into();
        call[field] = given.into();
        if let Some(namespace) = &self.namespace {
            call["namespace"] = namespace.as_str().into();
        }
        call
    }

    /// Returns what a call gives the tool: the arguments, or the text in them.
    pub(super) fn given(&self, arguments: &str) -> String {
        let read: Value = match self.kind == Kind::Custom {
            true => serde_json::from_str(arguments).unwrap_or_default(),
            false => Value::Null,
        };
        read[TEXT].as_str().unwrap_or(arguments).to_owned()
    }

    /// Returns the prefix of the ids of its calls.
    pub(super) fn prefix(&self) -> &'static str {
        if self.kind == Kind::Custom { "ctc" } else { "fc" }
    }
}

/// The names of the client's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names(Vec<Named>);

impl Names {
    /// Reads the names that were stored with an input.
    pub(super) fn of_stored(stored: &Value) -> Self {
        let named = |item: &Value| {
            Some(Named {
                name: item.as_str().or(item["name"].as_str())?.to_owned(),
                namespace: item["namespace"].as_str().map(str::to_owned),
                kind: Kind::of(item["kind"].as_str().unwrap_or("function"))?,
            })
        };
        Self(stored["functions"].as_array().into_iter().flatten().filter_map(named).collect())
    }

    /// Returns what is stored with an input: only the name of a function without a namespace.
    pub(super) fn stored(&self) -> Value {
        let item = |Named { name, namespace, kind }: &Named| match (namespace, kind) {
            (None, Kind::Function) => json!(name),
            _ => json!({ "name": name, "namespace": namespace, "kind": kind.name() }),
        };
        self.0.iter().map(item).collect()
    }

    /// Returns the tool that the model knows by this name.
    pub(super) fn get(&self, joined: &str) -> Option<&Named> {
        self.0.iter().find(|named| named.joined() == joined)
    }

    /// Returns how to show a call of a tool that the model knows by this name: one that is not in force has only that.
    pub(super) fn named(&self, joined: &str) -> Named {
        let unknown = || Named { name: joined.to_owned(), namespace: None, kind: Kind::Function };
        self.get(joined).cloned().unwrap_or_else(unknown)
    }

    /// Returns the names that the model knows.
    pub(super) fn joined(&self) -> Vec<String> {
        self.0.iter().map(Named::joined).collect()
    }
}

/// The tools that are in force for a request.
#[derive(Debug, Default)]
pub(super) struct Tools {
    pub(super) names: Names,
    /// What the model gets. Calls of these end a response.
    pub(super) offers: Vec<ToolOffer>,
}

impl Tools {
    /// Returns the tools of a chain's items and those of a request. Where they are too many, the request's are kept.
    pub(super) fn of(additional: &[Tool], own: &[Tool]) -> Self {
        let mut tools = Self::default();
        for tool in &added(additional, own) {
            if tool.kind == NAMESPACE {
                let description = tool.description.as_deref().unwrap_or_default().trim();
                let mut about = match description {
                    "" => String::new(),
                    _ => format!("The tools of `{}`: {description}\n\n", tool.name),
                };
                // What holds for all of them is said once.
                tool.tools.iter().for_each(|inner| tools.add(inner, Some(&tool.name), &mut about));
            } else {
                tools.add(tool, None, &mut String::new());
            }
        }
        tools
    }

    fn add(&mut self, tool: &Tool, namespace: Option<&str>, about: &mut String) {
        let Some(named) = tool.named(namespace) else { return };
        let (description, parameters) = tool.described();
        let description = std::mem::take(about) + &description;
        let offer = ToolOffer::new(named.joined(), description, parameters);
        self.offers.push(ToolOffer { ends_turn: Some(true), ..offer });
        self.names.0.push(named);
    }
}

/// Returns the model's name of a tool: in a namespace, a name that every provider accepts.
pub(super) fn join(namespace: Option<&str>, name: &str) -> String {
    let Some(namespace) = namespace.filter(|namespace| *namespace != PLAIN) else { return name.to_owned() };
    let full = format!("{namespace}__{name}");
    let mut joined: String = full.chars().map(|c| if is_letter(c) { c } else { '_' }).collect();
    if joined.len() > NAME_LENGTH_MAX {
        joined.truncate(NAME_LENGTH_MAX - 2 * DIGEST_BYTES - 1);
        joined.push('_');
        let digest = Sha256::digest(full);
        joined.extend(digest[..DIGEST_BYTES].iter().map(|byte| format!("{byte:02x}")));
    }
    joined
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Checks a list of tools as a client sends it, in the field `param`. Those of other servers do not count.
///
/// # Errors
/// They are too many, or a name is none that the model can have, or the model would have one name for two of them.
pub(super) fn check(tools: &[Tool], param: &str) -> Result<(), Invalid> {
    // Counted before any name is read, so that a long list costs little.
    let count: usize =
        tools.iter().map(|tool| tool.inner().1.iter().filter(|inner| inner.kind().is_some()).count()).sum();
    if count > TOOLS_MAX {
        return Err(Invalid::tools(param, format!("at most {TOOLS_MAX} tools may be offered, not {count}")));
    }
    let mut known: HashMap<String, (Option<&str>, &Tool)> = HashMap::new();
    for (at, tool) in tools.iter().enumerate() {
        let (namespace, inner) = tool.inner();
        for (within, tool) in inner.iter().enumerate().filter(|(_, tool)| tool.kind().is_some()) {
            let invalid = |message: String| {
                let place = if namespace.is_some() { format!("[{at}].tools[{within}]") } else { format!("[{at}]") };
                Err(Invalid::tools(format!("{param}{place}.name"), message))
            };
            if namespace.into_iter().chain([tool.name.as_str()]).any(|name| name.len() > GIVEN_NAME_BYTES_MAX) {
                return invalid(format!("a name has at most {GIVEN_NAME_BYTES_MAX} bytes"));
            }
            let Some(joined) = tool.joined(namespace) else { continue };
            if joined.is_empty() || joined.len() > NAME_LENGTH_MAX || !joined.chars().all(is_letter) {
                let message = format!("a tool's name must be 1 to {NAME_LENGTH_MAX} of A-Za-z0-9_-, not `{joined}`");
                return invalid(message);
            }
            // The same tool may come again: the later one is in force.
            if let Some((other_namespace, other)) = known.insert(joined.clone(), (namespace, tool))
                && (other_namespace, &other.kind, &other.name) != (namespace, &tool.kind, &tool.name)
            {
                return invalid(format!("the tool `{joined}` is offered twice"));
            }
        }
    }
    Ok(())
}

/// Checks the tools in the items of the field `name`. What is wrong with the items themselves is found later.
///
/// # Errors
/// As [`check`], for the first of the items that has such tools.
pub(super) fn check_items(items: &Value, name: &str) -> Result<(), Invalid> {
    for (at, item) in items.as_array().into_iter().flatten().enumerate() {
        if matches!(item["type"].as_str(), Some("additional_tools" | "tool_search_output"))
            && let Ok(tools) = Vec::<Tool>::deserialize(&item["tools"])
        {
            check(&tools, &format!("{name}[{at}].tools"))?;
        }
    }
    Ok(())
}

/// Returns the arguments of the function that stands for a tool with free text.
pub(super) fn arguments_of(text: &str) -> String {
    json!({ TEXT: text }).to_string()
}

/// Returns the result of a search that has found these tools, as text. The model gets the tools with its next request.
pub(super) fn found(tools: &[Tool]) -> String {
    match Tools::of(tools, &[]).names.joined() {
        names if names.is_empty() => "No tools were found.".to_owned(),
        names => format!("These tools can be called now: {}", names.join(", ")),
    }
}

/// Returns tools with new ones. Each takes the place of an earlier one for which the model has the same name, whatever
/// its type; namespaces keep their other tools. Of more than [`TOOLS_MAX`], those that came last are kept. Tools of
/// other servers are left out.
pub(super) fn added(earlier: &[Tool], new: &[Tool]) -> Vec<Tool> {
    let all = || earlier.iter().chain(new);
    let mut newest: HashMap<String, (usize, Member<'_>)> = HashMap::new();
    for (at, member) in all().flat_map(Tool::members).enumerate() {
        newest.insert(member.joined.clone(), (at, member));
    }
    if newest.len() > TOOLS_MAX {
        let mut ages: Vec<usize> = newest.values().map(|(at, _)| *at).collect();
        ages.sort_unstable();
        let first = ages[ages.len() - TOOLS_MAX];
        newest.retain(|_, (at, _)| *at >= first);
    }
    let namespaces: HashMap<&str, &Tool> =
        all().filter(|tool| tool.kind == NAMESPACE).map(|tool| (tool.name.as_str(), tool)).collect();
    let mut added: Vec<Tool> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for Member { joined, namespace, .. } in all().flat_map(Tool::members) {
        // A tool stands where its name came first, unless that was in another namespace.
        let Entry::Occupied(entry) = newest.entry(joined) else { continue };
        if entry.get().1.namespace != namespace {
            continue;
        }
        let (_, member) = entry.remove();
        match namespace.and_then(|name| Some((name, namespaces.get(name)?))) {
            Some((name, holder)) => {
                let place = *places.entry(name).or_insert_with(|| {
                    added.push(Tool { tools: Vec::new(), ..(*holder).clone() });
                    added.len() - 1
                });
                added[place].tools.push(member.tool.clone());
            }
            None => added.push(member.tool.clone()),
        }
    }
    added
}

/// Returns tools in a short form, to be stored.
///
/// # Errors
/// They are too large to be unpacked.
pub(super) fn packed(tools: &[Tool]) -> Result<String, Invalid> {
    let plain = json!(tools).to_string();
    let bytes = plain.len() as u64;
    if bytes > UNPACKED_BYTES_MAX {
        let message = format!(
            "the additional tools that are kept with it have {bytes} bytes; at most {UNPACKED_BYTES_MAX} are allowed"
        );
        return Err(Invalid::at("input", message));
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let written = packed.write_all(plain.as_bytes()).and_then(|()| packed.finish());
    let written = written.map_err(|error| Invalid::at("input", format!("its tools cannot be kept: {error}")))?;
    Ok(STANDARD_NO_PAD.encode(written))
}

/// Returns the tools of a short form; `None` if it is none, or is too large.
pub(super) fn unpacked(packed: &str) -> Option<Vec<Tool>> {
    let packed = STANDARD_NO_PAD.decode(packed).ok()?;
    serde_json::from_reader(GzDecoder::new(&packed[..]).take(UNPACKED_BYTES_MAX)).ok()
}

#[cfg(test)]
mod tests;
