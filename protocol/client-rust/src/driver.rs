//! Drives a [`Machine`]: makes its connections and runs its timers.

use crate::{
    Address,
    ending::Lost,
    machine::{Credentials, Machine, Output},
    socket::Received,
    transport::{Connect, Transport},
    update::Update,
};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::{Instant, Sleep};

/// The number of frames in a row after which deadlines are checked, so that a steady stream of frames does not delay
/// them.
const FRAMES_IN_A_ROW_MAX: u32 = 32;

type Dialing = Pin<Box<dyn Future<Output = Result<(Box<dyn Transport>, Credentials), Lost>> + Send>>;
type Asking = Pin<Box<dyn Future<Output = Result<Credentials, Lost>> + Send>>;

/// Provides credentials each time the client connects, and when those of a connection expire. It fails with
/// [`Lost::Refused`] if asking again will not help, and otherwise with [`Lost::Broken`].
pub type AskCredentials = Arc<dyn Fn() -> Asking + Send + Sync>;

impl Credentials {
    /// Provides a token that never changes. To make a machine stop when the token is refused, use
    /// [`Machine::with_fixed_credentials`].
    #[must_use]
    pub fn fixed(token: impl Into<String>) -> AskCredentials {
        let token = token.into();
        Arc::new(move || Box::pin(std::future::ready(Ok(Self::Token(token.clone())))))
    }
}

/// The transport and the clock of a machine. It does nothing by itself: [`Driver::next`] drives it, and that future may
/// be dropped while it waits.
pub struct Driver {
    connect: Arc<dyn Connect>,
    credentials: Option<AskCredentials>,
    socket: Option<Box<dyn Transport>>,
    dialing: Option<Dialing>,
    /// Pending new credentials for the current connection.
    renewing: Option<Asking>,
    sleep: Pin<Box<Sleep>>,
    /// The number of frames since deadlines were last checked.
    frames: u32,
}

impl Driver {
    /// Creates a driver that connects when its machine requests it.
    ///
    /// # Panics
    /// There is no tokio runtime.
    #[must_use]
    pub fn new(address: Address, credentials: Option<AskCredentials>) -> Self {
        Self::over(address, credentials)
    }

    /// Creates a driver over any transport.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn over(connect: impl Connect + 'static, credentials: Option<AskCredentials>) -> Self {
        let sleep = Box::pin(tokio::time::sleep_until(Instant::now()));
        Self { connect: Arc::new(connect), credentials, socket: None, dialing: None, renewing: None, sleep, frames: 0 }
    }

    /// Executes the machine's outputs until there is an update. Once the machine has stopped, always returns
    /// [`Update::Stopped`].
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

    /// Passes events of the socket and the clock to the machine. Returns false if there were none.
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
            // Without new credentials, the server closes the connection, and the next one asks for credentials again.
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
        let (connect, ask) = (self.connect.clone(), self.credentials.clone());
        Box::pin(async move {
            let credentials = match ask {
                Some(ask) => ask().await?,
                None => Credentials::None,
            };
            Ok((connect.connect().await?, credentials))
        })
    }

    /// Cuts the connection like a network failure.
    pub fn cut(&mut self, machine: &mut Machine) {
        self.hang_up();
        machine.lost(now(), Lost::Broken("the connection was cut".to_owned()));
    }

    /// Sends the machine's remaining frames and closes the connection. Running turns continue.
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
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// Returns the current time on the clock that machines use.
pub(crate) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
