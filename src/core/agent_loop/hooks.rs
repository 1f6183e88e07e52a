//! Asking hooks.

use super::{AgentLoop, commands::Caller, info};
use crate::core::hook::check_hooks;
use reseed_protocol::{
    ErrorBody, ErrorCode, Timestamp,
    hook::{HookOffer, HookResult},
};

impl AgentLoop {
    pub(super) fn on_register_hooks(
        &mut self,
        _now: Timestamp,
        caller: &Caller,
        offers: Vec<HookOffer>,
    ) -> Result<(), ErrorBody> {
        check_hooks(offers)?;
        self.reply(caller, info::done(None));
        Ok(())
    }

    pub(super) fn on_hook_result(
        &mut self,
        _now: Timestamp,
        _caller: &Caller,
        result: HookResult,
    ) -> Result<(), ErrorBody> {
        let message = format!("no hook call `{}` waits for an answer", result.call_id);
        Err(ErrorBody::new(ErrorCode::UnknownCall, message).with_field("callId"))
    }
}
