//! The tools of a server: found by name, and checked as the core offers them.

use super::{Call, Output, Tool, mcp::Mcp};
use crate::core::agent_loop::{Tools, check_server_tools};
use futures_util::FutureExt as _;
use reseed_protocol::{ErrorBody, SessionId, tools::ToolOffer};
use std::{collections::BTreeMap, fmt, panic::AssertUnwindSafe, sync::Arc};

/// The tools that a server runs. Cheap to clone; replaced as a whole when they change.
#[derive(Clone, Default)]
pub struct Toolset {
    tools: Arc<Named>,
    /// The servers behind some of the tools.
    mcp: Option<Arc<Mcp>>,
}

#[derive(Default)]
struct Named {
    by_name: BTreeMap<String, Arc<dyn Tool>>,
    checked: Tools,
    /// The tools that search the session's history. They are offered under separate conditions.
    history: Tools,
}

impl Toolset {
    /// Checks tools, and those that search the history.
    ///
    /// # Errors
    /// `invalid_tools`, naming the tool: two have one name, or a name or schema is not valid.
    pub fn new(tools: Vec<Arc<dyn Tool>>, history: Vec<Arc<dyn Tool>>) -> Result<Self, ErrorBody> {
        let offers = |tools: &[Arc<dyn Tool>]| tools.iter().map(|tool| tool.offer()).collect::<Vec<ToolOffer>>();
        let (own, searching) = (offers(&tools), offers(&history));
        // They are checked together, to find names that occur twice.
        check_server_tools([own.clone(), searching.clone()].concat())?;
        let (checked, found) = (check_server_tools(own)?, check_server_tools(searching)?);
        let all = tools.into_iter().chain(history);
        let by_name = all.map(|tool| (tool.offer().name, tool)).collect();
        Ok(Self { tools: Arc::new(Named { by_name, checked, history: found }), mcp: None })
    }

    /// Adds the MCP servers, which are notified of deleted sessions.
    pub(crate) fn with_mcp(self, mcp: Option<Arc<Mcp>>) -> Self {
        Self { mcp, ..self }
    }

    /// Returns the tools that every session may offer.
    #[must_use]
    pub fn checked(&self) -> &Tools {
        &self.tools.checked
    }

    /// Returns the tools that search the history.
    #[must_use]
    pub fn history(&self) -> &Tools {
        &self.tools.history
    }

    /// Lets every tool and every MCP server free what it keeps for a deleted session.
    pub(crate) async fn forget(&self, session: &SessionId) {
        for tool in self.tools.by_name.values() {
            tool.forget(session).await;
        }
        if let Some(mcp) = &self.mcp {
            mcp.forget(session).await;
        }
    }

    /// Runs a call. A call that panics fails, and the tool can be called again.
    pub(crate) async fn call(&self, name: &str, call: Call) -> Output {
        let Some(tool) = self.tools.by_name.get(name).cloned() else {
            return Output::error(format!("The tool `{name}` is no longer available."));
        };
        // After a panic, nothing of the call is used again. A lock that the tool poisoned is its own.
        let called = AssertUnwindSafe(async { tool.call(call).await }).catch_unwind().await;
        called.unwrap_or_else(|_| Output::error(format!("The tool `{name}` failed unexpectedly.")))
    }
}

impl fmt::Debug for Toolset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.by_name.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{CallFuture, Progress};

    struct Named(&'static str);

    impl Tool for Named {
        fn offer(&self) -> ToolOffer {
            ToolOffer::new(self.0, "For tests.", serde_json::json!({ "type": "object" }))
        }

        fn call(&self, call: Call) -> CallFuture<'_> {
            match self.0 {
                "early" => panic!("before the future"),
                "late" => Box::pin(async { panic!("in the future") }),
                _ => Box::pin(async move { Output::text(call.arguments.to_string()) }),
            }
        }
    }

    fn tools(names: &[&'static str]) -> Vec<Arc<dyn Tool>> {
        names.iter().map(|name| Arc::new(Named(name)) as Arc<dyn Tool>).collect()
    }

    #[tokio::test]
    async fn a_tool_that_panics_or_is_gone_fails_its_call_alone() {
        let set = Toolset::new(tools(&["echo", "early", "late"]), Vec::new()).unwrap();
        let call = || Call {
            call_id: "call".parse().unwrap(),
            session: "session".parse().unwrap(),
            leaf: None,
            arguments: serde_json::json!({ "a": 1 }),
            progress: Progress::new(|_| {}),
        };
        let table = [
            ("echo", Output::text(r#"{"a":1}"#)),
            ("early", Output::error("The tool `early` failed unexpectedly.")),
            ("late", Output::error("The tool `late` failed unexpectedly.")),
            ("gone", Output::error("The tool `gone` is no longer available.")),
        ];
        for (name, expected) in table {
            assert_eq!(set.call(name, call()).await, expected, "{name}");
        }
    }

    #[test]
    fn two_tools_of_one_name_are_refused_also_if_one_searches_the_history() {
        for (own, history) in [(&["a", "a"][..], &[][..]), (&["a"][..], &["a"][..])] {
            let error = Toolset::new(tools(own), tools(history)).unwrap_err();
            assert!(error.message.contains("`a` is offered twice"), "{}", error.message);
        }
    }
}
