//! All settings, each declared once. `.env.example`, the tables in `README.md` beside this file and the help are
//! generated from here.

use super::{
    database::Database,
    declare::{Declared, sentences, settings, variable},
    fingerprints::Fingerprints,
    jwt::JwtAlgorithm,
    rules,
    scopes::Scope,
    values::{ApiChoice, LogFormat, NamedToken, Origin, ProviderChoice, ServiceToken, Switch, Variables},
};
use crate::core::{
    agent_loop::OfferHistory,
    compaction::{SummaryRequest, factory::Strategies},
    prices::Prices,
};
use ipnet::IpNet;
use reseed_protocol::command::{SummaryKind, SummaryMode};
use secrecy::SecretString;
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// Tokens of the smallest window with room for a summary, a question and an answer.
const WINDOW_TOKENS_MIN: u64 = 512;

/// Tokens of the largest plausible window; ten times that of models in 2026.
const WINDOW_TOKENS_MAX: u64 = 100_000_000;

/// Seconds of the longest duration that can be set: a day.
const DAY_SECS: u64 = 24 * 60 * 60;

settings! {
    strategies;

    /// The model.
    model: ModelSettings {
        /// The kind of model server. `offline` is a built-in model that needs no key and no network; `auto` uses it if
        /// neither OPENAI_API_KEY nor OPENAI_BASE_URL is set.
        model_provider: ProviderChoice = "auto", rules::choice();
        /// The API key of the model server. Leave it unset for servers that need none.
        openai_api_key: Option<SecretString> = "", rules::secret().reloaded().optional();
        /// The address of an OpenAI-compatible server, including `/v1`; unset for OpenAI itself.
        openai_base_url: Option<String> = "", rules::base_url().optional();
        /// The API to use. `auto` uses Responses with OpenAI and Chat Completions with other servers.
        openai_api: ApiChoice = "auto", rules::choice();
        /// The model's name; unset for `gpt-4.1-mini`, or `offline` with the built-in model. With OPENAI_BASE_URL,
        /// unset means the only model that the server lists, and a name that it does not list ends the start, unless
        /// its window is set. A session can choose another.
        model: Option<String> = "", rules::text(256).optional();
        /// Model prices, as `model=input/cached/output` in US dollars per million tokens, such as
        /// `gpt-4.1-mini=0.4/0.1/1.6`; if unset, no cost is reported. A fourth price, as in
        /// `claude-sonnet-5=3/0.3/15/3.75`, is for tokens written to the provider's cache; without it they cost the
        /// `input` price. Model names are those of MODEL.
        model_prices: Prices = "", rules::prices().reloaded();
        /// The models that sessions may choose besides MODEL and SUMMARY_MODEL, separated by commas; unset for any.
        models_allowed: Vec<String> = "", rules::models();
        /// The most tokens of an answer that a session may choose, and what one gets that chooses nothing; unset for no
        /// limit.
        output_tokens_max: Option<u64> = "", rules::whole("tokens", 1..=WINDOW_TOKENS_MAX).optional();
        /// The system prompt. A session can choose another.
        instructions: String = "You are a helpful assistant.", rules::text(65_536);
    }

    /// Context management.
    context: ContextSettings {
        /// The strategy that keeps a context small: `threshold` summarises when the window is nearly full, `manual`
        /// (also `dummy`, `none`) only compacts on request, `sliding_window` keeps the newest turns, `tool_results`
        /// clears old tool results, `truncate` drops the oldest turns, `importance` removes the least important
        /// entries, `pipeline` tries several in order.
        context_strategy: &'static str = "threshold", rules::strategy(strategies);
        /// The share of the window above which a compaction is due. It is due earlier if less room is left for an
        /// answer than CONTEXT_RESERVE_TOKENS.
        context_compaction_threshold: f64 = "0.8", rules::share_upto(1.0);
        /// Tokens kept free for an answer: with fewer, a compaction is due. At most half of the window is kept free. If
        /// unset, it is the session's `maxOutputTokens`, at most three quarters of the window; without that, it is 2 %
        /// of the window, at least 512 tokens and at most a fifth of the window.
        context_reserve_tokens: Option<u64> = "", rules::whole("tokens", 0..=WINDOW_TOKENS_MAX).optional();
        /// Tokens of recent entries that a compaction keeps verbatim, at most a quarter of the window and what
        /// the target has room for.
        context_keep_recent_tokens: u64 = "20000", rules::whole("tokens", 0..=WINDOW_TOKENS_MAX);
        /// The share of the window that a compaction aims for, at most three quarters of the count at which it is due.
        context_target: f64 = "0.6", rules::share();
        /// The share of the count at which a compaction is due from which it is prepared in the background; 1 for
        /// never.
        context_background: f64 = "0.85", rules::share();
        /// The share of a request that a compaction must save.
        context_min_gain: f64 = "0.05", rules::share_upto(0.9);
        /// The share of a compaction's target in which the user's own messages are kept word for word, newest first.
        context_user_share: f64 = "0.8", rules::share_upto(0.8);
        /// Turns that `sliding_window` keeps verbatim.
        context_keep_turns: u64 = "8", rules::whole("turns", 1..=WINDOW_TOKENS_MAX);
        /// The number of newest tool results that are never cleared.
        context_keep_tool_results: u64 = "4", rules::whole("results", 0..=WINDOW_TOKENS_MAX);
        /// If true, `importance` summarises what it removes; otherwise it drops it.
        context_importance_summarise: bool = "true", rules::flag();
        /// The steps of `pipeline`, from gentle to drastic.
        context_pipeline: Vec<&'static str> = "tool_results,threshold,truncate", rules::pipeline(strategies);
        /// The window of MODEL. If unset, it comes from the model server's list or from a table of known models. It
        /// also applies, with a warning, to other models that are in none of these and not in MODEL_WINDOWS.
        context_window: Option<u64> = "", rules::whole("tokens", WINDOW_TOKENS_MIN..=WINDOW_TOKENS_MAX).optional();
        /// Windows by model name, in tokens, such as `gpt-4o=128000,my-model=32768`, for MODEL, SUMMARY_MODEL and the
        /// models that sessions choose. They override CONTEXT_WINDOW, the model server's list and the table of known
        /// models.
        model_windows: BTreeMap<String, u64> = "", rules::windows(WINDOW_TOKENS_MIN..=WINDOW_TOKENS_MAX);
    }

    /// Summaries.
    summaries: SummarySettings {
        /// The model that writes summaries; unset for the session's own.
        summary_model: Option<String> = "", rules::text(256).optional();
        /// The form of summary requests: `quoted` sends the conversation as data in a separate request; `cached_prefix`
        /// appends the instruction to the request that the conversation would send, so that the provider's cache is
        /// used; `auto` uses the latter if the session's own model summarises and its provider has been seen to cache.
        summary_request: SummaryRequest = "auto", rules::choice();
        /// What a compaction does with earlier summaries: `segments` keeps them as they are and adds one for what newly
        /// leaves the context, so that the provider's cache holds, and merges the oldest when all together exceed a
        /// fifth of the target; `rewrite` brings one summary up to date.
        summary_mode: SummaryMode = "segments", rules::choice();
        /// The kind of conversation, which decides what a summary must keep: `code` keeps files, symbols, signatures
        /// and decisions; `debugging` keeps symptoms, rejected hypotheses, reproduction steps and exact errors;
        /// `research` keeps sources, claims and open questions; `chat` keeps people and what they say. `auto` goes by
        /// plain signs: tools and blocks of code.
        summary_kind: SummaryKind = "auto", rules::choice();
        /// A text file that replaces the server's own prompt for summaries, including the form that it asks for; a
        /// client's instructions for a summary are appended to it. At most 16 KiB, and at most a quarter of the window
        /// of the model that summarises.
        summary_instructions_file: Option<PathBuf> = "", rules::path().optional();
        /// The time limit of a compaction's model requests; after it, the compaction continues without the model.
        compaction_timeout_secs: u64 = "180", rules::whole("seconds", 1..=DAY_SECS);
    }

    /// Time limits of the model server.
    upstream: UpstreamSettings {
        /// Time until the first event of an answer. Between two later events a minute may pass, or a fifth of it if
        /// that is longer.
        upstream_first_event_timeout_secs: u64 = "300", rules::whole("seconds", 1..=DAY_SECS);
    }

    /// The built-in model.
    offline: OfflineSettings {
        /// Its window; small, so that a compaction comes soon.
        offline_window: u64 = "8000", rules::whole("tokens", WINDOW_TOKENS_MIN..=WINDOW_TOKENS_MAX);
        fixed {
            /// The delay between two words of its answers, as fast as people read; 0 for none.
            offline_word_millis: u64 = 25;
        }
    }

    /// Turns.
    turns: TurnSettings {
        /// Time limit of a turn, without the time for which it waits for approvals; 0 for none.
        turn_timeout_secs: u64 = "3600", rules::whole("seconds", 0..=7 * DAY_SECS);
        /// The time for which a turn continues while nobody is connected to its session; 0 cancels it at once.
        detached_turn_secs: u64 = "3600", rules::whole("seconds", 0..=7 * DAY_SECS);
        fixed {
            /// The most inputs of one session that may wait for their turn: more than a person writes ahead.
            queue_items_max: u32 = 32;
            /// The time after which a connection on standby hosts the tools and hooks in place of one that is away: a
            /// client that lost its connection is back before.
            host_away_secs: u64 = 30;
        }
    }

    /// Tools: what runs them, for how long, and after whose approval.
    tools: ToolSettings {
        /// `off` offers the model no tools, not even those of clients.
        tools: Switch = "on", rules::choice();
        /// The most rounds of tool calls in one turn, so that a model that only calls tools stops.
        tool_rounds_max: u32 = "50", rules::whole("rounds", 1..=10_000);
        /// When the tools that search the session's history are offered: `auto` from its first compaction on, if the
        /// window is at least twenty times as large as they are, which is about 9,000 tokens. A model that writes calls
        /// as text is not offered them again until the server restarts.
        history_tools: OfferHistory = "auto", rules::choice();
        /// A JSON file with rules for which calls a person must allow. Unset for the defaults: in the server, what
        /// calls itself read-only runs, the rest is asked about.
        approvals_file: Option<PathBuf> = "", rules::path().optional();
        fixed {
            /// The time in which an approval must be answered; no answer is a refusal. A day, so that nobody must
            /// answer at night.
            approval_expiry_secs: u64 = 24 * 60 * 60;
        }
    }

    /// Hooks: external code called at fixed extension points.
    hooks: HookSettings {
        /// A JSON file that lists webhooks, each with its address, points and secret. Unset for none.
        hooks_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        fixed {
            /// The time for which a required client hook waits for its client to reconnect; the hook's own time limit
            /// does not run meanwhile. A page that is loaded again is back before.
            hook_away_secs: u64 = 120;
        }
    }

    /// MCP servers, whose tools the model may call.
    mcp: McpSettings {
        /// A JSON file that lists MCP servers in the form that MCP clients share, under `mcpServers`; see
        /// src/tools/mcp/README.md. Unset for none.
        mcp_file: Option<PathBuf> = "", rules::path().reloaded().optional();
    }

    /// Listening and connections.
    listen: ListenSettings {
        /// The address to listen on. Any other than a loopback address requires AUTH_TOKENS and ALLOWED_ORIGINS. A
        /// build target or the bare name of a machine, as conda and shells set it, is ignored with a warning.
        host: IpAddr = "127.0.0.1", rules::address();
        /// The port; 0 picks a free port and logs it. If unset, it is the variable PORT, which hosting platforms set.
        ws_port: u16 = "8080", rules::whole("", 0..=65_535);
        /// The addresses of proxies in front of the server, from which `X-Forwarded-For` is believed: limits by address
        /// then count the clients behind them. Each must append to that header the address that it sees.
        trusted_proxies: Vec<IpNet> = "", rules::networks();
        /// The time for which a server that stops still serves everybody, while `/readyz` already answers 503: what a
        /// balancer takes to notice.
        shutdown_notice_secs: u64 = "0", rules::whole("seconds", 0..=3_600);
        /// The time for running turns to finish when the server stops.
        shutdown_grace_secs: u64 = "10", rules::whole("seconds", 0..=3_600);
        /// The interval between pings; a client that answers neither of two is disconnected, unless it speaks v1.
        heartbeat_secs: u64 = "20", rules::whole("seconds", 1..=3_600);
        /// The time for which a client may stop reading.
        slow_reader_secs: u64 = "30", rules::whole("seconds", 1..=3_600);
        fixed {
            /// Time for a new connection to send `hello` if v2 was negotiated or credentials are required. Other
            /// connections may stay silent. Clients send it at once, also on slow lines.
            hello_timeout_secs: u64 = 10;
        }
    }

    /// Limits for clients.
    limits: LimitSettings {
        /// The most connections at a time.
        connections_max: u32 = "10000", rules::whole("connections", 1..=10_000_000);
        /// What one user may take of CONNECTIONS_MAX, SESSIONS_OPEN_MAX and MODEL_REQUESTS_MAX, so that nobody takes
        /// all; 1 for everything. This and the other limits of one user apply only if there may be several.
        user_share: f64 = "0.25", rules::share();
        /// The most sessions in memory at a time; the others are on disk.
        sessions_open_max: u32 = "10000", rules::whole("sessions", 1..=10_000_000);
        /// The most requests to the model at a time for turns; 0 for no limit. Further ones wait, and users take turns.
        model_requests_max: u32 = "1000", rules::whole("requests", 0..=1_000_000);
        /// The most bytes of conversations that one user may have stored; 0 for no limit. At it, nothing new is begun.
        stored_bytes_per_user_max: u64 = "10737418240", rules::whole("bytes", 0..=1_125_899_906_842_624);
        /// The largest message that a client may send.
        message_bytes_max: u64 = "1048576", rules::whole("bytes", 1_024..=67_108_864);
        /// The most points that a client may spend per minute; 0 for no limit. Each command costs points, listed in
        /// docker/README.md: 1 for a ping, 50 for an input. If unset, it is 60,000 for each user if AUTH_TOKENS names
        /// several; otherwise there is no limit.
        rate_limit_per_minute: Option<u32> = "", rules::whole("points", 0..=100_000_000).optional();
        fixed {
            /// The most connections at a time that are not sockets of known users: before `hello`, and plain HTTP. When
            /// one more comes, the oldest of the address with the most must leave. Enough for a restart after which
            /// everybody comes back, and few enough that strangers cost little memory.
            guests_max: u32 = 512;
            /// The most bytes of messages that are only partly received, beyond 16 KiB for each connection, and at
            /// least four of the largest. One user may have a quarter. A small machine has this much to spare.
            partial_bytes_max: u64 = 128 * 1024 * 1024;
            /// The most bytes of tool definitions that the connections of one user offer at a time; 0 for no limit. A
            /// hundred connections with large schemas stay below it.
            offered_bytes_per_user_max: u64 = 64 * 1024 * 1024;
            /// The most sessions that one user may have stored; 0 for no limit. Nobody holds so many conversations; a
            /// program that makes them without end is stopped before lists get slow.
            stored_sessions_per_user_max: u32 = 100_000;
            /// The most of them in which nothing was said; 0 for no limit. Those that are not open are deleted an hour
            /// after they were created, so only a program without end gets there.
            empty_sessions_per_user_max: u32 = 1_000;
            /// The wrong tokens and tickets that one address may send per minute; 0 for no limit. The second half of
            /// them is answered with a delay, further ones are refused; valid credentials never are. People mistype
            /// less often.
            wrong_credentials_per_minute: u32 = 20;
        }
    }

    /// Authentication.
    auth: AuthSettings {
        /// The clients that may use the server, as `name:token`. A session belongs to the name that created it. If
        /// unset, everyone who can reach the server may use it.
        auth_tokens: Vec<NamedToken> = "", rules::tokens().reloaded();
        /// The operators, who may see statistics of all sessions, as `name:token`.
        operator_tokens: Vec<NamedToken> = "", rules::tokens().reloaded();
        /// The backends of web applications, as `name:token`: each lets its own users in with tickets that it mints.
        /// None can name a user of AUTH_TOKENS or of another backend. `name/read:token` is for one whose users only
        /// read.
        service_tokens: Vec<ServiceToken> = "", rules::services().reloaded();
        /// If true, operators may also read what was said.
        operators_read_content: bool = "false", rules::flag().reloaded();
        /// The web origins that may connect, in addition to the server's own on this machine.
        allowed_origins: Vec<Origin> = "", rules::origins().reloaded();
        fixed {
            /// The most unused tickets of one user, if there are several; 0 for no limit. A tenth of what all may have.
            tickets_per_user_max: u32 = 1_000;
            /// The most unused tickets of all users of one backend; 0 for no limit. Half of what all may have, so that
            /// another backend has the rest.
            tickets_per_service_max: u32 = 5_000;
        }
    }

    /// Users of an identity provider, who bring tokens that it signs (JSON Web Tokens).
    jwt: JwtSettings {
        /// The address of the provider's public keys (a JWK set). They are fetched again in the background, and once
        /// when a token names a key that is not among them; during an outage the known ones stay valid.
        auth_jwks_url: Option<String> = "", rules::jwks_url().reloaded().optional();
        /// A file with the provider's public keys, instead of AUTH_JWKS_URL: a JWK set, or PEM with `PUBLIC KEY`.
        auth_jwt_key_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        /// The provider, as `iss` in its tokens names it. It is a part of its users' names, so that they are nobody
        /// else's. Required with keys.
        auth_jwt_issuer: Option<String> = "", rules::issuer().reloaded().optional();
        /// Whom tokens must be meant for: `aud` must contain one of these, separated by commas. Required with keys.
        auth_jwt_audience: Vec<String> = "", rules::words().reloaded();
        /// The algorithms that may sign tokens, separated by commas. Those with a shared secret are not supported: a
        /// public key could be used as one.
        auth_jwt_algorithms: Vec<JwtAlgorithm> = "RS256,ES256,EdDSA", rules::jwt_algorithms().reloaded();
        /// The claim that names the user, a text of 1 to 256 bytes. One that begins with `/` is a path, such as
        /// `/user/id`.
        auth_jwt_principal_claim: String = "sub", rules::claim().reloaded();
        /// The claim with the scopes, separated by spaces or as a list; as above, it may be a path such as
        /// `/realm_access/roles`. If unset, every token has the scope `sessions`.
        auth_jwt_scopes_claim: Option<String> = "", rules::claim().reloaded().optional();
        /// What the values of AUTH_JWT_SCOPES_CLAIM stand for, as `value=scope`, separated by commas, such as
        /// `chat-users=sessions,chat-admins=operator`. If unset, they are the scopes' own names.
        auth_jwt_scopes: Vec<(String, Scope)> = "", rules::scope_map().reloaded();
        fixed {
            /// How far the provider's clock may be off, in seconds: clocks that are set over the network are within
            /// that.
            auth_jwt_leeway_secs: u64 = 30;
            /// The interval at which the keys of AUTH_JWKS_URL are fetched again, in seconds. Tokens with new keys do
            /// not wait for it; what is withdrawn counts for so long.
            auth_jwks_refresh_secs: u64 = 600;
        }
    }

    /// Storage.
    store: StoreSettings {
        /// The directory that relative paths in other settings start from.
        working_directory: PathBuf = ".", rules::path();
        /// The database. A SQLite file is created on the first start, with its directories. Of a PostgreSQL database,
        /// only host and name are ever shown: the address may have a password.
        database_url: Database = "sqlite://./data/reseed.db", rules::database();
        /// On PostgreSQL, the schema that holds the tables; created on the first start.
        database_schema: String = "reseed", rules::schema();
        /// On PostgreSQL, a file with the certificates (PEM) that sign the server's, instead of the system's.
        database_ca_file: Option<PathBuf> = "", rules::path().optional();
        /// On PostgreSQL, the longest time for which a read or a write waits while the database is away, as during its
        /// restart. After that the sessions that wrote are closed, and opened again when their clients come back.
        store_patience_secs: u64 = "10", rules::whole("seconds", 1..=300);
        fixed {
            /// Accept a PostgreSQL server that may lose what it has acknowledged (`fsync = off` or `full_page_writes =
            /// off`). For tests only.
            unsafe_store: bool = false;
            /// On PostgreSQL, the connections that read. Two more write, and one tells the other servers that this one
            /// lives. Eight keep a server of a few processors busy.
            database_readers: u32 = 8;
        }
    }

    /// Several servers on one PostgreSQL database.
    node: NodeSettings {
        /// The name of this server among those that share its database, for people; unset for the machine's name.
        node_name: Option<String> = "", rules::node_name().optional();
        /// The address at which the other servers reach this one, such as `ws://10.0.0.5:8080`, for clients of theirs
        /// whose sessions are open here; unset if there are none. Needs NODE_TOKEN.
        node_address: Option<String> = "", rules::node_address().optional();
        /// The secret with which the servers that share a database know each other: 32 characters or more, the same on
        /// all of them. On `ws://` it travels in the clear.
        node_token: Option<SecretString> = "", rules::node_token().optional();
        /// The time after which the sessions of a server that is gone can be opened on another one. A server that
        /// cannot reach the database for so long opens no sessions. On PostgreSQL only.
        node_lease_secs: u64 = "5", rules::whole("seconds", 2..=60);
    }

    /// Logging.
    log: LogSettings {
        /// The log level. Message text and keys are never logged, at any level.
        log_level: String = "info", rules::log_filter().reloaded();
        /// `text` for people, `json` for programs.
        log_format: LogFormat = "text", rules::choice();
    }
}
