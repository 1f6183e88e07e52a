//! Settings: read once at startup from the environment and `.env`, validated as a whole, and handed out by section.
//!
//! - The environment overrides `.env`, which is read from the current directory.
//! - A variable that is empty or blank counts as unset.
//! - All errors are reported at once, with the variable's name, the value (never a secret's) and the allowed values.
//! - Nothing here changes the environment, so tests read settings from lists.
//!
//! Constructors take the section they need, never [`Settings`].

mod check;
mod declare;
pub(crate) mod declared;
mod dotenv;
mod fingerprints;
mod foreign;
mod jwt;
pub(crate) mod listed;
mod near_miss;
pub(crate) mod printed;
mod removed;
mod rules;
mod scopes;
mod secret_files;
mod values;

pub use crate::store::{Database, InvalidDatabase, Postgres, PostgresUrl};
pub use declared::{
    AuthSettings, ContextSettings, HookSettings, JwtSettings, LimitSettings, ListenSettings, LogSettings, McpSettings,
    ModelSettings, NodeSettings, Settings, StoreSettings, SummarySettings, ToolSettings, TraceSettings, TurnSettings,
    UpstreamSettings,
};
pub(crate) use printed::help;
pub use scopes::{Scope, Scopes};
pub use values::{
    ApiChoice, CacheTtl, ChosenStrategy, DiagnosticsChoice, LogFormat, NamedToken, Origin, ProviderChoice, Retention,
    ScopedToken, Switch, Variables,
};

pub use fingerprints::Fingerprints;

use crate::core::compaction::factory::Strategies;
use declare::Declared;
use declared::{Given, declared};
use secrecy::SecretString;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

/// The default model of OpenAI if `MODEL` is unset.
const OPENAI_MODEL: &str = "gpt-4.1-mini";

/// The default model of Anthropic if `MODEL` is unset.
const ANTHROPIC_MODEL: &str = "claude-sonnet-5-5";

/// The built-in model's name.
const OFFLINE_MODEL: &str = "offline";

/// The variable with which tests of the whole server lower its constants, as `name=value` separated by spaces. It is
/// not for deployments. So no document mentions it, and a server that finds it logs a warning.
const FIXED_VARIABLE: &str = "RESEED_FIXED";

/// The reason why the server does not start: all errors in its settings, one per line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid settings:\n  {}", .0.join("\n  "))]
pub struct Error(pub Vec<String>);

/// The model server in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// An OpenAI-compatible server.
    OpenAi,
    /// A server with Anthropic's Messages API.
    Anthropic,
    /// The built-in model.
    Offline,
}

impl Settings {
    /// Reads the settings of this process: its environment, then `.env` in the current directory.
    ///
    /// # Errors
    /// All errors at once, including a `.env` that cannot be read.
    pub fn load() -> Result<Self, Error> {
        Self::merge(Path::new(".env"), std::env::vars_os())
    }

    /// Reads settings from a file like `.env` and from an environment, which overrides it.
    fn merge(file: &Path, environment: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, Error> {
        let mut variables = dotenv(file)?;
        let mut faults = Vec::new();
        let has_secrets = |setting: &Declared| setting.secret && variables.contains_key(&setting.variable);
        let exposed = declared().iter().any(has_secrets).then(|| secret_files::exposed(file, ".env")).flatten();
        for (name, value) in environment {
            // A name that is not UTF-8 is not one of our settings.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(variables.insert(name, value)),
                Err(_) if is_ours(&name) => faults.push(format!("{name} is not UTF-8")),
                Err(_) => {}
            }
        }
        if !faults.is_empty() {
            return Err(Error(faults));
        }
        let mut settings = Self::from_iter(variables)?;
        settings.warnings.extend(exposed);
        Ok(settings)
    }

    /// Reads settings from a list of variables. If a name occurs several times, the last one counts.
    ///
    /// # Errors
    /// All errors at once.
    #[expect(clippy::should_implement_trait, reason = "that one cannot fail")]
    pub fn from_iter<K, V>(variables: impl IntoIterator<Item = (K, V)>) -> Result<Self, Error>
    where
        K: Into<String>,
        V: Into<String>,
    {
        Self::with_strategies(Strategies::default(), variables)
    }

    /// Like [`Self::from_iter`], for a program with its own strategies.
    ///
    /// # Errors
    /// All errors at once.
    pub fn with_strategies<K, V>(
        strategies: Strategies,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, Error>
    where
        K: Into<String>,
        V: Into<String>,
    {
        let mut variables: BTreeMap<String, String> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut faults = Vec::new();
        let mut warnings = secret_files::read(&mut variables, &mut faults);
        warnings.extend(foreign::settle(&mut variables, &mut faults));
        warnings.extend(removed::settle(&mut variables, &mut faults));
        warnings.extend(near_miss::warnings(variables.keys().map(String::as_str)));
        let fixed = variables.remove(FIXED_VARIABLE).filter(|fixed| !fixed.trim().is_empty());
        let fingerprints = Fingerprints::of(&variables);
        let set = variables.into_iter().filter(|(_, value)| !value.trim().is_empty());
        let (set, others): (Vec<_>, Vec<_>) = set.partition(|(name, _)| is_ours(name));
        // envy returns only strings here. Its own conversions stop at the first error, and name fields instead of
        // variables.
        let given: Given = envy::from_iter(set.into_iter().map(|(name, value)| (name, value.trim().to_owned())))
            .map_err(|fault| Error(vec![fault.to_string()]))?;
        let mut settings = Self::read(&given, strategies, &mut faults);
        if let Some(settings) = &mut settings {
            if let Some(fixed) = fixed {
                fix(settings, &fixed, &mut warnings, &mut faults);
            }
            check::together(settings, &mut faults);
        }
        match settings {
            Some(settings) if faults.is_empty() => {
                let warnings = warnings.into_iter().chain(check::warnings(&settings)).collect();
                Ok(Self { warnings, variables: Variables::new(others.into_iter()), fingerprints, ..settings })
            }
            _ => Err(Error(faults)),
        }
    }
}

impl ModelSettings {
    /// Returns the provider of models whose names do not say it.
    #[must_use]
    pub fn provider(&self) -> ProviderKind {
        let (has_openai, has_anthropic) = (self.has_openai(), self.has_anthropic());
        match self.model_provider {
            _ if self.model.as_deref() == Some(OFFLINE_MODEL) => ProviderKind::Offline,
            ProviderChoice::Anthropic if has_anthropic => ProviderKind::Anthropic,
            _ if has_openai => ProviderKind::OpenAi,
            _ if has_anthropic => ProviderKind::Anthropic,
            _ => ProviderKind::Offline,
        }
    }

    /// Returns the provider beside it, whose models' names begin with [`ProviderKind::prefix`].
    #[must_use]
    pub fn other_provider(&self) -> Option<ProviderKind> {
        match self.provider() {
            ProviderKind::OpenAi => self.has_anthropic().then_some(ProviderKind::Anthropic),
            ProviderKind::Anthropic => self.has_openai().then_some(ProviderKind::OpenAi),
            ProviderKind::Offline => None,
        }
    }

    pub(crate) fn has_openai(&self) -> bool {
        self.openai_api_key.is_some() || self.openai_base_url.is_some()
    }

    pub(crate) fn has_anthropic(&self) -> bool {
        self.anthropic_api_key.is_some() || self.anthropic_base_url.is_some()
    }

    /// Returns the model that sessions start with.
    #[must_use]
    pub fn model_name(&self) -> &str {
        match (&self.model, self.provider()) {
            (Some(model), _) => model,
            (None, ProviderKind::OpenAi) => OPENAI_MODEL,
            (None, ProviderKind::Anthropic) => ANTHROPIC_MODEL,
            (None, ProviderKind::Offline) => OFFLINE_MODEL,
        }
    }

    /// Returns the address of a provider's server, for people; `built in` without one.
    #[must_use]
    pub fn address_of(&self, provider: ProviderKind) -> &str {
        match provider {
            ProviderKind::OpenAi => self.openai_base_url.as_deref().unwrap_or("https://api.openai.com/v1"),
            ProviderKind::Anthropic => self.anthropic_base_url.as_deref().unwrap_or("https://api.anthropic.com"),
            ProviderKind::Offline => "built in",
        }
    }
}

impl ProviderKind {
    /// Returns what the names of a provider's models begin with, if it is not the provider of MODEL.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::OpenAi => "openai/",
            Self::Anthropic => "anthropic/",
            Self::Offline => "offline/",
        }
    }
}

impl Settings {
    /// Returns the path of the file that lists webhooks. A relative path starts at the working directory.
    #[must_use]
    pub fn hooks_path(&self) -> Option<PathBuf> {
        self.hooks.hooks_file.as_ref().map(|file| self.below_working_directory(file))
    }

    /// Returns the path of the file with budgets. A relative path starts at the working directory.
    #[must_use]
    pub fn budgets_path(&self) -> Option<PathBuf> {
        self.limits.budgets_file.as_ref().map(|file| self.below_working_directory(file))
    }

    /// Returns the paths of the files with the certificate and its key. Relative paths start at the working directory.
    #[must_use]
    pub fn tls_paths(&self) -> Option<(PathBuf, PathBuf)> {
        let listen = &self.listen;
        let path = |file: &Option<PathBuf>| file.as_ref().map(|file| self.below_working_directory(file));
        path(&listen.tls_cert_file).zip(path(&listen.tls_key_file))
    }

    /// Returns the path of the file with the approval policy. A relative path starts at the working directory.
    #[must_use]
    pub fn approvals_path(&self) -> Option<PathBuf> {
        self.tools.approvals_file.as_ref().map(|file| self.below_working_directory(file))
    }

    /// Returns the path of the file that lists MCP servers. A relative path starts at the working directory.
    #[must_use]
    pub fn mcp_path(&self) -> Option<PathBuf> {
        self.mcp.mcp_file.as_ref().map(|file| self.below_working_directory(file))
    }

    /// Returns the path of the file with the summary prompt. A relative path starts at the working directory.
    #[must_use]
    pub fn summary_instructions_path(&self) -> Option<PathBuf> {
        self.summaries.summary_instructions_file.as_ref().map(|file| self.below_working_directory(file))
    }

    /// Returns the path of the audit log. A relative path starts at the working directory.
    #[must_use]
    pub fn audit_path(&self) -> Option<PathBuf> {
        self.log.audit_file.as_ref().map(|file| self.below_working_directory(file))
    }

    /// Returns the directory for backups. A relative path starts at the working directory.
    #[must_use]
    pub fn backup_path(&self) -> Option<PathBuf> {
        self.store.backup_dir.as_ref().map(|directory| self.below_working_directory(directory))
    }

    fn below_working_directory(&self, file: &Path) -> PathBuf {
        self.store.working_directory.join(file).components().collect()
    }
}

/// The settings with which a client reaches the server.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// The server's address.
    pub listen: ListenSettings,
    /// The first token of AUTH_TOKENS.
    pub token: Option<SecretString>,
}

impl ClientSettings {
    /// Reads these settings from the environment of this process, then from `.env` in the current directory. Other
    /// settings are ignored, and so is an item of AUTH_TOKENS that the server would refuse.
    ///
    /// # Errors
    /// HOST, WS_PORT or PORT is invalid, or a `.env` cannot be read.
    pub fn load() -> Result<Self, Error> {
        Self::merge(Path::new(".env"), std::env::vars_os())
    }

    fn merge(file: &Path, environment: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, Error> {
        let mut variables = dotenv(file)?;
        variables.extend(
            environment.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
        let mut faults = Vec::new();
        // Only these of the server's secrets matter here, and the others may be inaccessible.
        variables.retain(|name, _| {
            let listens = matches!(name.as_str(), "HOST" | "WS_PORT" | "PORT" | "TLS_CERT_FILE");
            listens || matches!(name.as_str(), "AUTH_TOKENS" | "AUTH_TOKENS_FILE" | "WORKING_DIRECTORY")
        });
        secret_files::read(&mut variables, &mut faults);
        foreign::settle(&mut variables, &mut faults);
        let token = variables.get("AUTH_TOKENS").and_then(|tokens| {
            tokens.split(',').find_map(|item| NamedToken::parse(item.trim()).ok()).map(|named| named.token)
        });
        let listens = |name: &str| matches!(name, "HOST" | "WS_PORT" | "TLS_CERT_FILE");
        variables.retain(|name, value| listens(name) && !value.trim().is_empty());
        let given: Given = envy::from_iter(variables.into_iter().map(|(name, value)| (name, value.trim().to_owned())))
            .map_err(|fault| Error(vec![fault.to_string()]))?;
        match Settings::read(&given, Strategies::default(), &mut faults) {
            Some(settings) if faults.is_empty() => Ok(Self { listen: settings.listen, token }),
            _ => Err(Error(faults)),
        }
    }
}

/// The default points per minute of each of several users: a thousand pings a second, or twenty inputs.
const POINTS_PER_MINUTE: u32 = 60_000;

/// How far the product of a total and a share may be off. For example, 7 % of 100 is 7.000000000000001.
const ROUNDING: f64 = 1e-6;

impl LimitSettings {
    /// Returns one user's share of a total, which is at least 1. 0 means no limit, for example if the total has none.
    fn share_of(&self, total: u32) -> u32 {
        if self.user_share >= 1.0 {
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number fits into its type"
        )]
        let share = (f64::from(total) * self.user_share - ROUNDING).ceil() as u32;
        share
    }

    /// Returns the maximum connections of one user; 0 means no limit.
    #[must_use]
    pub fn connections_per_user(&self) -> u32 {
        self.share_of(self.connections_max)
    }

    /// Returns the maximum number of one user's sessions in memory; 0 means no limit.
    #[must_use]
    pub fn sessions_open_per_user(&self) -> u32 {
        self.share_of(self.sessions_open_max)
    }

    /// Returns the maximum number of one user's requests to the model; 0 means no limit.
    #[must_use]
    pub fn model_requests_per_user(&self) -> u32 {
        self.share_of(self.model_requests_max)
    }

    /// Returns the points that a client may spend per minute; 0 means no limit.
    #[must_use]
    pub fn points_per_minute(&self, has_several_users: bool) -> u32 {
        self.rate_limit_per_minute.unwrap_or(if has_several_users { POINTS_PER_MINUTE } else { 0 })
    }
}

impl Settings {
    /// Returns true if there may be several users. Only then does each user have a share.
    #[must_use]
    pub fn has_several_users(&self) -> bool {
        let AuthSettings { service_tokens, auth_tokens, .. } = &self.auth;
        self.jwt.is_used()
            || !service_tokens.is_empty()
            || auth_tokens.iter().any(|token| token.name != auth_tokens[0].name)
    }

    /// Returns the path of the file with the identity provider's keys. A relative path starts at the working directory.
    #[must_use]
    pub fn jwt_key_path(&self) -> Option<PathBuf> {
        self.jwt.auth_jwt_key_file.as_ref().map(|file| self.below_working_directory(file))
    }
}

impl ListenSettings {
    /// Returns true if the ports accept only TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.tls_cert_file.is_some()
    }

    /// Returns the address at which programs on this machine reach the server. A server that listens on all addresses
    /// also listens on loopback.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        let host = match self.host {
            IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            address => address,
        };
        SocketAddr::new(host, self.ws_port)
    }
}

impl NodeSettings {
    /// Returns the name of this server, which defaults to the machine's name.
    #[must_use]
    pub fn name(&self) -> String {
        if let Some(name) = &self.node_name {
            return name.clone();
        }
        let system = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
        let name: String = system.unwrap_or_default().trim().chars().filter(char::is_ascii_graphic).take(64).collect();
        if name.is_empty() { "reseed".to_owned() } else { name }
    }

    /// Returns the time after which another server may open the sessions of this one.
    #[must_use]
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.node_lease_secs)
    }
}

impl StoreSettings {
    /// Returns the database. A relative path starts at the working directory.
    #[must_use]
    pub fn database(&self) -> Database {
        self.database_at(&self.database_url)
    }

    /// Returns another database, with the settings that its address does not contain.
    pub(crate) fn database_at(&self, address: &Database) -> Database {
        let mut database = address.below(&self.working_directory);
        if let Database::Postgres(postgres) = &mut database {
            **postgres = Postgres {
                readers: self.database_readers,
                patience: Duration::from_secs(self.store_patience_secs),
                allows_unsafe: self.unsafe_store,
                ..(**postgres).clone()
            };
        }
        database
    }
}

/// Returns true if a variable is one of our settings.
fn is_ours(name: &str) -> bool {
    let named_by = |declared: &Declared| secret_files::variable_of(declared).is_some_and(|file| file == name);
    declared().iter().any(|declared| declared.variable == name || named_by(declared))
}

/// Sets constants to the values that a test requests.
fn fix(settings: &mut Settings, fixed: &str, warnings: &mut Vec<String>, faults: &mut Vec<String>) {
    for item in fixed.split_whitespace() {
        let is_fixed = item.split_once('=').is_some_and(|(name, value)| settings.fix(name, value));
        if !is_fixed {
            faults.push(format!("{FIXED_VARIABLE} has `{item}`, which is not a constant and its value"));
        }
    }
    warnings.push(format!("{FIXED_VARIABLE} changes constants of this server ({fixed}): it is for tests only"));
}

/// Reads a file like `.env`. Returns nothing if it does not exist. A line that cannot be read may contain a key, so the
/// error gives its position and not its text.
fn dotenv(file: &Path) -> Result<BTreeMap<String, String>, Error> {
    let fault = |what: String| Error(vec![format!("{}: {what}", file.display())]);
    match std::fs::read(file) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| fault("is not UTF-8".to_owned()))?;
            dotenv::parse(&text).map_err(|error| fault(error.to_string()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(fault(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
