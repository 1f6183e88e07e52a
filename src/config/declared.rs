//! Every setting there is, each declared once. `.env.example`, the tables in `README.md` beside this file and the help
//! are printed from here.

use super::{
    declare::{Declared, sentences, settings, variable},
    rules,
    values::{
        ContextCutRule, ContextEstimator, FileTool, LogFormat, NamedToken, OpenAiApi, Origin, ProviderChoice,
        SummaryForm, SummaryKind, SummaryPlace, Variables,
    },
};
use crate::core::{context::factory::Strategies, hook::HOOK_TIMEOUT_MS_MAX, prices::Prices};
use secrecy::SecretString;
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// Tokens of the smallest window that leaves room for a summary, a question and an answer.
const WINDOW_TOKENS_MIN: u64 = 512;

/// Tokens of the largest window taken for real; ten times what models of 2026 have.
const WINDOW_TOKENS_MAX: u64 = 100_000_000;

/// Seconds of the longest time that may be set: a day.
const DAY_SECS: u64 = 24 * 60 * 60;

settings! {
    strategies;

    /// Which model answers.
    model: ModelSettings {
        /// The kind of model server. `offline` is a built-in model that needs neither key nor network; `auto` takes it
        /// where neither OPENAI_API_KEY nor OPENAI_BASE_URL is set.
        model_provider: ProviderChoice = "auto", rules::choice();
        /// Key of the model server. May stay unset for servers that want none.
        openai_api_key: Option<SecretString> = "", rules::secret().optional();
        /// Address of an OpenAI-compatible server, up to and with its `/v1`; unset for OpenAI's own.
        openai_base_url: Option<String> = "", rules::base_url().optional();
        /// Which of its APIs to speak. `auto` speaks Responses with OpenAI and Chat Completions with others.
        openai_api: OpenAiApi = "auto", rules::choice();
        /// The model's name; unset for `gpt-4.1-mini`, or `offline` on the built-in model. A session can choose another.
        model: Option<String> = "", rules::text(256).optional();
        /// What models cost, as `model=input/cached/output` in US dollars for a million tokens each, such as
        /// `gpt-4.1-mini=0.4/0.1/1.6`; unset, no cost is told. A fourth figure, as in `claude-sonnet-5=3/0.3/15/3.75`, is for
        /// tokens that the provider writes to its cache; without it they cost what `input` says. A model is named here as in
        /// MODEL.
        model_prices: Prices = "", rules::prices();
        /// What the model is told before the conversation. A session can choose others.
        instructions: String = "You are a helpful assistant.", rules::text(65_536);
    }

    /// How the context is kept inside the model's window.
    context: ContextSettings {
        /// How a context is kept small: `threshold` summarises when the window is nearly full, `manual` (also `dummy`, `none`)
        /// only when a client asks, `sliding_window` keeps the newest turns, `tool_results` clears old tool results,
        /// `truncate` drops the oldest turns, `importance` takes out what matters least, `pipeline` takes several in turn.
        context_strategy: &'static str = "threshold", rules::strategy(strategies);
        /// Share of the window above which a compaction is due. It is due earlier where less room is left for an answer than
        /// CONTEXT_RESERVE_TOKENS says.
        context_compaction_threshold: f64 = "0.8", rules::share_upto(1.0);
        /// Tokens kept free for an answer: with less, a compaction is due. At most half of the window is kept free. Unset, it
        /// is `maxOutputTokens` of the session, at most three quarters of the window; where that is unset too, 2 % of the
        /// window and at least 512 tokens, at most a fifth of it.
        context_reserve_tokens: Option<u64> = "", rules::whole("tokens", 0..=WINDOW_TOKENS_MAX).optional();
        /// Tokens of recent entries that a compaction keeps word for word. At most a quarter of the window is used.
        context_keep_recent_tokens: u64 = "20000", rules::whole("tokens", 0..=WINDOW_TOKENS_MAX);
        /// How tokens are estimated: `own` by the model's tokenizer or by character weights, corrected by what is reported;
        /// `pi` as pi does, a token for four characters. For comparing with pi.
        context_estimator: ContextEstimator = "own", rules::choice();
        /// Where a compaction cuts: `own`, or `pi` as pi does, by its own estimate. For comparing with pi.
        context_cut_rule: ContextCutRule = "own", rules::choice();
        /// Share of the window that a compaction gets down to; at most three quarters of the count at which it is due.
        context_target: f64 = "0.6", rules::share();
        /// Share of the count at which a compaction is due, from which on it is prepared while turns go on; 1 for never.
        context_background: f64 = "0.85", rules::share();
        /// Share of a request that a compaction must save.
        context_min_gain: f64 = "0.05", rules::share_upto(0.9);
        /// Turns that `sliding_window` keeps word for word.
        context_keep_turns: u64 = "8", rules::whole("turns", 1..=WINDOW_TOKENS_MAX);
        /// Newest tool results that are never cleared.
        context_keep_tool_results: u64 = "4", rules::whole("results", 0..=WINDOW_TOKENS_MAX);
        /// Whether `importance` summarises what it takes out; otherwise it is dropped.
        context_importance_summarise: bool = "true", rules::flag();
        /// What `pipeline` tries, gentle to drastic.
        context_pipeline: Vec<&'static str> = "tool_results,threshold,truncate", rules::pipeline(strategies);
        /// The tools whose calls read a file, each with the argument that is its path: the files are noted in summaries.
        /// `none` for none.
        file_read_tools: Vec<FileTool> = "read:path", rules::file_tools();
        /// The tools whose calls make or change a file, in the same way.
        file_write_tools: Vec<FileTool> = "write:path,edit:path", rules::file_tools();
        /// The window of MODEL. Unset, it comes from the model server's list or from a table of known models. It is also
        /// taken, with a warning, for other models that neither of these nor MODEL_WINDOWS names.
        context_window: Option<u64> = "", rules::whole("tokens", WINDOW_TOKENS_MIN..=WINDOW_TOKENS_MAX).optional();
        /// The windows of models by name, in tokens, such as `gpt-4o=128000,my-model=32768`: of MODEL, SUMMARY_MODEL and those
        /// that sessions choose. They stand over CONTEXT_WINDOW, the model server's list and the table of known models.
        model_windows: BTreeMap<String, u64> = "", rules::windows(WINDOW_TOKENS_MIN..=WINDOW_TOKENS_MAX);
    }

    /// How summaries are made.
    summaries: SummarySettings {
        /// The model that makes them; unset for the session's own.
        summary_model: Option<String> = "", rules::text(256).optional();
        /// `quoted` puts the conversation into a request of its own as data; `cached_prefix` appends the instruction to the
        /// request that the conversation would send, so that the provider's cache is used; `auto` does the latter where
        /// the session's own model summarises and its provider was seen to cache.
        summary_request: SummaryPlace = "auto", rules::choice();
        /// The form that summaries are asked for in: `sections` under fixed headings, `free` as plain text. A summary in another
        /// form is taken as it is once the model was asked for the sections that it lacks.
        summary_form: SummaryForm = "sections", rules::choice();
        /// What conversations are about, which decides what a summary must keep: `code` files, symbols, signatures and
        /// decisions; `debugging` symptoms, hypotheses ruled out, reproduction and exact errors; `research` sources, claims and
        /// open questions; `chat` people and what they tell. `auto` recognises it from tools, files, code and errors.
        summary_kind: SummaryKind = "auto", rules::choice();
        /// A text file whose words take the place of the server's own prompt for summaries, in the form that they ask for; what
        /// a client wants the summary to look at is added to them. At most 16 KiB, and at most a quarter of the window of the
        /// model that summarises.
        summary_instructions_file: Option<PathBuf> = "", rules::path().optional();
        /// Most tokens of an answer that holds a summary, thoughts included; unset for what the window has room for.
        summary_output_tokens: Option<u64> = "", rules::whole("tokens", 256..=WINDOW_TOKENS_MAX).optional();
        /// How long a compaction may take; then room is made without the model.
        compaction_timeout_secs: u64 = "180", rules::whole("seconds", 1..=DAY_SECS);
    }

    /// How long the model server may take.
    upstream: UpstreamSettings {
        /// Until it takes the connection.
        upstream_connect_timeout_secs: u64 = "10", rules::whole("seconds", 1..=DAY_SECS);
        /// Until the first event of an answer.
        upstream_first_event_timeout_secs: u64 = "300", rules::whole("seconds", 1..=DAY_SECS);
        /// Between two events of an answer.
        upstream_idle_timeout_secs: u64 = "60", rules::whole("seconds", 1..=DAY_SECS);
    }

    /// The built-in model.
    offline: OfflineSettings {
        /// Its window; small, so that a compaction comes soon.
        offline_window: u64 = "8000", rules::whole("tokens", WINDOW_TOKENS_MIN..=WINDOW_TOKENS_MAX);
        /// Between two words of its answers; 0 for no pause.
        offline_word_millis: u64 = "25", rules::whole("milliseconds", 0..=60_000);
    }

    /// What a turn may take.
    turns: TurnSettings {
        /// Until a tool's call must be answered; a tool can ask for its own.
        tool_timeout_secs: u64 = "120", rules::whole("seconds", 1..=DAY_SECS);
        /// Rounds of tool calls in one turn, so that a model that only calls tools ends.
        tool_rounds_max: u32 = "50", rules::whole("rounds", 1..=10_000);
        /// Inputs of one session that may wait for its turn.
        queue_items_max: u32 = "32", rules::whole("inputs", 1..=10_000);
        /// How long a turn runs on when nobody is connected to its session; 0 cancels it at once.
        detached_turn_secs: u64 = "3600", rules::whole("seconds", 0..=7 * DAY_SECS);
    }

    /// Code of others that is asked at defined points.
    hooks: HookSettings {
        /// A JSON file that names webhooks: each with its address, what it is asked and its secret. Unset for none.
        hooks_file: Option<PathBuf> = "", rules::path().optional();
        /// How long a hook may take to answer; a hook can ask for its own.
        hook_timeout_secs: u64 = "30", rules::whole("seconds", 1..=HOOK_TIMEOUT_MS_MAX / 1000);
        /// How long a required hook of a client is waited for while that client is not connected; its own time limit does
        /// not run meanwhile.
        hook_away_secs: u64 = "120", rules::whole("seconds", 0..=3_600);
    }

    /// Where the server listens, and how patient it is with its clients.
    listen: ListenSettings {
        /// The address to listen on. Any but the machine's own needs AUTH_TOKENS and ALLOWED_ORIGINS.
        host: IpAddr = "127.0.0.1", rules::address();
        /// The port; 0 for any free one, told in the log.
        ws_port: u16 = "8080", rules::whole("", 0..=65_535);
        /// Until a new connection must say hello, where v2 was negotiated or credentials are due. Others may be silent.
        hello_timeout_secs: u64 = "10", rules::whole("seconds", 1..=3_600);
        /// Between two pings; a client that answers none of two is closed, unless it has begun to speak v1.
        heartbeat_secs: u64 = "20", rules::whole("seconds", 1..=3_600);
        /// How long a client may not read what is sent to it.
        slow_reader_secs: u64 = "30", rules::whole("seconds", 1..=3_600);
        /// How long running turns may take to finish when the server is told to stop.
        shutdown_grace_secs: u64 = "10", rules::whole("seconds", 0..=3_600);
    }

    /// How much clients may ask for.
    limits: LimitSettings {
        /// Connections at a time.
        connections_max: u32 = "10000", rules::whole("connections", 1..=10_000_000);
        /// Connections at a time from one address; 0 for no limit. Behind a proxy all come from the proxy's.
        connections_per_address_max: u32 = "0", rules::whole("connections", 0..=10_000_000);
        /// Sessions in memory at a time; the others are on disk.
        sessions_open_max: u32 = "10000", rules::whole("sessions", 1..=10_000_000);
        /// The largest message a client may send.
        message_bytes_max: u64 = "1048576", rules::whole("bytes", 1_024..=67_108_864);
        /// Commands that a client may send in a minute; 0 for no limit.
        rate_limit_per_minute: u32 = "0", rules::whole("commands", 0..=1_000_000);
    }

    /// Who may come in.
    auth: AuthSettings {
        /// Who may use the server, as `name:token`. A session belongs to the name that made it. Unset, everyone who
        /// reaches the server may.
        auth_tokens: Vec<NamedToken> = "", rules::tokens();
        /// Who may see the numbers of all sessions, as `name:token`.
        operator_tokens: Vec<NamedToken> = "", rules::tokens();
        /// Whether operators may also read what was said.
        operators_read_content: bool = "false", rules::flag();
        /// The web pages that may connect, beside the server's own on the machine itself.
        allowed_origins: Vec<Origin> = "", rules::origins();
        /// How long a ticket for a browser can be used.
        ticket_secs: u64 = "60", rules::whole("seconds", 1..=3_600);
    }

    /// Where conversations are kept.
    store: StoreSettings {
        /// Relative paths of the other settings start here.
        working_directory: PathBuf = ".", rules::path();
        /// The database; made on the first start, directories included.
        database_url: PathBuf = "sqlite://./data/reseed.db", rules::sqlite_url();
    }

    /// What the server tells about itself.
    log: LogSettings {
        /// What is logged. Message text and keys never are, at any level.
        log_level: String = "info", rules::log_filter();
        /// `text` for people, `json` for programs.
        log_format: LogFormat = "text", rules::choice();
    }
}
