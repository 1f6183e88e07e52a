#!/usr/bin/env bash
# Takes the power from under the store many times, on a disk that drops, reorders and tears what was not synced, and
# checks that nothing it acknowledged is lost.
#
#     tests/soak/disk.sh          10,000 seeds, a quarter of an hour
#     tests/soak/disk.sh 500      so many
#
# A seed that fails prints itself; SEED=n makes the same choices again.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
SEEDS=${1:-10000} cargo test --locked --test disk -- --nocapture
