//! The one rule of nesting, for every place at which JSON of others enters.

use serde::Serialize;

/// Maximum nesting of arrays and objects in a frame, and in all other JSON that a server takes: hooks' answers, what a
/// model wants back, imported sessions. A tool's schema needs about ten; serde's own limit is 128.
pub const DEPTH_MAX: usize = 32;

/// Returns true if a text of valid JSON nests arrays and objects more than [`DEPTH_MAX`] deep.
///
/// Whatever is stored is read back inside other objects, and readers stop at some depth: JSON that is only just
/// readable where it enters would make the session unreadable.
#[must_use]
pub fn is_too_deep(json: &[u8]) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Returns true if a value, as JSON, is nested more than [`DEPTH_MAX`] deep, or cannot be written as JSON.
#[must_use]
pub fn nests_too_deep(value: &impl Serialize) -> bool {
    serde_json::to_vec(value).map_or(true, |json| is_too_deep(&json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_count_only_outside_of_texts() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for (json, too_deep) in [
            (nested(DEPTH_MAX), false),
            (nested(DEPTH_MAX + 1), true),
            (format!("[{}]", vec![nested(DEPTH_MAX - 1); 3].join(",")), false),
            (format!(r#"{{"a":{}}}"#, nested(DEPTH_MAX)), true),
            (format!(r#"["{}"]"#, "[".repeat(99)), false),
            (format!(r#"["\"{}"]"#, "[".repeat(99)), false),
            (format!(r#"["\\",{}]"#, nested(DEPTH_MAX)), true),
        ] {
            assert_eq!(is_too_deep(json.as_bytes()), too_deep, "{json}");
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(nests_too_deep(&value), too_deep, "{json}");
        }
    }
}
