//! What the server sends, read as far as this client needs it.
//!
//! Lenient: an event that is not known, or has changed beyond reading, is [`Body::Unknown`] and still moves the place
//! in the log. What must not be missed (the snapshot, the end of a turn, a refusal) is read field by field, so that a
//! word this client does not know, an error code for instance, costs that word and nothing else.

use reseed_protocol::{
    Entry, EntryId, JobId, SessionId, TurnId,
    context::ContextInfo,
    event::{CompactionPrepared, DeltaKind, EphemeralEvent, Event, ItemDelta},
    reply::{QueueItem, Reply, RunningPart, RunningTurn},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// A frame of the server's.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The command's id, on a reply.
    pub(super) re: Option<String>,
    /// The session that it is about, if any.
    pub(super) session: Option<SessionId>,
    /// Its place in the log, on a durable event.
    pub(super) seq: Option<u64>,
    /// What it says.
    pub(super) body: Body,
}

/// What a frame says.
#[derive(Debug)]
pub(super) enum Body {
    /// `session_opened`.
    Opened(Box<Opened>),
    /// `turn_finished`.
    TurnFinished(Box<TurnEnd>),
    /// `error`.
    Refused(Fault),
    /// Any other reply.
    Reply(Reply),
    /// Any other durable event.
    Event(Event),
    /// An ephemeral event.
    Ephemeral(EphemeralEvent),
    /// Something that this client does not know.
    Unknown,
}

/// `session_opened`, as far as it is shown.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Opened {
    pub(super) session_id: SessionId,
    pub(super) epoch: String,
    pub(super) as_of_seq: u64,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) model: String,
    #[serde(default)]
    pub(super) strategy: String,
    #[serde(default, deserialize_with = "if_readable")]
    pub(super) context_info: Option<ContextInfo>,
    /// `replay` or `snapshot`, where a resume was asked for.
    #[serde(default)]
    pub(super) resumed: Option<String>,
    #[serde(default, deserialize_with = "readable_ones")]
    pub(super) entries: Vec<Entry>,
    #[serde(default, deserialize_with = "if_readable")]
    pub(super) turn: Option<RunningTurn>,
    #[serde(default)]
    pub(super) compaction: Option<RunningJob>,
    #[serde(default, deserialize_with = "if_readable")]
    pub(super) held: Option<CompactionPrepared>,
    #[serde(default)]
    pub(super) queue: Vec<Value>,
}

/// A compaction that was running when the session was opened.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunningJob {
    pub(super) job_id: JobId,
    #[serde(default)]
    pub(super) phase: String,
}

/// `turn_finished`, as far as it is shown.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnEnd {
    pub(super) turn_id: TurnId,
    pub(super) status: String,
    #[serde(default)]
    pub(super) finish_reason: Option<String>,
    #[serde(default)]
    pub(super) error: Option<Fault>,
    #[serde(default, deserialize_with = "if_readable")]
    pub(super) context_info: Option<ContextInfo>,
}

/// `error`, or the error of a turn.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fault {
    /// As it stands on the wire; a newer server may have codes that this client does not know.
    pub(super) code: String,
    pub(super) message: String,
    #[serde(default)]
    pub(super) retriable: bool,
}

/// Reads a frame. `None`: it is not one.
pub(super) fn parse(text: &str) -> Option<Incoming> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Envelope {
        #[serde(default)]
        re: Option<String>,
        #[serde(default)]
        session_id: Option<SessionId>,
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        seq: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Holding<T> {
        payload: T,
    }
    fn payload<T: DeserializeOwned>(text: &str, body: fn(T) -> Body) -> Option<Body> {
        serde_json::from_str::<Holding<T>>(text).ok().map(|frame| body(frame.payload))
    }
    let envelope: Envelope = serde_json::from_str(text).ok()?;
    let body = match (envelope.kind.as_str(), envelope.seq) {
        ("session_opened", _) => payload(text, |opened| Body::Opened(Box::new(opened))),
        ("turn_finished", _) => payload(text, |end| Body::TurnFinished(Box::new(end))),
        ("error", _) => payload(text, Body::Refused),
        (_, Some(_)) => serde_json::from_str(text).ok().map(Body::Event),
        _ if envelope.re.is_some() => serde_json::from_str(text).ok().map(Body::Reply),
        _ => serde_json::from_str(text).ok().map(Body::Ephemeral),
    };
    let Envelope { re, session_id, seq, .. } = envelope;
    Some(Incoming { re, session: session_id, seq, body: body.unwrap_or(Body::Unknown) })
}

fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    Value::deserialize(deserializer).map(|value| T::deserialize(value).ok())
}

fn readable_ones<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let values = Vec::<Value>::deserialize(deserializer)?;
    Ok(values.into_iter().filter_map(|value| T::deserialize(value).ok()).collect())
}

impl Opened {
    /// What waits, as far as it can be read.
    pub(super) fn waiting(&self) -> Vec<QueueItem> {
        self.queue.iter().filter_map(|item| QueueItem::deserialize(item).ok()).collect()
    }

    /// The answers that were being streamed when the session was opened, each with its parts so far as deltas.
    pub(super) fn running_items(&self) -> impl Iterator<Item = (&EntryId, Vec<ItemDelta>)> {
        self.turn.iter().flat_map(|turn| &turn.items).map(|item| {
            let deltas = (0..).zip(&item.parts).map(|(part, content)| {
                let kind = match content {
                    RunningPart::Text { .. } => None,
                    RunningPart::Reasoning { .. } => Some(DeltaKind::Reasoning),
                    RunningPart::ToolCall { .. } => Some(DeltaKind::Arguments),
                };
                let text = content.text().to_owned();
                ItemDelta { item_id: item.item_id.clone(), part, offset: 0, kind, text }
            });
            (&item.item_id, deltas.collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match parse(text).map(|incoming| incoming.body) {
            None => "no frame",
            Some(
                Body::Unknown
                | Body::Reply(Reply::Unknown(_))
                | Body::Event(Event::Unknown(_))
                | Body::Ephemeral(EphemeralEvent::Unknown(_)),
            ) => "unknown",
            Some(Body::Opened(_)) => "opened",
            Some(Body::TurnFinished(_)) => "turn finished",
            Some(Body::Refused(_)) => "refused",
            Some(Body::Reply(_)) => "reply",
            Some(Body::Event(_)) => "event",
            Some(Body::Ephemeral(_)) => "ephemeral",
        }
    }

    #[test]
    fn what_is_not_known_costs_no_more_than_itself() {
        let table = [
            ("nonsense", "no frame"),
            ("[]", "no frame"),
            (r#"{"re":"a-1","type":"ok","payload":{"surprise":1}}"#, "reply"),
            (r#"{"re":"a-1","type":"surprise","payload":{}}"#, "unknown"),
            (r#"{"sessionId":"ses","seq":1,"type":"surprise","payload":{}}"#, "unknown"),
            (
                r#"{"sessionId":"ses","type":"item_delta","payload":{"itemId":"i","part":0,"offset":0,"text":"x"}}"#,
                "ephemeral",
            ),
            (r#"{"re":"a-1","type":"error","payload":{"code":"surprise","message":"m","retriable":true}}"#, "refused"),
            (
                r#"{"sessionId":"ses","seq":2,"type":"turn_finished","payload":{"turnId":"t","status":"surprise"}}"#,
                "turn finished",
            ),
            (
                r#"{"re":"a-1","type":"session_opened","payload":{"sessionId":"s","epoch":"e","asOfSeq":3,"contextInfo":{},
                    "settings":{"surprise":1},"entries":[{"entryId":"x","parentId":null,"type":"surprise"}]}}"#,
                "opened",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn every_example_frame_of_the_server_is_known() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol/examples/v2");
        for folder in ["replies", "events"] {
            for file in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = file.unwrap().path();
                let kind = kind(&std::fs::read_to_string(&path).unwrap());
                assert!(kind != "unknown" && kind != "no frame", "{} is {kind}", path.display());
            }
        }
    }
}
