//! The same provider against a real server, if `REAL_UPSTREAM` names its address (`http://127.0.0.1:8092/v1`);
//! otherwise the test says that it did nothing.

use super::{Shown, ask, options, request};
use reseed::{
    core::model::ModelRequest,
    provider::{
        Provider,
        openai::{ApiChoice, OpenAi},
    },
};
use reseed_protocol::{ErrorCode, Message, Part, Role, StopReason};

fn short(model: &str, messages: Vec<Message>) -> ModelRequest {
    let mut request = ModelRequest { model: model.to_owned(), ..request(messages) };
    request.envelope.options.max_output_tokens = Some(24);
    request
}

#[tokio::test]
async fn a_real_server_answers_refuses_and_is_hung_up_on() {
    let Ok(base_url) = std::env::var("REAL_UPSTREAM") else {
        println!("REAL_UPSTREAM is not set: no real server is asked");
        return;
    };
    for api in super::APIS {
        let provider = OpenAi::new(options(base_url.clone(), api)).unwrap();
        let listed = provider.models().await.unwrap();
        let (model, window) = (listed[0].id.clone(), listed[0].window_tokens);

        let (answer, shown) = ask(&provider, &short(&model, vec![Message::user("Say something.")])).await;
        let answer = answer.unwrap();
        assert_eq!(answer.parts, [Part::Text { text: shown.0[0].clone() }], "{api:?}");
        let usage = answer.usage.expect("llama-server reports usage over both APIs");
        assert!(usage.input_tokens > 0 && usage.output_tokens <= 24, "{usage:?}");
        // Over Responses, llama-server reports an answer cut by its limit as complete.
        let cut = if api == ApiChoice::Chat { StopReason::Length } else { StopReason::Stop };
        assert!(answer.stop_reason == cut || usage.output_tokens < 24, "{:?}", answer.stop_reason);

        let history = vec![
            Message::user("Look."),
            Message::new(Role::Assistant, vec![super::call("call.1", "{}"), super::call("call.2", "{broken")]),
            Message::new(Role::Tool, vec![super::result("call.1"), super::result("call.2")]),
            Message::new(Role::Assistant, vec![Part::Text { text: "I looked.".into() }]),
            Message::user("And?"),
        ];
        let (answer, _) = ask(&provider, &short(&model, history)).await;
        assert!(!answer.unwrap().parts.is_empty(), "{api:?}");

        let large = short(&model, vec![Message::user("the quick brown fox ".repeat(5_000))]);
        let fault = ask(&provider, &large).await.0.unwrap_err();
        assert_eq!((fault.code, fault.overflow.window_tokens), (ErrorCode::ContextOverflow, window), "{api:?}");

        // Dropping an answer frees the server for the next.
        let long = ModelRequest { model: model.clone(), ..request(vec![Message::user("Go on for long.")]) };
        let (provider, mut dropped) = (&provider, Shown::default());
        let begun = tokio::time::timeout(std::time::Duration::from_millis(30), provider.answer(&long, &mut dropped));
        let _ = begun.await;
        let (answer, _) = ask(provider, &short(&model, vec![Message::user("Again.")])).await;
        println!("{api:?}: model {model}, window {window:?}, then {:?}", answer.unwrap().usage);
    }
}
