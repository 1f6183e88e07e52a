//! Asks the model for a summary, in pieces if one request cannot hold everything.

mod take;

pub(super) use take::readable;

use crate::{
    compaction::{
        extract::{extract, newest_lines},
        serialize::{blocks, in_pieces, read, whole_blocks},
        summary::{self, InPlaceParts, PromptParts},
    },
    context::{counter::Counter, window::limit_answer, windows::WINDOW_TOKENS_MIN},
    model::{ModelRequest, Purpose},
};
use reseed_protocol::{
    Message,
    compaction::{CompactionRung, SummaryForm, SummaryKind},
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPart, SystemPrompt,
    },
};
use std::{collections::VecDeque, sync::Arc};

/// Maximum requests per compaction. The excess is extracted by rule first, so that a compaction always ends.
const CHUNKS_MAX: usize = 24;

/// How often a request that was refused as too large is split into smaller pieces. Each split halves them, so that even
/// a window overstated eightfold is found.
const HALVINGS_MAX: u32 = 3;

/// Minimum and maximum tokens of a summary; in between, an eighth of the window.
const SUMMARY_TOKENS: (u64, u64) = (256, 4_096);

/// Output tokens per requested word. A word has one to two tokens in most languages, and the model may write twice as
/// much as requested. A model that rambles is cut off here instead of at the deadline.
const ANSWER_TOKENS_PER_WORD: u64 = 4;

/// Maximum tokens of an answer of a model that reasons first.
pub(super) const REASONED_TOKENS_MAX: u64 = 16_384;

/// Maximum words requested, however large the window: longer summaries are read less carefully.
const SUMMARY_WORDS_MAX: u64 = 1_200;

/// Characters of an extract per token of its budget: few enough that even scripts with one token per character usually
/// fit. The result is counted and checked again.
const EXTRACT_CHARS_PER_TOKEN: u64 = 3;

/// Returns the characters of an extract of this many tokens.
pub(super) fn extract_chars(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(EXTRACT_CHARS_PER_TOKEN)).unwrap_or(usize::MAX)
}

fn chars<'a>(blocks: impl IntoIterator<Item = &'a String>) -> u64 {
    blocks.into_iter().map(|block| block.chars().count() as u64).sum()
}

/// Returns the maximum tokens of a summary for this window.
#[must_use]
pub fn summary_tokens_max(window_tokens: u64) -> u64 {
    (window_tokens / 8).clamp(SUMMARY_TOKENS.0, SUMMARY_TOKENS.1)
}

/// The model that summarises, and the messages that it summarises.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) model: String,
    pub(super) counter: Counter,
    /// The summariser's window in estimated tokens. If the model counts more than we do, it holds fewer of ours.
    pub(super) window_tokens: u64,
    /// Maximum tokens of the summary.
    pub(super) summary_tokens_max: u64,
    /// What the summary should focus on.
    pub(super) instructions: Option<String>,
    /// A prompt that replaces the server's own.
    pub(super) prompt: Option<Arc<str>>,
    /// The kind of conversation.
    pub(super) kind: SummaryKind,
    /// True if that prompt is a client's, so that the form it requests is unknown.
    pub(super) is_clients: bool,
    /// True if the summarised messages end within a turn.
    pub(super) split_turn: bool,
    pub(super) delimiter: String,
    /// True if the model is known to reason before it answers; its answers then need more room.
    pub(super) reasons: bool,
    /// The messages to summarise, oldest first.
    pub(super) messages: Vec<Arc<Message>>,
    /// True if everything the user said is kept beside the summary.
    pub(super) keeps_words: bool,
    /// True if the earlier summary is kept before this one.
    pub(super) keeps_earlier: bool,
}

/// The conversation whose request a cached-prefix summary request extends.
#[derive(Debug, Clone)]
pub(super) struct Ride {
    /// The request that the conversation would send.
    pub(super) conversation: ModelRequest,
    /// The number of its last messages that are not summarised, and the first of them.
    pub(super) kept_messages: usize,
    pub(super) first_kept: Option<Arc<Message>>,
}

/// The reason an answer is not a summary, as one word for programs.
pub(super) type Why = &'static str;

/// A summary in progress.
#[derive(Debug, Clone)]
pub struct Asking {
    pub(super) task: Task,
    /// The summary so far: the previous one, with each piece merged in.
    pub(super) summary: Option<String>,
    /// The form of the newest answer.
    pub(super) form: SummaryForm,
    /// Characters of results, arguments and reasoning that none of our own requests contains.
    left_out: u64,
    /// True once an unusable answer was requested again. This costs a request, so it happens at most once.
    retried: bool,
    /// True if an answer was cut off; half as many words are then requested.
    is_short: bool,
    first: Option<String>,
    chunks: VecDeque<Vec<String>>,
    total: usize,
    halvings: u32,
    tokens_max: u64,
    ride: Option<Ride>,
}

impl Asking {
    /// Prepares the requests for a summary of the task's messages, merged into the previous one.
    pub(super) fn stage(task: Task, previous: Option<String>, ride: Option<Ride>) -> Self {
        let tokens_max = task.window_tokens;
        let mut this = Self {
            task,
            summary: previous.clone(),
            form: SummaryForm::default(),
            left_out: 0,
            retried: false,
            is_short: false,
            first: previous,
            chunks: VecDeque::new(),
            total: 0,
            halvings: 0,
            tokens_max,
            ride: None,
        };
        this.chunk();
        this.ride = ride.filter(|ride| this.has_room(ride));
        this
    }

    /// Returns true if the conversation, the instruction and an answer fit the window together.
    fn has_room(&self, ride: &Ride) -> bool {
        let window = self.task.window_tokens;
        self.total > 0 && self.riding_tokens(ride) + self.task.summary_tokens_max <= window - window / 20
    }

    /// Returns the tokens of a cached-prefix request.
    fn riding_tokens(&self, ride: &Ride) -> u64 {
        // The conversation was counted when it was built.
        ride.conversation.envelope.meta.tokens + self.task.counter.text(&self.riding(ride))
    }

    fn riding(&self, ride: &Ride) -> String {
        summary::in_place(InPlaceParts {
            kept_messages: ride.kept_messages,
            first_kept: ride.first_kept.as_deref(),
            instructions: self.task.instructions.as_deref(),
            replaced: self.task.prompt.as_deref(),
            kind: self.task.kind,
            split_turn: self.task.split_turn,
            words_max: self.words_max(),
            keeps_words: self.task.keeps_words,
            keeps_summary: self.task.keeps_earlier,
        })
    }

    /// Falls back from the cached-prefix request to a separate one. Returns `false` if it has already done so.
    pub(super) fn get_off(&mut self) -> bool {
        self.ride.take().is_some()
    }

    /// Packs the conversation into pieces that fit the window together with the prompt, the summary so far and the
    /// answer. Ten percent are reserved for estimation errors. Everything is sent whole if it fits one request;
    /// otherwise texts are sent whole in pieces, and results, arguments and reasoning with their middle left out.
    fn chunk(&mut self) {
        let counter = self.task.counter;
        let window_tokens = self.tokens_max;
        let fixed =
            counter.text(summary::system_prompt()) + counter.text(&self.prompt(&[])) + counter.request_overhead();
        let room = (window_tokens - window_tokens / 10)
            .saturating_sub(fixed)
            .saturating_sub(2 * self.task.summary_tokens_max)
            .max(window_tokens / 8);
        self.chunks.clear();
        self.left_out = 0;
        if self.task.messages.is_empty() {
            // Only the previous summary is rewritten.
            self.chunks.push_back(Vec::new());
            self.total = 1;
            return;
        }
        let count = |blocks: Vec<String>| -> Vec<(u64, String)> {
            blocks.into_iter().map(|block| (counter.text(&block) + 2, block)).collect()
        };
        let mut counted = count(self.task.messages.iter().flat_map(|message| whole_blocks(message)).collect());
        if counted.iter().map(|(tokens, _)| tokens).sum::<u64>() > room {
            let bounded: Vec<String> = self.task.messages.iter().flat_map(|message| blocks(message)).collect();
            let before = chars(counted.iter().map(|(_, block)| block));
            self.left_out = before.saturating_sub(chars(&bounded));
            let fits = |block: &str| counter.text(block) + 2 <= room;
            counted = count(bounded.into_iter().flat_map(|block| in_pieces(block, &fits)).collect());
        }
        let mut chunk = Vec::new();
        let mut used = 0;
        for (tokens, block) in counted {
            if used + tokens > room && !chunk.is_empty() {
                self.chunks.push_back(std::mem::take(&mut chunk));
                used = 0;
            }
            used += tokens;
            chunk.push(block);
        }
        if !chunk.is_empty() {
            self.chunks.push_back(chunk);
        }
        if self.chunks.len() > CHUNKS_MAX {
            // The model could not read this much in bounded time, so the oldest part is reduced to the beginnings of
            // messages.
            let excess = self.chunks.len() - CHUNKS_MAX;
            let blocks: Vec<String> = self.chunks.drain(..excess).flatten().collect();
            self.left_out += chars(&blocks);
            let beginnings = extract(&read(&blocks.join("\n\n")), extract_chars(self.task.summary_tokens_max));
            let so_far = self.summary.take().map(|summary| format!("{summary}\n")).unwrap_or_default();
            let chars_max = extract_chars(2 * self.task.summary_tokens_max);
            self.summary = Some(newest_lines(&format!("{so_far}{beginnings}"), chars_max));
        }
        self.total = self.chunks.len();
    }

    fn words_max(&self) -> u32 {
        let words = (self.task.summary_tokens_max / 2).min(SUMMARY_WORDS_MAX);
        u32::try_from(if self.is_short { words / 2 } else { words }).unwrap_or(u32::MAX)
    }

    /// Returns the tokens that the model may write.
    fn answer_tokens_max(&self) -> u64 {
        if self.task.reasons {
            return REASONED_TOKENS_MAX.max(self.task.summary_tokens_max);
        }
        match self.task.prompt {
            // An operator's or a client's prompt may request any length.
            Some(_) => 2 * self.task.summary_tokens_max,
            // The headings alone take a tenth of the smallest summary.
            None => (ANSWER_TOKENS_PER_WORD * u64::from(self.words_max())).max(2 * SUMMARY_TOKENS.0),
        }
    }

    fn prompt(&self, blocks: &[String]) -> String {
        summary::prompt(PromptParts {
            blocks,
            previous: self.summary.as_deref(),
            instructions: self.task.instructions.as_deref(),
            replaced: self.task.prompt.as_deref(),
            kind: self.task.kind,
            split_turn: self.task.split_turn,
            delimiter: &self.task.delimiter,
            words_max: self.words_max(),
            keeps_words: self.task.keeps_words,
        })
    }

    /// Returns true if every piece is summarised.
    pub(super) fn is_done(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the number of characters that no request contained: none if the request extended the conversation.
    pub(super) fn left_out(&self) -> u64 {
        if self.ride.is_some() { 0 } else { self.left_out }
    }

    /// Returns the number of summarised pieces and the total number of pieces.
    pub(super) fn progress(&self) -> (u64, u64) {
        ((self.total - self.chunks.len()) as u64, self.total as u64)
    }

    pub(super) fn step(&self) -> CompactionRung {
        if self.total > 1 && self.ride.is_none() {
            CompactionRung::ChunkedSummary
        } else {
            CompactionRung::ModelSummary
        }
    }

    /// Returns the next request; `None` once everything is summarised.
    pub(super) fn next_request(&self) -> Option<ModelRequest> {
        let chunk = self.chunks.front()?;
        if let Some(ride) = &self.ride {
            return Some(self.riding_request(ride));
        }
        let prompt = self.prompt(chunk);
        let counter = self.task.counter;
        let system = summary::system_prompt().to_owned();
        let sent = counter.text(&system) + counter.text(&prompt) + counter.request_overhead();
        // A tenth is reserved for estimation errors.
        let beside = (self.task.window_tokens - self.task.window_tokens / 10).saturating_sub(sent);
        let answer = self.answer_tokens_max();
        // If a request was refused, the length of its answer may have been the reason, because strict servers count
        // that too.
        let most = if self.halvings > 0 { answer.min(self.tokens_max / 2) } else { answer };
        let room = most.min(beside).max(self.task.summary_tokens_max.min(answer));
        let message = ContextMessage { entry_id: None, message: Arc::new(Message::user(prompt)) };
        let mut options = RequestOptions { max_output_tokens: Some(room), ..RequestOptions::default() };
        limit_answer(&mut options, 0, beside);
        Some(ModelRequest {
            model: self.task.model.clone(),
            purpose: Purpose::Summary,
            compacts: None,
            envelope: ContextEnvelope {
                system: SystemPrompt {
                    parts: vec![SystemPart { name: "summary".to_owned(), text: system.clone() }],
                    compiled: system,
                },
                tools: Vec::new(),
                messages: EnvelopeMessages { cached: Vec::new(), uncached: vec![message] },
                options,
                meta: EnvelopeMeta { tokens: sent, ..EnvelopeMeta::default() },
            },
            compared_with: None,
        })
    }

    fn riding_request(&self, ride: &Ride) -> ModelRequest {
        let mut request = ride.conversation.clone();
        request.purpose = Purpose::Summary;
        let instruction = Arc::new(Message::user(self.riding(ride)));
        request.envelope.messages.uncached.push(ContextMessage { entry_id: None, message: instruction });
        request.envelope.options.max_output_tokens = Some(self.answer_tokens_max());
        let window = self.task.window_tokens;
        request.envelope.meta.tokens = self.riding_tokens(ride);
        limit_answer(&mut request.envelope.options, request.envelope.meta.tokens, window - window / 20);
        request
    }

    /// Splits a request that was refused as too large into smaller pieces with shorter answers, and starts over. A
    /// window named in the refusal (`window_tokens`) is used as it is, and a request that fits it need not be split.
    /// Returns `false` after the maximum number of attempts.
    pub(super) fn halve(&mut self, window_tokens: Option<u64>) -> bool {
        if self.halvings == HALVINGS_MAX {
            return false;
        }
        self.halvings += 1;
        let named =
            window_tokens.filter(|named| *named < self.task.window_tokens).map(|named| named.max(WINDOW_TOKENS_MIN));
        match named {
            Some(named) => {
                self.task.window_tokens = named;
                self.tokens_max = self.tokens_max.min(named);
                self.task.summary_tokens_max = self.task.summary_tokens_max.min(summary_tokens_max(named));
            }
            None => self.tokens_max /= 2,
        }
        self.summary.clone_from(&self.first);
        self.chunk();
        // A single piece was refused and would be refused again.
        named.is_some() || self.total > 1 || self.halve(None)
    }
}
