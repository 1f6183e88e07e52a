//! A compaction at work: stage, validate, commit.
//!
//! A [`Job`] reads a context and asks the model for a summary, piece by piece where one request would not hold it all.
//! Nothing of the session changes until its [`Outcome`] is appended as one entry, so a crash, a cancel or a failure
//! leaves the old context as it was.

use crate::core::{
    context::{
        build::Context,
        counter::{Calibration, Counter},
        cut::Cut,
        extract::extract,
        serialize::{Bounds, blocks_within, read},
        summary::{self, FileTools, PromptParts},
    },
    model::{Answer, ModelRequest, Purpose},
    session::state::add_usage,
};
use reseed_protocol::{
    CommandId, EntryId, JobId, Message, Part, StopReason, Timestamp, Usage, UsageSource,
    context::{ContextEnvelope, ContextMessage, EnvelopeMessages, RequestOptions, SystemPart, SystemPrompt},
    entry::CompactionDetails,
    event::{CompactionRung, CompactionTrigger},
};
use std::{borrow::Cow, collections::VecDeque, sync::Arc};

/// Most requests that one compaction makes. What would need more is extracted by rule first: a compaction ends.
pub const CHUNKS_MAX: usize = 24;

/// Least and most tokens that a summary may have; in between an eighth of the window. The upper end leaves room for
/// models that think before they write.
const SUMMARY_TOKENS: (u64, u64) = (256, 16_384);

/// Most words asked of a summary, however large the window: longer ones are read less carefully.
const SUMMARY_WORDS_MAX: u64 = 1_200;

/// Characters of an extract for each token of its budget: few enough for scripts of one token a character to stay in
/// bounds most of the time, and checked again when the result is counted.
const EXTRACT_CHARS_PER_TOKEN: u64 = 3;

/// Characters of the lists of files at the end of a summary: at most some hundred paths, and in a small window at most
/// two for each token of the summary.
const FILES_CHARS_MAX: u64 = 4_000;

/// Most tokens that a summary may have in this window.
#[must_use]
pub fn summary_tokens_max(window_tokens: u64) -> u64 {
    (window_tokens / 8).clamp(SUMMARY_TOKENS.0, SUMMARY_TOKENS.1)
}

/// What asks for a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Its name on the wire.
    pub job_id: JobId,
    /// Why.
    pub trigger: CompactionTrigger,
    /// The command that asked, if one did.
    pub command_id: Option<CommandId>,
    /// What the summary should dwell on.
    pub instructions: Option<String>,
    /// The instructions take the place of ours: the summary has the form that they ask for, and may lack our sections.
    pub free_form: bool,
}

/// What a job needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings<'a> {
    /// The model that will summarise.
    pub model: &'a str,
    /// Its window.
    pub window_tokens: u64,
    /// Counts for it.
    pub counter: &'a Counter,
    /// How far its estimates are off.
    pub calibration: &'a Calibration,
    /// Files that earlier compactions noted.
    pub details: Option<CompactionDetails>,
    /// The tools whose calls name files.
    pub file_tools: &'a FileTools,
    /// Now.
    pub now: Timestamp,
    /// Random text that quotes the conversation.
    pub delimiter: String,
}

/// A compaction at work.
#[derive(Debug, Clone)]
pub struct Job {
    /// What asked for it.
    pub order: Order,
    /// When it began.
    pub started_at: Timestamp,
    cut: Cut,
    model: String,
    messages: Vec<Arc<Message>>,
    previous: Option<String>,
    details: CompactionDetails,
    chunks: VecDeque<Vec<String>>,
    total: usize,
    summary_tokens_max: u64,
    delimiter: String,
    usage: Option<Usage>,
    rung: CompactionRung,
}

/// What a compaction came to, not yet checked against what it replaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The summary, with the lists of files.
    pub summary: String,
    /// How it was made.
    pub rung: CompactionRung,
    /// Files touched so far.
    pub details: CompactionDetails,
    /// The first entry kept word for word.
    pub first_kept: Option<EntryId>,
    /// Older entries kept word for word.
    pub kept: Vec<EntryId>,
    /// What the summary requests cost together.
    pub usage: Option<Usage>,
}

impl Job {
    /// Stages a compaction of this cut of a context.
    #[must_use]
    pub fn stage(order: Order, context: &Context, cut: Cut, around: Surroundings<'_>) -> Self {
        let messages: Vec<Arc<Message>> =
            cut.summarised.iter().map(|index| context.messages[*index].message.clone()).collect();
        let previous = cut.previous.and_then(|index| {
            let text = context.messages[index].message.text();
            summary::unseed(&text).map(Cow::into_owned)
        });
        let details = summary::file_operations(
            messages.iter().map(|message| &**message),
            around.details.as_ref(),
            around.file_tools,
        );
        let summary_tokens_max = summary_tokens_max(around.window_tokens);
        let mut job = Self {
            order,
            started_at: around.now,
            cut,
            model: around.model.to_owned(),
            messages,
            previous,
            details,
            chunks: VecDeque::new(),
            total: 0,
            summary_tokens_max,
            delimiter: around.delimiter,
            usage: None,
            rung: CompactionRung::ModelSummary,
        };
        // In units of the estimate: where the model counts more than we do, its window holds less of ours.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a window, far below 2^53"
        )]
        let window = (around.window_tokens as f64 / around.calibration.factor()) as u64;
        job.chunk(window, around.counter);
        job
    }

    /// Packs the conversation into pieces that each fit into the window beside the prompt, the summary so far and the
    /// answer. Ten percent are left for what the estimate misses.
    fn chunk(&mut self, window_tokens: u64, counter: &Counter) {
        let fixed = counter.text(summary::system_prompt())
            + counter.text(&self.prompt(&[]))
            + counter.text(self.order.instructions.as_deref().unwrap_or_default())
            + counter.request_overhead();
        let room = (window_tokens - window_tokens / 10)
            .saturating_sub(fixed)
            .saturating_sub(2 * self.summary_tokens_max)
            .max(window_tokens / 8);
        let mut chunk = Vec::new();
        let mut used = 0;
        let bounds = Bounds::for_window(window_tokens);
        for block in self.messages.iter().flat_map(|message| blocks_within(message, &bounds)) {
            let tokens = counter.text(&block) + 2;
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
            // Too long for the model to read in bounded time: the oldest part is extracted by rule into the summary.
            let excess = self.chunks.len() - CHUNKS_MAX;
            let blocks: Vec<String> = self.chunks.drain(..excess).flatten().collect();
            let old = read(&blocks.join("\n\n"));
            let old: Vec<&Message> = old.iter().collect();
            self.previous = Some(self.extract(&old));
        }
        self.total = self.chunks.len();
        if self.total > 1 {
            self.rung = CompactionRung::ChunkedSummary;
        }
    }

    fn words_max(&self) -> u32 {
        u32::try_from((self.summary_tokens_max / 2).min(SUMMARY_WORDS_MAX)).unwrap_or(u32::MAX)
    }

    fn prompt(&self, blocks: &[String]) -> String {
        summary::prompt(PromptParts {
            blocks,
            previous: self.previous.as_deref(),
            instructions: self.order.instructions.as_deref(),
            free_form: self.order.free_form,
            split_turn: false,
            delimiter: &self.delimiter,
            words_max: self.words_max(),
        })
    }

    /// How many pieces are summarised, and how many there are.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        ((self.total - self.chunks.len()) as u64, self.total as u64)
    }

    /// The request for the next piece; `None` when all are summarised.
    #[must_use]
    pub fn next_request(&self) -> Option<ModelRequest> {
        let chunk = self.chunks.front()?;
        let system = summary::system_prompt().to_owned();
        let message = ContextMessage { entry_id: None, message: Arc::new(Message::user(self.prompt(chunk))) };
        Some(ModelRequest {
            model: self.model.clone(),
            purpose: Purpose::Summary,
            envelope: ContextEnvelope {
                system: SystemPrompt {
                    parts: vec![SystemPart { name: "summary".to_owned(), text: system.clone() }],
                    compiled: system,
                },
                tools: Vec::new(),
                messages: EnvelopeMessages { cached: Vec::new(), uncached: vec![message] },
                options: RequestOptions {
                    max_output_tokens: Some(self.summary_tokens_max),
                    ..RequestOptions::default()
                },
            },
        })
    }

    /// Takes the model's summary of a piece. One that cannot be used (cut off, empty, without its sections) is
    /// replaced by an extract of everything, so that a model that cannot summarise does not stop the conversation.
    pub fn take(&mut self, answer: &Answer) {
        if let Some(reported) = &answer.usage {
            let usage = Usage {
                input_tokens: reported.input_tokens,
                cached_tokens: reported.cached_tokens.unwrap_or(0),
                cache_write_tokens: reported.cache_write_tokens,
                output_tokens: reported.output_tokens,
                reasoning_tokens: reported.reasoning_tokens,
                source: UsageSource::Reported,
            };
            self.usage = Some(add_usage(self.usage.take(), &usage));
        }
        let text: String = answer
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let check = if self.order.free_form { summary::check_free_form } else { summary::check };
        let usable = if answer.stop_reason == StopReason::Stop { check(&text).ok() } else { None };
        match usable {
            Some(text) => {
                self.previous = Some(text);
                self.chunks.pop_front();
            }
            None => self.fall_back(),
        }
    }

    /// Goes on by rule instead of by the model.
    pub fn fall_back(&mut self) {
        let rest: Vec<Arc<Message>> = self.messages.clone();
        let rest: Vec<&Message> = rest.iter().map(|message| &**message).collect();
        self.previous = Some(self.extract(&rest));
        self.chunks.clear();
        self.rung = CompactionRung::Extract;
    }

    fn extract(&self, messages: &[&Message]) -> String {
        let chars_max =
            usize::try_from(self.summary_tokens_max.min(2_048) * EXTRACT_CHARS_PER_TOKEN).unwrap_or(usize::MAX);
        extract(messages, self.previous.as_deref(), self.order.instructions.as_deref(), chars_max)
    }

    /// What it came to, once no request is left.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let text = self.previous.as_deref().filter(|_| self.chunks.is_empty())?;
        let files_chars_max = usize::try_from(FILES_CHARS_MAX.min(2 * self.summary_tokens_max)).unwrap_or(usize::MAX);
        Some(self.outcome_of(summary::with_files(text, &self.details, files_chars_max), self.rung))
    }

    /// A shorter way, for when the summary turned out no smaller than what it replaces: an extract of half of that.
    #[must_use]
    pub fn shorter(&self) -> Outcome {
        let messages: Vec<&Message> = self.messages.iter().map(|message| &**message).collect();
        let chars_max = usize::try_from(self.cut.dropped_tokens / 2 * EXTRACT_CHARS_PER_TOKEN).unwrap_or(usize::MAX);
        let text = extract(&messages, self.previous.as_deref(), self.order.instructions.as_deref(), chars_max);
        self.outcome_of(summary::with_files(&text, &self.details, chars_max / 4), CompactionRung::Extract)
    }

    fn outcome_of(&self, summary: String, rung: CompactionRung) -> Outcome {
        Outcome {
            summary,
            rung,
            details: self.details.clone(),
            first_kept: self.cut.first_kept.clone(),
            kept: self.cut.kept.clone(),
            usage: self.usage.clone(),
        }
    }
}
