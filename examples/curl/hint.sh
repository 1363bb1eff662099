#!/bin/sh
# Sends a hint to an agent: it is stored in the log, and read in the next model call.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=hint}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null

curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events" \
  -d '{"type": "HINT_BLOCK", "id": "build-1", "source": "ci", "hint": "The build of main is green."}'
echo

# No reply is running, so the hint is a message of its own, and part of the next reply's history.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages"
