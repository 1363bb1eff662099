#!/bin/sh
# Publishes the events of an external agent. Repeating the request changes nothing.
set -eu
: "${TURNWIRE_URL:=http://127.0.0.1:4747}" "${SESSION:=publish}"
cd "$(dirname "$0")"

curl -fsS "$TURNWIRE_URL/v1/sessions" -d "{\"id\": \"$SESSION\", \"agent\": \"external\"}" -o /dev/null

# ID.FENCE: the producer, and a number that a later run raises to take over.
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events?wire=agentscope" \
  -H 'Turnwire-Producer: worker.1' --data-binary @../weather.ndjson
echo
curl -fsS "$TURNWIRE_URL/v1/sessions/$SESSION/events?wire=agentscope" \
  -H 'Turnwire-Producer: worker.1' --data-binary @../weather.ndjson
