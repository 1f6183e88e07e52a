#!/usr/bin/env bash
# Runs servers of two versions side by side on one PostgreSQL, as during a rolling upgrade: builds an older commit in a
# temporary worktree, then kills, pauses and cuts off three servers as kill_nodes.sh does. One of them begins as the
# older version, and each that is killed is started again as the other one.
#
#     tests/soak/versions.sh v0.1.0         200 kills with the servers of this commit and of v0.1.0
#     tests/soak/versions.sh 40daf36 2000   so many, with those of another commit
#
# Both versions must have the same tables: an older server does not start on newer ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

old=${1:-}
if [[ -z $old ]] || ! commit=$(git rev-parse --verify --quiet "$old^{commit}"); then
    echo "versions.sh: \`$old\` is not a commit; name an older one, such as HEAD~20" >&2
    exit 2
fi

folder=$(mktemp -d)
remove() {
    git worktree remove --force "$folder/tree" 2>/dev/null || true
    rm -rf "$folder"
}
trap remove EXIT

git worktree add --quiet --detach "$folder/tree" "$commit"
# The older version's build is kept, so that the next run with it begins at once.
target=$PWD/target/versions/$commit
(cd "$folder/tree" && CARGO_TARGET_DIR=$target cargo build --locked --bin reseed)
RESEED_OLD_BIN=$target/debug/reseed tests/soak/kill_nodes.sh "${2:-200}"
