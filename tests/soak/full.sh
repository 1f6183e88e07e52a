#!/usr/bin/env bash
# Plays the full counts of what is random, of which tests/run plays samples, and builds the image. For releases, and
# after changes of what is named. Some hours on two cores.
#
#     tests/soak/full.sh              everything
#     tests/soak/full.sh core sim     only these; all are: core replay sim cluster disk kill kill_nodes hour
#                                     lossy cuts client codex litellm openresponses asyncapi docs image
#
# One line a step with its time; a step that fails prints its end, with the seed that repeats it.
set -uo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
logs=${CARGO_TARGET_DIR:-$PWD/target}/soak-logs
mkdir -p "$logs"

declare -A steps=(
    [core]='WORLDS=4000 TREES=10000 HISTORIES=700 SCRIPTS=20000 ORDERS=2000 cargo test --locked -p reseed-core random_'
    [replay]='CHATS=all cargo test --locked -p reseed --lib replay::corpus'
    [sim]='SEEDS=10000 cargo test --locked --test sim whatever_happens_the'
    [cluster]='SEEDS=10000 cargo test --locked --test sim cluster'
    [disk]='tests/soak/disk.sh 10000'
    [kill]='tests/soak/kill.sh 1000'
    [kill_nodes]='tests/soak/kill_nodes.sh 200'
    [hour]='cargo build --locked --bins && tests/soak/hour.sh'
    [lossy]='LOST=10000 cargo test --locked --test it surviving::lossy'
    [cuts]='CUTS=all cargo test --locked --test it surviving::cuts'
    [client]='CUTS=10000 tests/client/run'
    # 430 MB, which is too much for tests/run.
    [codex]='npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$logs/npm" @openai/codex@0.171.0 &&
        (cd tests/mcp && npm ci --silent --no-audit --no-fund --ignore-scripts) && cargo build --locked --bins &&
        node tests/clients/codex.mjs "$logs/../debug/reseed" "$logs/npm/node_modules/.bin/codex"'
    # 750 MB.
    [litellm]='npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$logs/npm" openai@7.59.0 &&
        python3 -m venv "$logs/litellm" && "$logs/litellm/bin/pip" install --quiet "litellm[proxy]==1.108.7" &&
        cargo build --locked --bins && NODE_PATH=$logs/npm/node_modules \
        node tests/clients/litellm.mjs "$logs/../debug/reseed" "$logs/litellm/bin/litellm"'
    # Its sources are no package: OPENRESPONSES_DIR names a folder that has them, with `zod` installed.
    [openresponses]='[[ -z ${OPENRESPONSES_DIR:-} ]] || {
        npm install --silent --no-audit --no-fund --prefix "$logs/bun" bun@1.4.5 && cargo build --locked --bins &&
        node tests/clients/openresponses.mjs "$logs/../debug/reseed" "$logs/bun/node_modules/.bin/bun" "$OPENRESPONSES_DIR"; }'
    [asyncapi]='npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$logs/npm" @asyncapi/parser@3.6.3 &&
        NODE_PATH=$logs/npm/node_modules node tests/clients/asyncapi.mjs'
    [docs]='RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps'
    [image]='docker/build.sh "$logs/image" && "$logs/image/reseed" --version && "$logs/image/reseed-shell" --version'
)
order=(core replay sim cluster disk kill kill_nodes hour lossy cuts client codex litellm openresponses asyncapi docs
    image)

failed=0
for name in "${@:-${order[@]}}"; do
    command=${steps[$name]:?"tests/soak/full.sh: there is no step of this name; allowed: ${order[*]}"}
    began=$SECONDS
    if eval "$command" >"$logs/$name.log" 2>&1; then
        echo "ok     $name in $((SECONDS - began)) s"
    else
        failed=$((failed + 1))
        echo "failed $name in $((SECONDS - began)) s; the end of $logs/$name.log:"
        tail -n 40 "$logs/$name.log"
    fi
done
((failed == 0))
