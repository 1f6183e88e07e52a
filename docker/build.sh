#!/bin/sh
# Builds the server into a directory. The Dockerfile runs this, and so do the tests, with the faster profile.
#
#     docker/build.sh FOLDER [dist|dev]
set -eu

folder=${1:?usage: docker/build.sh FOLDER [dist|dev]}
profile=${2:-dist}
case $profile in
dist) built=dist ;;
dev) built=debug ;;
*)
    echo "docker/build.sh: profile is \`$profile\`; allowed: dist, dev" >&2
    exit 2
    ;;
esac

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."

# --locked: images built today and next month contain the same dependencies.
cargo build --locked --bin reseed --profile "$profile"
install -m 755 "${CARGO_TARGET_DIR:-target}/$built/reseed" "$folder/reseed"
strip "$folder/reseed"
