# Written by tools/unasync.py from _async/http.py. Changes belong there.
"""HTTP requests that are safe to repeat, and are repeated until there is a response."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from .._common import Options, error_of, lost, retry_after
from .._io import SyncConnections, SyncStop, SyncToken, sync_sleep, sync_token


class Http:
    def __init__(self, options: Options, token: SyncToken, connections: SyncConnections) -> None:
        self.options = options
        self.token = token
        self.connections = connections
        # The watches, so that `reconnect` can end their pauses.
        self.stops: set[SyncStop] = set()

    def headers(self, accept: str | None = None) -> dict[str, str]:
        headers = {"accept": accept or "application/json"}
        token = sync_token(self.token)
        if token:
            headers["authorization"] = f"Bearer {token}"
        return headers

    def ask(self, method: str, path: str, body: bytes | None = None, **more: Any) -> Any:
        """A request, repeated while there is no response, and its JSON."""
        content = self.request(method, path, body, **more)
        return json.loads(content) if content else None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: dict[str, str] | None = None,
        accept: str | None = None,
        timed: bool = True,
    ) -> bytes:
        """A request, repeated while there is no response, and its body."""
        options = self.options
        end = time.monotonic() + options.patience
        attempt = 0
        while True:
            wait = 0.0
            try:
                response = self.connections.client().request(
                    method,
                    options.url + path,
                    content=body,
                    headers=self.headers(accept) | (headers or {}),
                    timeout=options.timeout(options.silence if timed else None),
                )
                if response.is_success:
                    return response.content
                error, wait = error_of(response.status_code, response.content), retry_after(response)
            except httpx.TransportError as failed:
                error = lost(failed, options.url)
            # The first delete may have worked, and only its response was lost.
            if attempt and method == "DELETE" and error.status == 404:
                return b""
            wait = max(wait, options.retry.delay(attempt))
            if not error.is_temporary or time.monotonic() + wait >= end:
                raise error
            sync_sleep(wait)
            attempt += 1

    def stream(self, path: str) -> httpx.Response:
        """A stream of server-sent events, which the caller closes; a response that is not a success is an error."""
        options = self.options
        client = self.connections.client()
        headers, timeout = self.headers("text/event-stream"), options.timeout(options.silence)
        request = client.build_request("GET", options.url + path, headers=headers, timeout=timeout)
        try:
            response = client.send(request, stream=True)
            if response.is_success:
                return response
            raise error_of(response.status_code, response.read())
        except httpx.TransportError as failed:
            raise lost(failed, options.url) from None
