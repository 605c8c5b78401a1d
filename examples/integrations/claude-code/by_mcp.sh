#!/bin/sh
# Claude Code here, programs in sandboxes of Cove: asks Claude one question in a directory of its
# own, with Cove's tools in place of those that run commands and change files on this machine.
#
#     by_mcp.sh 'How many primes are below 1000?'
#
# COVE_URL and COVE_TOKEN name another server than the one of this machine.
set -eu

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# Writes .mcp.json, which has Claude start `cove mcp`.
cove mcp install claude >&2

# Without --tools '' Claude has its own Bash, Edit and Write, too, which work on this machine.
claude -p "$1" \
    --mcp-config .mcp.json --strict-mcp-config \
    --tools '' --allowedTools 'mcp__cove'
