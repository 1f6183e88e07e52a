//! The dialects over HTTP, over real sockets.

mod responses;
