//! Establishes, watches and replaces the connection of a client.

use super::{Credentials, Machine, Output, Phase};
use crate::{
    ending::{Lost, Then, backoff, told_wait},
    subscription::{Phase as Subscribed, Subscription},
    update::{Session, Stop, Unanswered, Update},
};
use reseed_protocol::{
    CommandId, ErrorCode, PROTOCOL_VERSION, SessionId,
    command::Command,
    frame::encode_command,
    reply::Reply,
    session::{Authenticate, Hello, Ping, Pong, Welcome},
};
use std::time::{Duration, Instant};

/// The time limit from the first packet to `welcome`. Without it, a network that drops packets would block the client.
pub(super) const CONNECT: Duration = Duration::from_secs(20);

/// A connection that was open for this long counts as lasting. Earlier failures no longer count, and its credentials
/// were good.
const LASTED: Duration = Duration::from_secs(10);

/// The number of missed heartbeats after which the connection counts as lost.
const HEARTBEATS_MISSED_MAX: u32 = 3;

/// The accepted range of heartbeats, which is also the server's. Values outside it are clamped.
const HEARTBEATS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3_600));

/// After this time without a frame, the client asks whether it has received everything, unless the server's heartbeat
/// is slower.
const PROBE: Duration = Duration::from_secs(30);

/// The close code that a client uses itself when the other end is silent, like the server.
const SILENT: u16 = 4508;

/// A connection that has received `welcome`.
#[derive(Debug)]
pub(super) struct Greeted {
    since: Instant,
    heartbeat: Duration,
    pub(super) bytes_max: u64,
    /// The time of the last message, including pings.
    heard_at: Instant,
    /// The time of the last frame or the last probe.
    read_at: Instant,
    /// The pending probe: its command, and the session with the event that it asks about.
    pub(super) probe: Option<(CommandId, Option<(Session, u64)>)>,
    probes: usize,
}

impl Machine {
    /// Handles a new socket by sending `hello`.
    pub fn connected(&mut self, credentials: Credentials) {
        let Phase::Dialing { since } = self.phase else { return self.out.push_back(Output::HangUp) };
        let (token, ticket) = credentials.into_fields();
        let hello = self.new_id();
        let client_id = Some(self.identity.client_id.clone());
        let client = self.identity.software.clone();
        let command = Command::Hello(Hello { protocol_version: PROTOCOL_VERSION, client_id, client, ticket, token });
        self.out.push_back(Output::Send(encode_command(&hello, None, &command)));
        self.phase = Phase::Greeting { since, hello };
    }

    /// Renews the credentials of the connection. If they are refused, the server closes it when the old ones expire,
    /// and the next connection asks for new ones.
    pub fn renew(&mut self, credentials: Credentials) {
        if !matches!(self.phase, Phase::Open(_)) || credentials == Credentials::None {
            return;
        }
        let (token, ticket) = credentials.into_fields();
        let id = self.new_id();
        self.out.push_back(Output::Send(encode_command(
            &id,
            None,
            &Command::Authenticate(Authenticate { ticket, token }),
        )));
    }

    /// Handles the notice that the credentials expire soon.
    pub(super) fn expiring(&mut self) {
        if self.renews && matches!(self.phase, Phase::Open(_)) {
            self.out.push_back(Output::Renew);
        }
    }

    /// Handles a ping, which shows that the other end is alive.
    pub fn heard(&mut self, now: Instant) {
        if let Phase::Open(greeted) = &mut self.phase {
            greeted.heard_at = now;
        }
    }

    /// Handles the loss of the connection, or a failed attempt to make one.
    pub fn lost(&mut self, now: Instant, lost: Lost) {
        if !matches!(self.phase, Phase::Dialing { .. } | Phase::Greeting { .. } | Phase::Open(_)) {
            return;
        }
        self.sessions.values_mut().for_each(|known| known.forgive(now));
        if matches!(&self.phase, Phase::Open(greeted) if now - greeted.since >= LASTED) {
            self.forgive();
        }
        match lost.then() {
            Then::Stop => self.stop(Stop::Lost(lost)),
            Then::Reconnect(wait) => self.retry(now, lost, wait),
            Then::Renew if self.renewed => self.stop(Stop::Credentials(lost.to_string())),
            Then::Renew => {
                // Renewed credentials are tried at once, and only once.
                self.renewed = true;
                let reached = self.is_reached();
                self.drop_connection();
                self.tell(Update::Disconnected { lost, reached, retry_after: Duration::ZERO });
                self.dial(now);
            }
        }
    }

    /// Handles a deadline that has been reached.
    pub fn tick(&mut self, now: Instant) {
        match &self.phase {
            Phase::Dialing { since } | Phase::Greeting { since, .. } if now >= *since + CONNECT => {
                let seconds = CONNECT.as_secs();
                self.lost(now, Lost::Broken(format!("the server said no welcome within {seconds} s")));
            }
            Phase::Waiting { until } if now >= *until => self.dial(now),
            Phase::Open(greeted) if now >= greeted.heard_at + greeted.silence_max() => {
                let seconds = greeted.silence_max().as_secs();
                self.lost(now, Lost::closed(SILENT, &format!("the server said nothing for {seconds} s")));
            }
            Phase::Open(greeted) if now >= greeted.read_at + greeted.probe_after() => self.probe(now),
            _ => {}
        }
        let due = |known: &Subscription| matches!(known.phase, Subscribed::Retrying(at) if at <= now);
        let keys: Vec<Session> = self.sessions.iter().filter(|(_, known)| due(known)).map(|(key, _)| *key).collect();
        for key in keys {
            self.send_open(key);
        }
        self.outbox.release(now);
        self.flush();
    }

    pub(super) fn greeted(&mut self, now: Instant, reply: Reply) {
        match reply {
            Reply::Welcome(welcome) => {
                self.phase = Phase::Open(Box::new(Greeted::new(now, &welcome)));
                self.tell(Update::Connected(welcome));
                self.refuse_too_large();
                for key in self.sessions.keys().copied().collect::<Vec<_>>() {
                    self.send_open(key);
                }
                self.flush();
            }
            Reply::Error(error) if error.code == ErrorCode::Unauthenticated => {
                self.lost(now, Lost::closed(4401, &error.message));
            }
            Reply::Error(error) if error.retriable => {
                let wait = told_wait(&error);
                self.retry(now, Lost::Broken(error.message), wait);
            }
            Reply::Error(error) => self.stop(Stop::Refused(error)),
            other => {
                let what = format!(
                    "the server answered hello with `{}`: it is none of version {PROTOCOL_VERSION}",
                    other.name()
                );
                self.stop(Stop::Lost(Lost::Refused(what)));
            }
        }
    }

    pub(super) fn dial(&mut self, now: Instant) {
        self.phase = Phase::Dialing { since: now };
        self.out.push_back(Output::Dial);
    }

    pub(super) fn retry(&mut self, now: Instant, lost: Lost, wait: Duration) {
        let retry_after = wait.max(backoff(self.failures, &mut self.random));
        self.failures = self.failures.saturating_add(1);
        let reached = self.is_reached();
        self.drop_connection();
        self.phase = Phase::Waiting { until: now + retry_after };
        self.tell(Update::Disconnected { lost, reached, retry_after });
    }

    fn is_reached(&self) -> bool {
        matches!(self.phase, Phase::Greeting { .. } | Phase::Open(_))
    }

    pub(super) fn stop(&mut self, stop: Stop) {
        if matches!(self.phase, Phase::Stopped(_)) {
            return;
        }
        self.drop_connection();
        self.stopped(stop);
    }

    /// Records that there will be no further connection.
    pub(super) fn stopped(&mut self, stop: Stop) {
        self.phase = Phase::Stopped(stop.clone());
        self.fail_all(&Unanswered::Stopped(stop.clone()));
        self.tell(Update::Stopped(stop));
    }

    /// Gives up the current connection, over which nothing is sent any more.
    pub(super) fn drop_connection(&mut self) {
        self.out.retain(|output| !matches!(output, Output::Send(_)));
        self.hang_up();
    }

    /// Ends the current connection. Commands that may be sent again wait for the next one.
    pub(super) fn hang_up(&mut self) {
        self.out.push_back(Output::HangUp);
        let left: Vec<Session> = self
            .sessions
            .iter_mut()
            .filter_map(|(key, known)| {
                match known.phase {
                    Subscribed::Leaving(_) => return Some(*key),
                    Subscribed::Ended => {}
                    _ => known.phase = Subscribed::Waiting,
                }
                None
            })
            .collect();
        for key in left {
            self.forget(key);
        }
        for id in self.outbox.lost() {
            self.over(id, Err(Unanswered::Lost));
        }
    }

    /// Asks whether everything was received, for one session after the other.
    pub(super) fn probe(&mut self, now: Instant) {
        let open: Vec<(Session, u64, SessionId)> = self
            .sessions
            .iter()
            .filter(|(_, known)| known.is_open())
            .filter_map(|(key, known)| Some((*key, known.snapshot.as_ref()?.seq, known.id.clone()?)))
            .collect();
        let id = self.new_id();
        let Phase::Open(greeted) = &mut self.phase else { return };
        let asked = (!open.is_empty()).then(|| open[greeted.probes % open.len()].clone());
        greeted.probes = greeted.probes.wrapping_add(1);
        greeted.read_at = now;
        greeted.probe = Some((id.clone(), asked.as_ref().map(|(key, seq, _)| (*key, *seq))));
        let ping = Command::Ping(Ping { seq: asked.as_ref().map(|(_, seq, _)| *seq) });
        self.out.push_back(Output::Send(encode_command(&id, asked.as_ref().map(|(_, _, id)| id), &ping)));
    }

    pub(super) fn probed(&mut self, now: Instant, asked: Option<(Session, u64)>, reply: &Reply) {
        let Some((key, seq)) = asked else { return };
        let behind = matches!(reply, Reply::Pong(Pong { in_sync: Some(false), .. }));
        // Events that arrived between the probe and its answer are not missing.
        if behind && self.snapshot(key).is_some_and(|snapshot| snapshot.seq == seq) {
            self.resync(now, key);
        }
    }
}

impl Credentials {
    /// Returns the token and the ticket.
    fn into_fields(self) -> (Option<String>, Option<String>) {
        match self {
            Self::None => (None, None),
            Self::Token(token) => (Some(token), None),
            Self::Ticket(ticket) => (None, Some(ticket)),
        }
    }
}

impl Greeted {
    fn new(now: Instant, welcome: &Welcome) -> Self {
        Self {
            since: now,
            heartbeat: Duration::from_millis(welcome.heartbeat_ms).clamp(HEARTBEATS.0, HEARTBEATS.1),
            bytes_max: welcome.limits.message_bytes_max,
            heard_at: now,
            read_at: now,
            probe: None,
            probes: 0,
        }
    }

    /// Records that a frame has arrived.
    pub(super) fn read(&mut self, now: Instant) {
        self.heard_at = now;
        self.read_at = now;
    }

    fn silence_max(&self) -> Duration {
        self.heartbeat * HEARTBEATS_MISSED_MAX
    }

    fn probe_after(&self) -> Duration {
        self.heartbeat.max(PROBE)
    }

    pub(super) fn deadline(&self) -> Instant {
        (self.heard_at + self.silence_max()).min(self.read_at + self.probe_after())
    }
}
