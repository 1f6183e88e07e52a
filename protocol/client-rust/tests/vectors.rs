//! The vectors that the clients of all languages share: `protocol/client/vectors/README.md` says how they are read.

mod view;

use reseed_client::{
    fold::{Applied, Snapshot},
    incoming::{Body, Incoming},
};
use reseed_protocol::session::SessionOpened;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::HashMap, fs, path::PathBuf};
use view::{Compared, differences};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    about: String,
    opened: Value,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    settled: bool,
    #[serde(default)]
    unknown: Vec<String>,
    opened: Option<Value>,
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

/// The entries that a file has given so far: the ones in `expected` stand there by their ids if it has them already.
struct Given(HashMap<String, Value>);

impl Given {
    fn add(&mut self, entry: &Value) {
        let id = entry["entryId"].as_str().expect("an entry has an id");
        self.0.insert(id.to_owned(), entry.clone());
    }

    fn add_frame(&mut self, frame: &Value) {
        if frame["type"] == "entry_appended" {
            self.add(&frame["payload"]["entry"]);
        }
    }

    /// Returns `expected` with each entry in the place of its id.
    fn whole(&mut self, mut expected: Value) -> Value {
        for entry in expected["entries"].as_array_mut().into_iter().flatten() {
            match entry.as_str() {
                Some(id) => *entry = self.0.get(id).unwrap_or_else(|| panic!("entry {id} is not given before")).clone(),
                None => self.add(entry),
            }
        }
        expected
    }
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

fn read(opened: Value) -> SessionOpened {
    serde_json::from_value(opened).expect("what the server said can be read")
}

#[test]
fn what_the_vectors_tell_gives_what_the_server_says_afresh() {
    let vectors = vectors();
    assert!(!vectors.is_empty(), "there are vectors");
    for (file, Vector { about, opened, steps }) in vectors {
        assert!(!steps.is_empty(), "{file} has steps");
        let mut given = Given(HashMap::new());
        let mut snapshot = Snapshot::opened(read(given.whole(opened)));
        for (index, step) in steps.iter().enumerate() {
            let at = format!("step {} of {file}: {about}", index + 1);
            if let Some(opened) = &step.opened {
                snapshot.reopened(read(given.whole(opened.clone())));
            }
            for frame in &step.frames {
                given.add_frame(frame);
                assert_ne!(tell(&mut snapshot, frame), Applied::Gap, "{at}: {frame}");
            }
            let expected = Snapshot::opened(read(given.whole(step.expected.clone())));
            // In a recording, whoever looked at the session comes and goes as well.
            let people = step.expected["role"] == "writer";
            let compared = Compared { settled: step.settled, people, unknown: &step.unknown };
            let differences = differences(&snapshot, &expected, compared);
            assert!(differences.is_empty(), "{at}: {}", differences.join("\n"));
        }
        assert_eq!(snapshot.resume_point().seq, snapshot.seq);
    }
}
