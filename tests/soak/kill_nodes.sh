#!/usr/bin/env bash
# Kills, pauses and cuts off three real servers on a real PostgreSQL many times under load, and checks that nothing they
# acknowledged is lost or doubled.
#
#     tests/soak/kill_nodes.sh          200 kills
#     tests/soak/kill_nodes.sh 2000     so many
#
# The kills are made in runs of 20, each with its own choices and data. A run that fails ends the script and prints its
# seed; SEED=n makes the same choices again.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

# Kills of one run: each is followed by another fault.
RUN_KILLS=20

kills=${1:-200}
if [[ ! $kills =~ ^[0-9]+$ ]]; then
    echo "kill_nodes.sh: \`$kills\` is not a whole number" >&2
    exit 2
fi

made=0
while ((made < kills)); do
    run=$((kills - made < RUN_KILLS ? kills - made : RUN_KILLS))
    KILLS=$run cargo test --locked --test it surviving::nodes::servers -- --nocapture
    made=$((made + run))
    echo "$made of $kills kills without a failure"
done
