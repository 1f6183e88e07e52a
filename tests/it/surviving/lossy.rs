//! The Rust client as programs use it, on lines that break at random: nothing is lost, nothing is done twice, and its
//! snapshot equals a fresh one from the server. It is alone with a session, or beside another window that takes over
//! its tools.
//!
//! `LOST=10000` runs that many seeds, `SEED=n` only that one: it repeats the choices, though not their timing.

use super::{
    kills::number,
    witness::{Watched, Witness},
};
use crate::support::{
    line::{Carries, Line},
    server::Server,
};
use futures_util::future::join_all;
use reseed::provider::offline::{Offline, OfflineOptions};
use reseed_client::{
    Address, Client, Opening, Options, Session, SessionEnd, SessionEvent, Unanswered, Update, fold::Snapshot,
};
use reseed_protocol::{
    CallId, CommandId, EntryId, ErrorCode, Message, Role, SessionId,
    command::Command,
    event::{EphemeralEvent, Event},
    session::{Resumed, SessionState},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

/// Seeds in the normal run.
const SEEDS: u64 = 40;

/// The number of seeds that run at the same time.
const AT_ONCE: usize = 8;

/// Maximum number of cuts of one client, and of breaks of its line, so that each run comes to an end.
const CUTS_MAX: usize = 8;

/// Maximum number of times that one client takes over the tools.
const TAKEOVERS_MAX: usize = 4;

/// The time that an event may take on a machine that is busy with other tests; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client with its line, and everything that it received.
struct Window {
    client: Client,
    session: Session,
    line: Line,
    /// `None` while the end is compared.
    witness: Option<Witness>,
    random: fastrand::Rng,
    /// The number of times that it was cut off; no more than a limit, and none once the end is checked.
    cuts: usize,
    cuts_max: usize,
    takeovers_left: usize,
    /// The session is being deleted, and has ended.
    is_deleted: bool,
    /// True if a deletion was given again, because nobody knew whether the first one arrived.
    is_deleted_again: bool,
    has_ended: bool,
    /// The newest durable event that was received.
    seq: Option<u64>,
    /// The event up to which the last opening of the session described the present state.
    as_of_seq: u64,
    /// What was shown of answers that are not entries yet.
    shown: HashMap<EntryId, String>,
    /// The number of times that each call was run.
    ran: BTreeMap<CallId, usize>,
    /// The commands without a reply.
    unanswered: BTreeMap<CommandId, &'static str>,
}

impl Window {
    /// Creates a client that opens this session, or creates one.
    async fn new(seed: u64, name: &str, server: &Server, session: Option<SessionId>, takeovers: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut breaks = random.fork();
        let carries = move |broken| {
            let mut bytes = |max: usize| if breaks.bool() { usize::MAX } else { breaks.usize(1..max) };
            // So many bytes cover an upgrade, a greeting and an opening, and some of what follows.
            if broken < CUTS_MAX { Carries { up: bytes(1_500), down: bytes(12_000) } } else { Carries::ALL }
        };
        let line = Line::breaking(server.address(), carries).await;
        let address: Address = line.address.parse().unwrap();
        let client_id = Some(format!("lossy-{seed:06}-{name}"));
        let mut client = Client::new(address, Options { client_id, ..Options::default() });
        let look = json!([{
            "name": "weather",
            "description": "The weather.",
            "parameters": { "type": "object", "properties": { "place": { "type": "string" } } },
            // Another host may run it once more.
            "idempotent": takeovers > 0,
        }]);
        let tools = Some(serde_json::from_value(look).unwrap());
        let session = client.open(session, Opening { entries: Some(1000), tools, ..Opening::default() });
        Self {
            client,
            session,
            line,
            witness: Some(Witness::new(&server.ws())),
            random,
            cuts: 0,
            cuts_max: CUTS_MAX,
            takeovers_left: takeovers,
            is_deleted: false,
            is_deleted_again: false,
            has_ended: false,
            seq: None,
            as_of_seq: 0,
            shown: HashMap::new(),
            ran: BTreeMap::new(),
            unanswered: BTreeMap::new(),
        }
    }

    /// Gives a command.
    fn give(&mut self, kind: &'static str, payload: Value) {
        let command: Command = serde_json::from_value(json!({ "type": kind, "payload": payload })).unwrap();
        let id = self.client.send(self.session, &command).unwrap();
        self.unanswered.insert(id, kind);
    }

    /// Takes the next update. The client may be cut off before it.
    async fn step(&mut self) {
        if self.cuts < self.cuts_max && self.random.u32(..30) == 0 {
            self.cuts += 1;
            self.client.cut();
        }
        if self.takeovers_left > 0 && self.random.u32(..30) == 0 {
            self.takeovers_left -= 1;
            self.give("take_over_host", json!({}));
        }
        let update = tokio::time::timeout(PATIENCE, self.client.next()).await;
        self.take(update.unwrap_or_else(|_| panic!("nothing happens: {}", self.state())));
        let Some(snapshot) = self.client.snapshot(self.session).filter(|_| !self.is_deleted) else { return };
        let Some(witness) = &mut self.witness else { return };
        let is_replaying = snapshot.seq < self.as_of_seq;
        if self.random.u32(..20) == 0 {
            witness.look(snapshot, is_replaying).await;
        } else {
            witness.compare(snapshot, is_replaying);
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Connected(_) | Update::Retrying { .. } | Update::Listed(_) => {}
            // The test does not wait for the client's pause.
            Update::Disconnected { .. } => self.client.connect(),
            Update::Opened { opened, .. } => {
                self.as_of_seq = opened.as_of_seq;
                match self.seq {
                    None => self.seq = Some(opened.as_of_seq),
                    Some(seq) => assert_eq!(opened.resumed, Some(Resumed::Replay), "after event {seq}"),
                }
            }
            Update::Event { event: SessionEvent::Durable(seq, event), .. } => {
                assert_eq!(self.seq.replace(seq), seq.checked_sub(1), "each event is told once, in order");
                if let Event::EntryAppended(appended) = event
                    && let Some(shown) = self.shown.remove(&appended.entry.entry_id)
                {
                    let text = appended.entry.message().map(Message::text).unwrap_or_default();
                    assert!(text.starts_with(&shown), "{shown:?} was shown of {text:?}");
                }
            }
            Update::Event { event: SessionEvent::Ephemeral(EphemeralEvent::RunTool(run)), .. } => {
                let times = self.ran.entry(run.tool_call_id.clone()).or_default();
                if *times == 0 || !run.again {
                    *times += 1;
                    self.give("tool_result", json!({ "toolCallId": run.tool_call_id, "output": "rain" }));
                }
            }
            Update::Event { event: SessionEvent::Ephemeral(_), .. } => self.show(),
            Update::Reply { id, result } => {
                let kind = self.unanswered.remove(&id).unwrap_or_else(|| panic!("{id} has its outcome twice"));
                let fine = match (kind, &result) {
                    (_, Ok(_)) => true,
                    ("start_compaction", Err(Unanswered::Refused(error))) => {
                        [ErrorCode::NothingToCompact, ErrorCode::CompactionRunning].contains(&error.code)
                    }
                    // The other window's result came first.
                    ("tool_result", Err(Unanswered::Refused(error))) => error.code == ErrorCode::TooLate,
                    // A second takeover would have another effect.
                    ("take_over_host", Err(why)) => *why == Unanswered::Lost,
                    // The client does not send a deletion again by itself.
                    ("delete_session", Err(Unanswered::Lost)) => {
                        self.is_deleted_again = true;
                        self.give("delete_session", json!({}));
                        true
                    }
                    // The first one had arrived.
                    ("delete_session", Err(Unanswered::Refused(error))) => {
                        self.is_deleted_again && error.code == ErrorCode::SessionNotFound
                    }
                    ("delete_session", Err(why)) => *why == Unanswered::SessionClosed,
                    _ => false,
                };
                assert!(fine, "{kind}: {result:?}");
            }
            Update::Ended { why, .. } if self.is_deleted => {
                // If its line breaks before it learns of this, it finds out when it opens the session again.
                let is_gone = matches!(&why, SessionEnd::Refused(error) if error.code == ErrorCode::SessionNotFound);
                assert!(is_gone || why == SessionEnd::Deleted, "{why:?}");
                self.has_ended = true;
            }
            Update::Ended { .. } | Update::Stopped(_) => panic!("{update:?}"),
        }
    }

    /// Records what is shown of answers. Text that was shown must not change.
    fn show(&mut self) {
        let Some(snapshot) = self.client.snapshot(self.session) else { return };
        for item in snapshot.items.iter().filter(|item| item.aborted().is_none()) {
            let text = item.parts().first().map(|part| part.text().to_owned()).unwrap_or_default();
            let shown = self.shown.entry(item.item_id().clone()).or_default();
            assert!(text.starts_with(shown.as_str()), "{shown:?} has become {text:?}");
            *shown = text;
        }
    }

    /// Describes what it waits for.
    fn state(&self) -> String {
        let Self { unanswered, is_deleted, .. } = self;
        let snapshot = self.client.snapshot(self.session).map(|snapshot| {
            let Snapshot { seq, state, turn, pending, queue, compaction, .. } = snapshot;
            format!("event {seq}, {state:?}, {turn:?}, {pending:?}, {} in the queue, {compaction:?}", queue.len())
        });
        let is_open = self.client.machine().is_open(self.session);
        format!("no reply to {unanswered:?}, open: {is_open}, deleted: {is_deleted}, {snapshot:?}")
    }

    fn is_idle(&self) -> bool {
        self.unanswered.is_empty()
            && self.client.machine().is_open(self.session)
            && self.client.snapshot(self.session).is_some_and(|snapshot| {
                snapshot.state == SessionState::Idle && snapshot.queue.is_empty() && snapshot.compaction.is_none()
            })
    }

    /// Returns what was said in this role, in order.
    fn said(&self, role: Role) -> Vec<String> {
        let messages = self.snapshot().path.iter().filter_map(|entry| entry.message());
        messages.filter(|message| message.role == role).map(Message::text).collect()
    }

    /// Waits until this many inputs have their answer.
    async fn answered(&mut self, inputs: usize) {
        loop {
            if self.is_idle() && self.said(Role::User).len() == inputs {
                let last = self.snapshot().path.last().and_then(|entry| entry.message());
                if last.is_none_or(|message| message.role != Role::User) {
                    return;
                }
            }
            self.step().await;
        }
    }

    /// Checks the end: everything that was said is there once, in order, and the snapshot is what the server says.
    async fn check(&mut self, inputs: &[&str]) {
        (self.cuts_max, self.takeovers_left) = (0, 0);
        let mut witness = self.witness.take().expect("nothing else is compared");
        witness.settled(self, &["contextInfo"]).await;
        self.witness = Some(witness);
        let said = self.said(Role::User);
        let mine: Vec<&String> = said.iter().filter(|said| inputs.contains(&said.as_str())).collect();
        assert_eq!(mine, inputs.iter().collect::<Vec<_>>());
    }

    fn path(&self) -> Vec<&EntryId> {
        self.snapshot().path.iter().map(|entry| &entry.entry_id).collect()
    }

    /// Deletes the session.
    async fn delete(&mut self) {
        self.give("delete_session", json!({}));
        self.is_deleted = true;
        self.end().await;
    }

    /// Waits until the session has ended, as it does when it is deleted.
    async fn end(&mut self) {
        while !self.has_ended || !self.unanswered.is_empty() {
            self.step().await;
        }
    }
}

impl Watched for Window {
    fn snapshot(&self) -> &Snapshot {
        self.client.snapshot(self.session).expect("the session was opened")
    }

    async fn settle(&mut self) {
        // A reply comes before its events, and the next reply comes after them.
        for _ in 0..2 {
            self.give("get_context_info", json!({}));
            while !self.is_idle() {
                self.step().await;
            }
        }
    }
}

/// Runs one client alone; returns the number of times that it lost its connection.
async fn alone(seed: u64, server: &Server) -> usize {
    let mut window = Window::new(seed, "alone", server, None, 0).await;
    let inputs = ["Say exactly one", "Use weather place=harbour", "Count 1 to 30", "Say exactly 🐈 over there"];
    for text in inputs {
        window.give("user_input", json!({ "input": text }));
    }
    window.give("rename_session", json!({ "name": format!("seed {seed}") }));
    window.answered(inputs.len()).await;
    window.give("start_compaction", json!({}));
    window.answered(inputs.len()).await;
    window.check(&inputs).await;
    assert_eq!(window.snapshot().name, format!("seed {seed}"));
    assert_eq!(window.ran.values().collect::<Vec<_>>(), [&1], "a tool runs once for each call");
    assert_eq!(window.said(Role::Tool).len(), 1);
    let answers = window.said(Role::Assistant);
    let counted = (1..=30).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let expected = ["one", counted.as_str(), "🐈 over there"];
    assert!(expected.iter().all(|text| answers.iter().any(|answer| answer == text)), "{answers:?}");
    window.delete().await;
    window.cuts + window.line.broken()
}

/// Runs two clients of one session, which take the tools over from each other. Returns the number of times that they
/// lost their connections.
async fn together(seed: u64, server: &Server) -> usize {
    let mut one = Window::new(seed, "one", server, None, TAKEOVERS_MAX).await;
    while one.seq.is_none() {
        one.step().await;
    }
    let session = one.snapshot().session_id.clone();
    let mut other = Window::new(seed + 1_000_000, "other", server, Some(session), TAKEOVERS_MAX).await;
    let inputs = [
        ["Say exactly one", "Use weather place=here", "Count 1 to 9"],
        ["Use weather place=there", "Count 9 to 19", "Say exactly two"],
    ];
    for (window, texts) in [&mut one, &mut other].into_iter().zip(inputs) {
        for text in texts {
            window.give("user_input", json!({ "input": text }));
        }
    }
    tokio::join!(one.answered(6), other.answered(6));
    for (window, texts) in [&mut one, &mut other].into_iter().zip(inputs) {
        window.check(&texts).await;
        assert_eq!(window.said(Role::Tool).len(), 2, "a call has one result, whoever has run it");
    }
    let calls: BTreeSet<&CallId> = one.ran.keys().chain(other.ran.keys()).collect();
    assert_eq!(calls.len(), 2);
    assert_eq!(one.path(), other.path());
    one.delete().await;
    other.is_deleted = true;
    other.end().await;
    [&one, &other].map(|window| window.cuts + window.line.broken()).iter().sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_lines_that_break_a_client_has_what_the_server_says() {
    let model = Offline::new(OfflineOptions { window_tokens: 8_000, pace: Some(Duration::from_millis(1)) });
    let settings = [("CONTEXT_WINDOW", "8000"), ("CONNECTIONS_MAX", "1000")];
    let server = Arc::new(Server::start(model, &settings).await);
    let seeds: Vec<u64> = match number("SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("LOST").unwrap_or(SEEDS)).collect(),
    };
    let mut lost = 0;
    for some in seeds.chunks(AT_ONCE) {
        let run = |seed: &u64| {
            let (seed, server) = (*seed, server.clone());
            let running = tokio::spawn(async move {
                // Every third one has company.
                if seed % 3 == 0 { together(seed, &server).await } else { alone(seed, &server).await }
            });
            async move { running.await.unwrap_or_else(|error| panic!("repeat with SEED={seed}: {error}")) }
        };
        lost += join_all(some.iter().map(run)).await.into_iter().sum::<usize>();
    }
    assert!(lost > seeds.len(), "{lost} connections were lost in {} runs", seeds.len());
    eprintln!("{} runs: {lost} connections were lost", seeds.len());
}
