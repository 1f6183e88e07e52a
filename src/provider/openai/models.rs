//! Reads the names and, where present, the windows from `GET /models`, which every server fills differently.

use crate::{core::model::Takes, provider::ListedModel};
use serde_json::Value;

/// Fields in which servers report a model's window, with the servers' names. The most reliable come first: the running
/// server's setting precedes the model's maximum.
const WINDOW_FIELDS: &[(&str, &str)] = &[
    ("/meta/n_ctx", "llama.cpp"),
    ("/loaded_context_length", "LM Studio"),
    // This is the endpoint's window, which may be smaller than the model's.
    ("/top_provider/context_length", "OpenRouter"),
    ("/max_model_len", "vLLM, SGLang"),
    ("/context_length", "OpenRouter, Together"),
    ("/context_window", "Groq"),
    ("/max_context_length", "Mistral, LM Studio"),
    ("/max_input_tokens", "LiteLLM"),
    ("/model_info/max_input_tokens", "LiteLLM"),
    ("/limits/max_context_window_tokens", "routers"),
    // Old versions report only the window that the model was trained with.
    ("/meta/n_ctx_train", "llama.cpp"),
];

/// Fields in which servers report whether a model accepts tools: a boolean, or a list that contains the word.
const TOOLS: &[(&str, &str, &str)] = &[
    ("/supported_parameters", "tools", "OpenRouter"),
    ("/capabilities/function_calling", "", "Mistral"),
    ("/supports_tools", "", "Fireworks"),
    ("/model_info/supports_function_calling", "", "LiteLLM"),
];

/// The same for images.
const IMAGES: &[(&str, &str, &str)] = &[
    ("/architecture/input_modalities", "image", "OpenRouter"),
    ("/capabilities/vision", "", "Mistral"),
    ("/supports_image_input", "", "Fireworks"),
    ("/model_info/supports_vision", "", "LiteLLM"),
];

/// Returns the rows of the README's table about `/models`: the server, what it reports, and the field.
#[cfg(test)]
pub(in crate::provider) fn rows() -> Vec<[String; 3]> {
    let row = |server: &str, what: &str, field: &str| {
        [server.to_owned(), what.to_owned(), format!("by `/models`: `{}`", field[1..].replace('/', "."))]
    };
    let windows = WINDOW_FIELDS.iter().map(|(field, server)| row(server, "requests within its window", field));
    let tools = TOOLS.iter().map(|(field, _, server)| row(server, "tools, or none", field));
    let images = IMAGES.iter().map(|(field, _, server)| row(server, "images, or none", field));
    let slots = row("llama.cpp", "summaries that make way on one slot (`/props`)", "/owned_by");
    windows.chain(tools).chain(images).chain([slots]).collect()
}

/// The properties that llama.cpp's server reports in `GET /props`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Props {
    /// The number of requests that it works on at a time.
    pub(super) slots: Option<u64>,
    /// The window of each of these requests.
    pub(super) window_tokens: Option<u64>,
    /// What its model accepts. A template without tools does not exclude them, because the server then describes them
    /// in words.
    pub(super) takes: Takes,
}

/// Reads `GET /props`.
pub(super) fn read_props(body: &[u8]) -> Props {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let number = |field: &str| body.pointer(field)?.as_u64().filter(|&n| n > 0);
    let is = |field: &str| body.pointer(field)?.as_bool();
    let takes =
        Takes { tools: is("/chat_template_caps/supports_tools").filter(|&is| is), images: is("/modalities/vision") };
    Props { slots: number("/total_slots"), window_tokens: number("/default_generation_settings/n_ctx"), takes }
}

/// Returns true if the list comes from llama.cpp's server.
pub(super) fn is_llama_cpp(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body["data"].as_array().is_some_and(|list| list.iter().any(|model| model["owned_by"] == "llamacpp"))
}

/// Maximum number of models read from a list. The largest known list has some hundreds.
const MODELS_MAX: usize = 10_000;

/// Returns the models of a list; `None` if it is not a model list.
pub(super) fn read(body: &[u8]) -> Option<Vec<ListedModel>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let list = [&body["data"], &body["models"], &body].into_iter().find_map(Value::as_array)?;
    Some(list.iter().filter_map(model).take(MODELS_MAX).collect())
}

fn model(entry: &Value) -> Option<ListedModel> {
    let id = ["id", "name", "model"].into_iter().find_map(|name| entry[name].as_str())?;
    let window_tokens = WINDOW_FIELDS.iter().find_map(|(field, _)| entry.pointer(field)?.as_u64().filter(|&n| n > 0));
    Some(ListedModel { id: id.to_owned(), window_tokens, takes: takes(entry) })
}

fn takes(entry: &Value) -> Takes {
    let said = |places: &[(&str, &str, &str)]| {
        places.iter().find_map(|&(field, word, _)| match entry.pointer(field)? {
            Value::Bool(is) => Some(*is),
            Value::Array(all) if !all.is_empty() => Some(all.iter().any(|one| one == word)),
            _ => None,
        })
    };
    // LM Studio has a type for vision models. To models that were not trained for tools, it describes tools in words.
    let sees = match entry["type"].as_str() {
        Some("vlm") => Some(true),
        Some("llm") => Some(false),
        _ => None,
    };
    let is_trained = entry["capabilities"].as_array().is_some_and(|all| all.iter().any(|one| one == "tool_use"));
    Takes { tools: said(TOOLS).or(is_trained.then_some(true)), images: said(IMAGES).or(sees) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_llama_cpp_says_of_itself_is_read() {
        let none = (None, None);
        for (body, slots, window_tokens, (tools, images)) in [
            (
                r#"{"default_generation_settings":{"id":0,"n_ctx":3072,"params":{}},"total_slots":1}"#,
                Some(1),
                Some(3_072),
                none,
            ),
            (
                r#"{"total_slots":4,"modalities":{"vision":true,"audio":false},"chat_template_caps":{"supports_tools":true}}"#,
                Some(4),
                None,
                (Some(true), Some(true)),
            ),
            (
                r#"{"modalities":{"vision":false},"chat_template_caps":{"supports_tools":false}}"#,
                None,
                None,
                (None, Some(false)),
            ),
            (r#"{"total_slots":0,"default_generation_settings":{"n_ctx":0}}"#, None, None, none),
            ("<html>", None, None, none),
        ] {
            let takes = Takes { tools, images };
            assert_eq!(read_props(body.as_bytes()), Props { slots, window_tokens, takes }, "{body}");
        }
        assert!(is_llama_cpp(br#"{"data":[{"id":"m","owned_by":"llamacpp"}]}"#));
        assert!(!is_llama_cpp(br#"{"data":[{"id":"m","owned_by":"vllm"}]}"#) && !is_llama_cpp(b"x"));
    }

    #[test]
    fn every_servers_list_is_read() {
        for (body, expected) in [
            (r#"{"object":"list","data":[{"id":"gpt-4o","object":"model"}]}"#, Some(vec![("gpt-4o", None)])),
            (
                r#"{"models":[{"name":"t"}],"data":[{"id":"t","meta":{"n_ctx":2048,"n_ctx_train":8192}},{"id":"old","meta":{"n_ctx_train":8192}}]}"#,
                Some(vec![("t", Some(2048)), ("old", Some(8192))]),
            ),
            (r#"{"data":[{"id":"m","max_model_len":32768}]}"#, Some(vec![("m", Some(32_768))])),
            (
                r#"{"data":[{"id":"a/b","context_length":131072,"top_provider":{"context_length":65536}},{"id":"c","context_length":8192,"top_provider":{"context_length":null}}]}"#,
                Some(vec![("a/b", Some(65_536)), ("c", Some(8_192))]),
            ),
            (r#"[{"id":"together","context_length":4096}]"#, Some(vec![("together", Some(4_096))])),
            (r#"{"models":[{"name":"llama3:8b"}]}"#, Some(vec![("llama3:8b", None)])),
            (r#"{"data":[{"no":"id"},7,{"id":"zero","max_model_len":0}]}"#, Some(vec![("zero", None)])),
            (r#"{"data":[]}"#, Some(vec![])),
            (r#"{"detail":"Not Found"}"#, None),
            ("<html>", None),
        ] {
            let expected: Option<Vec<_>> = expected.map(|list| {
                let listed = |(id, tokens): (&str, _)| (id.to_owned(), tokens);
                list.into_iter().map(listed).collect()
            });
            let found: Option<Vec<_>> = read(body.as_bytes())
                .map(|list| list.into_iter().map(|model| (model.id, model.window_tokens)).collect());
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn what_a_model_takes_is_read_where_its_server_says_it() {
        for (server, entry, tools, images) in [
            (
                "OpenRouter",
                r#""architecture":{"input_modalities":["text","image"]},"supported_parameters":["max_tokens","tools"]"#,
                Some(true),
                Some(true),
            ),
            (
                "OpenRouter",
                r#""architecture":{"input_modalities":["text"]},"supported_parameters":["max_tokens"]"#,
                Some(false),
                Some(false),
            ),
            (
                "Mistral",
                r#""capabilities":{"completion_chat":true,"function_calling":true,"vision":false}"#,
                Some(true),
                Some(false),
            ),
            ("Fireworks", r#""supports_tools":false,"supports_image_input":true"#, Some(false), Some(true)),
            ("LiteLLM", r#""model_info":{"supports_function_calling":true,"supports_vision":null}"#, Some(true), None),
            ("LM Studio", r#""type":"vlm","capabilities":["tool_use"]"#, Some(true), Some(true)),
            ("LM Studio", r#""type":"llm","capabilities":[]"#, None, Some(false)),
            ("Together", r#""type":"chat""#, None, None),
            ("another", r#""architecture":{"input_modalities":[]},"capabilities":"all""#, None, None),
        ] {
            let list = read(format!(r#"{{"data":[{{"id":"m",{entry}}}]}}"#).as_bytes()).unwrap();
            assert_eq!(list[0].takes, Takes { tools, images }, "{server}: {entry}");
        }
    }
}
