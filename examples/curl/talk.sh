#!/bin/sh
# Creates a session, sends a message, and follows the reply.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=talk}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}"
echo

# The idempotency key makes it safe to repeat the request.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages" \
  -H 'Idempotency-Key: first' -d '{"content": "How is the weather?"}'
echo

# All events from the start, then live; the stream ends when the session is idle.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle"

# The same as messages.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages"
