//! Applies changed settings while the server runs.

use super::{Service, parts, webhooks};
use crate::{
    config::{ModelSettings, ProviderKind, Settings},
    provider::Provider,
    server::{Identity, auth::Jwt},
};
use anyhow::ensure;
use std::sync::Arc;

/// The result of reading the settings again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The number of connections that were closed because their credentials are no longer accepted.
    pub closed: usize,
    /// Variables that differ from those at the start and take effect only after a restart.
    pub wants_restart: Vec<String>,
}

impl Service {
    /// Applies settings that were read again: credentials, keys, prices, budgets, retention, hooks, MCP servers and the
    /// certificate of TLS. Connections stay open, except those whose credentials were removed. Everything is checked
    /// first, so an error changes nothing.
    ///
    /// The provider is not affected; [`Self::replace_provider`] replaces it.
    ///
    /// # Errors
    /// A file of keys, budgets, hooks, MCP servers or certificates cannot be used, the keys of an identity provider are
    /// unknown, or the settings would open the server to everyone.
    pub async fn reload(&self, settings: &Settings) -> anyhow::Result<Reloaded> {
        let reloaded = self.apply(settings).await;
        self.app.admission.audit.server("reload", if reloaded.is_ok() { "ok" } else { "failed" });
        reloaded
    }

    async fn apply(&self, settings: &Settings) -> anyhow::Result<Reloaded> {
        let first = self.settings.lock().await;
        let (auth, jwt) = (&settings.auth, &settings.jwt);
        let would_be_open = auth.auth_tokens.is_empty() && auth.service_tokens.is_empty() && !jwt.is_used();
        ensure!(
            !(would_be_open && self.app.auth.is_required()),
            "AUTH_TOKENS, SERVICE_TOKENS and AUTH_JWKS_URL are all unset now, so everyone would be let in; restart the \
             server if that is meant"
        );
        let hooks = self.registry.parts().hooks().with_other_webhooks(webhooks(settings)?)?;
        let mcp = self.server_tools.mcp_file(settings)?;
        let budgets = parts::budgets(settings)?;
        let identity = Identity::read(settings)?;
        let known = self.app.auth.jwt();
        let jwt = Jwt::open(settings, known.as_deref()).await?;
        // A provider that has been down since the start must not block other settings.
        let was_away =
            |jwt: &Jwt| known.as_ref().is_some_and(|known| !known.has_keys() && known.is_of_same_address(jwt));
        ensure!(
            jwt.as_ref().is_none_or(|jwt| jwt.has_keys() || was_away(jwt)),
            "AUTH_JWKS_URL gave no keys; is it the address of the identity provider's keys, and does it answer?"
        );
        self.registry.parts().reconfigure(settings.model.model_prices.clone(), hooks);
        self.server_tools.take_up(mcp);
        self.registry.budgets().replace(budgets);
        self.registry.retain(settings.store.retention_days.clone(), settings.jwt.auth_jwt_class_claim.is_some());
        let closed = self.app.auth.reload(settings, jwt);
        let mut wants_restart = first.wants_restart(settings);
        match (&self.app.tls, identity) {
            (Some(tls), Some(identity)) => tls.replace(identity),
            (None, None) => {}
            _ => wants_restart.push("whether the ports use TLS (TLS_CERT_FILE)".to_owned()),
        }
        if first.has_several_users() != settings.has_several_users() {
            // The server counts what each user holds either from the start on, or not at all.
            wants_restart.push("what each user may take (USER_SHARE)".to_owned());
        }
        Ok(Reloaded { closed, wants_restart })
    }

    /// Sends all further requests to this provider. The old one answers requests in progress.
    pub fn replace_provider(&self, provider: Arc<dyn Provider>) {
        self.registry.parts().replace_provider(provider);
    }
}

/// Returns the provider of these settings with the key of the newer ones; `None` if the newer settings use another kind
/// of provider, which requires a restart.
///
/// # Errors
/// As [`parts::provider`].
pub(crate) fn provider_with_key_of(settings: &Settings, newer: &Settings) -> anyhow::Result<Option<Arc<dyn Provider>>> {
    let kinds = [settings, newer].map(|settings| (settings.model.provider(), settings.model.other_provider()));
    if kinds[0] != kinds[1] || kinds[0].0 == ProviderKind::Offline {
        return Ok(None);
    }
    let model = ModelSettings {
        openai_api_key: newer.model.openai_api_key.clone(),
        anthropic_api_key: newer.model.anthropic_api_key.clone(),
        ..settings.model.clone()
    };
    parts::provider(&Settings { model, ..settings.clone() }).map(Some)
}
