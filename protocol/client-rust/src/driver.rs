//! Drives a [`Machine`]: connects its socket and keeps its deadlines.

use crate::{
    Address,
    ending::Lost,
    machine::{Credentials, Machine, Output},
    socket::{Received, Socket},
    update::Update,
};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::{Instant, Sleep};

/// Frames in a row after which deadlines are checked, so that a steady stream of frames does not delay them.
const FRAMES_IN_A_ROW_MAX: u32 = 32;

type Dialing = Pin<Box<dyn Future<Output = Result<(Socket, Credentials), Lost>> + Send>>;
type Asking = Pin<Box<dyn Future<Output = Result<Credentials, Lost>> + Send>>;

/// Gives credentials, each time that the client connects and when those of a connection expire. It fails with
/// [`Lost::Refused`] if asking again will not help, and with [`Lost::Broken`] otherwise.
pub type AskCredentials = Arc<dyn Fn() -> Asking + Send + Sync>;

impl Credentials {
    /// Gives a token that stays the same. A machine that is to stop when it is refused is told so by
    /// [`Machine::with_fixed_credentials`].
    #[must_use]
    pub fn fixed(token: impl Into<String>) -> AskCredentials {
        let token = token.into();
        Arc::new(move || Box::pin(std::future::ready(Ok(Self::Token(token.clone())))))
    }
}

/// The socket and the clock of a machine. It does nothing by itself: [`Driver::next`] drives it, and may be dropped
/// while it waits.
pub struct Driver {
    address: Address,
    credentials: Option<AskCredentials>,
    socket: Option<Socket>,
    dialing: Option<Dialing>,
    /// New credentials for the connection there is.
    renewing: Option<Asking>,
    sleep: Pin<Box<Sleep>>,
    /// Frames since deadlines were checked.
    frames: u32,
}

impl Driver {
    /// Creates one that connects when its machine says so.
    ///
    /// # Panics
    /// There is no tokio runtime.
    #[must_use]
    pub fn new(address: Address, credentials: Option<AskCredentials>) -> Self {
        let sleep = Box::pin(tokio::time::sleep_until(Instant::now()));
        Self { address, credentials, socket: None, dialing: None, renewing: None, sleep, frames: 0 }
    }

    /// Does what the machine says, until something is to be told; [`Update::Stopped`] indefinitely once it has stopped.
    pub async fn next(&mut self, machine: &mut Machine) -> Update {
        poll_fn(|cx| self.poll_next(machine, cx)).await
    }

    /// Polls [`Self::next`].
    pub fn poll_next(&mut self, machine: &mut Machine, cx: &mut Context<'_>) -> Poll<Update> {
        loop {
            while let Some(output) = machine.poll() {
                match output {
                    Output::Tell(update) => return Poll::Ready(update),
                    Output::Dial => self.dialing = Some(self.dial()),
                    Output::Send(frame) => {
                        if let Some(socket) = &mut self.socket {
                            socket.queue(frame);
                        }
                    }
                    Output::Renew => self.renewing = self.credentials.as_ref().map(|ask| ask()),
                    Output::HangUp => self.hang_up(),
                }
            }
            if let Some(stop) = machine.stop_reason() {
                return Poll::Ready(Update::Stopped(stop.clone()));
            }
            if !self.poll_world(machine, cx) {
                return Poll::Pending;
            }
        }
    }

    /// Passes what has happened to the machine. Returns false if nothing has.
    fn poll_world(&mut self, machine: &mut Machine, cx: &mut Context<'_>) -> bool {
        if let Some(dialing) = &mut self.dialing
            && let Poll::Ready(dialed) = dialing.as_mut().poll(cx)
        {
            self.dialing = None;
            match dialed {
                Ok((socket, credentials)) => {
                    self.socket = Some(socket);
                    machine.connected(credentials);
                }
                Err(lost) => machine.lost(now(), lost),
            }
            return true;
        }
        if let Some(renewing) = &mut self.renewing
            && let Poll::Ready(renewed) = renewing.as_mut().poll(cx)
        {
            self.renewing = None;
            // Without new credentials the server closes the connection, and the next one asks again.
            if let Ok(credentials) = renewed {
                machine.renew(credentials);
            }
            return true;
        }
        if self.frames >= FRAMES_IN_A_ROW_MAX {
            self.frames = 0;
            if machine.deadline().is_some_and(|deadline| deadline <= now()) {
                machine.tick(now());
                return true;
            }
        }
        if let Some(socket) = &mut self.socket
            && let Poll::Ready(received) = socket.poll_receive(cx)
        {
            self.frames += 1;
            match received {
                Ok(Received::Text(text)) => machine.frame(now(), &text),
                Ok(Received::Ping) => machine.heard(now()),
                Err(lost) => {
                    self.hang_up();
                    machine.lost(now(), lost);
                }
            }
            return true;
        }
        let Some(deadline) = machine.deadline() else { return false };
        self.sleep.as_mut().reset(deadline.into());
        if self.sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        machine.tick(now());
        true
    }

    fn hang_up(&mut self) {
        (self.socket, self.dialing, self.renewing) = (None, None, None);
    }

    fn dial(&self) -> Dialing {
        let (address, ask) = (self.address.clone(), self.credentials.clone());
        Box::pin(async move {
            let credentials = match ask {
                Some(ask) => ask().await?,
                None => Credentials::None,
            };
            Ok((Socket::open(&address).await?, credentials))
        })
    }

    /// Cuts the connection, as a network does.
    pub fn cut(&mut self, machine: &mut Machine) {
        self.hang_up();
        machine.lost(now(), Lost::Broken("the connection was cut".to_owned()));
    }

    /// Sends what the machine has to say, and says goodbye. Turns that run go on.
    pub async fn close(mut self, machine: &mut Machine) {
        machine.close();
        let Some(mut socket) = self.socket.take() else { return };
        while let Some(output) = machine.poll() {
            if let Output::Send(frame) = output {
                socket.queue(frame);
            }
        }
        socket.close().await;
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

/// Returns the time as machines count it.
pub(crate) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
