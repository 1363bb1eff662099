#!/bin/sh
# Tells an agent something that nobody said in the conversation: it is in the log, and in its next model call.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=hint}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null

curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events" \
  -d '{"type": "HINT_BLOCK", "id": "build-1", "source": "ci", "hint": "The build of main is green."}'
echo

# Nobody replies, so it is a message of its own; the next reply has it in its history.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages"
