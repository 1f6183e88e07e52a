//! The server's tools in random scripts, and the people who decide about their calls.

use super::World;
use crate::{
    agent_loop::{CallTool, Input, Tools, check_server_tools},
    tool::{Output, ToolPlace},
};
use reseed_protocol::{
    ApprovalId, CallId,
    command::SessionCommand,
    event::Event,
    tools::{ApprovalPolicy, ApprovalResponse, Decision, SetTools, ToolAnnotations, ToolOffer, WithdrawApproval},
};

/// Returns the server's tools: one that is read-only, one that needs approval, and one that is also sequential.
pub(super) fn server_tools() -> Tools {
    let tool = |name: &str, read_only, sequential| ToolOffer {
        annotations: Some(ToolAnnotations { read_only: Some(read_only), ..ToolAnnotations::default() }),
        sequential: Some(sequential),
        ..ToolOffer::new(name, "A tool.", serde_json::json!({ "type": "object" }))
    };
    check_server_tools(vec![tool("peek", true, false), tool("dig", false, false), tool("fell", true, true)]).unwrap()
}

impl World {
    /// Checks a call that starts in the server: its event must be durable, and it must not have started before.
    pub(super) fn tool_started(&mut self, call: CallTool) {
        if call.place == ToolPlace::Client {
            return;
        }
        let is_made = |event: &Event| matches!(event, Event::ToolCall(made) if made.call_id == call.call_id);
        assert!(self.log.iter().any(is_made), "seed {}: {} runs before it is durable", self.seed, call.call_id);
        assert!(self.started.insert(call.call_id.clone()), "seed {}: {} runs twice", self.seed, call.call_id);
        self.running.push(call.call_id);
        let state = &self.agent.ledger.session.state;
        let alone = |id: &&CallId| state.pending.iter().any(|call| call.call_id == **id && call.name == "fell");
        let alone = self.running.iter().filter(alone).count();
        assert!(alone <= 1, "seed {}: {alone} sequential calls at once", self.seed);
    }

    /// Lets a server tool answer or report progress, possibly one that is no longer waited for.
    pub(super) fn server_tool_speaks(&mut self) {
        let stale = self.rng.u8(..4) == 0;
        let from: Vec<CallId> = match stale {
            true => self.started.iter().cloned().collect(),
            false => self.running.clone(),
        };
        let Some(call_id) = self.rng.choice(from) else { return };
        if self.rng.u8(..4) == 0 {
            self.tell(Input::ToolProgressed { call_id, message: None });
            return;
        }
        self.running.retain(|running| *running != call_id);
        let images = if self.rng.u8(..4) == 0 { vec!["data:image/png;base64,AAAA".to_owned()] } else { Vec::new() };
        let output = Output { text: "dug ".repeat(self.rng.usize(1..60)), images, is_error: self.rng.bool() };
        self.tell(Input::ToolAnswered { call_id, output });
    }

    /// Lets a person decide about a call, change the rules, or withdraw an answer.
    pub(super) fn somebody_decides(&mut self) {
        let state = &self.agent.ledger.session.state;
        let open: Vec<ApprovalId> = state.approvals.iter().map(|approval| approval.approval_id.clone()).collect();
        let standing = state.standing_approvals.first().map(|answer| answer.approval_id.clone());
        match (self.rng.u8(..8), standing) {
            (0, _) => {
                let off = self.rng.bool().then(|| vec!["peek".to_owned()]);
                let rules = [r#"{"rules":[]}"#, r#"{"rules":[{"tool":"peek","policy":"ask"}]}"#][self.rng.usize(..2)];
                let approvals: ApprovalPolicy = serde_json::from_str(rules).unwrap();
                self.command(SessionCommand::SetTools(SetTools { off, approvals: Some(approvals) }));
            }
            (1, Some(approval_id)) => self.command(SessionCommand::WithdrawApproval(WithdrawApproval { approval_id })),
            _ => {
                let approval_id = self.rng.choice(open).unwrap_or_else(|| "unknown".parse().unwrap());
                let review = [
                    Decision::AllowOnce,
                    Decision::AllowOnce,
                    Decision::AllowAlways,
                    Decision::RejectOnce,
                    Decision::RejectAlways,
                    Decision::RejectAndStop,
                ][self.rng.usize(..6)];
                let response =
                    ApprovalResponse { approval_id, review, arguments_hash: None, custom_deny_message: None };
                self.command(SessionCommand::ApprovalResponse(response));
            }
        }
    }
}
