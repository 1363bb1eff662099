#!/bin/sh
# Makes a session, says something in it, and watches the reply grow.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=talk}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}"
echo

# The key makes it safe to send again, should no answer come.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages" \
  -H 'Idempotency-Key: first' -d '{"content": "How is the weather?"}'
echo

# Everything from the start, then live; it ends when nothing runs.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle"

# The same as whole messages.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages"
