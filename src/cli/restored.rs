//! `reseed restored`: gives every session a new epoch after a backup was restored.

use super::say;
use crate::{config::Settings, store};
use anyhow::Context as _;
use std::io::Write as _;

/// Gives every session a new epoch and prints how many there are.
pub(super) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let database = settings.store.database();
    let mut announce = |servers: String, secs| {
        // A reader that has gone away is not an error.
        let _ = writeln!(
            std::io::stderr(),
            "reseed: the database lists {servers}; watching for {secs} s whether it is still alive"
        );
    };
    let done = store::restored(&database, &mut announce)
        .await
        .with_context(|| format!("{database}: until this has succeeded, not all sessions have a new epoch"))?;
    say(format!("{database}: sessions with a new epoch: {}; clients load them anew", done.renewed));
    if done.damaged > 0 {
        say(format!("damaged, so that they cannot be opened: {}", done.damaged));
    }
    Ok(())
}
