//! The page's module that lists this server's strategies, `web/offered-strategies.js`.
//!
//! The committed file lists the built-in strategies and the default settings, for the page's own tests. A server
//! replaces the file by its own list: the deployment's settings, and the strategies of a program that embeds it.

use crate::core::compaction::{
    factory::{Offered, Strategies},
    strategy::Options,
};

/// The name of the module's file.
pub(super) const FILE: &str = "offered-strategies.js";

/// Generates the module.
pub(super) fn module(strategies: &Strategies, defaults: &Options) -> String {
    let offered: Vec<Offered> = strategies.offered().collect();
    let strategies = serde_json::to_string_pretty(&offered).expect("words and lists are JSON");
    let defaults = serde_json::to_string_pretty(&defaults.on_the_wire()).expect("settings are JSON");
    format!(
        "/**\n * The strategies that the server offers, and the settings that hold if a session sets none.\n *\n \
         * Written by `UPDATE=1 cargo test --lib server::offered`. Do not edit. \
         A server serves its own in its place.\n \
         */\n\n\
         /** @type {{import(\"./strategies.js\").Strategy[]}} */\n\
         export const STRATEGIES = {strategies};\n\n\
         /** @type {{import(\"./strategies.js\").StrategySettings}} */\n\
         export const DEFAULTS = {defaults};\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_committed_module_lists_the_built_in_strategies() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/web/offered-strategies.js");
        let printed = module(&Strategies::default(), &Options::default());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(file, &printed).unwrap();
        }
        let committed = fs::read_to_string(file).unwrap_or_default();
        assert!(committed == printed, "{file} is out of date: run UPDATE=1 cargo test --lib server::offered");
    }
}
