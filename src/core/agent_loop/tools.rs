//! The tools that a request may offer, and how calls are checked against them.

use crate::context::arguments::is_tool_name;
use crate::schema::{Arguments, Budget};
use crate::tool::{Terms, ToolPlace};
use reseed_protocol::{
    ErrorBody, ErrorCode,
    context::ToolDefinition,
    tools::{ToolOffer, UncheckedPattern},
};
use std::sync::Arc;

/// Maximum number of tools that one client may offer, because each is sent with every request.
pub const TOOLS_MAX: usize = 128;

/// Maximum number of tools of the server and its MCP servers together. Each costs tokens in every request of every
/// session.
pub const SERVER_TOOLS_MAX: usize = 512;

/// Longest time limit that a tool may ask for: one day, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Maximum number of unchecked patterns reported to a client: enough to find the tools that have them.
const UNCHECKED_MAX: usize = 32;

/// Maximum characters of an unknown tool's name shown to the model: as many as a name may have.
const NAME_CHARS_MAX: usize = 64;

/// Maximum number of tool names listed for a model that calls an unknown tool. The request offers them all anyway.
const NAMES_MAX: usize = 32;

/// Tools with the validators for their arguments: a client's, the server's, or a session's. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    offers: Arc<Vec<Arc<Offer>>>,
    definitions: Arc<Vec<ToolDefinition>>,
}

#[derive(Debug)]
struct Offer {
    /// The offer, with its parameters as they are sent.
    offer: ToolOffer,
    place: ToolPlace,
    /// The schema as its author meant it; calls are checked against it.
    arguments: Arguments,
}

/// The tools as one request sent them, after patches. Its answer's calls are checked against these.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentTools(Arc<Vec<ToolDefinition>>);

impl SentTools {
    /// Returns true if a tool of this name was sent.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|definition| definition.name == name)
    }

    /// Returns the result for a call to a tool that does not exist. An answer may contain a thousand such calls, so the
    /// name and the list of tools are bounded.
    fn without(&self, name: &str) -> String {
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect::<String>().replace(char::is_control, " ");
        let names: Vec<&str> = self.0.iter().take(NAMES_MAX).map(|definition| definition.name.as_str()).collect();
        let known = match (names.is_empty(), self.0.len() - names.len()) {
            (true, _) => "no tools".to_owned(),
            (false, 0) => names.join(", "),
            (false, more) => format!("{}, and {more} more", names.join(", ")),
        };
        format!("There is no tool `{shown}`; there are: {known}.")
    }
}

/// Validates the tools that a client offers.
///
/// # Errors
/// `invalid_tools`, with the tool and the reason.
pub fn check_offers(offers: Vec<ToolOffer>) -> Result<Tools, ErrorBody> {
    checked(offers, ToolPlace::Client)
}

/// Validates the tools that the server runs.
///
/// # Errors
/// `invalid_tools`, with the tool and the reason.
pub fn check_server_tools(offers: Vec<ToolOffer>) -> Result<Tools, ErrorBody> {
    checked(offers, ToolPlace::Server)
}

fn checked(offers: Vec<ToolOffer>, place: ToolPlace) -> Result<Tools, ErrorBody> {
    let invalid = |at: usize, field: &str, message: String| {
        Err(ErrorBody::new(ErrorCode::InvalidTools, message).with_field(format!("tools[{at}].{field}")))
    };
    let tools_max = match place {
        ToolPlace::Client => TOOLS_MAX,
        ToolPlace::Server => SERVER_TOOLS_MAX,
    };
    if offers.len() > tools_max {
        let message = format!("at most {tools_max} tools may be offered, not {}", offers.len());
        return Err(ErrorBody::new(ErrorCode::InvalidTools, message).with_field("tools"));
    }
    let mut budget = Budget::default();
    let mut checked: Vec<Arc<Offer>> = Vec::with_capacity(offers.len());
    for (at, mut offer) in offers.into_iter().enumerate() {
        let name: String = offer.name.chars().take(64).collect();
        if !is_tool_name(&offer.name) {
            return invalid(at, "name", format!("a tool's name must be 1 to 64 of A-Za-z0-9_-, not `{name}`"));
        }
        if checked.iter().any(|other| other.offer.name == offer.name) {
            return invalid(at, "name", format!("the tool `{name}` is offered twice"));
        }
        if offer.timeout_ms.is_some_and(|timeout| timeout == 0 || timeout > TIMEOUT_MS_MAX) {
            return invalid(at, "timeoutMs", format!("the time limit of `{name}` must be 1 to {TIMEOUT_MS_MAX} ms"));
        }
        match Arguments::of(&offer.parameters, &mut budget) {
            Ok(mut arguments) => {
                offer.parameters = arguments.take_sent();
                checked.push(Arc::new(Offer { offer, place, arguments }));
            }
            Err(why) => return invalid(at, "parameters", format!("the parameters of `{name}` {why}")),
        }
    }
    Ok(Tools::of(checked))
}

impl PartialEq for Tools {
    /// Compares only the offers, because the validators are derived from them.
    fn eq(&self, other: &Self) -> bool {
        self.offers.iter().map(|offer| &offer.offer).eq(other.offers.iter().map(|offer| &offer.offer))
    }
}

impl Tools {
    fn of(offers: Vec<Arc<Offer>>) -> Self {
        let definitions = offers.iter().map(|offer| offer.offer.definition()).collect();
        Self { offers: Arc::new(offers), definitions: Arc::new(definitions) }
    }

    /// Returns the tools that a session offers: the server's, then the client's, without those that are switched off. A
    /// client's tool replaces a server tool of the same name.
    pub(crate) fn offered(server: &[&Self], client: &Self, off: &[String]) -> Self {
        let is_on = |offer: &&Arc<Offer>| !off.contains(&offer.offer.name);
        let server = server.iter().flat_map(|tools| tools.offers.iter()).filter(|offer| !client.has(&offer.offer.name));
        Self::of(server.chain(client.offers.iter()).filter(is_on).cloned().collect())
    }

    /// Returns the offers, in the order in which they are sent.
    pub fn offers(&self) -> impl Iterator<Item = (&ToolOffer, ToolPlace)> {
        self.offers.iter().map(|offer| (&offer.offer, offer.place))
    }

    /// Checks a call that was sent earlier against the current tools. Returns its terms.
    pub(crate) fn recheck(&self, name: &str, arguments: &str) -> Result<Terms, String> {
        self.check_call(&self.sent(&self.definitions), name, arguments)
    }

    /// Returns the tool definitions that the model gets.
    #[must_use]
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// Returns the first 32 patterns in the tools' schemas that are not enforced.
    #[must_use]
    pub fn unchecked_patterns(&self) -> Vec<UncheckedPattern> {
        let unchecked = self.offers.iter().flat_map(|offer| {
            let tool = &offer.offer.name;
            offer.arguments.unchecked().iter().map(move |pattern| UncheckedPattern {
                tool: tool.clone(),
                at: pattern.at.clone(),
                reason: pattern.reason,
            })
        });
        unchecked.take(UNCHECKED_MAX).collect()
    }

    /// Returns the size of the definitions as JSON. Checked and compiled, they take a small multiple of that in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let written = |definition| serde_json::to_vec(definition).map_or(0, |json| json.len() as u64);
        self.definitions.iter().map(written).sum()
    }

    /// Returns true if no tool is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }

    /// Returns true if a tool of this name is offered.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.offers.iter().any(|offer| offer.offer.name == name)
    }

    /// Returns true if a tool of this name is offered and is idempotent: its calls may safely be repeated.
    #[must_use]
    pub fn is_idempotent(&self, name: &str) -> bool {
        self.offers.iter().any(|offer| offer.offer.name == name && offer.offer.is_idempotent())
    }

    /// Returns these definitions as the tools that a request sends.
    pub(crate) fn sent(&self, definitions: &[ToolDefinition]) -> SentTools {
        let is_whole_offer = *self.definitions == definitions;
        SentTools(if is_whole_offer { self.definitions.clone() } else { Arc::new(definitions.to_vec()) })
    }

    /// Checks a call against the tools that were sent. Returns its terms. The error is for the model, so that it can
    /// correct the call.
    pub(crate) fn check_call(&self, sent: &SentTools, name: &str, arguments: &str) -> Result<Terms, String> {
        let Some(definition) = sent.0.iter().find(|definition| definition.name == name) else {
            return Err(sent.without(name));
        };
        let Some(offered) = self.offers.iter().find(|offer| offer.offer.name == name) else {
            return Err(format!("The tool `{name}` is no longer available."));
        };
        let Offer { offer, place, arguments: own } = &**offered;
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let value: serde_json::Value = serde_json::from_str(arguments)
            .map_err(|error| format!("The arguments of `{name}` are not JSON: {error}."))?;
        let is_replaced = definition.parameters != offer.parameters;
        // A patch stored by an earlier version may have an invalid schema. The tool's own schema is then the best
        // available.
        let mut budget = Budget::default();
        let replaced = is_replaced.then(|| Arguments::of(&definition.parameters, &mut budget).ok()).flatten();
        match replaced.as_ref().unwrap_or(own).check(&value, arguments.len()) {
            Ok(()) => Ok(Terms::of(offer, *place)),
            Err(why) => Err(format!("The arguments of `{name}` {why}.")),
        }
    }
}
