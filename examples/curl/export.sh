#!/bin/sh
# Writes the log of a session to a file, one event per line, and folds it into messages without a server.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=export}" "${TURNWIRE:=turnwire}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/messages" \
  -H 'Accept: text/event-stream' -d '{"content": "as json, please"}' -o /dev/null

# The log, without waiting for more events.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events" -H 'Accept: application/x-ndjson' \
  -o "$SESSION.ndjson"
"$TURNWIRE" fold "$SESSION.ndjson"
