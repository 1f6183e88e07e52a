//! `HOOKS_FILE`: the webhooks of a server, in JSON.
//!
//! ```json
//! { "hooks": [{
//!     "name": "redact",
//!     "url": "https://hooks.example.org/redact",
//!     "points": [{ "point": "message", "timeoutMs": 2000 }, { "point": "tool_call", "observe": true }],
//!     "secretEnv": "REDACT_SECRET"
//! }] }
//! ```

use super::{InvalidWebhook, Secret, Webhook, answer};
use crate::{
    clock::Clock,
    config::listed::{Variable, contents},
    core::hook::HookSpec,
    hooks::InvalidHooks,
};
use reseed_protocol::hooks::{ContextReason, HookPoint};
use secrecy::ExposeSecret;
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use std::{fmt, path::Path, sync::Arc};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    hooks: Vec<ListedHook>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListedHook {
    name: String,
    url: String,
    points: Vec<ListedPoint>,
    #[serde(default)]
    secret: Option<Secrets>,
    #[serde(default)]
    secret_env: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListedPoint {
    point: HookPoint,
    #[serde(default)]
    reasons: Option<Vec<ContextReason>>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    required: Option<bool>,
    #[serde(default)]
    observe: bool,
}

/// A secret, or a list of them.
struct Secrets(Vec<Secret>);

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Secrets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`whsec_` and 24 to 64 bytes in base64, or a list of these")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Secrets, E> {
                // The text itself must not appear in a message.
                let secret = text.parse().map_err(|_| E::invalid_value(de::Unexpected::Other("text"), &self))?;
                Ok(Secrets(vec![secret]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Secrets, A::Error> {
                let mut secrets = Vec::new();
                while let Some(Secrets(one)) = list.next_element()? {
                    secrets.extend(one);
                }
                Ok(Secrets(secrets))
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

/// Reads the webhooks from a file. `variable` looks up the variable that `secretEnv` names.
///
/// # Errors
/// The file cannot be read, or the first invalid position in it, with what is allowed there. No secret is repeated.
pub(crate) fn read(file: &Path, variable: Variable<'_>, clock: &Arc<dyn Clock>) -> Result<Vec<Webhook>, InvalidHooks> {
    let text = contents(file).map_err(|error| format!("cannot be read: {error}"));
    let webhooks = text.and_then(|text| parsed(&text, variable, clock));
    webhooks.map_err(|message| InvalidHooks { place: format!("HOOKS_FILE {}", file.display()), message })
}

fn parsed(text: &[u8], variable: Variable<'_>, clock: &Arc<dyn Clock>) -> Result<Vec<Webhook>, String> {
    let Listed { hooks } = answer::object(text, answer::Unknown::Named)?;
    let webhooks = hooks.into_iter().enumerate().map(|(at, hook)| webhook(at, hook, variable, clock));
    webhooks.collect()
}

fn webhook(at: usize, hook: ListedHook, variable: Variable<'_>, clock: &Arc<dyn Clock>) -> Result<Webhook, String> {
    let ListedHook { name, url, points, secret, secret_env } = hook;
    if points.is_empty() {
        return Err(format!("`hooks[{at}].points` is empty: the hook would never be called"));
    }
    let specs = points.into_iter().enumerate().map(|(point_at, listed)| {
        let ListedPoint { point, reasons, timeout_ms, required, observe } = listed;
        let place = format!("hooks[{at}].points[{point_at}]");
        if let Some(reasons) = &reasons {
            if point != HookPoint::Context {
                return Err(format!("`{place}.reasons` is only allowed with `context`, not with `{}`", point.as_str()));
            }
            if reasons.is_empty() {
                return Err(format!("`{place}.reasons` is empty; omit it for all reasons"));
            }
        }
        let reasons = reasons.unwrap_or_default();
        let required = required.unwrap_or(!observe);
        let spec = HookSpec { name: name.clone(), point, reasons, timeout_ms, required, observe };
        match spec.check() {
            Ok(()) => Ok(spec),
            Err(("name", wrong)) => Err(format!("`hooks[{at}].name`: {wrong}")),
            Err((field, wrong)) => Err(format!("`{place}.{field}`: {wrong}")),
        }
    });
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let secrets = match (secret, secret_env) {
        (Some(Secrets(secrets)), None) => secrets,
        (None, Some(name)) => {
            let text = variable(&name)
                .ok_or_else(|| format!("`hooks[{at}].secretEnv` names `{}`, which is not set", name.escape_debug()))?;
            let secrets = text.expose_secret().split_whitespace().map(str::parse);
            secrets.collect::<Result<_, _>>().map_err(|wrong| {
                format!("`hooks[{at}].secretEnv`: `{}` is {wrong}; separate several with spaces", name.escape_debug())
            })?
        }
        _ => return Err(format!("`hooks[{at}]` needs either `secret` or `secretEnv`")),
    };
    Webhook::new(specs, &url, secrets, clock.clone()).map_err(|wrong| match wrong {
        InvalidWebhook::Address(_) => format!("`hooks[{at}].url`: {wrong}"),
        InvalidWebhook::Secrets(_) | InvalidWebhook::Client => format!("`hooks[{at}]`: {wrong}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::Hook as _, parsed, read};
    use crate::{
        clock::{Clock, SystemClock},
        core::hook::HookSpec,
        hooks::Hooks,
    };
    use reseed_protocol::hooks::{ContextReason, HookPoint};
    use secrecy::SecretString;
    use serde_json::{Value, json};
    use std::{fs, path::Path, sync::Arc};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn variable(name: &str) -> Option<SecretString> {
        let text = match name {
            "TWO" => format!("{SECRET} {SECRET}"),
            "WRONG" => "hunter2".to_owned(),
            "MANY" => [SECRET; 5].join(" "),
            _ => return None,
        };
        Some(text.into())
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    /// Returns a valid hook with `change` applied.
    fn hook(change: Value) -> Value {
        let mut hook = json!({
            "name": "redact", "url": "http://127.0.0.1:9/?key=hunter2", "secret": SECRET,
            "points": [{ "point": "message" }],
        });
        for (field, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(hook.as_object_mut().unwrap().remove(field)),
                value => hook[field] = value.clone(),
            }
        }
        hook
    }

    fn wrong(text: &str) -> String {
        parsed(text.as_bytes(), &variable, &clock()).map(|_| ()).unwrap_err()
    }

    #[test]
    fn what_a_file_lists_is_asked() {
        let file = json!({ "hooks": [
            hook(json!({ "points": [
                { "point": "message", "timeoutMs": 500 },
                { "point": "context", "reasons": ["ephemeral", "turn_end"] },
                { "point": "tool_call", "observe": true },
            ] })),
            hook(json!({ "name": "rotating", "secret": [SECRET, SECRET] })),
            hook(json!({ "name": "named", "secret": null, "secretEnv": "TWO" })),
        ] });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hooks.json");
        fs::write(&path, file.to_string()).unwrap();
        let webhooks = read(&path, &variable, &clock()).unwrap();
        assert_eq!(
            webhooks[0].specs(),
            [
                HookSpec::new("redact", HookPoint::Message).within(500),
                HookSpec::new("redact", HookPoint::Context)
                    .for_reasons(&[ContextReason::Ephemeral, ContextReason::TurnEnd]),
                HookSpec::new("redact", HookPoint::ToolCall).observing(),
            ]
        );
        let shown = format!("{webhooks:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("MfKQ"), "{shown}");
        assert_eq!(Hooks::default().with_webhooks(webhooks).unwrap().specs().len(), 5);
        assert_eq!(parsed(br#"{"hooks":[]}"#, &variable, &clock()).unwrap().len(), 0);
    }

    #[test]
    fn a_fault_names_the_place_and_what_is_allowed_and_no_secret() {
        let key = "`whsec_` and 24 to 64 bytes in base64, or a list of these";
        for (change, expected) in [
            (json!({ "name": null }), "`hooks[0]` is missing `name`"),
            (json!({ "name": "a b" }), "`hooks[0].name`: a hook's name must be 1 to 64 of A-Za-z0-9._-, not `a b`"),
            (json!({ "name": 5 }), "`hooks[0].name` is not a string"),
            (
                json!({ "url": "http://example.org" }),
                "`hooks[0].url`: it is neither encrypted nor on this machine; allowed: an https:// address, or http:// \
                 to this machine",
            ),
            (
                json!({ "url": "https://u:hunter2@h/" }),
                "`hooks[0].url`: it contains a user name or password; allowed: ",
            ),
            (json!({ "points": null }), "`hooks[0]` is missing `points`"),
            (json!({ "points": [] }), "`hooks[0].points` is empty"),
            (json!({ "points": SECRET }), "`hooks[0].points` is not a sequence"),
            (
                json!({ "points": [{ "point": "message" }, { "point": "contxt" }] }),
                "`hooks[0].points[1].point` is not one of `context`, `message`, ",
            ),
            (
                json!({ "points": [{ "point": "message", "required": true, "observe": true }] }),
                "`hooks[0].points[0].required`: `",
            ),
            (
                json!({ "points": [{ "point": "message", "reasons": [] }] }),
                "`hooks[0].points[0].reasons` is only allowed with `context`, not with `message`",
            ),
            (json!({ "points": [{ "point": "context", "reasons": [] }] }), "`hooks[0].points[0].reasons` is empty"),
            (
                json!({ "points": [{ "point": "context", "reasons": ["now"] }] }),
                "`hooks[0].points[0].reasons[0]` is not one of `before_request`",
            ),
            (
                json!({ "points": [{ "point": "message", "timeoutMs": 0 }] }),
                "`hooks[0].points[0].timeoutMs`: the time limit of `redact` must be 1 to 600000 ms",
            ),
            (
                json!({ "points": [{ "point": "message", "timeoutMs": -1 }] }),
                "`hooks[0].points[0].timeoutMs` is not u64",
            ),
            (json!({ "secret": null }), "`hooks[0]` needs either `secret` or `secretEnv`"),
            (json!({ "secretEnv": "TWO" }), "`hooks[0]` needs either `secret` or `secretEnv`"),
            (json!({ "secret": "hunter2" }), &format!("`hooks[0].secret` is not {key}")),
            (json!({ "secret": [SECRET, "whsec_hunter2"] }), &format!("`hooks[0].secret[1]` is not {key}")),
            (json!({ "secret": 5 }), &format!("`hooks[0].secret` is not {key}")),
            (json!({ "secret": [] }), "`hooks[0]`: it has 0 secrets; allowed: 1 to 4"),
            (json!({ "secret": null, "secretEnv": "NONE" }), "`hooks[0].secretEnv` names `NONE`, which is not set"),
            (
                json!({ "secret": null, "secretEnv": "WRONG" }),
                "`hooks[0].secretEnv`: `WRONG` is not a secret; allowed: `whsec_`",
            ),
            (json!({ "secret": null, "secretEnv": "MANY" }), "`hooks[0]`: it has 5 secrets; allowed: 1 to 4"),
            (json!({ "secretKey": "hunter2" }), "unknown field `secretKey`; allowed: one of `name`, `url`, "),
        ] {
            let told = wrong(&json!({ "hooks": [hook(change.clone())] }).to_string());
            assert!(told.starts_with(expected), "{change}: {told}");
            assert!(!told.contains("hunter2") && !told.contains("MfKQ"), "{change}: {told}");
        }
        assert_eq!(wrong("{\n\"hooks\": [}"), "it is not JSON (line 2, column 11)");
        assert_eq!(wrong("{}"), "it is missing `hooks`");
        assert!(wrong("[]").starts_with("it "), "{}", wrong("[]"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let told = read(Path::new("no/such.json"), &variable, &clock()).map(|_| ()).unwrap_err().to_string();
        assert!(told.starts_with("HOOKS_FILE no/such.json: cannot be read: "), "{told}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.json");
        fs::write(&path, " ".repeat(1024 * 1024 + 1)).unwrap();
        let told = read(&path, &variable, &clock()).map(|_| ()).unwrap_err().to_string();
        assert!(told.ends_with("cannot be read: it has more than 1048576 bytes"), "{told}");
    }
}
