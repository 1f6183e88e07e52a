//! A complete server in this process: real sockets on a free port, with a given store and provider.

use super::fixed;
use reseed::{
    config::Settings,
    hooks::Hook,
    provider::Provider,
    service::{self, Extensions, Service},
    store::{SessionStore, memory::MemoryStore},
    tools::Tool,
};
use std::sync::Arc;

/// A running server; stops with the test's runtime.
pub(crate) struct Server {
    pub(crate) service: Service,
}

impl Server {
    /// Starts a server over memory with these settings in addition to the tests' usual ones.
    pub(crate) async fn start(provider: impl Provider + 'static, settings: &[(&str, &str)]) -> Self {
        Self::over(provider, Arc::new(MemoryStore::new()), settings).await
    }

    /// Like [`Self::start`], over a given store.
    pub(crate) async fn over(
        provider: impl Provider + 'static,
        store: Arc<dyn SessionStore>,
        settings: &[(&str, &str)],
    ) -> Self {
        Self::of(&read(settings), Arc::new(provider), store).await
    }

    /// Starts a server over memory with these hooks.
    pub(crate) async fn with_hooks(
        provider: impl Provider + 'static,
        hooks: Vec<Arc<dyn Hook>>,
        settings: &[(&str, &str)],
    ) -> Self {
        Self::over_with_hooks(provider, Arc::new(MemoryStore::new()), hooks, settings).await
    }

    /// Like [`Self::with_hooks`], over a given store.
    pub(crate) async fn over_with_hooks(
        provider: impl Provider + 'static,
        store: Arc<dyn SessionStore>,
        hooks: Vec<Arc<dyn Hook>>,
        settings: &[(&str, &str)],
    ) -> Self {
        let service = service::start_with_hooks(&read(settings), Arc::new(provider), store, hooks).await;
        Self { service: service.unwrap_or_else(|error| panic!("{error:#}")) }
    }

    /// Starts a server over a given store that runs these tools.
    pub(crate) async fn over_with_tools(
        provider: impl Provider + 'static,
        store: Arc<dyn SessionStore>,
        tools: Vec<Arc<dyn Tool>>,
        settings: &[(&str, &str)],
    ) -> Self {
        let extensions = Extensions { tools, ..Extensions::default() };
        let service = service::start_with_extensions(&read(settings), Arc::new(provider), store, extensions).await;
        Self { service: service.unwrap_or_else(|error| panic!("{error:#}")) }
    }

    /// Starts a server that uses the model server at this address, through the provider that the settings name.
    pub(crate) async fn facing(base_url: &str, settings: &[(&str, &str)]) -> Self {
        Self::facing_over(base_url, Arc::new(MemoryStore::new()), settings).await
    }

    /// Like [`Self::facing`], over a given store.
    pub(crate) async fn facing_over(base_url: &str, store: Arc<dyn SessionStore>, settings: &[(&str, &str)]) -> Self {
        let settings = read(&[&[("OPENAI_BASE_URL", base_url)], settings].concat());
        let provider = service::provider(&settings).unwrap_or_else(|error| panic!("{error:#}"));
        Self::of(&settings, provider, store).await
    }

    /// Starts a server that uses the providers that the settings name.
    pub(crate) async fn with_settings(settings: &[(&str, &str)]) -> Self {
        let settings = read(settings);
        let provider = service::provider(&settings).unwrap_or_else(|error| panic!("{error:#}"));
        Self::of(&settings, provider, Arc::new(MemoryStore::new())).await
    }

    /// Returns why a server that uses the model server at this address does not start.
    pub(crate) async fn refusal(base_url: &str, settings: &[(&str, &str)]) -> String {
        let settings = read(&[&[("OPENAI_BASE_URL", base_url)], settings].concat());
        let provider = service::provider(&settings).unwrap_or_else(|error| panic!("{error:#}"));
        match service::start(&settings, provider, Arc::new(MemoryStore::new())).await {
            Ok(_) => panic!("it starts"),
            Err(error) => format!("{error:#}"),
        }
    }

    /// Starts a server with parsed settings.
    pub(crate) async fn of(settings: &Settings, provider: Arc<dyn Provider>, store: Arc<dyn SessionStore>) -> Self {
        let service = service::start(settings, provider, store).await.unwrap_or_else(|error| panic!("{error:#}"));
        Self { service }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.service.address().to_string()
    }

    /// Returns the socket's address.
    pub(crate) fn ws(&self) -> String {
        format!("ws://{}/ws", self.address())
    }
}

/// Returns these settings, in addition to the tests' usual ones.
pub(crate) fn read(settings: &[(&str, &str)]) -> Settings {
    let usual = [("WS_PORT", "0"), ("CONTEXT_WINDOW", "2000"), ("MODEL", "test"), ("SHUTDOWN_GRACE_SECS", "1")];
    Settings::from_iter(fixed::variables(&[&usual, settings].concat())).unwrap_or_else(|error| panic!("{error}"))
}
