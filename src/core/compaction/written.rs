//! Strategies as people write them, in settings and on the command line: `NAME`, `NAME:SETTING=VALUE,…` or `NAME:{…}`
//! with the settings as JSON. The settings are those of `set_context_strategy` and are parsed by the wire type, so a
//! new setting needs no change here.

use reseed_protocol::compaction::StrategySettings;
use serde_json::{Map, Value};

/// Splits a strategy into its name and its settings, which are `None` if there are none.
///
/// # Errors
/// The setting that is unknown or has a value of another type, with what is allowed. Bounds are not checked.
pub fn written(text: &str) -> Result<(&str, Option<StrategySettings>), String> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let settings = settings.trim();
    let fields = match settings {
        "" => return Ok((name.trim(), None)),
        _ if settings.starts_with('{') => serde_json::from_str(settings).map_err(|error| error.to_string())?,
        _ => fields(settings)?,
    };
    // Each is parsed alone first, since an error of the whole does not name the setting.
    for (field, value) in &fields {
        let alone = Map::from_iter([(field.clone(), value.clone())]);
        serde_json::from_value::<StrategySettings>(Value::Object(alone))
            .map_err(|error| format!("{field}: {error}"))?;
    }
    let settings = serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
    Ok((name.trim(), Some(settings)))
}

fn fields(settings: &str) -> Result<Map<String, Value>, String> {
    let pair = |pair: &str| {
        let (field, value) = pair.split_once('=').ok_or_else(|| format!("`{}` is not SETTING=VALUE", pair.trim()))?;
        Ok((field.trim().to_owned(), value_of(value.trim())))
    };
    pairs(settings).map(pair).collect()
}

/// Reads a value as JSON. Words need no quotes, alone or in a list.
fn value_of(text: &str) -> Value {
    let words = || -> Option<Value> {
        let list = text.strip_prefix('[')?.strip_suffix(']')?;
        Some(list.split(',').map(str::trim).collect())
    };
    serde_json::from_str(text).ok().or_else(words).unwrap_or_else(|| Value::from(text))
}

/// Splits at commas outside brackets.
fn pairs(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_follow_the_name() {
        for (text, name, settings) in [
            ("manual", "manual", None),
            ("manual: ", "manual", None),
            (
                "threshold:userShare=0.5, background=1",
                "threshold",
                Some(json!({ "userShare": 0.5, "background": 1.0 })),
            ),
            ("threshold:summaryMode=rewrite", "threshold", Some(json!({ "summaryMode": "rewrite" }))),
            ("importance:summarise=false", "importance", Some(json!({ "summarise": false }))),
            (
                "pipeline:steps=[tool_results, truncate],keepToolResults=2",
                "pipeline",
                Some(json!({ "steps": ["tool_results", "truncate"], "keepToolResults": 2 })),
            ),
            ("pipeline:{\"steps\":[\"truncate\"]}", "pipeline", Some(json!({ "steps": ["truncate"] }))),
        ] {
            let (found, parsed) = written(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((found, parsed.map(|parsed| serde_json::to_value(parsed).unwrap())), (name, settings), "{text}");
        }
    }

    #[test]
    fn what_is_no_setting_is_named() {
        for (text, expected) in [
            ("threshold:background", "`background` is not SETTING=VALUE"),
            ("threshold:bckground=1", "bckground: unknown field `bckground`, expected one of `threshold`"),
            ("threshold:background=soon", "background: invalid type: string \"soon\", expected f64"),
            ("threshold:keepTurns=-1", "keepTurns: invalid value: integer `-1`, expected u64"),
            ("threshold:summaryMode=new", "summaryMode: unknown variant `new`, expected `segments` or `rewrite`"),
            ("threshold:{", "EOF while parsing"),
        ] {
            let error = written(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
