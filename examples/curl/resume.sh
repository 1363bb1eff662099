#!/bin/sh
# Watches a reply, loses the connection in the middle, and goes on from the last event that it saw.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=resume}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages" -d '{"content": "long 60"}' -o /dev/null

# `head` hangs up after some lines.
seen=$(curl -sN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle" | head -n 12)
token=$(echo "$seen" | sed -n 's/^id: //p' | tail -n 1)
echo "cut off behind $token"

# Nothing is lost, and nothing comes twice. The header wins over ?after=.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle" -H "Last-Event-ID: $token"
