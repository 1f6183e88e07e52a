//! The dialects over HTTP, over real sockets.

mod ai_sdk;
mod chat_completions;
mod chat_keeping;
mod responses;
