#!/usr/bin/env bash
# Kills the real server many times under load and checks that nothing it acknowledged is lost.
#
#     tests/load/kill.sh          200 kills
#     tests/load/kill.sh 1000     so many
#
# A run that fails prints its seed; SEED=n makes the same choices again.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
KILLS=${1:-200} cargo test --locked --test it surviving::kills -- --nocapture
