//! The rule on fields that may be absent: a test that compares two of them, or their order, passes if both are gone.
//!
//! It reads code as text, so it knows no types. `a["name"]` and `a[name]` count as fields, `a["name"].as_u64()` and the
//! like count as readings as long as nothing unwraps them, and a name stands for what `let` gave it. `support::json`
//! has functions that refuse an absent field: `present`, `whole` and `number`.

use crate::source::{code, only_tests};
use std::ops::Range;

/// The kind of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operand {
    /// A JSON value that is `null` if the field is absent.
    Field,
    /// An `Option` that is `None` then.
    Reading,
    /// Anything else.
    Sure,
}

/// The way a comparison is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    /// In an assertion: what must differ.
    Differs,
    Ordered,
}

impl Comparison {
    fn passes_without(self, left: Operand, right: Operand) -> bool {
        let may_be_absent = [left, right].map(|operand| operand != Operand::Sure);
        match self {
            Self::Equal => may_be_absent == [true, true],
            Self::Differs => may_be_absent != [false, false],
            Self::Ordered => left == Operand::Reading || right == Operand::Reading,
        }
    }
}

/// A name, the position of its binding, and its kind.
type Bindings<'a> = Vec<(&'a str, usize, Operand)>;

/// Ways to read a JSON value, each `None` if it is absent.
const READINGS: &[&str] = &["as_u64", "as_i64", "as_f64", "as_str", "as_bool", "as_array", "as_object", "pointer"];

/// Calls that leave a value, or its absence, as it is.
const KEEPING: &[&str] = &[
    "and_then",
    "as_deref",
    "as_ref",
    "await",
    "clone",
    "cloned",
    "copied",
    "filter",
    "map",
    "or_else",
    "to_string",
    "zip",
];

/// Names of positions in a list, which is no JSON object: reading beyond its end panics.
const PLACES: &[&str] = &["at", "index", "last", "n", "number", "place", "round", "turn"];

const METHODS: &[(&str, Comparison)] = &[
    (".lt(", Comparison::Ordered),
    (".le(", Comparison::Ordered),
    (".gt(", Comparison::Ordered),
    (".ge(", Comparison::Ordered),
    (".cmp(", Comparison::Ordered),
    (".partial_cmp(", Comparison::Ordered),
    (".eq(", Comparison::Equal),
];

/// Checks a file of tests.
pub(super) fn absent(path: &str, text: &str) -> Vec<String> {
    violations(path, &code(text))
}

/// Checks a file with tests in it.
pub(super) fn absent_in_tests(path: &str, text: &str) -> Vec<String> {
    violations(path, &only_tests(&code(text)))
}

fn violations(path: &str, code: &str) -> Vec<String> {
    let bound = bindings(code);
    let mut found: Vec<usize> = Vec::new();
    let mut check = |at: usize, comparison: Comparison, left: &str, right: &str| {
        for (left, right) in pairs(left, right) {
            let operands = [left, right].map(|operand| operand_of(operand, at, &bound));
            if comparison.passes_without(operands[0], operands[1]) {
                found.push(at);
            }
        }
    };
    for (name, comparison) in [("assert_eq!(", Comparison::Equal), ("assert_ne!(", Comparison::Differs)] {
        for (at, _) in code.match_indices(name) {
            let inside = at + name.len();
            let arguments = split(&code[inside..inside + close(&code[inside..])]);
            if let [left, right, ..] = arguments[..] {
                check(at, comparison, left, right);
            }
        }
    }
    for (name, comparison) in METHODS {
        for (at, _) in code.match_indices(name) {
            let inside = at + name.len();
            check(at, *comparison, before(&code[..at]), &code[inside..inside + close(&code[inside..])]);
        }
    }
    for (operator, comparison) in [
        ("==", Comparison::Equal),
        ("<", Comparison::Ordered),
        ("<=", Comparison::Ordered),
        (">", Comparison::Ordered),
        (">=", Comparison::Ordered),
    ] {
        for (at, _) in code.match_indices(operator) {
            let (left, right) = (&code[..at], &code[at + operator.len()..]);
            // Between spaces, so it is neither a bracket of a type nor part of a longer operator.
            if left.ends_with(char::is_whitespace) && right.starts_with(char::is_whitespace) {
                check(at, comparison, before(left), behind(right));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    let line = |at: &usize| code[..*at].matches('\n').count() + 1;
    found.iter().map(|at| format!("{path}:{}: passes where the field is absent", line(at))).collect()
}

/// Returns the operands of a comparison, or those of two tuples or lists in turn.
fn pairs<'a>(left: &'a str, right: &'a str) -> Vec<(&'a str, &'a str)> {
    let parts = |operand: &'a str| {
        let operand = operand.trim().trim_start_matches('&');
        let inner = operand.strip_prefix(['(', '['])?;
        (close(inner) + 1 == inner.len()).then(|| split(&inner[..inner.len() - 1]))
    };
    match (parts(left), parts(right)) {
        (Some(left), Some(right)) if left.len() == right.len() && left.len() > 1 => {
            left.into_iter().zip(right).flat_map(|(left, right)| pairs(left, right)).collect()
        }
        _ => vec![(left, right)],
    }
}

/// Returns the binding of each `let`. One that destructures a pattern binds nothing known.
fn bindings(code: &str) -> Bindings<'_> {
    let mut bound: Bindings<'_> = Vec::new();
    for (at, _) in code.match_indices("let ") {
        let statement = &code[at + 4..at + 4 + statement_len(&code[at + 4..])];
        let Some((pattern, value)) = statement.split_once(" = ") else { continue };
        // Without its type.
        let pattern = pattern.split(": ").next().unwrap_or_default();
        for (name, value) in pairs(pattern, value) {
            let name = name.trim().trim_start_matches("mut ");
            if is_name(name) {
                let operand = operand_of(value, at, &bound);
                bound.push((name, at, operand));
            }
        }
    }
    // Names of another function.
    for (at, _) in code.match_indices("fn ") {
        bound.push(("", at, Operand::Sure));
    }
    bound.sort_by_key(|(_, at, _)| *at);
    bound
}

fn operand_of(operand: &str, at: usize, bound: &Bindings<'_>) -> Operand {
    let operand = operand.trim().trim_start_matches(['&', '*']).trim_start_matches("mut ");
    if let Some(inner) = operand.strip_prefix('(')
        && close(inner) + 1 == inner.len()
    {
        return operand_of(&inner[..inner.len() - 1], at, bound);
    }
    let head_len = operand.find(|letter: char| !(is_word(letter) || letter == ':')).unwrap_or(operand.len());
    let (head, mut rest) = operand.split_at(head_len);
    let reads = |name: &str| READINGS.contains(&name.rsplit("::").next().unwrap_or_default());
    let mut known = if rest.starts_with('(') {
        let (inside, behind) = bracketed(rest);
        rest = behind;
        if reads(head) && !inside.is_empty() { Operand::Reading } else { Operand::Sure }
    } else {
        bound_to(head, at, bound)
    };
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return known;
        }
        if rest.starts_with('[') {
            let (inside, behind) = bracketed(rest);
            rest = behind;
            // Text between quotes is not in the code.
            let names_field = inside.trim().is_empty() || (is_name(inside) && !PLACES.contains(&inside));
            if names_field {
                known = Operand::Field;
            } else if known != Operand::Field {
                known = Operand::Sure;
            }
            continue;
        }
        let Some(chained) = rest.strip_prefix('.') else { return Operand::Sure };
        let name_len = chained.find(|letter| !is_word(letter)).unwrap_or(chained.len());
        let (name, behind) = chained.split_at(name_len);
        let (inside, behind) = if behind.starts_with('(') { bracketed(behind) } else { ("", behind) };
        rest = behind;
        let reads_inside = READINGS.iter().any(|reading| inside.contains(reading)) && !inside.contains("unwrap");
        known = match known {
            // A `String` has that too.
            Operand::Sure if name == "as_str" => Operand::Sure,
            _ if reads(name) || (name == "get" && inside.trim().is_empty()) => Operand::Reading,
            _ if name == "and_then" && reads_inside => Operand::Reading,
            _ if KEEPING.contains(&name) => known,
            _ => Operand::Sure,
        };
    }
}

/// Returns the last binding of a name in the same function.
fn bound_to(name: &str, at: usize, bound: &Bindings<'_>) -> Operand {
    let earlier = bound.iter().rev().filter(|(_, place, _)| *place < at);
    let mut here = earlier.take_while(|(name, ..)| !name.is_empty());
    here.find(|(known, ..)| *known == name).map_or(Operand::Sure, |(_, _, operand)| *operand)
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn is_name(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_lowercase()) && text.chars().all(is_word)
}

/// Splits `text` at the end of the bracket that it begins with.
fn bracketed(text: &str) -> (&str, &str) {
    let inside = &text[1..];
    let end = close(inside);
    (&inside[..end], inside.get(end + 1..).unwrap_or_default())
}

/// Returns the position of the bracket that closes the one open before `text`.
fn close(text: &str) -> usize {
    top_level(text).last().map_or(text.len(), |part| part.end)
}

/// Returns the parts of `text` outside of brackets, up to the bracket that closes the one open before it.
fn top_level(text: &str) -> Vec<Range<usize>> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => {
                if depth == 0 {
                    parts.push(start..at);
                }
                depth += 1;
            }
            ')' | ']' | '}' if depth == 0 => {
                parts.push(start..at);
                return parts;
            }
            ')' | ']' | '}' => {
                depth -= 1;
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(start..text.len());
    parts
}

/// Returns the arguments in `text`.
fn split(text: &str) -> Vec<&str> {
    let commas = top_level(text).into_iter().flat_map(|part| {
        let from = part.start;
        text[part].match_indices(',').map(move |(at, _)| from + at).collect::<Vec<_>>()
    });
    let (mut arguments, mut start) = (Vec::new(), 0);
    for comma in commas {
        arguments.push(&text[start..comma]);
        start = comma + 1;
    }
    arguments.push(&text[start..]);
    // Nothing follows the comma at the end of a list of several lines; a text between quotes is on one line.
    if arguments.last().is_some_and(|last| last.trim().is_empty() && (last.is_empty() || last.contains('\n'))) {
        arguments.pop();
    }
    arguments
}

/// Returns the length of the statement that `text` begins with.
fn statement_len(text: &str) -> usize {
    let ends = top_level(text).into_iter().filter_map(|part| Some(part.start + text[part].find(';')?));
    ends.min().unwrap_or_else(|| close(text))
}

/// The tokens that end an operand.
const ENDS: &[&str] =
    &["&&", "||", ",", ";", "=>", " = ", "|", "{", "}", " == ", " != ", " < ", " > ", " <= ", " >= ", " else "];

/// Returns the operand that ends where `text` does.
fn before(text: &str) -> &str {
    let (mut depth, mut start) = (0_usize, 0);
    for (at, letter) in text.char_indices().rev() {
        match letter {
            ')' | ']' => depth += 1,
            '(' | '[' if depth == 0 => {
                start = at + 1;
                break;
            }
            '(' | '[' => depth -= 1,
            _ if depth == 0 && at + letter.len_utf8() < text.len() => {
                if let Some(end) = ENDS.iter().find(|end| text[at..].starts_with(**end)) {
                    start = at + end.len();
                    break;
                }
            }
            _ => {}
        }
    }
    let operand = text[start..].trim();
    let keywords = ["if ", "while ", "return ", "match ", "in ", "let "];
    keywords.iter().find_map(|keyword| operand.strip_prefix(keyword)).unwrap_or(operand)
}

/// Returns the operand that `text` begins with.
fn behind(text: &str) -> &str {
    let ends = top_level(text).into_iter().filter_map(|part| {
        let outside = &text[part.clone()];
        Some(part.start + ENDS.iter().filter_map(|end| outside.find(end)).min()?)
    });
    let block = text.find('{').unwrap_or(text.len());
    &text[..ends.min().unwrap_or_else(|| close(text)).min(if text[..block].contains('(') { text.len() } else { block })]
}

#[test]
fn each_form_that_passes_without_the_field_is_caught_and_no_other() {
    // The number of comparisons of each line that are refused.
    let table: &[(&str, usize)] = &[
        // Which is less, from either side.
        (
            r#"assert!(a["b"].as_u64() < Some(3) && a.as_f64()
            >= c.as_f64());"#,
            2,
        ),
        (r#"assert!(Some(3) > a["x"].as_u64());"#, 1),
        (r#"assert!(a["x"].as_u64().map(|n| n + 1) < b);"#, 1),
        (r#"assert!(a.get("x").and_then(Value::as_u64) < b);"#, 1),
        (r#"assert!(a.get("x").and_then(|x| x.as_u64()) < b);"#, 1),
        (r#"assert!(Value::as_u64(&a["x"]) <= b);"#, 1),
        (r#"assert!(a["x"].as_u64().lt(&b));"#, 1),
        (r#"assert!(b.ge(&a["x"].as_i64()));"#, 1),
        (r#"let order = a["x"].as_str().cmp(&b["x"].as_str());"#, 1),
        (r#"let tokens = a["x"].as_u64(); assert!(tokens < b);"#, 1),
        (r#"let (old, new) = (a["x"].as_u64(), whole(&b["x"])); assert!(Some(new) > old && new > 3);"#, 1),
        // Equal while both are absent.
        (r#"assert_eq!(a["x"], b["x"], "{a}");"#, 1),
        (r#"assert_eq!(a[name], b["x"]["y"].clone());"#, 1),
        (r#"assert!(items.iter().any(|item| item["x"] == a["x"]));"#, 1),
        (r#"assert_eq!((&a["x"], &a["y"]), (&b["x"], &json!(3)));"#, 1),
        (r#"assert_eq!(a["x"].as_u64(), b["x"].as_u64().map(|n| n + 1));"#, 1),
        (r#"let id = reply["x"].clone(); assert_eq!(a["x"], id);"#, 1),
        (r#"assert_eq!(a.get("x"), b.get("x"));"#, 1),
        // Different while one is absent.
        (r#"assert_ne!(a["x"], b["x"]);"#, 1),
        (r#"assert_ne!(a["x"], "error");"#, 1),
        // Values that are certainly there, or are compared with one.
        (r#"assert!(whole(&a) < 3 && a.as_u64() == Some(3)); // a.as_u64() < b"#, 0),
        (r#"assert!(a["x"].as_u64().unwrap() < b["x"].as_u64().unwrap());"#, 0),
        (r#"assert!(a["x"].as_u64().is_some_and(|n| n < 3));"#, 0),
        (r#"let n = a["x"].as_u64().unwrap(); assert!(n < 3 && id.as_str() < "b");"#, 0),
        (r#"assert_eq!(*present(&a["x"]), b["x"]); assert_ne!(*present(&a["x"]), "error");"#, 0),
        (r#"assert_eq!((&a["x"], &a["y"]), (&json!(1), &json!(2)));"#, 0),
        (r#"assert_eq!(requests[0], requests[1]); assert_eq!(rows[at], rows[last]);"#, 0),
        (r#"fn a() { let id = b["x"].clone(); } fn c(id: &str) { assert_eq!(d["x"], id); }"#, 0),
        (r#"let a: Vec<Value> = b; fn c(d: u8) -> bool { d == 3 }"#, 0),
    ];
    for (line, count) in table {
        assert_eq!(absent("tests/a.rs", line).len(), *count, "{line}");
        let tested = format!("fn built() {{ {line} }}\n#[cfg(test)]\nmod tests {{\n fn a() {{ {line} }}\n}}");
        assert_eq!(absent_in_tests("src/a.rs", &tested).len(), *count, "{tested}");
    }
}
