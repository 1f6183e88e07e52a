//! The built-in model. It needs no key and no network, and gives the same answer to the same request. To the server, it
//! behaves like any model with a small window.
//!
//! - It knows nothing but the request. It recalls only from the messages and summaries it was sent.
//! - It streams word by word at a readable pace, including tool calls. Dropping the future stops it.
//! - It refuses a request that leaves no token for an answer. It ends an answer that would exceed the window or the
//!   output limit with [`StopReason::Length`].
//! - It counts its own tokens (`count`) and reports them as usage.
//! - If asked for a summary, it makes one by extraction.

mod count;
mod fact;
mod recall;
mod reply;
mod sentences;
mod summarise;
mod tool_call;
mod words;

use crate::core::model::{Answer, Delta, ModelFault, ModelRequest, OverflowHint, Purpose, ReportedUsage, Takes};
use crate::provider::{AnswerFuture, DeltaSink, ListedModel, ModelsFuture, Provider};
use count::{part_tokens, piece_tokens, pieces, request_tokens};
use reply::{Reply, Sizes, reply};
use reseed_protocol::{CallId, ErrorCode, Part, StopReason};
use std::time::Duration;
pub(crate) use summarise::asked_summary;
use summarise::summarise;
use tool_call::Call;

/// The name under which it is listed. It accepts any other name too.
pub const MODEL: &str = "offline";

/// Options of the offline model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfflineOptions {
    /// Tokens of prompt and answer together.
    pub window_tokens: u64,
    /// The delay between two words of an answer; `None` sends everything at once. Summaries are never delayed, because
    /// nobody watches them.
    pub pace: Option<Duration>,
}

impl Default for OfflineOptions {
    /// Returns a window that fills within a short conversation, and 40 words per second.
    fn default() -> Self {
        Self { window_tokens: 8_000, pace: Some(Duration::from_millis(25)) }
    }
}

/// The offline model.
#[derive(Debug, Clone, Copy)]
pub struct Offline {
    options: OfflineOptions,
}

impl Offline {
    /// Returns a model with these options.
    #[must_use]
    pub fn new(options: OfflineOptions) -> Self {
        Self { options }
    }

    async fn answered(&self, request: &ModelRequest, sink: &mut dyn DeltaSink) -> Result<Answer, ModelFault> {
        let window_tokens = self.options.window_tokens;
        let input_tokens = request_tokens(request);
        if input_tokens >= window_tokens {
            return Err(overflow(input_tokens, window_tokens));
        }
        let asked_for = request.envelope.options.max_output_tokens.unwrap_or(u64::MAX).max(1);
        let output_tokens_max = asked_for.min(window_tokens - input_tokens);
        let reply = match request.purpose {
            Purpose::Summary => Reply::Say(summarise(request, output_tokens_max)),
            Purpose::Turn => reply(request, Sizes { input_tokens, window_tokens }),
        };
        let pace = self.options.pace.filter(|_| request.purpose == Purpose::Turn);
        let (text, calls) = match reply {
            Reply::Say(text) => (text, Vec::new()),
            Reply::Call(calls) => (announced(&calls), calls),
        };
        let mut left = output_tokens_max;
        let said = stream(&text, &mut left, pace, sink).await;
        let mut is_cut = said.len() < text.len();
        let mut parts = vec![Part::Text { text: said }];
        for call in calls.into_iter().enumerate().map(|(at, call)| call_part(at, call)) {
            // A call is sent completely or not at all, because half a call could not be executed.
            match left.checked_sub(part_tokens(&call)) {
                Some(after) if !is_cut => {
                    left = after;
                    stream_call(parts.len(), &call, pace, sink).await;
                    parts.push(call);
                }
                _ => is_cut = true,
            }
        }
        let stop_reason = match parts.len() {
            _ if is_cut => StopReason::Length,
            1 => StopReason::Stop,
            _ => StopReason::ToolCalls,
        };
        let usage = ReportedUsage { input_tokens, output_tokens: output_tokens_max - left, ..ReportedUsage::default() };
        Ok(Answer { usage: Some(usage), ..Answer::new(parts, stop_reason) })
    }
}

impl Provider for Offline {
    fn name(&self) -> &'static str {
        MODEL
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(self.answered(request, sink))
    }

    fn models(&self) -> ModelsFuture<'_> {
        let takes = Takes { tools: Some(true), images: Some(false) };
        let model = ListedModel { id: MODEL.to_owned(), window_tokens: Some(self.options.window_tokens), takes };
        Box::pin(std::future::ready(Ok(vec![model])))
    }
}

/// Streams the text piece by piece while tokens are left. Returns the part that was sent.
async fn stream(text: &str, left: &mut u64, pace: Option<Duration>, sink: &mut dyn DeltaSink) -> String {
    let mut said = String::new();
    for piece in pieces(text) {
        let piece = match left.checked_sub(piece_tokens(piece)) {
            Some(_) => piece,
            // An answer always has some text, even if it is only a part of the first word.
            None if said.is_empty() => fitting(piece, *left),
            None => break,
        };
        if let (Some(pace), false) = (pace, said.is_empty()) {
            tokio::time::sleep(pace).await;
        }
        *left = left.saturating_sub(piece_tokens(piece));
        said.push_str(piece);
        sink.delta(Delta::Text { part: 0, text: piece });
    }
    said
}

/// Streams a call: first its name, then its arguments piece by piece.
async fn stream_call(part: usize, call: &Part, pace: Option<Duration>, sink: &mut dyn DeltaSink) {
    let Part::ToolCall { name, arguments, .. } = call else { return };
    sink.delta(Delta::Call { part, name });
    for text in pieces(arguments) {
        if let Some(pace) = pace {
            tokio::time::sleep(pace).await;
        }
        sink.delta(Delta::Arguments { part, text });
    }
    sink.delta(Delta::CallEnd { part });
}

/// Returns the longest prefix of a piece that fits into these tokens, at least one character.
fn fitting(piece: &str, tokens_max: u64) -> &str {
    let ends = piece.char_indices().map(|(at, c)| at + c.len_utf8());
    let fits = ends.take_while(|end| piece_tokens(&piece[..*end]) <= tokens_max.max(1)).last();
    &piece[..fits.unwrap_or(piece.len())]
}

fn announced(calls: &[Call]) -> String {
    let names: Vec<String> = calls.iter().map(|call| format!("`{}`", call.name)).collect();
    format!("I call {}.", names.join(" and "))
}

fn call_part(at: usize, call: Call) -> Part {
    let call_id: CallId = format!("offline-{}", at + 1).parse().expect("a word and a small number are an id");
    Part::ToolCall { call_id, name: call.name, arguments: call.arguments }
}

fn overflow(prompt_tokens: u64, window_tokens: u64) -> ModelFault {
    let message = format!(
        "the request has {prompt_tokens} tokens, which leaves none for an answer in the offline model's window of \
         {window_tokens} tokens; send less, or set CONTEXT_WINDOW higher"
    );
    ModelFault {
        overflow: OverflowHint { prompt_tokens: Some(prompt_tokens), window_tokens: Some(window_tokens) },
        ..ModelFault::new(ErrorCode::ContextOverflow, message)
    }
}

#[cfg(test)]
mod tests;
