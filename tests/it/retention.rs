//! What a model can still answer after ten and more compactions, with the tools that search the history and without
//! them: the conversation of the retention table (`src/core/session/retention.rs`), held with a real server.
//! The table is in `src/core/compaction/summary/README.md`.
//!
//! At the end, each fact is asked for on a branch of its own, so that no question sees another one. The model is a
//! script: it answers from what it sees, and searches for the rest with the words around what it is asked for.

#[path = "../../src/core/session/retention/talk.rs"]
mod talk;

use crate::support::{client::Client, json::present, polling::PATIENCE, server::Server, talk::text_of};
use reseed::{
    core::{
        compaction::{extract::extract, summary::read_prompt},
        model::{ModelRequest, Purpose},
    },
    provider::scripted::{Reply, Scripted},
    store::sqlite::SqliteStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::{
    Message, Part, Role,
    command::{ToolAnnotations, ToolOffer},
};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fmt::Write as _,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Instant,
};
use talk::{FACTS, Fact, KINDS, Said, Summariser, TURNS, facts, honest, lossy, turns};

const BEGIN: &str = "<!-- reachable: begin -->\n";
const END: &str = "<!-- reachable: end -->\n";

/// The strategies, each with its summariser. With an honest one, repair keeps every fact in sight.
const WORLDS: [(&str, &str, Summariser); 3] =
    [("threshold", "lossy", lossy), ("sliding_window", "lossy", lossy), ("truncate", "none", honest)];

/// How a question begins; the number of its fact follows.
const QUESTION: &str = "Question ";

/// Hits that the model asks for: the most.
const HITS: usize = 20;

/// The tool that the conversation calls now and then.
struct Look(Arc<Mutex<VecDeque<Said>>>);

impl Tool for Look {
    fn offer(&self) -> ToolOffer {
        let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        let offer = ToolOffer::new("look", "Looks out of the window.", json!({ "type": "object" }));
        ToolOffer { annotations: Some(annotations), ..offer }
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        let looked = self.0.lock().unwrap().front_mut().and_then(|said| said.looked.take());
        Box::pin(async move { Output::text(looked.expect("the turn looks once")) })
    }
}

/// Returns the model: what it says comes from the conversation, until it is asked a question.
fn model(said: Arc<Mutex<VecDeque<Said>>>, summariser: Summariser) -> Scripted {
    let facts = facts();
    Scripted::answering(move |request| {
        if request.purpose == Purpose::Summary {
            return Reply::text(summariser(request));
        }
        let asked = request.messages().map(|sent| &sent.message).filter(|message| message.role == Role::User).last();
        let text = asked.map(|message| message.text()).unwrap_or_default();
        if let Some(number) = text.strip_prefix(QUESTION) {
            return answer(request, &facts[number.parse::<usize>().unwrap()]);
        }
        let mut said = said.lock().unwrap();
        match said.front() {
            Some(turn) if turn.looked.is_some() => Reply::parts(vec![call("look", &json!({}))]),
            _ => Reply::text(said.pop_front().expect("there is a turn").assistant),
        }
    })
}

fn call(name: &str, arguments: &Value) -> Part {
    Part::ToolCall { call_id: "call".parse().unwrap(), name: name.to_owned(), arguments: arguments.to_string() }
}

/// Answers a question: from what the model sees, else by a search, then by reading what was found.
fn answer(request: &ModelRequest, fact: &Fact) -> Reply {
    if text_of(request).contains(&fact.exact) {
        return Reply::text(format!("It is {}.", fact.exact));
    }
    let does_not_know = || Reply::text("I do not know.");
    if !request.envelope.tools.iter().any(|tool| tool.name == "history_search") {
        return does_not_know();
    }
    let messages: Vec<&Message> = request.messages().map(|sent| &*sent.message).collect();
    let asked = messages.iter().rposition(|message| message.role == Role::User).unwrap();
    let results: Vec<&str> =
        messages[asked..].iter().flat_map(|message| message.content.iter()).filter_map(output).collect();
    let Some(found) = results.first() else {
        let query = json!({ "query": words_for(fact), "limit": HITS });
        return Reply::parts(vec![call("history_search", &query)]);
    };
    let mut ids = found.lines().filter_map(|line| line.strip_prefix("[entry ")?.split(' ').next());
    match ids.nth(results.len() - 1) {
        Some(id) => Reply::parts(vec![call("history_read", &json!({ "entryId": id }))]),
        None => does_not_know(),
    }
}

fn output(part: &Part) -> Option<&str> {
    match part {
        Part::ToolResult { output, .. } => Some(output),
        _ => None,
    }
}

/// Returns the words by which a fact is looked for: those around what is asked for, kept together.
fn words_for(fact: &Fact) -> String {
    let before = fact.sentence.split_once(&fact.exact).expect("the sentence states it").0;
    let before = before.trim_end_matches(|c: char| !c.is_alphanumeric());
    match before.contains(' ') {
        true => format!("\"{before}\""),
        // An open task is all that its line says; it is known for which house.
        false => format!("\"{}\"", fact.exact.split_once(" of ").expect("a house").1),
    }
}

/// Facts that were answered and asked for, by kind, and the requests of the questions.
struct Answered {
    by_kind: Vec<(u32, u32)>,
    requests: usize,
}

impl Answered {
    fn all(&self) -> (u32, u32) {
        self.by_kind.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

/// One conversation, and what could be answered at its end.
struct Talked {
    compactions: u64,
    without: Answered,
    with: Answered,
}

async fn talked(strategy: &str, summariser: Summariser) -> Talked {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let said = Arc::new(Mutex::new(VecDeque::new()));
    let model = model(said.clone(), summariser);
    // A compaction in the background would end sooner or later, as the machine is busy.
    let settings =
        [("CONTEXT_WINDOW", "16000"), ("MODEL", "gpt-4o"), ("CONTEXT_STRATEGY", strategy), ("CONTEXT_BACKGROUND", "1")];
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Look(said.clone()))];
    let server = Server::over_with_tools(model.clone(), store.clone(), tools, &settings).await;
    let (mut client, session) = Client::v2_session(&server.ws()).await;
    let facts = facts();
    for turn in turns(&facts) {
        let user = turn.user.clone();
        said.lock().unwrap().push_back(turn);
        assert_eq!(client.turn(&user).await["status"], "completed");
        client.seen.clear();
    }
    let compactions = compactions_at_rest(&server, &session["sessionId"]).await;
    store.indexed().await;
    let leaf = client.ask("get_tree", json!({})).await["payload"].clone();
    let leaf = present(&leaf["leafId"]).clone();
    let with = questions(&mut client, &model, &facts, &leaf).await;
    let off = json!({ "off": ["history_search", "history_read"] });
    assert_eq!(client.ask("set_tools", off).await["type"], "ok");
    let without = questions(&mut client, &model, &facts, &leaf).await;
    Talked { compactions, without, with }
}

/// Waits for a compaction that the last turn has begun, which would be on no branch of a question but the first.
/// Returns how many were made: each begins a generation.
async fn compactions_at_rest(server: &Server, session: &Value) -> u64 {
    let (mut other, began) = (Client::v2(&server.ws()).await, Instant::now());
    loop {
        let opened = other.ask("open_session", json!({ "sessionId": session, "role": "observer", "entries": 0 })).await;
        assert_eq!(other.ask("close_session", json!({})).await["type"], "ok");
        let opened = &opened["payload"];
        if opened["compaction"].is_null() {
            return opened["generation"].as_u64().expect("there is a generation") - 1;
        }
        assert!(began.elapsed() < PATIENCE, "it does not end: {}", opened["compaction"]);
    }
}

/// Asks for each fact, behind this entry.
async fn questions(client: &mut Client, model: &Scripted, facts: &[Fact], leaf: &Value) -> Answered {
    let before = model.requests().len();
    let mut by_kind = vec![(0, 0); KINDS.len()];
    for (number, fact) in facts.iter().enumerate() {
        let ended = client.turn(&format!("{QUESTION}{number}")).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        let said = client.forget("entry_appended").pop().expect("there is an answer");
        let text = said["payload"]["entry"]["content"][0]["text"].as_str().unwrap().to_owned();
        by_kind[fact.kind].0 += u32::from(text.contains(&fact.exact));
        by_kind[fact.kind].1 += 1;
        let moved = client.ask("navigate", json!({ "entryId": leaf })).await;
        assert_eq!(moved["type"], "navigated", "{moved}");
        client.seen.clear();
    }
    Answered { by_kind, requests: model.requests().len() - before }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute and measures rather than checks: tests/soak/full.sh runs it"]
async fn every_fact_is_reachable_with_the_tools_that_search_the_history() {
    let kinds: Vec<String> = KINDS.iter().map(|kind| format!("{kind} |")).collect();
    let mut table = format!(
        "| strategy | summariser | history tools | compactions | requests a question | {} all |\n",
        kinds.join(" ")
    );
    table += &format!("| --- | --- | --- |{}\n", " ---: |".repeat(KINDS.len() + 3));
    let mut unreachable = Vec::new();
    let mut talks = Vec::new();
    for (strategy, called, summariser) in WORLDS {
        talks.push((strategy, called, tokio::spawn(talked(strategy, summariser))));
    }
    for (strategy, called, talk) in talks {
        let talk = talk.await.unwrap();
        for (offered, answered) in [("without", &talk.without), ("with", &talk.with)] {
            let requests = answered.requests as f64 / FACTS as f64;
            let _ = write!(table, "| {strategy} | {called} | {offered} | {} | {requests:.2} |", talk.compactions);
            for (known, asked) in answered.by_kind.iter().copied().chain([answered.all()]) {
                let _ = write!(table, " {:.1} % |", f64::from(known) * 100.0 / f64::from(asked));
            }
            table.push('\n');
        }
        let (known, asked) = talk.with.all();
        if known < asked {
            unreachable.push(format!("{strategy} {called}: {} facts", asked - known));
        }
        assert!(talk.compactions >= 10, "{strategy} {called}: {} compactions in {TURNS} turns", talk.compactions);
    }
    println!("{table}");
    assert!(unreachable.is_empty(), "not reachable: {}", unreachable.join(", "));
    check_readme(&table);
}

/// Compares the table with the one in the README.
fn check_readme(table: &str) {
    let path = Path::new("src/core/compaction/summary/README.md");
    let committed = fs::read_to_string(path).unwrap();
    let (head, rest) = committed.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let measured = format!("{head}{BEGIN}{table}{END}{tail}");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, measured).unwrap();
    } else {
        assert_eq!(committed, measured, "run `UPDATE=1 cargo test --test it retention:: -- --ignored` to rewrite it");
    }
}
