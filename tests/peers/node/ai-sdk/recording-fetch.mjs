// What goes over the connection: every response is kept, and any can be cut.

/**
 * A `fetch` that keeps the bodies of its responses. `cutAfter(nth)` says after how many frames the
 * `nth` response is cut, connection and all; `undefined` is never.
 */
export function recordingFetch(cutAfter = () => undefined) {
  const seen = { requests: [], statuses: [], bodies: [], whole: [], headers: [], cuts: 0, cut: () => {} };
  seen.fetch = async (url, init = {}) => {
    const nth = seen.requests.length;
    seen.requests.push({ method: init.method ?? "GET", url: String(url), body: init.body && JSON.parse(init.body) });
    const connection = new AbortController();
    init.signal?.addEventListener("abort", () => connection.abort());
    const response = await fetch(url, { ...init, signal: connection.signal });
    seen.statuses[nth] = response.status;
    seen.headers[nth] = response.headers;
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    const wanted = cutAfter(nth);
    let sent = 0;
    seen.bodies[nth] = "";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const encoder = new TextEncoder();
    let rest = "";
    let isCut = false;
    const body = new ReadableStream({
      async start(controller) {
        const cut = () => {
          if (isCut) return;
          isCut = true;
          seen.cuts += 1;
          connection.abort();
          controller.error(new TypeError("network error: the connection was cut"));
        };
        seen.cut = cut;
        if (wanted === 0) return cut();
        try {
          for (;;) {
            const { done, value } = await reader.read();
            if (isCut) return;
            if (done) {
              seen.whole[nth] = true;
              return controller.close();
            }
            rest += value;
            for (let at; !isCut && (at = rest.indexOf("\n\n")) >= 0; rest = rest.slice(at + 2)) {
              const frame = rest.slice(0, at + 2);
              seen.bodies[nth] += frame;
              controller.enqueue(encoder.encode(frame));
              sent += 1;
              if (sent === wanted) {
                // What was sent before the cut arrives.
                await new Promise((resolve) => setImmediate(resolve));
                cut();
              }
            }
          }
        } catch (error) {
          if (!isCut) controller.error(error);
        }
      },
      cancel() {
        connection.abort();
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  return seen;
}
