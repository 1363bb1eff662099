#!/bin/sh
# Approves a tool call that the agent asks about.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=approve}"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\"}" -o /dev/null

# With this header the response streams the reply, up to its end or its pending call.
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/messages" \
  -H 'Accept: text/event-stream' -d '{"content": "Please approve the trade"}'

# The pending calls of this session; GET /v1/approvals lists those of all sessions.
pending=$(curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION")
reply=$(echo "$pending" | sed 's/.*"pending":\[{"reply_id":"\([^"]*\)".*/\1/')
call=$(echo "$pending" | sed 's/.*"confirm":\[{"type":"tool_call","id":"\([^"]*\)".*/\1/')
echo "the reply $reply asks about the call $call"

# `input` edits the tool's input; "confirmed": false denies the call.
answer=$(curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events" -d "[{
  \"type\": \"USER_CONFIRM_RESULT\", \"id\": \"answer-1\", \"reply_id\": \"$reply\",
  \"confirm_results\": [{\"confirmed\": true, \"tool_call\": {\"id\": \"$call\"}}]}]")
echo "$answer"

# The reply continues; these are its events after the decision.
token=$(echo "$answer" | sed 's/.*"last_event_id":"\([^"]*\)".*/\1/')
curl -fsSN "$TURNWIRE_URL/v1/sessions/$SESSION/events?until=idle&after=$token"
