#!/bin/sh
# Claude Code in a sandbox of Cove: deploys the agent beside this script, asks it one question, shows
# what it has made, and ends the session. The server has to have Claude's program and a model.
#
#     as_agent.sh 'Write primes.py and run it.'
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cove agent deploy "$here/agent" >&2

session=$(cove session create coder)
trap 'cove session end "$session" >&2' EXIT

cove session send "$session" "$1"
cove session exec "$session" -- ls /workspace
