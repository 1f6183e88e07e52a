//! Moving in the tree over a real socket: asking from an earlier entry, moving with and without a summary of the
//! abandoned branch, the queue, and what clients write into the tree.

mod annotations;
mod asking;
mod moving;
mod waiting;

use crate::support::scripted::Scripted;
use crate::support::{client::Client, server::Server, talk};
use reseed::core::model::ModelRequest;
use reseed_protocol::{Part, Role};
use serde_json::{Value, json};

/// A conversation of these questions, each answered by `re: question`; with the entries' ids in order, and the parts.
struct Talk {
    server: Server,
    client: Client,
    model: Scripted,
    session: String,
    /// Question, answer, question, …
    entries: Vec<String>,
}

/// Returns the model's answer to a question.
fn answer_to(request: &ModelRequest) -> String {
    format!("re: {}", said(request).pop().unwrap_or_default())
}

/// Returns a request's messages, one line per message.
fn said(request: &ModelRequest) -> Vec<String> {
    let line = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall { name, .. } => format!("call {name}"),
        Part::ToolResult { output, .. } => format!("result {output}"),
        other => format!("{other:?}"),
    };
    request.messages().map(|message| message.message.content.iter().map(line).collect::<Vec<_>>().join(" ")).collect()
}

impl Talk {
    async fn of(questions: &[&str]) -> Self {
        let model = Scripted::answering(|request| {
            let text = match request.purpose {
                reseed::core::model::Purpose::Summary => talk::summary(&["the branch was about tea"]),
                reseed::core::model::Purpose::Turn => answer_to(request),
            };
            crate::support::scripted::Reply::text(text)
        });
        let server = Server::start(model.clone(), &[]).await;
        let (client, opened) = Client::v2_session(&server.ws()).await;
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let mut talk = Self { server, client, model, session, entries: Vec::new() };
        for question in questions {
            talk.client.turn(question).await;
        }
        talk.client.forget("session_updated");
        talk.entries = talk.path().await.into_iter().map(|(id, _)| id).collect();
        talk
    }

    /// Returns the path to the leaf: ids and each entry's text, or its type.
    async fn path(&mut self) -> Vec<(String, String)> {
        let page = self.client.ask("get_entries", json!({ "path": true, "limit": 500 })).await;
        let items = page["payload"]["items"].as_array().unwrap_or_else(|| panic!("{page}")).clone();
        let text = |entry: &Value| match entry["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => entry["type"].as_str().unwrap().to_owned(),
        };
        items.iter().map(|entry| (entry["entryId"].as_str().unwrap().to_owned(), text(entry))).collect()
    }

    async fn texts(&mut self) -> Vec<String> {
        self.path().await.into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the messages of the newest request.
    fn last_said(&self) -> Vec<String> {
        said(self.model.requests().last().unwrap())
    }

    /// Opens another connection to the same session, after the first has gone.
    async fn reopened(self) -> (Server, Scripted, Client, Value) {
        let Self { server, client, model, session, .. } = self;
        client.hang_up();
        let mut client = Client::v2(&server.ws()).await;
        let opened = client.ask("open_session", json!({ "sessionId": session })).await;
        assert_eq!(opened["type"], "session_opened", "{opened}");
        (server, model, client, opened["payload"].clone())
    }
}

/// Checks that a reply is an error with this code, and on this field if one is given.
#[track_caller]
fn refused(reply: &Value, code: &str, field: Option<&str>) {
    assert_eq!(reply["payload"]["code"], code, "{reply}");
    assert_eq!(reply["payload"]["details"]["field"].as_str(), field, "{reply}");
}

fn user_messages(request: &ModelRequest) -> usize {
    request.messages().filter(|message| message.message.role == Role::User).count()
}
