//! Checks the claims of a token, and derives the user, the scopes and the expiry from them.

use crate::{
    config::{JwtSettings, Scope, Scopes},
    server::auth::user::{ISSUER_END, Name, Refusal, is_name},
};
use serde_json::{Map, Value};
use std::time::Duration;

/// The claims of a token.
pub(super) type Claims = Map<String, Value>;

/// The rules from the settings.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) issuer: String,
    audience: Vec<String>,
    leeway_secs: f64,
    principal: String,
    scopes: Option<String>,
    /// Maps claim values to scopes. If it is empty, the values are the scopes' own names.
    scope_map: Vec<(String, Scope)>,
    /// The claim that names the class of budgets.
    class: Option<String>,
}

/// What a token's claims say.
#[derive(Debug, PartialEq)]
pub(super) struct Said {
    pub(super) name: Name,
    pub(super) scopes: Scopes,
    /// The time until the token expires, including the leeway.
    pub(super) left: Duration,
    pub(super) class: Option<String>,
}

impl Rules {
    /// Returns the rules; `None` if no tokens are accepted.
    pub(super) fn of(settings: &JwtSettings) -> Option<Self> {
        settings.is_used().then(|| Self {
            issuer: settings.auth_jwt_issuer.clone().unwrap_or_default(),
            audience: settings.auth_jwt_audience.clone(),
            leeway_secs: settings.auth_jwt_leeway_secs as f64,
            principal: settings.auth_jwt_principal_claim.clone(),
            scopes: settings.auth_jwt_scopes_claim.clone(),
            scope_map: settings.auth_jwt_scopes.clone(),
            class: settings.auth_jwt_class_claim.clone(),
        })
    }

    /// Checks the claims of a token at this time, in milliseconds since the epoch.
    pub(super) fn check(&self, claims: &Claims, now_ms: i64) -> Result<Said, Refusal> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(Refusal::Wrong("the token is of another issuer"));
        }
        if !texts(claims.get("aud")).any(|audience| self.audience.iter().any(|ours| ours == audience)) {
            return Err(Refusal::Wrong("the token is meant for another audience"));
        }
        let now = now_ms as f64 / 1000.0;
        let Some(expires) = claims.get("exp").and_then(Value::as_f64) else {
            return Err(Refusal::Wrong("the token never expires (`exp`)"));
        };
        let left = expires + self.leeway_secs - now;
        if left <= 0.0 {
            return Err(Refusal::Wrong("the token has expired"));
        }
        match claims.get("nbf").map(Value::as_f64) {
            None => {}
            Some(Some(begins)) if begins - self.leeway_secs <= now => {}
            Some(_) => return Err(Refusal::Wrong("the token is not valid yet (`nbf`)")),
        }
        let name = claim(claims, &self.principal).and_then(Value::as_str).filter(|name| is_name(name));
        let name = name.ok_or(Refusal::Wrong("the token names no user (AUTH_JWT_PRINCIPAL_CLAIM)"))?;
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        let class = self.class.as_ref().and_then(|wanted| claim(claims, wanted)).and_then(Value::as_str);
        let class = class.filter(|class| is_name(class)).map(str::to_owned);
        Ok(Said { name: format!("{}{ISSUER_END}{name}", self.issuer), scopes: self.scopes(claims), left, class })
    }

    fn scopes(&self, claims: &Claims) -> Scopes {
        let Some(wanted) = &self.scopes else { return Scope::Sessions.into() };
        let scope = |value: &str| match self.scope_map.is_empty() {
            true => Scope::named(value),
            false => self.scope_map.iter().find(|(ours, _)| ours == value).map(|(_, scope)| *scope),
        };
        texts(claim(claims, wanted)).flat_map(|text| text.split(' ')).filter_map(scope).collect()
    }
}

/// Returns a claim by its name, or by a path that begins with `/`.
fn claim<'a>(claims: &'a Claims, name: &str) -> Option<&'a Value> {
    let Some(path) = name.strip_prefix('/') else { return claims.get(name) };
    let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = claims.get(&first.replace("~1", "/").replace("~0", "~"))?;
    rest.map_or(Some(value), |rest| value.pointer(&format!("/{rest}")))
}

/// Returns the strings of a claim that is a string or a list of strings.
fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let list = match value {
        Some(Value::Array(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    list.iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use serde_json::json;

    const NOW_SECS: i64 = 1_800_000_000;

    fn rules(more: &[(&str, &str)]) -> Rules {
        let usual = [
            ("AUTH_JWKS_URL", "https://id.example/keys"),
            ("AUTH_JWT_ISSUER", "https://id.example"),
            ("AUTH_JWT_AUDIENCE", "chat,chat-beta"),
        ];
        let settings = Settings::from_iter(usual.into_iter().chain(more.iter().copied()));
        Rules::of(&settings.unwrap_or_else(|error| panic!("{error}")).jwt).expect("keys are set")
    }

    /// Checks good claims with these changes; `null` removes one.
    fn check(rules: &Rules, changes: Value) -> Result<Said, Refusal> {
        let mut claims = json!({ "iss": "https://id.example", "aud": "chat", "sub": "17", "exp": NOW_SECS + 60 });
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => claims.as_object_mut().unwrap().remove(name),
                value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
            };
        }
        rules.check(claims.as_object().unwrap(), NOW_SECS * 1000)
    }

    #[test]
    fn claims_that_are_missing_or_wrong_are_refused() {
        let rules = rules(&[]);
        let long = "x".repeat(257);
        let table = [
            (json!({}), ""),
            (json!({ "aud": ["other", "chat-beta"] }), ""),
            (json!({ "exp": NOW_SECS as f64 + 0.5 }), ""),
            (json!({ "exp": NOW_SECS - 29 }), ""),
            (json!({ "nbf": NOW_SECS + 30 }), ""),
            (json!({ "exp": 1e300 }), ""),
            (json!({ "iss": null }), "issuer"),
            (json!({ "iss": "https://id.example/" }), "issuer"),
            (json!({ "iss": ["https://id.example"] }), "issuer"),
            (json!({ "aud": null }), "audience"),
            (json!({ "aud": "" }), "audience"),
            (json!({ "aud": "chatter" }), "audience"),
            (json!({ "aud": ["other"] }), "audience"),
            (json!({ "aud": { "chat": true } }), "audience"),
            (json!({ "exp": null }), "never expires"),
            (json!({ "exp": "1900000000" }), "never expires"),
            (json!({ "exp": NOW_SECS - 30 }), "has expired"),
            (json!({ "exp": -1e300 }), "has expired"),
            (json!({ "nbf": NOW_SECS + 31 }), "not valid yet"),
            (json!({ "nbf": "0" }), "not valid yet"),
            (json!({ "sub": null }), "no user"),
            (json!({ "sub": "" }), "no user"),
            (json!({ "sub": 17 }), "no user"),
            (json!({ "sub": "a\nb" }), "no user"),
            (json!({ "sub": long }), "no user"),
        ];
        for (changes, expected) in table {
            let why = check(&rules, changes.clone()).err().map_or("", Refusal::reason);
            assert!(if expected.is_empty() { why.is_empty() } else { why.contains(expected) }, "{changes}: {why}");
        }
        let said = check(&rules, json!({})).unwrap();
        assert_eq!((said.name.as_str(), said.left), ("https://id.example|17", Duration::from_secs(90)));
    }

    #[test]
    fn scopes_come_from_the_claim_that_is_set() {
        let (all, none) = (Scopes::from(Scope::Sessions), Scopes::default());
        let claim = ("AUTH_JWT_SCOPES_CLAIM", "scope");
        let roles = [
            ("AUTH_JWT_SCOPES_CLAIM", "/realm_access/roles"),
            ("AUTH_JWT_SCOPES", "users=sessions,admins=operator.content"),
        ];
        let table: [(&[_], Value, Scopes); 9] = [
            (&[], json!({ "scope": "read" }), all),
            (&[claim], json!({}), none),
            (&[claim], json!({ "scope": "openid sessions" }), all),
            (&[claim], json!({ "scope": ["openid", "read"] }), Scope::Read.into()),
            (&[claim], json!({ "scope": "read operator" }), [Scope::Read, Scope::Operator].into_iter().collect()),
            (&[claim], json!({ "scope": { "sessions": true } }), none),
            (&roles, json!({ "realm_access": { "roles": ["users"] } }), all),
            (&roles, json!({ "realm_access": { "roles": ["admins"] } }), Scope::OperatorContent.into()),
            (&roles, json!({ "realm_access": { "roles": ["sessions", "operator"] } }), none),
        ];
        for (settings, claims, expected) in table {
            assert_eq!(check(&rules(settings), claims.clone()).unwrap().scopes, expected, "{settings:?} {claims}");
        }
    }

    #[test]
    fn the_user_may_be_named_by_another_claim() {
        let user = json!({ "https://id.example/name": "ada", "user": { "id": "17" } });
        for (claim, name) in [("https://id.example/name", "ada"), ("/user/id", "17"), ("sub", "17")] {
            let said = check(&rules(&[("AUTH_JWT_PRINCIPAL_CLAIM", claim)]), user.clone()).unwrap();
            assert_eq!(said.name, format!("https://id.example|{name}"), "{claim}");
        }
    }
}
