#!/usr/bin/env bash
# Plays an hour of use by simulated users on real servers, and checks that all accounts of it agree: see
# tests/client/hour.test.mjs. The server's binary is RESEED_BIN, or else the debug build. Needs node, npm, PostgreSQL,
# python3 and chromium.
#
#     tests/soak/hour.sh                        200 users, six minutes
#     USERS=400 MINUTES=240 tests/soak/hour.sh  so many users and simulated minutes
#     SEED=72 tests/soak/hour.sh                the same choices as before
#
# A run that fails prints its seed; KEEP=/tmp/hour keeps its requests and rows in files.
set -euo pipefail
cd "$(dirname "$0")/../client"
for folder in ../../protocol/client .; do
    (cd "$folder" && npm ci --silent --no-audit --no-fund --ignore-scripts)
done
(cd ../../protocol/client && npm run --silent build)
USERS=${USERS:-200} MINUTES=${MINUTES:-60} exec node --test --test-reporter=spec hour.test.mjs
