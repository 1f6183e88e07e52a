//! The tools that a server lists, in the form in which the model gets them: bounded, named, and in a fixed order.

use super::{file::Spec, names::names, sessions};
use crate::core::agent_loop::check_offers;
use reseed_protocol::tools::{ToolAnnotations, ToolOffer};
use rmcp::model::Tool;

/// Maximum tools of one server. A client may offer as many, and OpenAI accepts as many in one request.
pub(super) const TOOLS_MAX: usize = 128;

/// Maximum characters of a description, which is sent with every request. The longest of well-known servers has half of
/// it.
const DESCRIPTION_CHARS_MAX: usize = 8 * 1024;

/// Maximum number of omitted tools that are named.
const LEFT_OUT_MAX: usize = 32;

/// Maximum characters of a server's own name for a tool.
const TOOL_CHARS_MAX: usize = 256;

/// The tools of one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Listing {
    /// The offers, each with the server's own name of the tool, sorted by that name.
    pub(super) offers: Vec<(String, ToolOffer)>,
    /// Why some tools are not offered, for the operator.
    pub(super) left_out: Vec<String>,
}

/// Returns a server's list as it is offered. Tools are sorted by name, because some servers shuffle their list, and
/// each new order would invalidate the provider's cache.
pub(super) fn listing(spec: &Spec, mut tools: Vec<Tool>, total: usize) -> Listing {
    let mut listing = Listing::default();
    let mut left_out = |why: String| {
        if listing.left_out.len() < LEFT_OUT_MAX {
            listing.left_out.push(why);
        }
    };
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools.retain(|tool| spec.allows(&tool.name));
    let all = total.max(tools.len());
    if tools.len() > TOOLS_MAX {
        tools.truncate(TOOLS_MAX);
        left_out(format!(
            "it lists {all} tools; the first {TOOLS_MAX} by name are offered: choose with `enabledTools`"
        ));
    }
    let made = names(&spec.prefix, &tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>());
    let mut offers = Vec::with_capacity(tools.len());
    for (tool, name) in tools.into_iter().zip(made) {
        let shown: String = tool.name.chars().filter(|c| !c.is_control()).take(64).collect();
        if tool.name.is_empty() || tool.name.len() > TOOL_CHARS_MAX {
            left_out(format!("`{shown}`: its name must have 1 to {TOOL_CHARS_MAX} bytes"));
            continue;
        }
        let own = tool.name.to_string();
        let offer = offer(name, tool, spec.timeout_ms);
        // These are the same checks and repairs as for a client's tools. A schema that is too large or endless is
        // refused.
        match check_offers(vec![offer]) {
            Ok(checked) => offers.extend(checked.offers().map(|(offer, _)| (own.clone(), offer.clone()))),
            Err(error) => left_out(format!("`{shown}`: {}", error.message)),
        }
    }
    listing.offers = offers;
    listing
}

/// Returns the offer of a tool.
fn offer(name: String, tool: Tool, timeout_ms: Option<u64>) -> ToolOffer {
    let mut description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default().to_owned();
    if let Some((end, _)) = description.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        description.truncate(end);
        description.push('…');
    }
    let parameters = serde_json::Value::Object((*tool.input_schema).clone());
    let annotations = tool.annotations.map(|hints| ToolAnnotations {
        read_only: hints.read_only_hint,
        destructive: hints.destructive_hint,
        idempotent: hints.idempotent_hint,
        open_world: hints.open_world_hint,
    });
    let sequential = sessions::is_sequential(tool.meta.as_ref());
    ToolOffer { timeout_ms, sequential, annotations, ..ToolOffer::new(name, description, parameters) }
}

#[cfg(test)]
mod tests {
    use super::{super::file::Link, DESCRIPTION_CHARS_MAX, listing};
    use crate::tools::mcp::file::Spec;
    use reseed_protocol::tools::ToolAnnotations;
    use rmcp::model::Tool;
    use serde_json::{Value, json};
    use std::{collections::BTreeSet, sync::Arc, time::Duration};

    fn spec() -> Spec {
        Spec {
            name: "a b".into(),
            prefix: "a_b".into(),
            link: Link::Scripted(Arc::new(|| tokio::io::duplex(1).0)),
            startup: Duration::from_secs(1),
            timeout_ms: Some(5_000),
            idle: None,
            only: None,
            without: BTreeSet::new(),
            secrets: Default::default(),
        }
    }

    fn tool(fields: Value) -> Tool {
        serde_json::from_value(fields).unwrap()
    }

    fn plain(name: &str) -> Tool {
        tool(json!({ "name": name, "inputSchema": { "type": "object" } }))
    }

    #[test]
    fn tools_become_offers() {
        let whole = json!({
            "name": "rm.all", "title": "Remove", "description": "Removes all.",
            "inputSchema": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false },
        });
        let bare = json!({ "name": "ls", "title": "List", "inputSchema": {} });
        let listing = listing(&spec(), vec![tool(whole.clone()), tool(bare)], 0);
        assert_eq!(listing.left_out.len(), 0);
        let [(_, ls), (own, rm)] = &listing.offers[..] else { panic!("{listing:?}") };
        assert_eq!((ls.name.as_str(), ls.description.as_str()), ("a_b__ls", "List"));
        assert_eq!(ls.parameters, json!({ "type": "object", "properties": {} }));
        assert_eq!((ls.annotations, ls.timeout_ms), (None, Some(5_000)));
        assert_eq!(
            (own.as_str(), rm.name.as_str(), rm.description.as_str()),
            ("rm.all", "a_b__rm_all", "Removes all.")
        );
        assert_eq!(rm.parameters["required"], json!(["path"]));
        let expected = ToolAnnotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(true),
            open_world: Some(false),
        };
        assert_eq!(rm.annotations, Some(expected));
    }

    #[test]
    fn the_order_is_that_of_the_names() {
        let names = |tools: &[&str]| -> Vec<String> {
            let listing = listing(&spec(), tools.iter().map(|name| plain(name)).collect(), 0);
            listing.offers.into_iter().map(|(own, _)| own).collect()
        };
        assert_eq!(names(&["c", "a", "b", "a"]), ["a", "b", "c"]);
        assert_eq!(names(&["b", "c", "a"]), ["a", "b", "c"]);
    }

    #[test]
    fn tools_are_chosen_by_the_file() {
        for (only, without, expected) in [
            (None, vec![], vec!["a", "b", "c"]),
            (Some(vec!["a", "c", "d"]), vec![], vec!["a", "c"]),
            (None, vec!["b"], vec!["a", "c"]),
            (Some(vec!["a", "b"]), vec!["b"], vec!["a"]),
        ] {
            let set = |names: Vec<&str>| -> BTreeSet<String> { names.into_iter().map(str::to_owned).collect() };
            let spec = Spec { only: only.clone().map(set), without: set(without.clone()), ..spec() };
            let listing = listing(&spec, ["a", "b", "c"].map(plain).into(), 0);
            let offered: Vec<&str> = listing.offers.iter().map(|(own, _)| own.as_str()).collect();
            assert_eq!(offered, expected, "{only:?} {without:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_left_out_with_the_reason() {
        let long = "ü".repeat(DESCRIPTION_CHARS_MAX + 1);
        let tools = vec![
            tool(json!({ "name": "long", "description": long, "inputSchema": {} })),
            tool(json!({ "name": "wide", "inputSchema": { "type": "object", "description": "x".repeat(70_000) } })),
            tool(json!({ "name": "endless", "inputSchema": { "$ref": "#" } })),
            tool(json!({ "name": "n".repeat(257), "inputSchema": {} })),
            tool(json!({ "name": "", "inputSchema": {} })),
        ];
        let listing = super::listing(&spec(), tools, 0);
        let [(_, long)] = &listing.offers[..] else { panic!("{:?}", listing.left_out) };
        assert_eq!(long.description.chars().count(), DESCRIPTION_CHARS_MAX + 1);
        assert_eq!(listing.left_out.len(), 4, "{:?}", listing.left_out);
        assert!(
            listing.left_out.iter().any(|why| why.starts_with("`wide`: ") && why.contains("65536")),
            "{:?}",
            listing.left_out
        );

        let tools = (0..500).map(|n| plain(&format!("t{n:03}"))).collect();
        let listing = super::listing(&spec(), tools, 0);
        assert_eq!((listing.offers.len(), listing.offers[127].0.as_str()), (128, "t127"));
        assert_eq!(
            listing.left_out,
            ["it lists 500 tools; the first 128 by name are offered: choose with `enabledTools`"]
        );
    }
}
