//! Groups k and l: the shape of an imported tree, forks of it, and navigation in it.

use crate::{
    compaction::files_deviate,
    data::{Data, Outcome, messages, outcome, same},
    deviations,
    script::{Script, Setting, answer, summary},
};
use reseed::{
    config::LimitSettings,
    core::{agent_loop::Deployment, model::ModelRequest, session::Node},
    hooks::Hooks,
    internals::{
        ForkOrder, ImportOptions, Outbox, Outgoing, Registry, RegistryOptions, SystemClock, import, label_of,
        newest_labels,
    },
    pi::{self, json::Object},
    provider::offline::Offline,
    store::{SessionStore, SubtreeQuery, memory::MemoryStore},
    tools::Toolset,
};
use reseed_protocol::{
    Entry, EntryData, EntryId, ErrorCode, Part, Role, SessionId, Timestamp,
    command::SessionCommand,
    event::Event,
    reply::Reply,
    tree::{ForkPosition, ForkSession, Navigate, NavigatePosition},
};
use serde_json::{Map, Value, json as value};
use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

/// Runs a store's future, which here never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

/// Checks that the server refuses to go to an entry that does not exist.
pub(crate) fn refuses_unknown(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let reply = Imported::new(data, case)?.command_fork("ffffffffffff".parse().unwrap()).0;
        match reply {
            Reply::Error(error) if error.code == ErrorCode::EntryNotFound => {
                Err(Outcome::Deviating(deviations::UNKNOWN_LEAF))
            }
            other => Err(Outcome::Failed(format!("an entry that is not there is answered with {other:?}"))),
        }
    })
}

/// Returns the entries of a session, in the order of its log.
async fn entries_of(store: &MemoryStore, session: &SessionId) -> Vec<Entry> {
    let records = store.read(session, 0, u32::MAX).await.unwrap();
    let entries = records.iter().filter_map(|record| match serde_json::from_str(&record.body).unwrap() {
        Event::EntryAppended(appended) => Some(appended.entry),
        _ => None,
    });
    entries.collect()
}

struct Imported {
    store: Arc<MemoryStore>,
    session: SessionId,
    /// The line of each entry.
    lines: HashMap<EntryId, usize>,
}

impl Imported {
    /// Imports the file into a store with the server's own command.
    fn new(data: &Data, case: &Value) -> Result<Self, Outcome> {
        let options = ImportOptions {
            skip_broken: true,
            owner: String::new(),
            new_id: false,
            model: "m".to_owned(),
            strategy: "threshold".to_owned(),
            deployment: None,
            seed: 5,
            now: Timestamp(1_800_000_000_000),
        };
        let store = Arc::new(MemoryStore::new());
        let imported = now(import(&*store, &data.file(case), &options))
            .map_err(|error| Outcome::Failed(format!("import: {error:#}")))?;
        let session = imported.session;
        let entries = now(entries_of(&store, &session));
        let numbers: Vec<usize> = data.session(case).lines.keys().copied().collect();
        let lines = entries.into_iter().map(|entry| entry.entry_id).zip(numbers).collect();
        Ok(Self { store, session, lines })
    }

    fn line(&self, id: &EntryId) -> Value {
        value!(self.lines[id])
    }

    /// Forks at every entry that the case forks at, as a client's command does. Returns the deviations from pi's.
    fn forks(&self, case: &Value, is_label: impl Fn(usize) -> bool) -> Result<Option<&'static str>, Outcome> {
        let mut deviates = None;
        for expected in case["forks"].as_array().unwrap() {
            let leaf = usize::try_from(expected["leaf"].as_u64().unwrap()).unwrap();
            let entry_id = self.lines.iter().find(|(_, line)| **line == leaf).map(|(id, _)| id.clone()).unwrap();
            let (reply, entries) = self.command_fork(entry_id);
            same("whether it forks", &matches!(reply, Reply::Forked(_)), &true)?;
            let (labels, copied): (Vec<&Entry>, Vec<&Entry>) =
                entries.iter().partition(|entry| matches!(entry.data, EntryData::Label(_)));
            let lines: Vec<Value> = copied.iter().map(|entry| self.line(&entry.entry_id)).collect();
            same("the entries of a fork", &Value::Array(lines), &expected["entries"])?;
            let mut names = Map::new();
            for entry in labels {
                let EntryData::Label(label) = &entry.data else { continue };
                let line = self.lines[&label.target_id].to_string();
                match label.label.as_ref().filter(|name| !name.is_empty()) {
                    Some(name) => names.insert(line, value!(name)),
                    None => names.remove(&line),
                };
            }
            let expected_names: Map<String, Value> = expected["labels"]
                .as_array()
                .unwrap()
                .iter()
                .map(|label| (label["targetLine"].to_string(), label["label"].clone()))
                .collect();
            if names != expected_names {
                names.retain(|line, _| expected_names.contains_key(line) || !is_label(line.parse().unwrap()));
                deviates = deviates.or(Some(deviations::LABELLED_LABEL));
            }
            same("the labels of a fork", &names, &expected_names)?;
            let counter = pi::estimate::counter("m");
            let path: Vec<Arc<Node>> =
                entries.iter().map(|entry| Arc::new(Node::counted(entry.clone(), &counter))).collect();
            let chain = path.windows(2).all(|pair| pair[1].entry.parent_id.as_ref() == Some(pair[0].id()));
            same("whether a fork is a chain", &chain, &true)?;
            same("the messages of a fork", &value!(messages(&path).len()), &expected["originalContextMessages"])?;
            if expected["brokenChain"] == true {
                deviates = Some(deviations::BROKEN_CHAIN);
            } else {
                same("what pi's fork has", &expected["contextMessages"], &expected["originalContextMessages"])?;
            }
        }
        Ok(deviates)
    }

    /// Forks at an entry, by a client's command; returns its reply, and the fork's entries in the order of its log.
    fn command_fork(&self, entry_id: EntryId) -> (Reply, Vec<Entry>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let registry = Registry::new(RegistryOptions {
                store: self.store.clone(),
                provider: Arc::new(Offline::new(Default::default())),
                clock: Arc::new(SystemClock),
                hooks: Hooks::default(),
                tools: Toolset::default(),
                deployment: Deployment { model: "m".into(), strategy: "manual".into(), ..Deployment::default() },
                limits: LimitSettings { sessions_open_max: 4, ..LimitSettings::default() },
                has_several_users: false,
                detached_turn: Duration::ZERO,
                host_away: Duration::ZERO,
                cluster: None,
            });
            let (outgoing, mut replies) = Outbox::new(1);
            let started = registry.fork(ForkOrder {
                source: self.session.clone(),
                owner: String::new(),
                id: format!("fork-at-{entry_id}").parse().unwrap(),
                fingerprint: 1,
                fork: ForkSession { entry_id, position: ForkPosition::At, store: None },
                outgoing,
            });
            started.expect("a single user has no share");
            let Some(Outgoing::Reply(replied)) = replies.recv().await else { panic!("the fork has no reply") };
            let entries = match &replied.reply {
                Reply::Forked(forked) => entries_of(&self.store, &forked.session_id).await,
                _ => Vec::new(),
            };
            (replied.reply, entries)
        })
    }

    /// Returns the nodes of a part of the tree.
    fn nodes(&self, root: Option<EntryId>, depth: u32) -> Vec<(EntryId, u64)> {
        let query = SubtreeQuery { root, depth, limit: u32::MAX, bytes_max: usize::MAX };
        let nodes = now(self.store.subtree(&self.session, query)).unwrap();
        nodes
            .iter()
            .map(|node| match serde_json::from_str(&node.record.body).unwrap() {
                Event::EntryAppended(appended) => (appended.entry.entry_id, node.child_count),
                other => panic!("{other:?} is no entry"),
            })
            .collect()
    }
}

pub(crate) fn shape(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let imported = Imported::new(data, case)?;
        let head = now(imported.store.head(&imported.session)).unwrap();
        let state: Value = serde_json::from_str(&head.head.state.unwrap()).unwrap();
        let leaf: Option<EntryId> = serde_json::from_value(state["leaf"].clone()).unwrap();
        let has_entries = !data.session(case).lines.is_empty();
        same(
            "the leaf",
            &leaf.filter(|_| has_entries).map_or(Value::Null, |leaf| imported.line(&leaf)),
            &case["leaf"],
        )?;
        if !case["name"].is_null() {
            same("the name", &value!(head.head.name), &case["name"])?;
        }
        same("the labels", &labels(&imported), &case["labels"])?;
        if !has_entries {
            return Ok(());
        }
        let roots: Vec<Value> = imported.nodes(None, 0).iter().map(|(id, _)| imported.line(id)).collect();
        same("the roots", &Value::Array(roots), &case["roots"])?;
        let all = imported.nodes(None, u32::MAX);
        same("how many nodes", &value!(all.len()), &case["treeNodes"])?;
        let mut children = Map::new();
        for (id, child_count) in all {
            let below: Vec<Value> =
                imported.nodes(Some(id.clone()), 1).iter().skip(1).map(|(id, _)| imported.line(id)).collect();
            same("how many children", &(below.len() as u64), &child_count)?;
            let line = imported.lines[&id];
            if below.len() > 1 || below.first().is_some_and(|child| *child != value!(line + 1)) {
                children.insert(line.to_string(), Value::Array(below));
            }
        }
        let lines = &data.session(case).lines;
        let deviates = imported.forks(case, |line| lines[&line].text("type") == Some("label"))?;
        if Value::Object(children.clone()) == case["children"] {
            return deviates.map_or(Ok(()), |reason| Err(Outcome::Deviating(reason)));
        }
        // Children are in the order of the log; pi sorts them by their times.
        let sorted = |list: &Value| {
            let mut lines: Vec<u64> = list.as_array().unwrap().iter().filter_map(Value::as_u64).collect();
            lines.sort_unstable();
            value!(lines)
        };
        let expected: Map<String, Value> =
            case["children"].as_object().unwrap().iter().map(|(line, list)| (line.clone(), sorted(list))).collect();
        same("the children", &children, &expected)?;
        Err(Outcome::Deviating(deviations::ORDER_OF_CHILDREN))
    })
}

/// Returns the label of each entry that has one.
fn labels(imported: &Imported) -> Value {
    let newest = now(newest_labels(&*imported.store, &imported.session, |id| imported.lines.contains_key(id))).unwrap();
    let named = newest.iter().filter_map(|(id, entry)| {
        let name = label_of(entry).filter(|name| !name.is_empty())?;
        Some((imported.lines[id].to_string(), value!(name)))
    });
    Value::Object(named.collect())
}

pub(crate) fn navigation(data: &Data, case: &Value) -> Outcome {
    outcome(|| {
        let session = data.session(case);
        let number = |line: &Value| usize::try_from(line.as_u64().unwrap()).unwrap();
        let id = |line: &Value| session.id(number(line)).unwrap().clone();
        let options = &case["options"];
        let setting = Setting { window_tokens: 128_000, keep_tokens: 20_000, reserve_tokens: 16_384, automatic: false };
        let model = Box::new(|_: &ModelRequest| Some(Ok(answer(&summary("[[BRANCH]]"), None))));
        let old = case["oldLeaf"].as_u64().map(|_| id(&case["oldLeaf"]));
        let mut script = Script::new(&setting, Some(session), old, model);
        let before = script.entries.len();
        let target = id(&case["target"]);
        // pi decides by the kind of the entry; here the caller says it.
        let spoken = script.entry(&target).is_some_and(|entry| match &entry.data {
            EntryData::Message(message) => {
                message.role == Role::User && reseed::pi::message::of_entry(entry).unwrap().text("role") == Some("user")
            }
            EntryData::CustomMessage(_) => script_type(entry) == "custom_message",
            _ => false,
        });
        // If the session is already there, pi does nothing, whatever else was asked.
        let stays = script.leaf().as_ref() == Some(&target);
        let label = options["label"].as_str().filter(|_| !stays);
        let reply = script.command(SessionCommand::Navigate(Navigate {
            entry_id: Some(target),
            position: Some(if spoken && !stays { NavigatePosition::Before } else { NavigatePosition::At }),
            summarize: options["summarize"].as_bool(),
            instructions: options["customInstructions"].as_str().map(str::to_owned),
            replace_instructions: options["replaceInstructions"].as_bool(),
            label: label.map(str::to_owned),
        }));
        let expected = &case["expected"];
        let navigated = match reply {
            Reply::Navigated(navigated) => navigated,
            other => return same("the reply", &value!(format!("{other:?}")), expected),
        };
        let new: Vec<Entry> = script.entries[before..].to_vec();
        let name = |id: Option<&EntryId>| -> Value {
            let Some(id) = id else { return Value::Null };
            match new.iter().position(|entry| entry.entry_id == *id) {
                Some(at) => value!(format!("new{at}")),
                None => value!(session.number(id).unwrap()),
            }
        };
        let text = navigated.input.as_ref().map(|parts| {
            parts
                .iter()
                .filter_map(|part| if let Part::Text { text } = part { Some(text.as_str()) } else { None })
                .collect::<String>()
        });
        if expected["error"].is_string() {
            let parent = session.lines[&number(&case["target"])].text("parentId").unwrap_or_default().to_owned();
            let is_missing = session.lines.values().all(|line| line.text("id") != Some(parent.as_str()));
            same("whether its parent is missing", &(spoken && is_missing), &true)?;
            // A summary of the branch that is left, or a label, is the first entry behind the place before the root.
            let place = new.first().map_or(navigated.leaf_id.as_ref(), |first| first.parent_id.as_ref());
            same("the place before a root", &place, &None)?;
            same("where the session stands", &script.leaf(), &navigated.leaf_id)?;
            same("whether its text is given", &text.is_some(), &true)?;
            return Err(Outcome::Deviating(deviations::MISSING_PARENT));
        }
        same("the text for editing", &value!(text), &expected["editorText"])?;
        same("the new leaf", &name(navigated.leaf_id.as_ref()), &expected["newLeaf"])?;
        same("where the session stands", &script.leaf(), &navigated.leaf_id)?;
        let appended = expected["appended"].as_array().unwrap();
        let mut other_files = None;
        same("how many entries it wrote", &new.len(), &appended.len())?;
        for (entry, expected) in new.iter().zip(appended) {
            same("the type", &value!(entry.type_name()), &expected["type"])?;
            same("the parent", &name(entry.parent_id.as_ref()), &expected["parent"])?;
            match &entry.data {
                EntryData::BranchSummary(branch) => {
                    let from = branch.from_id.as_ref().map_or(value!("root"), |id| name(Some(id)));
                    same("from where", &from, &expected["fromId"])?;
                    same("whether the model wrote it", &branch.summary.contains("[[BRANCH]]"), &true)?;
                    let lines: Vec<Object> = session.lines.values().cloned().collect();
                    other_files = files_deviate(&lines, &value!(branch.details), &expected["details"])?;
                }
                EntryData::Label(label) => {
                    same("what is named", &name(Some(&label.target_id)), &expected["target"])?;
                    same("the name", &value!(label.label), &expected["label"])?;
                }
                other => return Err(Outcome::Failed(format!("it wrote {other:?}"))),
            }
        }
        let asked = &case["calls"];
        same("how many requests", &script.requests.len(), &asked.as_array().unwrap().len())?;
        let path = script.path();
        let roles: Vec<Value> = messages(&path).iter().map(|(_, message)| value!(message.text("role"))).collect();
        same("the roles", &Value::Array(roles), &expected["contextRoles"])?;
        other_files.map_or(Ok(()), |reason| Err(Outcome::Deviating(reason)))
    })
}

/// Returns the type of an entry in pi's form.
fn script_type(entry: &Entry) -> String {
    reseed::pi::export::object(entry).text("type").unwrap_or_default().to_owned()
}
