//! The models that a session may choose.

use serde::{Deserialize, Serialize};

replies! {
    /// Payload of `models`.
    struct Models {
        /// The model of new sessions.
        model: String,
        /// True if a session may also choose a model that is not in the list, by its name.
        others: bool,
        /// The models: the one of new sessions first, the others in the order of the deployment or of the provider.
        items: Vec<ModelItem>,
    }

    /// A model. What nobody has said of it is absent.
    struct ModelItem {
        /// Its name, for `set_model`.
        id: String,
        /// Its window in tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_tokens: Option<u64>,
        /// Its price.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        price: Option<ModelPrice>,
        /// True if it takes tools, as its server says. False if it does not, if it has refused them, or if the
        /// deployment has switched them off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<bool>,
        /// True if it takes images, as its server says; false if it does not, or has refused them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        images: Option<bool>,
    }

    /// A price, in billionths of a dollar for a million tokens.
    #[derive(Copy, Eq)]
    struct ModelPrice {
        /// Of input.
        input_nano_usd: u64,
        /// Of input that is read from the provider's cache.
        cached_nano_usd: u64,
        /// Of input that is written to the provider's cache.
        cache_write_nano_usd: u64,
        /// Of output.
        output_nano_usd: u64,
    }
}
