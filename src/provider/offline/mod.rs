//! The built-in model. It needs no key and no network, and gives the same answer to the same request. To the server, it
//! behaves like any model with a small window.
//!
//! - It knows nothing but the request. It recalls only from the messages and summaries it was sent.
//! - It streams word by word at a readable pace, including tool calls. Dropping the future stops it.
//! - It refuses a request that leaves no token for an answer. It ends an answer that would exceed the window or the
//!   output limit with [`StopReason::Length`].
//! - It counts its own tokens (`tokens`) and reports them as usage.
//! - If asked for a summary, it makes one by extraction.

mod recall;
mod reply;
mod summarise;
mod tool_call;

use crate::core::model::{Answer, Delta, ModelFault, ModelRequest, OverflowHint, Purpose, ReportedUsage, Takes};
use crate::core::text::clip::prefix;
use crate::provider::adapt::no_compaction;
use crate::provider::{AnswerFuture, DeltaSink, ListedModel, ModelsFuture, Provider};
use reseed_protocol::{ErrorCode, Part, StopReason};
use std::time::Duration;
pub(crate) use summarise::asked_summary;

/// The name under which it is listed. It accepts any other name too.
pub const MODEL: &str = "offline";

/// Tokens added per message, tool definition, call and result, for delimiters.
const FRAME_TOKENS: u64 = 4;

/// Tokens of an image, which the offline model cannot see. This is the cost of a medium image elsewhere, so that images
/// fill the window here too.
const IMAGE_TOKENS: u64 = 765;

/// Maximum characters of a piece, so that a text without spaces is streamed too.
const PIECE_CHARS_MAX: usize = 40;

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
        if request.compacts.is_some() {
            return Err(no_compaction());
        }
        let (planned, pace) = match request.purpose {
            Purpose::Summary => (vec![Part::Text { text: summarise::summarise(request, output_tokens_max) }], None),
            Purpose::Turn => (reply::reply(request, input_tokens, window_tokens), self.options.pace),
        };
        let mut stop_reason = if planned.len() > 1 { StopReason::ToolCalls } else { StopReason::Stop };
        let mut left = output_tokens_max;
        let mut parts = Vec::new();
        for part in planned {
            let said = stream(part, parts.len(), left, pace, sink).await;
            let Some((said, is_whole)) = said else {
                stop_reason = StopReason::Length;
                break;
            };
            left = left.saturating_sub(part_tokens(&said));
            parts.push(said);
            if !is_whole {
                stop_reason = StopReason::Length;
                break;
            }
        }
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

/// Streams a part within these tokens. Returns what was sent, and whether it is all of the part. A text is cut between
/// two pieces. A call is sent completely or not at all, because half a call could not be executed.
async fn stream(
    planned: Part,
    part: usize,
    tokens_max: u64,
    pace: Option<Duration>,
    sink: &mut dyn DeltaSink,
) -> Option<(Part, bool)> {
    let pause = async || {
        if let Some(pace) = pace {
            tokio::time::sleep(pace).await
        }
    };
    match &planned {
        Part::Text { text } => {
            let mut said = String::new();
            let mut left = tokens_max;
            for piece in pieces(text) {
                let piece = match tokens(piece) <= left {
                    true => piece,
                    // An answer always has some text. A character has at most one token.
                    false if said.is_empty() => prefix(piece, usize::try_from(left).unwrap_or(usize::MAX)),
                    false => break,
                };
                if !said.is_empty() {
                    pause().await;
                }
                left = left.saturating_sub(tokens(piece));
                said.push_str(piece);
                sink.delta(Delta::Text { part, text: piece });
            }
            let is_whole = said.len() == text.len();
            Some((Part::Text { text: said }, is_whole))
        }
        Part::ToolCall { name, arguments, .. } if part_tokens(&planned) <= tokens_max => {
            sink.delta(Delta::Call { part, name });
            for text in pieces(arguments) {
                pause().await;
                sink.delta(Delta::Arguments { part, text });
            }
            sink.delta(Delta::CallEnd { part });
            Some((planned, true))
        }
        _ => None,
    }
}

/// Returns the tokens of a request as this model counts them.
fn request_tokens(request: &ModelRequest) -> u64 {
    let tools = request.envelope.tools.iter();
    let tools = tools.map(|tool| {
        FRAME_TOKENS + tokens(&tool.name) + tokens(&tool.description) + tokens(&tool.parameters.to_string())
    });
    let messages = request.messages().map(|sent| sent.message.content.iter().map(part_tokens).sum::<u64>());
    let messages = messages.map(|tokens| FRAME_TOKENS + tokens);
    FRAME_TOKENS + tokens(&request.envelope.system.compiled) + tools.chain(messages).sum::<u64>()
}

fn part_tokens(part: &Part) -> u64 {
    match part {
        Part::Text { text } | Part::Reasoning { text, .. } => tokens(text),
        Part::Image { .. } => IMAGE_TOKENS,
        Part::ToolCall { name, arguments, .. } => FRAME_TOKENS + tokens(name) + tokens(arguments),
        Part::ToolResult { output, .. } => FRAME_TOKENS + tokens(output),
    }
}

/// Returns the tokens of a text: one for every 4 bytes of a word, rounded up. This is the same on every machine, and
/// close to real tokenizers for prose in any script. White space is free.
fn tokens(text: &str) -> u64 {
    pieces(text).map(|piece| piece.trim_start().len().div_ceil(4) as u64).sum()
}

/// Splits a text into the pieces that are counted and streamed: a word and the white space before it. Joined, they are
/// the text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut is_word = false;
        // It looks no further than a piece reaches, so that a long word costs no more than many short ones.
        let mut chars = rest.char_indices().take(PIECE_CHARS_MAX);
        let end = chars.find(|(_, char)| {
            let ends = is_word && char.is_whitespace();
            is_word |= !char.is_whitespace();
            ends
        });
        let piece = end.map_or_else(|| prefix(rest, PIECE_CHARS_MAX), |(end, _)| &rest[..end]);
        rest = &rest[piece.len()..];
        (!piece.is_empty()).then_some(piece)
    })
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
