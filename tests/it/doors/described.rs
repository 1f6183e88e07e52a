//! Answers of the doors against their description, `src/dialects/openapi.json`.

use crate::support::http::Answered;
use serde_json::{Value, json};
use std::sync::LazyLock;

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../src/dialects/openapi.json")).unwrap());

/// Returns true if an address is that of a template such as `/v1/responses/{id}`.
fn is_of(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template.zip(path).all(|(part, text)| part.starts_with('{') && !text.is_empty() || part == text)
}

/// Checks that the answer to a request is one that the description allows.
pub(crate) fn check(method: &str, path: &str, answer: &Answered) {
    let path = path.split('?').next().unwrap_or(path);
    let paths = DESCRIPTION["paths"].as_object().unwrap();
    let exact = paths.get(path).or_else(|| paths.iter().find(|(known, _)| is_of(known, path)).map(|found| found.1));
    let Some(operation) = exact.and_then(|known| known.get(method.to_lowercase())) else {
        assert!(answer.status == 404 || answer.status == 405, "{method} {path} is not described: {answer:?}");
        return;
    };
    let responses = &operation["responses"];
    let described = responses.get(answer.status.to_string()).unwrap_or(&responses["default"]);
    let Some(schema) = described["content"]["application/json"].get("schema") else {
        assert!(answer.body.is_empty(), "{method} {path}: no body is described: {answer:?}");
        return;
    };
    if !answer.head.to_lowercase().contains("content-type: application/json") {
        assert!(described["content"].get("text/event-stream").is_some(), "{method} {path}: {answer:?}");
        return;
    }
    let schema = json!({ "allOf": [schema], "components": DESCRIPTION["components"] });
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&answer.json()).map(|error| format!("{} {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{method} {path} was answered as it is not described: {errors:#?}\n{answer:?}");
}
