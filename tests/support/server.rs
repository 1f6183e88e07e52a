//! A whole server in this process: real sockets on a free port, a store and a provider of the test's choice.

use reseed::{
    cli::serve::{self, Service},
    config::Settings,
    hooks::Hook,
    provider::Provider,
    store::{SessionStore, memory::MemoryStore},
};
use std::sync::Arc;

/// A running server. Dropped with the test's runtime.
pub(crate) struct Server {
    pub(crate) service: Service,
}

impl Server {
    /// A server over memory with these settings beside the usual ones of a test.
    pub(crate) async fn start(provider: impl Provider + 'static, settings: &[(&str, &str)]) -> Self {
        Self::over(provider, Arc::new(MemoryStore::new()), settings).await
    }

    /// The same over a store of the test's.
    pub(crate) async fn over(
        provider: impl Provider + 'static,
        store: Arc<dyn SessionStore>,
        settings: &[(&str, &str)],
    ) -> Self {
        Self::of(&read(settings), Arc::new(provider), store).await
    }

    /// A server over memory that asks these hooks.
    pub(crate) async fn with_hooks(
        provider: impl Provider + 'static,
        hooks: Vec<Arc<dyn Hook>>,
        settings: &[(&str, &str)],
    ) -> Self {
        Self::over_with_hooks(provider, Arc::new(MemoryStore::new()), hooks, settings).await
    }

    /// The same over a store of the test's.
    pub(crate) async fn over_with_hooks(
        provider: impl Provider + 'static,
        store: Arc<dyn SessionStore>,
        hooks: Vec<Arc<dyn Hook>>,
        settings: &[(&str, &str)],
    ) -> Self {
        let service = serve::start_with_hooks(&read(settings), Arc::new(provider), store, hooks).await;
        Self { service: service.unwrap_or_else(|error| panic!("{error:#}")) }
    }

    /// A server that asks the model's server at this address, through the provider that the settings name.
    pub(crate) async fn facing(base_url: &str, settings: &[(&str, &str)]) -> Self {
        Self::facing_over(base_url, Arc::new(MemoryStore::new()), settings).await
    }

    /// The same over a store of the test's.
    pub(crate) async fn facing_over(base_url: &str, store: Arc<dyn SessionStore>, settings: &[(&str, &str)]) -> Self {
        let settings = read(&[&[("OPENAI_BASE_URL", base_url)], settings].concat());
        let provider = serve::provider(&settings).unwrap_or_else(|error| panic!("{error:#}"));
        Self::of(&settings, provider, store).await
    }

    /// A server with settings that are read already.
    pub(crate) async fn of(settings: &Settings, provider: Arc<dyn Provider>, store: Arc<dyn SessionStore>) -> Self {
        let service = serve::start(settings, provider, store).await.unwrap_or_else(|error| panic!("{error:#}"));
        Self { service }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.service.running.address.to_string()
    }

    /// The socket's address.
    pub(crate) fn ws(&self) -> String {
        format!("ws://{}/ws", self.address())
    }
}

fn read(settings: &[(&str, &str)]) -> Settings {
    let usual = [("WS_PORT", "0"), ("CONTEXT_WINDOW", "2000"), ("MODEL", "test"), ("SHUTDOWN_GRACE_SECS", "1")];
    let all = usual.iter().chain(settings).map(|(name, value)| (name.to_string(), value.to_string()));
    Settings::from_iter(all).unwrap_or_else(|error| panic!("{error}"))
}
