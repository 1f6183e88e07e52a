//! `${VAR}` and `${VAR:-default}` in the texts of `MCP_FILE`, and the secrets that come from them.

use crate::config::listed::Variable;
use secrecy::ExposeSecret;
use std::{collections::BTreeSet, fmt};

/// The minimum length of a text that is masked as a secret. Shorter ones are flags and numbers, and occur by chance.
const SECRET_BYTES_MIN: usize = 6;

/// Texts that are never shown: the values of variables, `env` and `headers`.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Adds a text. Short texts are not masked.
    pub(super) fn add(&mut self, text: &str) {
        if text.len() >= SECRET_BYTES_MIN {
            self.0.insert(text.to_owned());
        }
    }

    /// Returns the text with every secret replaced by `***`, and without control characters.
    pub(super) fn mask(&self, text: &str) -> String {
        // Longer ones come first, because a secret may begin with another.
        let mut secrets: Vec<&String> = self.0.iter().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let masked = secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"));
        masked.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Replaces the variables in a text, and adds their values to `secrets`. As in other clients, `${env:VAR}` equals
/// `${VAR}`, a default is used if a variable is unset or empty, and a `$` without `{` stays unchanged.
///
/// # Errors
/// A variable is not set and has no default, or an expression is invalid.
pub(super) fn substitute(text: &str, variable: Variable<'_>, secrets: &mut Secrets) -> Result<String, String> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        done.push_str(before);
        let (expression, after) = after.split_once('}').ok_or("has a `${` without `}`")?;
        let (name, default) = match expression.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (expression, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let is_name = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !name.is_empty()
                && !name.as_bytes()[0].is_ascii_digit()
        };
        if !is_name(name) {
            let shown: String = expression.chars().take(64).filter(|c| !c.is_control()).collect();
            return Err(format!("has `${{{shown}}}`; allowed: ${{VAR}} and ${{VAR:-default}}"));
        }
        let value = variable(name).filter(|value| default.is_none() || !value.expose_secret().is_empty());
        match (value, default) {
            (Some(value), _) => {
                secrets.add(value.expose_secret());
                done.push_str(value.expose_secret());
            }
            (None, Some(default)) => done.push_str(default),
            (None, None) => return Err(format!("names the variable `{name}`, which is not set")),
        }
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::{Secrets, substitute};
    use secrecy::SecretString;

    fn variable(name: &str) -> Option<SecretString> {
        let text = match name {
            "KEY" => "hunter2",
            "HOST" => "a.example",
            "EMPTY" => "",
            "NESTED" => "${KEY}",
            _ => return None,
        };
        Some(text.into())
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${KEY}", "hunter2"),
            ("Bearer ${KEY}!", "Bearer hunter2!"),
            ("${env:KEY}", "hunter2"),
            ("${HOST}:${PORT:-80}/${KEY}", "a.example:80/hunter2"),
            ("${EMPTY}", ""),
            ("${EMPTY:-x}", "x"),
            ("${NONE:-}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("$KEY costs $5", "$KEY costs $5"),
            // A value is not expanded again, because it may come from someone else.
            ("${NESTED}", "${KEY}"),
        ] {
            assert_eq!(substitute(text, &variable, &mut Secrets::default()).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("${NONE}", "names the variable `NONE`, which is not set"),
            ("${KEY", "has a `${` without `}`"),
            ("${input:key}", "has `${input:key}`; allowed: ${VAR} and ${VAR:-default}"),
            ("${}", "has `${}`; allowed: ${VAR} and ${VAR:-default}"),
            ("${1A}", "has `${1A}`; allowed: ${VAR} and ${VAR:-default}"),
        ] {
            assert_eq!(substitute(text, &variable, &mut Secrets::default()), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn secrets_are_masked_wherever_they_occur() {
        let mut secrets = Secrets::default();
        substitute("${KEY}", &variable, &mut secrets).unwrap();
        secrets.add("hunter2000");
        secrets.add("on");
        assert_eq!(secrets.mask("on: hunter2000, hunter2.\u{7}"), "on: ***, ***. ");
        assert_eq!(format!("{secrets:?}"), "Secrets(..)");
    }
}
