//! Hooks in the core: where they are called, their time limits, and how they fail. Reaching them is handled elsewhere.

use reseed_protocol::{
    ErrorBody, ErrorCode,
    hooks::{ContextReason, HookOffer, HookPoint},
};

/// Maximum hooks of one client or one server, because they are called one after another.
pub const HOOKS_MAX: usize = 32;

/// Maximum length of a hook's name.
pub const HOOK_NAME_MAX: usize = 64;

/// Maximum time limit that a hook may request, in milliseconds: ten minutes. A summariser takes long, but a turn that
/// waits longer for a hook looks dead to its user.
pub const HOOK_TIMEOUT_MS_MAX: u64 = 10 * 60 * 1000;

/// The name of a client's hook without one.
pub const CLIENT_HOOK: &str = "client";

/// A hook: where and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSpec {
    /// Its name, used in errors and recorded on its results.
    pub name: String,
    /// The hook point.
    pub point: HookPoint,
    /// For [`HookPoint::Context`]: the reasons for which it is called; empty for all.
    pub reasons: Vec<ContextReason>,
    /// Time limit for an answer in milliseconds; `None` for the deployment's default.
    pub timeout_ms: Option<u64>,
    /// True if nothing proceeds without it: whatever a required hook could not check does not happen.
    pub required: bool,
    /// True if it is only notified.
    pub observe: bool,
}

impl HookSpec {
    /// Creates a required hook with this name at this point.
    #[must_use]
    pub fn new(name: impl Into<String>, point: HookPoint) -> Self {
        Self { name: name.into(), point, reasons: Vec::new(), timeout_ms: None, required: true, observe: false }
    }

    /// Restricts the hook to these reasons; only meaningful for [`HookPoint::Context`].
    #[must_use]
    pub fn for_reasons(self, reasons: &[ContextReason]) -> Self {
        Self { reasons: reasons.to_vec(), ..self }
    }

    /// Makes it an observer: it is not waited for and changes nothing.
    #[must_use]
    pub fn observing(self) -> Self {
        Self { observe: true, required: false, ..self }
    }

    /// Makes it optional: if it fails or is unavailable, its subject proceeds unchanged.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { required: false, ..self }
    }

    /// Sets the time limit in milliseconds.
    #[must_use]
    pub fn within(self, timeout_ms: u64) -> Self {
        Self { timeout_ms: Some(timeout_ms), ..self }
    }

    /// Checks that the specification is valid.
    ///
    /// # Errors
    /// The invalid field, by its wire name, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let name = &self.name;
        check_name(name).map_err(|message| ("name", message))?;
        if self.timeout_ms.is_some_and(|timeout| timeout == 0 || timeout > HOOK_TIMEOUT_MS_MAX) {
            return Err(("timeoutMs", format!("the time limit of `{name}` must be 1 to {HOOK_TIMEOUT_MS_MAX} ms")));
        }
        if !self.reasons.is_empty() && self.point != HookPoint::Context {
            return Err(("reasons", reasons_elsewhere(name)));
        }
        if self.required && self.observe {
            let message = format!("`{name}` is an observer that nobody waits for, so it cannot be required");
            return Err(("required", message));
        }
        Ok(())
    }

    /// Returns true if both hooks have the same name and could be called for the same subject.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let always = self.reasons.is_empty() || other.reasons.is_empty();
        self.name == other.name
            && self.point == other.point
            && (always || self.reasons.iter().any(|reason| other.reasons.contains(reason)))
    }

    /// Returns true if this hook is required and is called wherever the other hook of the same name is.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let reasons = self.reasons.is_empty()
            || !other.reasons.is_empty() && other.reasons.iter().all(|reason| self.reasons.contains(reason));
        self.required && self.name == other.name && self.point == other.point && reasons
    }

    /// Returns true if the hook is called at this point for this reason.
    #[must_use]
    pub fn is_asked(&self, point: HookPoint, reason: Option<ContextReason>) -> bool {
        self.point == point && reason.is_none_or(|reason| self.reasons.is_empty() || self.reasons.contains(&reason))
    }
}

/// Parses the hooks that a client offers.
///
/// # Errors
/// `invalid_hooks`, with the hook and the reason.
pub fn check_hooks(offers: Vec<HookOffer>) -> Result<Vec<HookSpec>, ErrorBody> {
    if offers.len() > HOOKS_MAX {
        let message = format!("a client may offer at most {HOOKS_MAX} hooks, not {}", offers.len());
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
        point: offer.point,
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
    format!("only `context` hooks have reasons, and `{name}` is not one")
}

/// Checks a hook's name.
///
/// # Errors
/// The reason the name is invalid.
pub fn check_name(name: &str) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > HOOK_NAME_MAX || !name.chars().all(letters) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(HOOK_NAME_MAX).collect();
        return Err(format!("a hook's name must be 1 to {HOOK_NAME_MAX} of A-Za-z0-9._-, not `{shown}`"));
    }
    Ok(())
}

/// The place where a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPlace {
    /// The hook runs in the server.
    Server,
    /// The hook runs in the host.
    Client,
}

/// The reason a hook gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HookFault {
    /// `hook_failed`, `hook_timeout` or `hook_unavailable`.
    pub code: ErrorCode,
    /// The reason, for people; contains nothing that the hook sent.
    pub message: String,
}

impl HookFault {
    /// Creates the fault of a hook that failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::HookFailed, message: message.into() }
    }

    /// Returns the fault as an error for clients.
    #[must_use]
    pub fn error(&self) -> ErrorBody {
        ErrorBody::new(self.code, self.message.clone())
    }

    /// Creates the fault of a hook that cannot be reached.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::HookUnavailable, message: message.into() }
    }
}
