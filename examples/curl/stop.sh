#!/bin/sh
# Stops a reply. Closing a connection does not: a reply continues without subscribers.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=stop}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null
accepted=$(curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages" -d '{"content": "long 100000"}')
reply=$(echo "$accepted" | sed 's/.*"reply_id":"\([^"]*\)".*/\1/')

curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events" \
  -d "{\"type\": \"USER_INTERRUPT\", \"id\": \"stop-1\", \"reply_id\": \"$reply\"}"
echo

# The reply ended as interrupted, and its text so far is stored.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages?limit=1"
