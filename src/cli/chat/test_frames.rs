//! Completes the frames of test scripts: fields that a script leaves out come from the protocol's examples.

use serde_json::Value;

/// Returns the frame with all required fields. Text that is not JSON stays as it is.
pub(super) fn whole(frame: &str) -> String {
    let Ok(mut frame) = serde_json::from_str::<Value>(frame) else { return frame.to_owned() };
    let example = match frame["type"].as_str().unwrap_or_default() {
        "welcome" => "replies/welcome.json",
        "session_opened" => "replies/session_opened.json",
        "turn_finished" => "events/turn_finished.json",
        _ => return frame.to_string(),
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol/examples/v2");
    let example: Value = serde_json::from_str(&std::fs::read_to_string(root.join(example)).unwrap()).unwrap();
    let mut payload = example["payload"].clone();
    payload.as_object_mut().unwrap().extend(frame["payload"].as_object().unwrap().clone());
    frame["payload"] = payload;
    frame.to_string()
}
