//! What carries a client's frames: a [`Socket`] to another process, or anything else that delivers text in order.

use crate::{Address, Socket, ending::Lost, socket::Received};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// A future of one of these traits' methods.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connection to a server, with frames as text. Nothing may be lost when a poll is not repeated: a frame is delivered
/// completely or stays in the transport.
pub trait Transport: Send {
    /// Queues a frame. It is sent while [`Self::poll_receive`] is polled.
    fn queue(&mut self, frame: String);

    /// Sends what is queued, and returns the next message of the server.
    ///
    /// # Errors
    /// Returns the reason why the connection ended.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Lost>>;

    /// Sends what is queued, and closes the connection.
    fn close(self: Box<Self>) -> Pending<'static, ()>;
}

/// Makes the connections of a client: the first, and one after each loss.
pub trait Connect: Send + Sync {
    /// Connects.
    ///
    /// # Errors
    /// Returns the reason why there is no connection.
    fn connect(&self) -> Pending<'static, Result<Box<dyn Transport>, Lost>>;
}

impl Transport for Socket {
    fn queue(&mut self, frame: String) {
        Self::queue(self, frame);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Lost>> {
        Self::poll_receive(self, cx)
    }

    fn close(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(Self::close(*self))
    }
}

impl Connect for Box<dyn Connect> {
    fn connect(&self) -> Pending<'static, Result<Box<dyn Transport>, Lost>> {
        (**self).connect()
    }
}

impl Connect for Address {
    fn connect(&self) -> Pending<'static, Result<Box<dyn Transport>, Lost>> {
        let address = self.clone();
        Box::pin(async move { Ok(Box::new(Socket::open(&address).await?) as Box<dyn Transport>) })
    }
}
