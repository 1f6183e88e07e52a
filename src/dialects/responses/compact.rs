//! `POST /v1/responses/compact`: a summary that the client can send back in a new chain.
//!
//! `encrypted_content` holds the summary, signed with a key of this deployment, so that it can only be one that the
//! server has made. It is not encrypted: anyone who has it can read it.

use super::{
    Door,
    create::{begin, summary_message},
    ids::item_id,
    request::{Create, Invalid},
    resource::secs,
    retrieve::open_response,
};
use crate::{exchange::Exchange, http::Failure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reseed_client::Connect;
use reseed_protocol::{ErrorCode, Message, compaction::StartCompaction};
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;

/// The version of the sealed form.
const VERSION: &str = "1";

/// Signs summaries, and checks them.
#[derive(Clone)]
pub(super) struct Sealer {
    /// The first one signs.
    keys: Arc<[Hmac<Sha256>]>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// Returns what signs with the first of these keys, and accepts what any of them has signed.
    pub(super) fn new(keys: &[[u8; 32]]) -> Self {
        let key = |key: &[u8; 32]| Hmac::new_from_slice(key).expect("a key may have any length");
        Self { keys: keys.iter().map(key).collect() }
    }

    /// Returns the sealed form of a summary.
    pub(super) fn seal(&self, summary: &str) -> String {
        let content = URL_SAFE_NO_PAD.encode(json!({ "summary": summary }).to_string());
        let signature = self.keys[0].clone().chain_update(&content).finalize().into_bytes();
        format!("{VERSION}.{content}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns the summary in a sealed form; `None` if this deployment has not made it.
    pub(super) fn open(&self, sealed: &str) -> Option<String> {
        let (version, rest) = sealed.split_once('.')?;
        let (content, signature) = rest.split_once('.')?;
        if version != VERSION {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.keys.iter().find(|key| (*key).clone().chain_update(content).verify_slice(&signature).is_ok())?;
        let content: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).ok()?).ok()?;
        content["summary"].as_str().map(str::to_owned)
    }

    /// Puts the summaries of compactions in their places in a history.
    ///
    /// # Errors
    /// `invalid_compaction` for one that this deployment has not made.
    pub(super) fn unseal(
        &self,
        history: Vec<Message>,
        compactions: &[(usize, String)],
    ) -> Result<Vec<Message>, Failure> {
        let mut history = history;
        for (place, sealed) in compactions.iter().rev() {
            let summary = self.open(sealed).ok_or_else(|| {
                let message = "this compaction was made elsewhere, or was changed; send the messages instead";
                Failure::invalid(message).with_code("invalid_compaction").at("input")
            })?;
            history.insert((*place).min(history.len()), summary_message(&summary));
        }
        Ok(history)
    }
}

/// Compacts a chain, or the messages of the request. Returns the body of the answer.
///
/// # Errors
/// The answer to a request that cannot be used.
pub(super) async fn compact(door: &Door, connect: Box<dyn Connect>, create: Create) -> Result<Value, Failure> {
    if create.model.is_none() {
        return Err(Invalid::at("model", "it is required").into());
    }
    // What a client sends beside it (tools, sampling) says nothing about a summary.
    let instructions = create.instructions;
    let is_for_itself = create.previous_response_id.is_none();
    let create = Create {
        model: create.model,
        input: create.input,
        previous_response_id: create.previous_response_id,
        generate: Some(false),
        store: is_for_itself.then_some(false),
        ..Create::default()
    };
    let mut running = if create.input.is_some() || create.previous_response_id.is_none() {
        begin(connect, &create, None, &door.sealer, &|_| false).await?
    } else {
        open_response(connect, create.previous_response_id.as_deref().unwrap_or_default()).await?
    };
    let last = running.last_entry().await?;
    let is_leaf = running.exchange.snapshot().leaf_id.as_ref() == Some(&last);
    if !is_leaf {
        let message = "only the newest response of a conversation can be compacted";
        return Err(Failure::invalid(message).at("previous_response_id"));
    }
    let summary = summarise(&mut running.exchange, instructions, running.forget.is_none()).await?;
    let tokens = running.exchange.snapshot().context_info.token_count;
    let usage = json!({
        "input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens,
        "input_tokens_details": { "cached_tokens": 0 }, "output_tokens_details": { "reasoning_tokens": 0 },
    });
    Ok(json!({
        "id": format!("{}_compacted", running.id),
        "object": "response.compaction",
        "created_at": secs(running.writer.created_at()),
        "output": [{
            "type": "compaction",
            "id": item_id(&running.id.session, &running.id.entry, 0, "cmp"),
            "encrypted_content": door.sealer.seal(&summary),
            "summary": summary,
        }],
        "usage": usage,
    }))
}

/// Returns a summary of a whole chain, for its client. A chain that goes on here as well is compacted as any other: a
/// summary, and its newest messages as they are.
///
/// # Errors
/// Why there is no summary.
pub(super) async fn summarise(
    exchange: &mut Exchange,
    instructions: Option<String>,
    goes_on: bool,
) -> Result<String, Failure> {
    if goes_on {
        let start = StartCompaction { instructions: instructions.clone(), ..StartCompaction::default() };
        match exchange.compact(start).await {
            Err(error) if error.code != ErrorCode::NothingToCompact => return Err(error.into()),
            _ => {}
        }
    }
    Ok(exchange.summary_of_all(instructions).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_only_taken_back_unchanged_and_with_a_known_key() {
        let sealer = Sealer::new(&[[7; 32]]);
        let sealed = sealer.seal("The tide turns at five. 🌊");
        assert_eq!(sealer.open(&sealed).as_deref(), Some("The tide turns at five. 🌊"));
        assert_eq!(Sealer::new(&[[8; 32]]).open(&sealed), None);
        let newer = Sealer::new(&[[8; 32], [7; 32]]);
        assert_eq!(newer.open(&sealed), sealer.open(&sealed));
        assert_eq!(sealer.open(&newer.seal("It signs with the first key.")), None);
        let other = sealer.seal("The tide turns at six.");
        let (content, signature) = (other.split('.').nth(1).unwrap(), sealed.split('.').nth(2).unwrap());
        for changed in ["", "1", "1..", "2.a.b", &sealed[..sealed.len() - 2], &format!("1.{content}.{signature}")] {
            assert_eq!(sealer.open(changed), None, "{changed}");
        }
    }
}
