//! What the start learns from the model server: which model to use, its window, and that it must wait for the server.

use crate::support::scripted::Gate;
use crate::support::{
    binary::{self, Binary, LOG},
    client::Client,
    http,
    polling::until,
    server::Server,
    upstream::{Reply, Setup, Upstream},
};
use serde_json::{Value, json};
use std::fs;

/// Only the address of the model server is set.
const UNSET: [(&str, &str); 2] = [("MODEL", ""), ("CONTEXT_WINDOW", "")];

/// A server that lists these models.
async fn listing(models: &[Value], props: Option<Value>) -> Upstream {
    let models = json!({ "object": "list", "data": models });
    Upstream::start_with(Setup { models, props, ..Setup::default() }, |_| Reply::text("Hello.")).await
}

fn llama_cpp() -> Value {
    json!({ "id": "smol.gguf", "object": "model", "owned_by": "llamacpp", "meta": { "n_ctx_train": 8192 } })
}

#[tokio::test]
async fn the_only_model_listed_is_taken_with_its_window() {
    let props = json!({ "total_slots": 1, "default_generation_settings": { "n_ctx": 3072 } });
    for (models, props, model, window) in [
        (vec![json!({ "id": "qwen", "max_model_len": 4_096 })], None, "qwen", 4_096),
        (vec![llama_cpp()], Some(props), "smol.gguf", 3_072),
        (vec![llama_cpp()], None, "smol.gguf", 8_192),
        (
            vec![
                json!({ "id": "text-embedding-nomic", "loaded_context_length": 512 }),
                json!({ "id": "qwen", "loaded_context_length": 6_000 }),
            ],
            None,
            "qwen",
            6_000,
        ),
    ] {
        let upstream = listing(&models, props).await;
        let server = Server::facing(&upstream.base_url(), &UNSET).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        assert_eq!(opened["contextInfo"]["maxTokens"], window, "{models:?}");
        assert_eq!(client.turn("Hello?").await["status"], "completed");
        assert_eq!(upstream.requests()[0].body["model"], model);
        upstream.assert_clean();
    }
}

#[tokio::test]
async fn what_the_models_take_is_listed_where_their_server_says_it() {
    let sees = |id: &str, sees: bool| json!({ "id": id, "max_model_len": 4_096, "capabilities": { "vision": sees, "function_calling": true } });
    let upstream = listing(&[sees("qwen:latest", true), sees("blind", false), json!({ "id": "mute" })], None).await;
    let server = Server::facing(&upstream.base_url(), &[("MODEL", "qwen"), ("CONTEXT_WINDOW", "")]).await;
    let mut client = Client::v2(&server.ws()).await;
    let listed = client.ask("list_models", json!({})).await["payload"]["items"].clone();
    let listed = listed.as_array().unwrap();
    let found: Vec<_> = listed.iter().map(|model| (model["id"].as_str().unwrap(), model["images"].as_bool())).collect();
    assert_eq!(found, [("qwen", Some(true)), ("qwen:latest", Some(true)), ("blind", Some(false)), ("mute", None)]);
    assert!(listed[..3].iter().all(|model| model["tools"] == true), "{listed:?}");
}

#[tokio::test]
async fn what_the_list_leaves_open_is_asked_for_and_a_wrong_name_is_answered_with_it() {
    let two = [json!({ "id": "qwen", "max_model_len": 4_096 }), json!({ "id": "llama", "max_model_len": 4_096 })];
    let upstream = listing(&two, None).await;
    let at = upstream.base_url();
    for (model, expected) in [
        ("", format!("the model server at {at} lists 2 models; set MODEL to one of them: `qwen`, `llama`")),
        (
            "quen",
            format!(
                "MODEL is `quen`, which the model server at {at} does not list; it lists `qwen`, `llama`. If it takes \
                 names that it does not list, set CONTEXT_WINDOW"
            ),
        ),
    ] {
        assert_eq!(Server::refusal(&at, &[("MODEL", model), ("CONTEXT_WINDOW", "")]).await, expected);
        let folder = tempfile::tempdir().unwrap();
        let ended = binary::run(folder.path(), &["check"], &[("OPENAI_BASE_URL", &at), ("MODEL", model)]).await;
        assert_eq!(ended.code, Some(1), "{}", ended.printed);
        assert!(ended.faults.contains(&expected), "{}", ended.faults);
    }
    assert!(upstream.requests().is_empty(), "no model is asked");
    // If the window of an alias is set, the operator's setting counts.
    let server = Server::facing(&at, &[("MODEL", "alias"), ("CONTEXT_WINDOW", "3000")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Hello?").await["status"], "completed");
    assert_eq!(upstream.requests()[0].body["model"], "alias");
}

#[tokio::test]
async fn a_server_that_loads_its_model_is_waited_for_and_whoever_comes_is_told() {
    let qwen = json!({ "data": [{ "id": "qwen", "max_model_len": 4_096 }] });
    let llama = json!({ "data": [{ "id": "smol.gguf", "owned_by": "llamacpp", "meta": null }] });
    let props = json!({ "total_slots": 1, "default_generation_settings": { "n_ctx": 4_096 } });
    for (models, props) in [(qwen, None), (llama, Some(props))] {
        waited_for(models, props).await;
    }
}

async fn waited_for(models: Value, props: Option<Value>) {
    let loaded = Gate::new();
    let setup = Setup { models, props, loading: Some(loaded.clone()), ..Setup::default() };
    let upstream = Upstream::start_with(setup, |_| Reply::text("Hello.")).await;
    let folder = tempfile::tempdir().unwrap();
    let (path, base_url) = (folder.path().to_owned(), upstream.base_url());
    let starting = tokio::spawn(async move { Binary::start(&path, &[("OPENAI_BASE_URL", &base_url)]).await });
    let address = until("it says that it waits", async || {
        let log = fs::read_to_string(folder.path().join(LOG)).unwrap_or_default();
        let line = log.lines().find(|line| line.contains("waiting for the model server at")).ok_or(log.clone())?;
        let rest = line.split("http://").nth(2).ok_or(line)?;
        rest.split(' ').next().map(str::to_owned).ok_or(log)
    })
    .await;
    for (path, status, expected) in [
        ("/healthz", 200, "ok\n"),
        ("/readyz", 503, "waiting for the model server: "),
        ("/ws", 503, "waiting for the model server: "),
        ("/", 503, "waiting for the model server: "),
    ] {
        let answered = http::get(&address, path).await;
        assert_eq!(answered.status, status, "{path}: {answered:?}");
        assert!(answered.body.starts_with(expected), "{path}: {answered:?}");
        assert_eq!(status == 503, answered.head.contains("retry-after: "), "{path}: {answered:?}");
    }
    assert!(!starting.is_finished());
    loaded.open();
    let server = starting.await.unwrap();
    assert_eq!(server.address, address, "it is the same door");
    assert_eq!(http::get(&address, "/readyz").await.status, 200);
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    assert_eq!(opened["contextInfo"]["maxTokens"], 4_096);
    assert_eq!(client.turn("Hello?").await["status"], "completed");
    server.stop().await;
}
