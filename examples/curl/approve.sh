#!/bin/sh
# Has an agent ask before it does something, and says yes.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=approve}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null

# With this header the reply comes on the same answer, up to its end or its question.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/messages" \
  -H 'Accept: text/event-stream' -d '{"content": "Please approve the trade"}'

# What waits for a person; GET /v1/approvals has it over all sessions.
pending=$(curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION")
reply=$(echo "$pending" | sed 's/.*"pending":\[{"reply_id":"\([^"]*\)".*/\1/')
call=$(echo "$pending" | sed 's/.*"confirm":\[{"type":"tool_call","id":"\([^"]*\)".*/\1/')
echo "the reply $reply asks about the call $call"

# Another `input` edits what the tool gets; "confirmed": false says no.
answer=$(curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events" -d "[{
  \"type\": \"USER_CONFIRM_RESULT\", \"id\": \"answer-1\", \"reply_id\": \"$reply\",
  \"confirm_results\": [{\"confirmed\": true, \"tool_call\": {\"id\": \"$call\"}}]}]")
echo "$answer"

# The reply goes on; this is all of it that comes behind the answer.
token=$(echo "$answer" | sed 's/.*"last_event_id":"\([^"]*\)".*/\1/')
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle&after=$token"
