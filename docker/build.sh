#!/bin/sh
# Builds the server and `reseed-shell` into a directory. The Dockerfile runs this, and so do the tests, with the faster
# profile.
#
#     docker/build.sh FOLDER [release|dev]
set -eu

folder=${1:?usage: docker/build.sh FOLDER [release|dev]}
profile=${2:-release}
case $profile in
release) built=release ;;
dev) built=debug ;;
*)
    echo "docker/build.sh: profile is \`$profile\`; allowed: release, dev" >&2
    exit 2
    ;;
esac

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."

# --locked: images built today and next month contain the same dependencies.
cargo build --locked --package reseed --package reseed-shell --bins --profile "$profile"
for binary in reseed reseed-shell; do
    install -m 755 "${CARGO_TARGET_DIR:-target}/$built/$binary" "$folder/$binary"
    strip "$folder/$binary"
done
