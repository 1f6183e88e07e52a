#!/usr/bin/env bash
# Kills the real server many times under load and checks that nothing it acknowledged is lost.
#
#     tests/soak/kill.sh                  200 kills
#     tests/soak/kill.sh 2000             so many
#     tests/soak/kill.sh 2000 --busy 2    so many, beside two busy loops that take the processor from server and clients
#
# The kills are made in runs of 100, each with its own choices and data. A run that fails ends the script and prints its
# seed; SEED=n makes the same choices again.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

# Kills of one run: enough for long sessions, and few enough for a failure to be read.
RUN_KILLS=100

kills=200
busy=0
while (($# > 0)); do
    case $1 in
    --busy)
        busy=${2:?--busy takes a number of loops}
        shift 2
        ;;
    *)
        kills=$1
        shift
        ;;
    esac
done
for number in "$kills" "$busy"; do
    if [[ ! $number =~ ^[0-9]+$ ]]; then
        echo "kill.sh: \`$number\` is not a whole number" >&2
        exit 2
    fi
done

loops=()
stop() {
    if ((${#loops[@]} > 0)); then kill "${loops[@]}" 2>/dev/null || true; fi
}
trap stop EXIT

# Built first: the loops slow down what is tested, not the compiler.
cargo test --locked --test it --no-run
for ((loop = 0; loop < busy; loop++)); do
    (while :; do :; done) &
    loops+=($!)
done

made=0
while ((made < kills)); do
    run=$((kills - made < RUN_KILLS ? kills - made : RUN_KILLS))
    KILLS=$run cargo test --locked --test it surviving::kills -- --nocapture
    made=$((made + run))
    echo "$made of $kills kills without a failure"
done
