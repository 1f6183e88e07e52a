//! The approval policy: rules over tools and their arguments.

use regex::{Regex, RegexBuilder};
use reseed_protocol::tools::{ApprovalDecision, ApprovalPolicy, ApprovalRule};
use serde_json::Value;

/// Maximum rules of a policy. Each call tries them one after another.
pub const RULES_MAX: usize = 64;

/// Maximum patterns of a rule.
const PATTERNS_MAX: usize = 16;

/// Maximum bytes of a name, a pointer or a pattern.
const TEXT_BYTES_MAX: usize = 512;

/// Maximum bytes of a compiled pattern. Matching is linear in the text, so this also bounds the time of a check.
const COMPILED_BYTES_MAX: usize = 64 * 1024;

/// A compiled policy.
#[derive(Debug, Clone, Default)]
pub struct Policy(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    tool: String,
    arguments: Vec<(String, Regex)>,
    decision: ApprovalDecision,
}

impl Policy {
    /// Compiles a policy.
    ///
    /// # Errors
    /// The field that is invalid, such as `rules[2].arguments./path`, and the reason.
    pub fn compile(policy: &ApprovalPolicy) -> Result<Self, (String, String)> {
        let count = policy.rules.len();
        if count > RULES_MAX {
            return Err(("rules".to_owned(), format!("a policy has at most {RULES_MAX} rules, not {count}")));
        }
        let rules = policy.rules.iter().enumerate();
        rules
            .map(|(at, rule)| compile(rule).map_err(|(field, why)| (format!("rules[{at}].{field}"), why)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the decision of the first rule that matches this call; `None` if none does.
    #[must_use]
    pub fn decide(&self, name: &str, arguments: &str) -> Option<ApprovalDecision> {
        let mut parsed: Option<Value> = None;
        let fits = |rule: &&Rule| {
            if !fits_name(&rule.tool, name) {
                return false;
            }
            if rule.arguments.is_empty() {
                return true;
            }
            let value = parsed.get_or_insert_with(|| serde_json::from_str(arguments).unwrap_or(Value::Null));
            rule.arguments.iter().all(|(pointer, pattern)| match value.pointer(pointer) {
                Some(Value::String(text)) => pattern.is_match(text),
                Some(other) => pattern.is_match(&other.to_string()),
                None => false,
            })
        };
        let mut fits = fits;
        self.0.iter().find(|rule| fits(rule)).map(|rule| rule.decision)
    }
}

fn compile(rule: &ApprovalRule) -> Result<Rule, (String, String)> {
    let too_long = |text: &str| format!("has {} bytes; at most {TEXT_BYTES_MAX} are allowed", text.len());
    if rule.tool.is_empty() {
        return Err(("tool".to_owned(), "must name a tool; `*` names every tool".to_owned()));
    }
    if rule.tool.len() > TEXT_BYTES_MAX {
        return Err(("tool".to_owned(), too_long(&rule.tool)));
    }
    let patterns = rule.arguments.iter().flatten();
    let count = patterns.clone().count();
    if count > PATTERNS_MAX {
        return Err(("arguments".to_owned(), format!("has {count} patterns; at most {PATTERNS_MAX} are allowed")));
    }
    let mut arguments = Vec::with_capacity(count);
    for (pointer, pattern) in patterns {
        let invalid = |why: String| (format!("arguments.{}", pointer.chars().take(64).collect::<String>()), why);
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(invalid("must be a JSON Pointer such as `/command/0`".to_owned()));
        }
        if pointer.len() > TEXT_BYTES_MAX || pattern.len() > TEXT_BYTES_MAX {
            return Err(invalid(too_long(if pointer.len() > pattern.len() { pointer } else { pattern })));
        }
        // The whole value must match: a pattern for `ls` must not let `ls; rm` through. It uses `\A` and `\z`, since
        // `$` also matches before a final line end.
        let whole = RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(COMPILED_BYTES_MAX).build();
        arguments.push((pointer.clone(), whole.map_err(|error| invalid(format!("is not a usable pattern: {error}")))?));
    }
    Ok(Rule { tool: rule.tool.clone(), arguments, decision: rule.policy })
}

/// Returns true if the name matches the pattern, in which `*` stands for any characters.
fn fits_name(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(rules: Value) -> Policy {
        Policy::compile(&serde_json::from_value(json!({ "rules": rules })).expect("a policy")).expect("it compiles")
    }

    #[test]
    fn the_first_rule_that_fits_the_whole_call_decides() {
        let policy = policy(json!([
            { "tool": "shell", "arguments": { "/command/0": "ls|cat", "/workdir": ".*" }, "policy": "auto" },
            { "tool": "shell", "arguments": { "/command/0": "rm" }, "policy": "deny" },
            { "tool": "files__*", "policy": "auto" },
            { "tool": "files__write*", "policy": "deny" },
            { "tool": "count", "arguments": { "/n": "[0-9]" }, "policy": "auto" },
            { "tool": "*_danger", "policy": "deny" },
        ]));
        let (auto, deny) = (Some(ApprovalDecision::Auto), Some(ApprovalDecision::Deny));
        let table = [
            ("shell", r#"{"command":["ls"],"workdir":"a"}"#, auto),
            // A pattern for a missing argument does not match.
            ("shell", r#"{"command":["ls"]}"#, None),
            // The whole value must match.
            ("shell", r#"{"command":["ls; rm"],"workdir":"a"}"#, None),
            ("shell", r#"{"command":["ls\n"],"workdir":"a"}"#, None),
            ("shell", r#"{"command":["rm"]}"#, deny),
            ("shell", "not json", None),
            ("files__read", "{}", auto),
            // The first matching rule decides, not the strictest.
            ("files__write", "{}", auto),
            ("xfiles__read", "{}", None),
            ("count", r#"{"n":7}"#, auto),
            ("count", r#"{"n":77}"#, None),
            ("very_danger", "{}", deny),
            ("danger", "{}", None),
        ];
        for (name, arguments, expected) in table {
            assert_eq!(policy.decide(name, arguments), expected, "{name} {arguments}");
        }
    }

    #[test]
    fn names_fit_patterns_with_stars_anywhere() {
        let table = [
            ("*", "", true),
            ("*", "a", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abd", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "acb", false),
            ("a", "ab", false),
            ("*a", "ba", true),
            ("aa*aa", "aaa", false),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(fits_name(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_rule_that_is_not_valid_is_named() {
        let many: Vec<Value> = (0..65).map(|_| json!({ "tool": "a", "policy": "ask" })).collect();
        let long = "a".repeat(513);
        let table = [
            (json!([{ "tool": "", "policy": "ask" }]), "rules[0].tool", "must name a tool"),
            (json!([{ "tool": long, "policy": "ask" }]), "rules[0].tool", "has 513 bytes"),
            (
                json!([{ "tool": "a", "policy": "ask" }, { "tool": "a", "arguments": { "x": "" }, "policy": "ask" }]),
                "rules[1].arguments.x",
                "must be a JSON Pointer",
            ),
            (json!([{ "tool": "a", "arguments": { "/x": "(" }, "policy": "ask" }]), "rules[0].arguments./x", "pattern"),
            (
                json!([{ "tool": "a", "arguments": { "/x": "(a{1000}){1000}" }, "policy": "ask" }]),
                "rules[0].arguments./x",
                "is not a usable pattern",
            ),
            (json!(many), "rules", "at most 64 rules, not 65"),
        ];
        for (rules, field, why) in table {
            let policy: ApprovalPolicy = serde_json::from_value(json!({ "rules": rules })).expect("a policy");
            let (at, message) = Policy::compile(&policy).expect_err(field);
            assert_eq!(at, field);
            assert!(message.contains(why), "{message}");
        }
    }
}
