//! The vectors that the clients of all languages share: `protocol/client/vectors/README.md` says how they are read.

mod view;

use reseed_client::{
    fold::{Applied, Snapshot},
    incoming::{Body, Incoming},
};
use reseed_protocol::reply::SessionOpened;
use serde::Deserialize;
use serde_json::Value;
use std::{fs, path::PathBuf};
use view::{Compared, differences};

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
            // In a recording, whoever looked at the session comes and goes as well.
            let people = step.expected["role"] == "writer";
            let compared = Compared { settled: step.settled, people, unknown: &step.unknown };
            let differences = differences(&snapshot, &expected, compared);
            assert!(differences.is_empty(), "{at}: {}", differences.join("\n"));
        }
        assert_eq!(snapshot.resume_point().seq, snapshot.seq);
    }
}
