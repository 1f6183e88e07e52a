//! What the core knows of hooks: where they are asked, for how long, and how they can fail. Who they are and how they
//! are reached is the business of others.

use reseed_protocol::{
    ErrorBody, ErrorCode,
    hook::{ContextReason, HookOffer, HookPoint},
};

/// Hooks that one client, or one server, may have: each is asked in turn.
pub const HOOKS_MAX: usize = 32;

/// Longest name of a hook.
pub const HOOK_NAME_MAX: usize = 64;

/// Longest a hook may ask to take, in milliseconds: ten minutes. A summariser takes long; a turn that waits longer for
/// a hook looks dead to its user.
pub const HOOK_TIMEOUT_MS_MAX: u64 = 10 * 60 * 1000;

/// What a client's hook is called that has no name.
pub const CLIENT_HOOK: &str = "client";

/// A hook: where and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSpec {
    /// Its name, in errors and on what it makes.
    pub name: String,
    /// Where it is asked.
    pub point: HookPoint,
    /// When, for [`HookPoint::Context`]; empty for always.
    pub reasons: Vec<ContextReason>,
    /// Milliseconds that an answer may take; absent for the deployment's default.
    pub timeout_ms: Option<u64>,
    /// Whether nothing goes on without it: what a required hook could not look at does not happen.
    pub required: bool,
    /// Whether it is only told.
    pub observe: bool,
}

impl HookSpec {
    /// A hook of this name that is asked here, and without which nothing goes on.
    #[must_use]
    pub fn new(name: impl Into<String>, point: HookPoint) -> Self {
        Self { name: name.into(), point, reasons: Vec::new(), timeout_ms: None, required: true, observe: false }
    }

    /// Asked only for these reasons; means something for [`HookPoint::Context`] only.
    #[must_use]
    pub fn for_reasons(self, reasons: &[ContextReason]) -> Self {
        Self { reasons: reasons.to_vec(), ..self }
    }

    /// Only told: nobody waits for it, and it changes nothing.
    #[must_use]
    pub fn observing(self) -> Self {
        Self { observe: true, required: false, ..self }
    }

    /// Not required: where it fails or is away, what it was asked about goes on as it was.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { required: false, ..self }
    }

    /// Given so many milliseconds.
    #[must_use]
    pub fn within(self, timeout_ms: u64) -> Self {
        Self { timeout_ms: Some(timeout_ms), ..self }
    }

    /// Whether a hook may be so.
    ///
    /// # Errors
    /// The field that is wrong, as it is called on the wire, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let name = &self.name;
        check_name(name).map_err(|message| ("name", message))?;
        if self.timeout_ms.is_some_and(|timeout| timeout == 0 || timeout > HOOK_TIMEOUT_MS_MAX) {
            return Err(("timeoutMs", format!("the time limit of `{name}` is 1 to {HOOK_TIMEOUT_MS_MAX} ms")));
        }
        if !self.reasons.is_empty() && self.point != HookPoint::Context {
            return Err(("reasons", reasons_elsewhere(name)));
        }
        if self.required && self.observe {
            let message = format!("`{name}` observes: nobody waits for it, so it cannot be required");
            return Err(("required", message));
        }
        Ok(())
    }

    /// Whether two hooks are of one name and would be asked the same.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let always = self.reasons.is_empty() || other.reasons.is_empty();
        self.name == other.name
            && self.point == other.point
            && (always || self.reasons.iter().any(|reason| other.reasons.contains(reason)))
    }

    /// Whether it is required and asked wherever the other hook, of the same name, is.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let reasons = self.reasons.is_empty()
            || !other.reasons.is_empty() && other.reasons.iter().all(|reason| self.reasons.contains(reason));
        self.required && self.name == other.name && self.point == other.point && reasons
    }

    /// Whether it is asked there, for that reason.
    #[must_use]
    pub fn is_asked(&self, point: HookPoint, reason: Option<ContextReason>) -> bool {
        self.point == point && reason.is_none_or(|reason| self.reasons.is_empty() || self.reasons.contains(&reason))
    }
}

/// Reads what a client offers.
///
/// # Errors
/// `invalid_hooks`, naming the hook and what is wrong with it.
pub fn check_hooks(offers: Vec<HookOffer>) -> Result<Vec<HookSpec>, ErrorBody> {
    if offers.len() > HOOKS_MAX {
        let message = format!("a client may offer {HOOKS_MAX} hooks, not {}", offers.len());
        return Err(ErrorBody::new(ErrorCode::InvalidHooks, message).with_field("hooks"));
    }
    offers.into_iter().enumerate().map(|(at, offer)| checked(at, offer)).collect()
}

fn checked(at: usize, offer: HookOffer) -> Result<HookSpec, ErrorBody> {
    let invalid = |field: &str, message: String| {
        Err(ErrorBody::new(ErrorCode::InvalidHooks, message).with_field(format!("hooks[{at}].{field}")))
    };
    let given = offer.reasons.is_some();
    let observe = offer.observe.unwrap_or(false);
    let spec = HookSpec {
        name: offer.name.unwrap_or_else(|| CLIENT_HOOK.to_owned()),
        point: offer.event,
        reasons: offer.reasons.unwrap_or_default(),
        timeout_ms: offer.timeout_ms,
        required: offer.required.unwrap_or(!observe),
        observe,
    };
    if let Err((field, message)) = spec.check() {
        return invalid(field, message);
    }
    if given && spec.point != HookPoint::Context {
        return invalid("reasons", reasons_elsewhere(&spec.name));
    }
    Ok(spec)
}

fn reasons_elsewhere(name: &str) -> String {
    format!("only `context` hooks have reasons, `{name}` is none")
}

/// Whether a hook may be called so.
///
/// # Errors
/// What is wrong with the name.
pub fn check_name(name: &str) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > HOOK_NAME_MAX || !name.chars().all(letters) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(HOOK_NAME_MAX).collect();
        return Err(format!("a hook's name is 1 to {HOOK_NAME_MAX} of A-Za-z0-9._-, not `{shown}`"));
    }
    Ok(())
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPlace {
    /// A hook of the server's, by its place among them.
    Server(usize),
    /// The owner's client.
    Client,
}

/// Why a hook did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HookFault {
    /// `hook_failed`, `hook_timeout` or `hook_unavailable`.
    pub code: ErrorCode,
    /// What went wrong, for people; nothing of what the hook said.
    pub message: String,
}

impl HookFault {
    /// The hook failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::HookFailed, message: message.into() }
    }

    /// The hook is away.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::HookUnavailable, message: message.into() }
    }
}
