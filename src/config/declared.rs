//! All settings, each declared once. `.env.example`, the tables in `README.md` beside this file and the help are
//! generated from here.

use super::{
    declare::{Declared, sentences, settings, variable},
    fingerprints::Fingerprints,
    rules,
    scopes::Scope,
    values::{
        ApiChoice, CacheTtl, ChosenStrategy, DiagnosticsChoice, LogFormat, NamedToken, Origin, ProviderChoice,
        Retention, ScopedToken, Switch, Variables,
    },
};
use crate::{
    core::{
        agent_loop::OfferHistory,
        compaction::{SummaryRequest, factory::Strategies},
        prices::Prices,
    },
    store::Database,
};
use ipnet::IpNet;
use secrecy::SecretString;
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// Tokens of the smallest window that has room for a summary, a question and an answer.
const WINDOW_TOKENS_MIN: u64 = 512;

/// Tokens of the largest plausible window, ten times that of models in 2026.
const WINDOW_TOKENS_MAX: u64 = 100_000_000;

/// Seconds of the longest duration that can be set, which is a day.
const DAY_SECS: u64 = 24 * 60 * 60;

settings! {
    strategies;

    /// The model.
    model: ModelSettings {
        /// The API key of the model server. Leave it unset for servers that need none.
        openai_api_key: Option<SecretString> = "", rules::secret().reloaded().optional();
        /// The address of an OpenAI-compatible server, including `/v1`; unset for OpenAI itself.
        openai_base_url: Option<String> = "", rules::base_url("https://api.openai.com/v1").optional();
        /// The API to use. `auto` uses Responses with OpenAI and Chat Completions with other servers.
        openai_api: ApiChoice = "auto", rules::choice();
        /// The API key of Anthropic's Messages API.
        anthropic_api_key: Option<SecretString> = "", rules::secret().reloaded().optional();
        /// The address of another server with Anthropic's Messages API, without `/v1`; unset for Anthropic itself.
        anthropic_base_url: Option<String> = "", rules::base_url("https://api.anthropic.com").optional();
        /// How long Anthropic's cache keeps the beginning of a conversation after its last use. An hour costs more to
        /// write, and less if people often return after more than five minutes.
        anthropic_cache_ttl: CacheTtl = "5m", rules::choice();
        /// Whether the provider is asked what a request shares with the previous one. Its answer is checked against the
        /// server's own receipt. `auto` asks Anthropic, and OpenAI's models since GPT-5.6 in the Responses API; `on`
        /// asks every server of these two APIs.
        cache_diagnostics: DiagnosticsChoice = "auto", rules::choice();
        /// Whether the provider's cache is filled after a compaction, so that the next answer begins sooner, and
        /// refreshed while the user of a connected session is away, if MODEL_PRICES and the pauses of this session say
        /// that this is cheaper than to lose it. For Anthropic, and for OpenAI's models that CACHE_DIAGNOSTICS asks.
        cache_prewarm: Switch = "off", rules::choice();
        /// The provider of MODEL: `auto` is `openai` if OPENAI_API_KEY or OPENAI_BASE_URL is set, and otherwise
        /// `anthropic` if ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL is set. If both are, models of the other one can be
        /// chosen by its name and their own: `anthropic/claude-sonnet-5-5`, or `openai/gpt-4.1-mini`. Such a name stays
        /// with the provider of MODEL if its own list has it.
        model_provider: ProviderChoice = "auto", rules::choice();
        /// The model's name; unset for `gpt-4.1-mini`, or `claude-sonnet-5-5` with Anthropic. With OPENAI_BASE_URL,
        /// unset means the only model that the server lists. The server does not start with a name that is not listed,
        /// unless its window is set. A session can choose another. `offline` is a built-in model that needs no key and
        /// no network; it is always used if no provider is set.
        model: Option<String> = "", rules::text(256).optional();
        /// Model prices, as `model=input/cached/output` in US dollars per million tokens, such as
        /// `gpt-4.1-mini=0.4/0.1/1.6`; if unset, no cost is reported. A fourth price, as in
        /// `claude-sonnet-5=3/0.3/15/3.75/6`, is for tokens written to the provider's cache; without it they cost the
        /// `input` price. A fifth is for those that the cache keeps for an hour. Model names are those of MODEL.
        model_prices: Prices = "", rules::prices().reloaded();
        /// The models that sessions may choose besides MODEL and SUMMARY_MODEL, separated by commas; unset for any.
        models_allowed: Vec<String> = "", rules::models();
        /// The maximum tokens of an answer that a session may choose, and the default for sessions that choose none;
        /// unset for no limit.
        output_tokens_max: Option<u64> = "", rules::whole("tokens", 1..=WINDOW_TOKENS_MAX).optional();
        /// The system prompt. A session can choose another.
        instructions: String = "You are a helpful assistant.", rules::text(65_536);
        fixed {
            /// The delay between two words of the built-in model's answers, at reading speed; 0 for none.
            offline_word_millis: u64 = 25;
        }
    }

    /// Context management.
    context: ContextSettings {
        /// The strategy that keeps a context small: `threshold` summarises when the window is nearly full, `manual`
        /// (also `dummy`, `none`) only compacts on request, `sliding_window` keeps the newest turns, `tool_results`
        /// clears old tool results, `truncate` drops the oldest turns, `importance` removes the least important
        /// entries, `pipeline` tries several in order. Settings may follow, as in
        /// `threshold:userShare=0.5,background=1`; src/core/compaction/README.md lists them. They
        /// are the defaults of every session, whatever its strategy.
        context_strategy: ChosenStrategy = "threshold", rules::strategy(strategies);
        /// The share of the window above which a compaction is due. It is due earlier if less room is left for an
        /// answer than `reserveTokens` of CONTEXT_STRATEGY.
        context_compaction_threshold: f64 = "0.8", rules::share_upto(1.0);
        /// The window of MODEL. If unset, it comes from the model server's list or from a table of known models; that
        /// of the built-in model is 8,000. It also applies, with a warning, to other models that are in none of these
        /// and not in MODEL_WINDOWS.
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
        /// used; `auto` uses the latter if the session's own model summarises and its provider has been seen to cache;
        /// `provider_native` lets the provider compact in its own form where it can (OpenAI's Responses API,
        /// Anthropic), keeps a readable summary beside it, and otherwise does as `auto`.
        summary_request: SummaryRequest = "auto", rules::choice();
        /// A text file that replaces the server's own prompt for summaries, including the form that it asks for; a
        /// client's instructions for a summary are appended to it. At most 16 KiB, and at most a quarter of the window
        /// of the model that summarises.
        summary_instructions_file: Option<PathBuf> = "", rules::path().optional();
        /// The time limit of a compaction's model requests; after it, the compaction continues without the model.
        compaction_timeout_secs: u64 = "180", rules::whole("seconds", 1..=DAY_SECS);
    }

    /// Time limits of the model server.
    upstream: UpstreamSettings {
        /// Time until the first event of an answer. The silence between two later events may last a minute, or a fifth
        /// of this limit if that is longer.
        upstream_first_event_timeout_secs: u64 = "300", rules::whole("seconds", 1..=DAY_SECS);
    }

    /// Turns.
    turns: TurnSettings {
        /// Time limit of a turn, without the time for which it waits for approvals; 0 for none.
        turn_timeout_secs: u64 = "3600", rules::whole("seconds", 0..=7 * DAY_SECS);
        /// The time for which a turn continues while nobody is connected to its session; 0 cancels it at once.
        detached_turn_secs: u64 = "3600", rules::whole("seconds", 0..=7 * DAY_SECS);
        fixed {
            /// The maximum number of inputs that wait in one session. People do not write more ahead.
            queue_items_max: u32 = 32;
            /// How long a host may be away before a connection on standby hosts the tools and hooks. A client that lost
            /// its connection is back before that.
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
        /// A JSON file with rules for which calls a person must allow. Unset for the defaults: server-side tools that
        /// declare themselves read-only run without asking, and all other server-side tools ask first; tools of clients
        /// do not.
        approvals_file: Option<PathBuf> = "", rules::path().optional();
        fixed {
            /// How long an approval may remain unanswered before it counts as a refusal. With a day, nobody must answer
            /// at night.
            approval_expiry_secs: u64 = 24 * 60 * 60;
        }
    }

    /// Hooks: external code called at fixed extension points.
    hooks: HookSettings {
        /// A JSON file that lists webhooks, each with its address, points and secret. Unset for none.
        hooks_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        fixed {
            /// How long a required client hook waits for its client to reconnect. The hook's own time limit does not
            /// run meanwhile. A page that is reloaded is back before that.
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
        /// A port of its own for operators: `/metrics`, the operator's page and everything under `/api` except tickets
        /// and principals are then served there only. `/healthz` and `/readyz` are served on both. 0 picks a free port
        /// and logs it. Unset for one port.
        operator_port: Option<u16> = "", rules::whole("", 0..=65_535).optional();
        /// A PEM file with the server's certificate and those that lead to its authority. With it and TLS_KEY_FILE the
        /// ports accept only TLS: https:// and wss://. Setting or unsetting both takes a restart.
        tls_cert_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        /// A PEM file with the private key of TLS_CERT_FILE.
        tls_key_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        /// The addresses of proxies in front of the server whose `X-Forwarded-For` header is trusted: limits by address
        /// then count the clients behind them. Each proxy must append the address that it sees to that header.
        trusted_proxies: Vec<IpNet> = "", rules::networks();
        /// How long a stopping server still serves everyone while `/readyz` already answers 503, so that a load
        /// balancer notices.
        shutdown_notice_secs: u64 = "0", rules::whole("seconds", 0..=3_600);
        /// The time for running turns to finish when the server stops.
        shutdown_grace_secs: u64 = "10", rules::whole("seconds", 0..=3_600);
        /// The interval between pings; a v2 client that leaves two of them unanswered is disconnected.
        heartbeat_secs: u64 = "20", rules::whole("seconds", 1..=3_600);
        /// How long a client may stop reading before it is disconnected.
        slow_reader_secs: u64 = "30", rules::whole("seconds", 1..=3_600);
        fixed {
            /// The time limit for a new connection to send `hello` if v2 was negotiated or credentials are required.
            /// Other connections may stay silent. Clients send it at once, even on slow networks.
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
        /// The most bytes of conversations that one user may have stored; 0 for no limit. At the limit, nothing new can
        /// be started.
        stored_bytes_per_user_max: u64 = "10737418240", rules::whole("bytes", 0..=1_125_899_906_842_624);
        /// The most sessions that are kept for one user of Chat Completions whose client names none with `X-Session`.
        /// When there are more, those that were not used for longest are deleted; 0 to delete each after its answer.
        stateless_sessions: u32 = "1000", rules::whole("sessions", 0..=100_000);
        /// The largest message that a client may send.
        message_bytes_max: u64 = "1048576", rules::whole("bytes", 1_024..=67_108_864);
        /// The most points that a client may spend per minute; 0 for no limit. Each command costs points, listed in
        /// docker/README.md: 1 for a ping, 50 for an input. If unset, it is 60,000 for each user if AUTH_TOKENS names
        /// several; otherwise there is no limit.
        rate_limit_per_minute: Option<u32> = "", rules::whole("points", 0..=100_000_000).optional();
        /// A JSON file with budgets in dollars and tokens, for users, sessions and the deployment; see
        /// docker/README.md. Unset for none.
        budgets_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        fixed {
            /// The maximum number of connections that are not sockets of known users: those before `hello`, and plain
            /// HTTP. When another one comes, the oldest of the address with the most must leave. This is enough for a
            /// restart after which everyone reconnects, and small enough that strangers cost little memory.
            guests_max: u32 = 512;
            /// The maximum bytes of partially received messages, beyond 16 KiB per connection. It is at least four
            /// messages of maximum size. One user may have a quarter. A small machine can spare this much.
            partial_bytes_max: u64 = 128 * 1024 * 1024;
            /// The maximum bytes of tool definitions that one user's connections offer at a time; 0 for no limit. A
            /// hundred connections with large schemas stay below it.
            offered_bytes_per_user_max: u64 = 64 * 1024 * 1024;
            /// The maximum number of sessions that one user may have stored; 0 for no limit. Nobody has so many
            /// conversations. A program that creates sessions without end is stopped before lists become slow.
            stored_sessions_per_user_max: u32 = 100_000;
            /// The maximum number of these that contain no messages; 0 for no limit. If they are not open, they are
            /// deleted an hour after they were created, so only a runaway program reaches this limit.
            empty_sessions_per_user_max: u32 = 1_000;
            /// The number of wrong tokens and tickets that one address may send per minute; 0 for no limit. The second
            /// half is answered with a delay, and further ones are refused. Valid credentials are never refused. People
            /// mistype less often.
            wrong_credentials_per_minute: u32 = 20;
        }
    }

    /// Authentication.
    auth: AuthSettings {
        /// The clients that may use the server, as `name:token`. A session belongs to the name that created it. If
        /// unset, everyone who can reach the server may use it.
        auth_tokens: Vec<NamedToken> = "", rules::tokens().reloaded();
        /// The operators, who may see statistics of all sessions, as `name:token`. `name/write:token` is for one who
        /// may also compact, cancel, close and delete sessions, and stop servers.
        operator_tokens: Vec<ScopedToken> = "", rules::operators().reloaded();
        /// The backends of web applications, as `name:token`: each lets its own users in with tickets that it mints.
        /// None can name a user of AUTH_TOKENS or of another backend. `name/read:token` is for one whose users only
        /// read.
        service_tokens: Vec<ScopedToken> = "", rules::services().reloaded();
        /// If true, operators may also read the content of conversations.
        operators_read_content: bool = "false", rules::flag().reloaded();
        /// The web origins that may connect, in addition to the server's own on this machine.
        allowed_origins: Vec<Origin> = "", rules::origins().reloaded();
        fixed {
            /// The maximum number of one user's unused tickets, if there are several users; 0 for no limit. This is a
            /// tenth of the total.
            tickets_per_user_max: u32 = 1_000;
            /// The maximum number of unused tickets of all users of one backend; 0 for no limit. This is half of the
            /// total, so that other backends have the rest.
            tickets_per_service_max: u32 = 5_000;
        }
    }

    /// Users of an identity provider, who bring tokens that it signs (JSON Web Tokens).
    jwt: JwtSettings {
        /// The address of the provider's public keys (a JWK set). They are fetched again in the background, and also
        /// when a token names an unknown key; during an outage the known keys stay valid.
        auth_jwks_url: Option<String> = "", rules::jwks_url().reloaded().optional();
        /// A file with the provider's public keys, instead of AUTH_JWKS_URL: a JWK set, or PEM with `PUBLIC KEY`.
        auth_jwt_key_file: Option<PathBuf> = "", rules::path().reloaded().optional();
        /// The provider, as `iss` in its tokens names it. It becomes part of its users' names, so that they cannot
        /// collide with those of others. Required with keys.
        auth_jwt_issuer: Option<String> = "", rules::issuer().reloaded().optional();
        /// The accepted audiences: `aud` must contain one of these, separated by commas. Required with keys.
        auth_jwt_audience: Vec<String> = "", rules::words().reloaded();
        /// The claim that names the user, a text of 1 to 256 bytes. One that begins with `/` is a path, such as
        /// `/user/id`.
        auth_jwt_principal_claim: String = "sub", rules::claim().reloaded();
        /// The claim with the scopes, separated by spaces or as a list; as above, it may be a path such as
        /// `/realm_access/roles`. If unset, every token has the scope `sessions`.
        auth_jwt_scopes_claim: Option<String> = "", rules::claim().reloaded().optional();
        /// What the values of AUTH_JWT_SCOPES_CLAIM stand for, as `value=scope`, separated by commas, such as
        /// `chat-users=sessions,chat-admins=operator`. If unset, they are the scopes' own names.
        auth_jwt_scopes: Vec<(String, Scope)> = "", rules::scope_map().reloaded();
        /// The claim that names the user's class in BUDGETS_FILE; as above, it may be a path.
        auth_jwt_class_claim: Option<String> = "", rules::claim().reloaded().optional();
        fixed {
            /// How far the provider's clock may be off, in seconds. Clocks that are set over the network are more
            /// accurate.
            auth_jwt_leeway_secs: u64 = 30;
            /// The interval at which the keys of AUTH_JWKS_URL are fetched again, in seconds. Tokens with new keys do
            /// not wait for it. A withdrawn key stays valid for this long.
            auth_jwks_refresh_secs: u64 = 600;
        }
    }

    /// Storage.
    store: StoreSettings {
        /// The directory against which relative paths in other settings are resolved.
        working_directory: PathBuf = ".", rules::path();
        /// The database. A SQLite file is created on the first start, with its directories. For PostgreSQL, only host
        /// and name are ever shown, because the address may contain a password. There, `?schema=NAME` names the schema
        /// that holds the tables (`reseed` if not given), which is created on the first start, and `sslrootcert=PATH` a
        /// file with the certificates (PEM) that sign the server's, instead of the system's.
        database_url: Database = "sqlite://./data/reseed.db", rules::database();
        /// On PostgreSQL, how long a read or a write waits while the database is away, as during its restart. After
        /// that, the sessions that were writing are closed, and opened again when their clients return.
        store_patience_secs: u64 = "10", rules::whole("seconds", 1..=300);
        /// How long the account of requests to models is kept, also for deleted sessions; 0 to keep it indefinitely.
        usage_retention_days: u32 = "400", rules::whole("days", 0..=36_500);
        /// The directory into which `POST /api/backup` writes backups of a SQLite database, of this server alone.
        /// Unset, they are made by the command `reseed backup` only.
        backup_dir: Option<PathBuf> = "", rules::path().optional();
        /// How many days sessions are kept after their last change; 0 to keep them indefinitely. `90,guests=7,staff=0`
        /// differs by the class of their owners, as in BUDGETS_FILE or AUTH_JWT_CLASS_CLAIM. Open sessions stay.
        retention_days: Retention = "0", rules::retention().reloaded();
        fixed {
            /// Accepts a PostgreSQL server that may lose acknowledged data (`fsync = off` or `full_page_writes = off`).
            /// For tests only.
            unsafe_store: bool = false;
            /// On PostgreSQL, the number of connections that read. Two more write, and one sends this server's
            /// heartbeat. Eight are enough for a server with a few processors.
            database_readers: u32 = 8;
        }
    }

    /// Several servers on one PostgreSQL database.
    node: NodeSettings {
        /// The name of this server among those that share its database, for people; unset for the machine's name.
        node_name: Option<String> = "", rules::node_name().optional();
        /// The address at which the other servers reach this one, such as `ws://10.0.0.5:8080`. They relay their
        /// clients to the sessions that are open here. Unset if there are no other servers. Needs NODE_TOKEN.
        node_address: Option<String> = "", rules::node_address().optional();
        /// The secret with which the servers that share a database authenticate each other: 32 characters or more, the
        /// same on all of them. On `ws://` it is sent unencrypted.
        node_token: Option<SecretString> = "", rules::node_token().optional();
        /// The secret that signs the compactions which clients of Open Responses carry from one chain to another: 32
        /// characters or more, the same on all servers. Unset, the server makes one and keeps it in the database. What
        /// that one has signed is accepted in any case.
        seal_key: Option<SecretString> = "", rules::node_token().optional();
        /// The time after which the sessions of a server that is gone can be opened on another one. A server that
        /// cannot reach the database for this long opens no sessions. On PostgreSQL only.
        node_lease_secs: u64 = "5", rules::whole("seconds", 2..=60);
    }

    /// Logging.
    log: LogSettings {
        /// The log level. Message text and keys are never logged, at any level.
        log_level: String = "info", rules::log_filter().reloaded();
        /// `text` for people, `json` for programs.
        log_format: LogFormat = "text", rules::choice();
        /// The audit log: a file of JSON lines that records sign-ins, refused credentials, what operators read and do,
        /// and deletions, as a hash chain that `reseed audit verify` checks. Unset, these are lines of the log only.
        audit_file: Option<PathBuf> = "", rules::path().optional();
    }

    /// Traces.
    traces: TraceSettings {
        /// The address of a collector for OpenTelemetry, such as `http://localhost:4318`, which gets traces and metrics
        /// by OTLP over HTTP; unset for none. Other standard variables, such as OTEL_SERVICE_NAME, are read from the
        /// environment; see docker/README.md.
        otel_exporter_otlp_endpoint: Option<String> = "", rules::base_url("http://localhost:4318").optional();
    }
}
