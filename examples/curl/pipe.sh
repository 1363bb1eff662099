#!/bin/sh
# Pipes a provider's stream into a session: it becomes one reply, stored and served like any other.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=pipe}"
cd "$(dirname "$0")"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\", \"agent\": \"external\"}" -o /dev/null

# In practice the left side is `curl -N https://…/v1/chat/completions -d '{"stream": true, …}'`.
cat openai-chat.sse |
  curl -fsS -X POST -T - "$TURNWIRE_URL/v1/sessions/$SESSION/replies?wire=openai-chat"
echo

# Every client reads it in its own protocol.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle&wire=anthropic"
