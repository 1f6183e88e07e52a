//! The vectors that the clients of all languages share: `protocol/client/vectors/README.md` says how they are read.

use reseed_client::{
    fold::{Applied, Snapshot},
    incoming::{Body, Incoming},
};
use reseed_protocol::{Entry, reply::SessionOpened};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Debug, fs, path::PathBuf};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    about: String,
    opened: SessionOpened,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    settled: bool,
    #[serde(default)]
    unknown: Vec<String>,
    opened: Option<SessionOpened>,
    frames: Vec<Value>,
    expected: Value,
}

/// Returns the vectors by the names of their files.
fn vectors() -> Vec<(String, Vector)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../client/vectors"));
    let files = fs::read_dir(&folder).expect("the folder of vectors is beside the client in TypeScript");
    let mut vectors: Vec<_> = files
        .map(|file| file.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("the file can be read");
            let vector = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.file_name().expect("a file has a name").to_string_lossy().into_owned(), vector)
        })
        .collect();
    vectors.sort_by(|(one, _), (other, _)| one.cmp(other));
    vectors
}

/// Applies one frame.
fn tell(snapshot: &mut Snapshot, frame: &Value) -> Applied {
    match Incoming::parse(&frame.to_string()).map(|incoming| incoming.body) {
        Some(Body::Event(seq, event)) => snapshot.apply(seq, &event),
        Some(Body::Ephemeral(event)) => {
            snapshot.apply_ephemeral(&event);
            Applied::Next
        }
        _ => panic!("{frame} is no event"),
    }
}

/// The compared fields by their names on the wire, each printed.
type View = BTreeMap<&'static str, String>;

/// Returns what two snapshots must have in common.
fn view(snapshot: &Snapshot, step: &Step) -> View {
    let mut view = View::new();
    let mut add = |field: &'static str, value: &dyn Debug| {
        if !step.unknown.iter().any(|unknown| unknown == field) {
            view.insert(field, format!("{value:#?}"));
        }
    };
    add("sessionId", &snapshot.session_id);
    add("epoch", &snapshot.epoch);
    add("seq", &snapshot.seq);
    add("leafId", &snapshot.leaf_id);
    add("name", &snapshot.name);
    add("model", &snapshot.model);
    add("strategy", &snapshot.strategy);
    add("settings", &snapshot.settings);
    add("generation", &snapshot.generation);
    add("path", &snapshot.path.iter().map(|entry| &**entry).collect::<Vec<&Entry>>());
    add("more", &snapshot.path.more());
    add("turn", &snapshot.turn.as_ref().map(|turn| &turn.turn_id));
    add("lastTurn", &snapshot.last_turn);
    add("unansweredTurns", &snapshot.unanswered_turns);
    add("failedCompactions", &snapshot.failed_compactions);
    add("queue", &snapshot.queue);
    add("pins", &snapshot.pins);
    add("undone", &snapshot.undone);
    let calls = snapshot.pending.iter().map(|call| (&call.call_id, &call.turn_id, &call.name, &call.arguments));
    add("pending", &calls.collect::<Vec<_>>());
    if step.settled {
        add("state", &snapshot.state);
        let valid = snapshot.items.iter().filter(|item| item.aborted().is_none());
        add("items", &valid.map(|item| (item.item_id(), item.turn_id(), item.parts())).collect::<Vec<_>>());
        let job = snapshot.compaction.as_ref();
        add("compaction", &job.map(|job| (&job.job_id, &job.phase, job.background)));
        add("held", &snapshot.held);
        add("contextInfo", &(&snapshot.context_info, &snapshot.warning));
        add("deadlines", &snapshot.pending.iter().map(|call| call.deadline).collect::<Vec<_>>());
    }
    // In a recording, whoever looked at the session comes and goes as well.
    if step.expected["role"] == "writer" {
        add("host", &snapshot.host);
        add("presence", &snapshot.presence);
    }
    view
}

#[test]
fn what_the_vectors_tell_gives_what_the_server_says_afresh() {
    let vectors = vectors();
    assert!(!vectors.is_empty(), "there are vectors");
    for (file, Vector { about, opened, steps }) in vectors {
        assert!(!steps.is_empty(), "{file} has steps");
        let mut snapshot = Snapshot::opened(opened);
        for (index, step) in steps.iter().enumerate() {
            let at = format!("step {} of {file}: {about}", index + 1);
            if let Some(opened) = &step.opened {
                snapshot.reopened(opened.clone());
            }
            for frame in &step.frames {
                assert_ne!(tell(&mut snapshot, frame), Applied::Gap, "{at}: {frame}");
            }
            let expected = serde_json::from_value(step.expected.clone());
            let expected = Snapshot::opened(expected.unwrap_or_else(|error| panic!("{at}: {error}")));
            let (view, expected) = (view(&snapshot, step), view(&expected, step));
            for (field, expected) in &expected {
                let told = &view[field];
                assert!(told == expected, "`{field}` after {at}\ntold: {told}\nexpected: {expected}");
            }
        }
        assert_eq!(snapshot.resume_point().seq, snapshot.seq);
    }
}
