//! Descriptors: each connection takes one, and the store and the log need some even when all others are taken.

use crate::config::LimitSettings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that no client can take: for the database with its readers, the log, the listener, event loops, and
/// files that are opened briefly, with room for requests to webhooks.
const RESERVE: u64 = 192;

/// Raises the process's limit on descriptors as far as it may, and lowers the limits on connections and on requests to
/// the model until all fit. Returns a message for the operator if a limit was lowered.
pub(super) fn fit(limits: &mut LimitSettings) -> Option<String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // This may be forbidden; then the limit stays unchanged.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = getrlimit(Resource::Nofile).current.or(current)?;
    let fitted = fitted(limits, files)?;
    let LimitSettings { connections_max, guests_max, model_requests_max, .. } = fitted;
    *limits = fitted;
    Some(format!(
        "the process may have {files} open files, so CONNECTIONS_MAX is {connections_max}, MODEL_REQUESTS_MAX \
         {model_requests_max}, and {guests_max} connections may be without `hello`; raise its limit (ulimit -n, \
         LimitNOFILE=, --ulimit nofile=)"
    ))
}

/// Returns the limits, lowered until they fit into this number of descriptors; `None` if they already fit. A request to
/// the model has a connection of its own.
fn fitted(limits: &LimitSettings, files: u64) -> Option<LimitSettings> {
    let LimitSettings { connections_max, guests_max, model_requests_max, .. } = *limits;
    let wanted = [connections_max, guests_max, model_requests_max].map(u64::from).iter().sum::<u64>();
    let room = files.saturating_sub(RESERVE);
    if wanted <= room {
        return None;
    }
    // Half is for clients, and a quarter each for guests and for the model. Without descriptors for the model, clients
    // would wait in vain, and without those for guests, no client could connect.
    let part = |wanted: u32, of: u64| wanted.min(u32::try_from((room / of).max(1)).unwrap_or(u32::MAX));
    let (guests_max, model_requests_max) = (part(guests_max, 4), part(model_requests_max, 4));
    let rest = room.saturating_sub(u64::from(guests_max) + u64::from(model_requests_max)).max(1);
    let connections_max = connections_max.min(u32::try_from(rest).unwrap_or(u32::MAX));
    Some(LimitSettings { connections_max, guests_max, model_requests_max, ..limits.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_limits_allow_fits_into_the_descriptors() {
        for (wanted, files, fit) in [
            ([10_000, 512, 1_000], 1_048_576, [10_000, 512, 1_000]),
            ([10_000, 512, 1_000], 11_704, [10_000, 512, 1_000]),
            ([10_000, 512, 1_000], 4_096, [2_416, 512, 976]),
            ([10_000, 512, 1_000], 1_024, [416, 208, 208]),
            ([100, 512, 1_000], 1_024, [100, 208, 208]),
            ([10_000, 512, 1_000], 100, [1, 1, 1]),
        ] {
            let [connections_max, guests_max, model_requests_max] = wanted;
            let limits = LimitSettings { connections_max, guests_max, model_requests_max, ..LimitSettings::default() };
            let fitted = fitted(&limits, files).unwrap_or(limits);
            let got = [fitted.connections_max, fitted.guests_max, fitted.model_requests_max];
            assert_eq!(got, fit, "{wanted:?} in {files}");
            let taken: u64 = got.map(u64::from).iter().sum();
            assert!(files < RESERVE || taken + RESERVE <= files, "{got:?} in {files}");
        }
    }
}
