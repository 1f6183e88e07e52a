//! Which hooks are asked: those of the server and of the host, and owed ones.

use crate::agent_loop::{hooks::roster::has_work, workspace::Workspace};
use crate::hook::{HookPlace, HookSpec};
use reseed_protocol::{
    CommandId,
    hook::{ContextReason, HookPoint},
};

impl Workspace {
    /// Returns the hooks of the server and of the host.
    fn hooks_here(&self) -> impl Iterator<Item = (HookPlace, &HookSpec)> {
        let server = self.deployment.hooks.iter().map(|spec| (HookPlace::Server, spec));
        server.chain(self.roster.client.iter().map(|spec| (HookPlace::Client, spec)))
    }

    /// Returns true if the server has this hook no more.
    pub(crate) fn has_lost(&self, place: HookPlace, spec: &HookSpec) -> bool {
        place == HookPlace::Server && !self.deployment.hooks.iter().any(|here| here.overlaps(spec))
    }

    /// Returns all hooks that apply to the running turn.
    pub(crate) fn all_hooks(&self) -> impl Iterator<Item = (HookPlace, &HookSpec)> {
        let owed = self.roster.owed_to_turn(&self.session.state);
        self.hooks_here().chain(owed.map(|spec| (HookPlace::Client, spec)))
    }

    /// Returns the hooks that are asked about an input.
    pub(crate) fn hooks_on_input(&self, id: &CommandId) -> impl Iterator<Item = (HookPlace, &HookSpec)> {
        self.hooks_here().chain(self.roster.owed_to_input(id).map(|spec| (HookPlace::Client, spec)))
    }

    /// Returns true if any hook is asked about this command's input.
    pub(crate) fn has_input_hooks(&self, id: &CommandId) -> bool {
        self.hooks_on_input(id).any(|(_, spec)| spec.is_asked(HookPoint::Message, None))
    }

    /// Returns true if any hook is asked at this point.
    pub(crate) fn has_hooks(&self, point: HookPoint, reason: Option<ContextReason>) -> bool {
        self.all_hooks().any(|(_, spec)| spec.is_asked(point, reason))
    }

    /// Returns true if any hook at this point must be waited for.
    pub(crate) fn awaits_hooks(&self, point: HookPoint) -> bool {
        self.all_hooks().any(|(_, spec)| spec.point == point && !spec.observe)
    }

    /// Stores the required hooks if work in progress needs them.
    pub(super) fn keep_hooks_of_work(&mut self) {
        if has_work(&self.session.state)
            && let Some(event) = self.roster.to_keep(&self.session.state)
        {
            self.append(vec![event], Vec::new());
        }
    }
}
