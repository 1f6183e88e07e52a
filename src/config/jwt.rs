//! Settings for JSON Web Tokens: which of them belong together.

use super::JwtSettings;

impl JwtSettings {
    /// Returns true if tokens of an identity provider are accepted.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.auth_jwks_url.is_some() || self.auth_jwt_key_file.is_some()
    }

    /// Adds the errors that involve more than one of these settings.
    pub(super) fn check(&self, faults: &mut Vec<String>) {
        if self.auth_jwks_url.is_some() && self.auth_jwt_key_file.is_some() {
            faults.push("AUTH_JWKS_URL and AUTH_JWT_KEY_FILE are both set; set the one that has the keys".to_owned());
        }
        let required = [
            ("AUTH_JWT_AUDIENCE", !self.auth_jwt_audience.is_empty(), "whom the tokens are meant for"),
            ("AUTH_JWT_ISSUER", self.auth_jwt_issuer.is_some(), "who signs the tokens"),
        ];
        for (variable, is_set, what) in required {
            match (self.is_used(), is_set) {
                (true, false) => faults.push(format!(
                    "AUTH_JWKS_URL or AUTH_JWT_KEY_FILE is set, but {variable} is not; set it to {what}"
                )),
                (false, true) => faults.push(format!(
                    "{variable} is set, but neither AUTH_JWKS_URL nor AUTH_JWT_KEY_FILE is; set one of them"
                )),
                _ => {}
            }
        }
        if !self.auth_jwt_scopes.is_empty() && self.auth_jwt_scopes_claim.is_none() {
            faults.push("AUTH_JWT_SCOPES is set, but AUTH_JWT_SCOPES_CLAIM is not; set it to the claim".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Error, Settings};

    /// Settings, and the beginning of each error that they cause.
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

    #[test]
    fn what_belongs_together_is_set_together() {
        let (url, file) = (("AUTH_JWKS_URL", "https://id.example/keys"), ("AUTH_JWT_KEY_FILE", "keys.json"));
        let (issuer, audience) = (("AUTH_JWT_ISSUER", "https://id.example"), ("AUTH_JWT_AUDIENCE", "chat"));
        let scopes = ("AUTH_JWT_SCOPES", "users=sessions");
        let claim = ("AUTH_JWT_SCOPES_CLAIM", "scope");
        let table: &[Row<'_>] = &[
            (&[], &[]),
            (&[url, issuer, audience], &[]),
            (&[file, issuer, audience, claim, scopes], &[]),
            (&[url, file, issuer, audience], &["AUTH_JWKS_URL and AUTH_JWT_KEY_FILE are both set"]),
            (&[url, issuer], &["AUTH_JWKS_URL or AUTH_JWT_KEY_FILE is set, but AUTH_JWT_AUDIENCE is not"]),
            (&[file, audience], &["AUTH_JWKS_URL or AUTH_JWT_KEY_FILE is set, but AUTH_JWT_ISSUER is not"]),
            (&[url], &["AUTH_JWT_AUDIENCE is not", "AUTH_JWT_ISSUER is not"]),
            (&[audience], &["AUTH_JWT_AUDIENCE is set, but neither AUTH_JWKS_URL nor AUTH_JWT_KEY_FILE is"]),
            (&[url, issuer, audience, scopes], &["AUTH_JWT_SCOPES is set, but AUTH_JWT_SCOPES_CLAIM is not"]),
        ];
        for (variables, expected) in table {
            let faults = match Settings::from_iter(variables.iter().copied()) {
                Ok(settings) => {
                    assert_eq!(settings.has_several_users(), settings.jwt.is_used());
                    Vec::new()
                }
                Err(Error(faults)) => faults,
            };
            assert_eq!(faults.len(), expected.len(), "{variables:?}: {faults:?}");
            for (fault, expected) in faults.iter().zip(*expected) {
                assert!(fault.contains(expected), "{variables:?}: {fault}");
            }
        }
    }

    #[test]
    fn a_value_that_is_not_allowed_is_named() {
        let table = [
            ("AUTH_JWT_ISSUER", "https://id.example|ada", "it contains `|`"),
            ("AUTH_JWT_ISSUER", "service:shop", "it begins with `service:`"),
            ("AUTH_JWT_ISSUER", "a b", "it contains other characters"),
            ("AUTH_JWT_SCOPES", "admins=everything", "an item's scope is unknown"),
            ("AUTH_JWT_SCOPES", "admins", "an item has no `=`"),
            ("AUTH_JWKS_URL", "http://id.example/keys", "http:// is for this machine only"),
            ("AUTH_JWKS_URL", "https://me:hunter2@id.example/keys", "it contains a user name or password"),
        ];
        for (variable, value, expected) in table {
            let error = Settings::from_iter([(variable, value)]).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(variable), "{variable}={value}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
