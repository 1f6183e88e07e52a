//! Asking the model for a summary, piece by piece where one request would not hold it all.

use crate::core::{
    context::{
        counter::Counter,
        extract::extract,
        serialize::{Bounds, blocks_within, read},
        summary::{self, Form, InPlaceParts, PromptParts, Unusable},
    },
    model::{Answer, ModelRequest, Purpose},
};
use reseed_protocol::{
    Message, Part, Role, StopReason,
    command::SummaryKind,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPart, SystemPrompt,
    },
    entry::SummaryForm,
    event::CompactionRung,
};
use std::{collections::VecDeque, sync::Arc};

/// Most requests that one compaction makes. What would need more is extracted by rule first: a compaction ends.
const CHUNKS_MAX: usize = 24;

/// How often a request that is refused as too large is cut in smaller pieces: each time in half, so that a window that is
/// told eight times too large is found.
const HALVINGS_MAX: u32 = 3;

/// Least and most tokens that a summary may have; in between an eighth of the window.
const SUMMARY_TOKENS: (u64, u64) = (256, 4_096);

/// Most tokens of an answer that holds a summary: models that think before they write think in it too.
const ANSWER_TOKENS_MAX: u64 = 16_384;

/// Least room for an answer that rides on the conversation, so that a model that thinks first is not cut off.
const ANSWER_TOKENS_MIN: u64 = 2_048;

/// Most tokens that quoting adds to a block: its head, the empty line behind it, a note of what was cut.
const BLOCK_TOKENS: u64 = 16;

/// Most words asked of a summary, however large the window: longer ones are read less carefully.
const SUMMARY_WORDS_MAX: u64 = 1_200;

/// Characters of an extract for each token of its budget: few enough for scripts of one token a character to stay in
/// bounds most of the time, and checked again when the result is counted.
pub(super) const EXTRACT_CHARS_PER_TOKEN: u64 = 3;

/// Most tokens that a summary may have in this window.
#[must_use]
pub fn summary_tokens_max(window_tokens: u64) -> u64 {
    (window_tokens / 8).clamp(SUMMARY_TOKENS.0, SUMMARY_TOKENS.1)
}

/// Who summarises, and what of.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) model: String,
    pub(super) counter: Counter,
    /// The summariser's window in units of the estimate: where the model counts more than we do, it holds less of ours.
    pub(super) window_tokens: u64,
    /// Most tokens of the summary.
    pub(super) summary_tokens_max: u64,
    /// Most tokens of the answer, where that is set.
    pub(super) answer_tokens_max: Option<u64>,
    /// What the summary should look at.
    pub(super) instructions: Option<String>,
    /// The form that is asked for where no prompt takes the place of the server's own.
    pub(super) form: SummaryForm,
    /// A prompt in place of the server's own.
    pub(super) prompt: Option<Arc<str>>,
    /// What the conversation is about.
    pub(super) kind: SummaryKind,
    /// That prompt is a client's: of the form that it asks for nothing is known.
    pub(super) is_clients: bool,
    /// What is summarised breaks off within a turn.
    pub(super) split_turn: bool,
    pub(super) delimiter: String,
    /// What is summarised, oldest first.
    pub(super) messages: Vec<Arc<Message>>,
    /// What they cost as counted by the same counter; absent where another one counts.
    pub(super) messages_tokens: Option<u64>,
}

impl Task {
    fn form(&self) -> Form<'_> {
        match (&self.prompt, self.form) {
            (Some(prompt), _) => Form::Replaced(prompt),
            (None, SummaryForm::Sections) => Form::Sections,
            (None, SummaryForm::Free) => Form::Free,
        }
    }

    /// The summary by rule.
    pub(super) fn extract(&self, messages: &[&Message], previous: Option<&str>, tokens_max: u64) -> String {
        let chars_max = usize::try_from(tokens_max.min(2_048) * EXTRACT_CHARS_PER_TOKEN).unwrap_or(usize::MAX);
        extract(messages, previous, self.instructions.as_deref(), chars_max)
    }
}

/// The conversation itself, on which a summary request can ride.
#[derive(Debug, Clone)]
pub(super) struct Ride {
    /// What the conversation would send.
    pub(super) conversation: ModelRequest,
    /// How many of its last messages are not summarised, and the first of them.
    pub(super) kept_messages: usize,
    pub(super) first_kept: Option<Arc<Message>>,
}

/// Why an answer is no summary, in a word for programs.
pub(super) type Why = &'static str;

/// An answer that lacks sections, while the model is asked for them.
#[derive(Debug, Clone)]
struct Draft {
    said: String,
    lacking: Vec<&'static str>,
    /// What is taken if nothing better comes: the text as it is, where that is a summary.
    text: Result<String, Why>,
}

/// A summary that is being asked for.
#[derive(Debug, Clone)]
pub struct Asking {
    pub(super) task: Task,
    /// The summary so far: the one before, then that with each piece merged in.
    pub(super) summary: Option<String>,
    /// The form of the newest answer.
    pub(super) form: SummaryForm,
    draft: Option<Draft>,
    /// The model was asked for missing sections: that costs a request, and is done once.
    completed: bool,
    first: Option<String>,
    chunks: VecDeque<Vec<String>>,
    total: usize,
    halvings: u32,
    tokens_max: u64,
    /// What all of it costs at most, where it is one piece and was not counted again.
    piece_tokens: Option<u64>,
    ride: Option<Ride>,
}

impl Asking {
    /// Stages the requests for a summary of these messages, merged into the one before.
    pub(super) fn stage(task: Task, previous: Option<String>, ride: Option<Ride>) -> Self {
        let tokens_max = task.window_tokens;
        let mut this = Self {
            task,
            summary: previous.clone(),
            form: SummaryForm::default(),
            draft: None,
            completed: false,
            first: previous,
            chunks: VecDeque::new(),
            total: 0,
            halvings: 0,
            tokens_max,
            piece_tokens: None,
            ride: None,
        };
        this.chunk();
        this.ride = ride.filter(|ride| this.has_room(ride));
        this
    }

    /// Whether the conversation, the instruction and an answer fit into the window together.
    fn has_room(&self, ride: &Ride) -> bool {
        // It was counted when it was made, unless nobody wanted to know.
        let counted = Some(ride.conversation.envelope.meta.tokens).filter(|tokens| *tokens > 0);
        let conversation = counted.unwrap_or_else(|| self.count(&ride.conversation));
        let sent = conversation + self.task.counter.text(&self.riding(ride));
        let window = self.task.window_tokens;
        self.total > 0 && sent + self.task.summary_tokens_max <= window - window / 20
    }

    fn count(&self, request: &ModelRequest) -> u64 {
        let counter = self.task.counter;
        request.messages().map(|sent| counter.message(&sent.message).total()).sum::<u64>()
            + counter.system(&request.envelope.system.compiled)
            + request.envelope.tools.iter().map(|tool| counter.tool(tool)).sum::<u64>()
    }

    fn riding(&self, ride: &Ride) -> String {
        summary::in_place(InPlaceParts {
            kept_messages: ride.kept_messages,
            first_kept: ride.first_kept.as_deref(),
            instructions: self.task.instructions.as_deref(),
            form: self.task.form(),
            kind: self.task.kind,
            split_turn: self.task.split_turn,
            words_max: self.words_max(),
        })
    }

    /// Gives up riding on the conversation; the same is asked in a request of its own. `false`: it did not ride.
    pub(super) fn get_off(&mut self) -> bool {
        self.draft = None;
        self.ride.take().is_some()
    }

    /// Packs the conversation into pieces that each fit into the window beside the prompt, the summary so far and the
    /// answer. Ten percent are left for what the estimate misses.
    fn chunk(&mut self) {
        let counter = self.task.counter;
        let window_tokens = self.tokens_max;
        let fixed =
            counter.text(summary::system_prompt()) + counter.text(&self.prompt(&[])) + counter.request_overhead();
        let room = (window_tokens - window_tokens / 10)
            .saturating_sub(fixed)
            .saturating_sub(2 * self.task.summary_tokens_max)
            .max(window_tokens / 8);
        let bounds = Bounds::for_window(window_tokens);
        let mut chunk = Vec::new();
        let mut used = 0;
        self.chunks.clear();
        let blocks: Vec<String> =
            self.task.messages.iter().flat_map(|message| blocks_within(message, &bounds)).collect();
        // What was counted before and fits with room to spare is not counted again: quoting adds a head to each block
        // and here and there a backslash.
        let most = self.task.messages_tokens.map(|tokens| tokens + tokens / 10 + BLOCK_TOKENS * blocks.len() as u64);
        self.piece_tokens = most.filter(|most| *most <= room && !blocks.is_empty());
        if self.piece_tokens.is_some() {
            self.chunks.push_back(blocks);
            self.total = 1;
            return;
        }
        for block in blocks {
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
            let extract = self.task.extract(&old, self.summary.as_deref(), self.task.summary_tokens_max);
            self.summary = Some(summary::presentable(&extract).into_owned());
        }
        self.total = self.chunks.len();
    }

    fn words_max(&self) -> u32 {
        u32::try_from((self.task.summary_tokens_max / 2).min(SUMMARY_WORDS_MAX)).unwrap_or(u32::MAX)
    }

    fn prompt(&self, blocks: &[String]) -> String {
        summary::prompt(PromptParts {
            blocks,
            previous: self.summary.as_deref(),
            instructions: self.task.instructions.as_deref(),
            form: self.task.form(),
            kind: self.task.kind,
            split_turn: self.task.split_turn,
            delimiter: &self.task.delimiter,
            words_max: self.words_max(),
        })
    }

    /// Returns true if every piece is summarised.
    pub(super) fn is_done(&self) -> bool {
        self.chunks.is_empty()
    }

    /// How many pieces are summarised, and how many there are.
    pub(super) fn progress(&self) -> (u64, u64) {
        ((self.total - self.chunks.len()) as u64, self.total as u64)
    }

    pub(super) fn rung(&self) -> CompactionRung {
        if self.total > 1 && self.ride.is_none() {
            CompactionRung::ChunkedSummary
        } else {
            CompactionRung::ModelSummary
        }
    }

    /// The next request: for the sections that the last answer lacks, otherwise for the next piece; `None` when all are
    /// summarised.
    pub(super) fn next_request(&self) -> Option<ModelRequest> {
        let request = self.piece_request()?;
        match &self.draft {
            Some(draft) => Some(self.with_draft(request, &draft.said, &draft.lacking)),
            None => Some(request),
        }
    }

    /// The same request with the model's answer and what that lacks behind it, so that the provider's cache is used.
    fn with_draft(&self, mut request: ModelRequest, said: &str, lacking: &[&str]) -> ModelRequest {
        let answered = Message::new(Role::Assistant, vec![Part::Text { text: said.to_owned() }]);
        let asked = Message::user(summary::complete(lacking, self.words_max()));
        let messages = &mut request.envelope.messages.uncached;
        messages.extend([answered, asked].map(|message| ContextMessage { entry_id: None, message: Arc::new(message) }));
        let beside = self.room_beside(self.count(&request) + self.task.counter.request_overhead());
        let options = &mut request.envelope.options;
        options.max_output_tokens = options.max_output_tokens.map(|tokens| tokens.min(beside));
        request
    }

    /// Tokens that the window holds beside what is sent, a tenth left for what the estimate misses.
    fn room_beside(&self, sent_tokens: u64) -> u64 {
        (self.task.window_tokens - self.task.window_tokens / 10).saturating_sub(sent_tokens)
    }

    fn piece_request(&self) -> Option<ModelRequest> {
        let chunk = self.chunks.front()?;
        if let Some(ride) = &self.ride {
            return Some(self.riding_request(ride));
        }
        let prompt = self.prompt(chunk);
        let counter = self.task.counter;
        let system = summary::system_prompt().to_owned();
        let beside = |said: u64| self.room_beside(counter.text(&system) + said + counter.request_overhead());
        // Where the bound of what was counted before leaves all that an answer may have, the prompt is not counted again.
        let known = self.piece_tokens.map(|tokens| beside(tokens + counter.text(&self.prompt(&[]))));
        let known = known.filter(|beside| *beside >= ANSWER_TOKENS_MAX);
        let beside = known.unwrap_or_else(|| beside(counter.text(&prompt)));
        let room = beside.clamp(self.task.summary_tokens_max, ANSWER_TOKENS_MAX.max(self.task.summary_tokens_max));
        let message = ContextMessage { entry_id: None, message: Arc::new(Message::user(prompt)) };
        Some(ModelRequest {
            model: self.task.model.clone(),
            purpose: Purpose::Summary,
            envelope: ContextEnvelope {
                system: SystemPrompt {
                    parts: vec![SystemPart { name: "summary".to_owned(), text: system.clone() }],
                    compiled: system,
                },
                tools: Vec::new(),
                messages: EnvelopeMessages { cached: Vec::new(), uncached: vec![message] },
                options: RequestOptions {
                    max_output_tokens: Some(self.task.answer_tokens_max.unwrap_or(room)),
                    ..RequestOptions::default()
                },
                meta: EnvelopeMeta::default(),
            },
        })
    }

    fn riding_request(&self, ride: &Ride) -> ModelRequest {
        let mut request = ride.conversation.clone();
        request.purpose = Purpose::Summary;
        let instruction = Arc::new(Message::user(self.riding(ride)));
        request.envelope.messages.uncached.push(ContextMessage { entry_id: None, message: instruction });
        request.envelope.options.max_output_tokens =
            Some(self.task.answer_tokens_max.unwrap_or(self.task.summary_tokens_max.max(ANSWER_TOKENS_MIN)));
        request
    }

    /// Takes the model's summary of a piece, or of everything where it rode on the conversation. One that lacks sections is
    /// asked for them once; after that it is taken as it is, where it is a summary.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) fn take(&mut self, answer: &Answer) -> Result<(), Why> {
        let said = match said(answer) {
            Ok(said) => said,
            Err(why) => return if self.settle() { Ok(()) } else { Err(why) },
        };
        if let Some(draft) = self.draft.take() {
            return match summary::check_completed(&draft.said, &said) {
                Ok(summary) => self.accept(summary, SummaryForm::Sections),
                Err(_) => {
                    let text = draft.text.or_else(|why| self.prose(&said).map_err(|_| why))?;
                    self.accept(text, SummaryForm::Free)
                }
            };
        }
        if self.task.is_clients {
            let text = summary::check_free_form(&said).map_err(why)?;
            return self.accept(text, SummaryForm::Free);
        }
        match summary::check(&said) {
            Ok(summary) => self.accept(summary, SummaryForm::Sections),
            Err(Unusable::Missing(_)) => {
                let text = self.prose(&said);
                let lacking = summary::lacking(&said);
                if self.may_complete(&said, &lacking) {
                    self.completed = true;
                    self.draft = Some(Draft { said, lacking, text });
                    return Ok(());
                }
                self.accept(text?, SummaryForm::Free)
            }
            Err(unusable) => Err(why(unusable)),
        }
    }

    /// The text as it is, where it is a summary and no copy.
    fn prose(&self, said: &str) -> Result<String, Why> {
        let read = self.read();
        let told = read.iter().map(String::as_str).chain(self.summary.as_deref());
        summary::check_prose(said, told).map_err(why)
    }

    /// The blocks that the newest answer is of.
    fn read(&self) -> Vec<String> {
        let pieces = if self.ride.is_some() { self.chunks.len() } else { 1 };
        self.chunks.iter().take(pieces).flatten().cloned().collect()
    }

    /// Returns true if the model is asked for what is missing: sections were asked for, it was not asked before, and the
    /// window has room for what it wrote and an answer.
    fn may_complete(&self, said: &str, lacking: &[&str]) -> bool {
        if self.completed || self.task.form() != Form::Sections || summary::check_free_form(said).is_err() {
            return false;
        }
        let Some(request) = self.piece_request() else { return false };
        let request = self.with_draft(request, said, lacking);
        request.envelope.options.max_output_tokens.is_some_and(|tokens| tokens >= self.task.summary_tokens_max)
    }

    /// Takes the answer that lacks sections as it is, where that is a summary. `false`: there is none.
    pub(super) fn settle(&mut self) -> bool {
        let Some(Draft { text: Ok(text), .. }) = self.draft.take() else { return false };
        self.accept(text, SummaryForm::Free).is_ok()
    }

    /// Returns true if the model has answered, and is asked for the sections that its answer lacks.
    pub(super) fn is_completing(&self) -> bool {
        self.draft.is_some()
    }

    /// Returns true if an answer is at hand that can be taken as it is.
    pub(super) fn has_draft(&self) -> bool {
        self.draft.as_ref().is_some_and(|draft| draft.text.is_ok())
    }

    fn accept(&mut self, summary: String, form: SummaryForm) -> Result<(), Why> {
        summary::check_copied(&summary, &self.read()).map_err(why)?;
        self.summary = Some(summary);
        self.form = form;
        let pieces = if self.ride.is_some() { self.chunks.len() } else { 1 };
        self.chunks.drain(..pieces.min(self.chunks.len()));
        Ok(())
    }

    /// A request was refused as too large: cuts smaller pieces and begins anew. `false`: often enough.
    pub(super) fn halve(&mut self) -> bool {
        if self.halvings == HALVINGS_MAX {
            return false;
        }
        self.halvings += 1;
        self.tokens_max /= 2;
        self.draft = None;
        self.summary.clone_from(&self.first);
        self.chunk();
        // As one piece it was refused; as one piece again it would be.
        self.total > 1 || self.halve()
    }
}

/// The text of an answer that is whole.
///
/// # Errors
/// Why there is none, in a word for programs.
fn said(answer: &Answer) -> Result<String, Why> {
    let text = |part: &Part| match part {
        Part::Text { text } => Some(text.clone()),
        _ => None,
    };
    match answer.stop_reason {
        StopReason::Stop => Ok(answer.parts.iter().filter_map(text).collect()),
        StopReason::Length => Err("truncated"),
        _ => Err("malformed"),
    }
}

/// Why a text is no summary, in a word for programs.
fn why(unusable: Unusable) -> Why {
    match unusable {
        Unusable::Empty | Unusable::Nothing => "empty",
        Unusable::Refused => "refused",
        Unusable::CutOff => "truncated",
        Unusable::Continued => "continued",
        Unusable::Missing(_) | Unusable::Repetitive | Unusable::Copied | Unusable::Unrelated => "malformed",
    }
}
