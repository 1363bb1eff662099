#!/bin/sh
# Follows a reply, loses the connection, and resumes after the last event it received.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=resume}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/messages" -d '{"content": "long 60"}' -o /dev/null

# `head` closes the connection after some lines.
seen=$(curl -sN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle" | head -n 12)
token=$(echo "$seen" | sed -n 's/^id: //p' | tail -n 1)
echo "cut off behind $token"

# No event is lost or repeated. The header overrides ?after=.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle" -H "Last-Event-ID: $token"
