// Sockets away from the page: a reply of hundreds of deltas a second would wake the page for each of them. What
// came is handed over together, the first at once, then as often as anybody sees a difference.
import type { Command, Report } from "./socket.ts";

/** For how long messages are collected, in milliseconds. */
const BATCH_TIME = 60;

const open = new Map<number, WebSocket>();
let reports: Report[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

/** All sockets share one batch, so that the page draws them in one frame. */
function flush(): void {
  timer = undefined;
  if (reports.length === 0) return;
  postMessage(reports);
  reports = [];
  timer = setTimeout(flush, BATCH_TIME);
}

function queueReport(report: Report): void {
  reports.push(report);
  if (timer === undefined) flush();
}

addEventListener("message", ({ data }: MessageEvent<Command>) => {
  const { socket } = data;
  if ("send" in data) open.get(socket)?.send(data.send);
  if ("close" in data) open.get(socket)?.close();
  if (!("url" in data)) return;
  const opened = new WebSocket(data.url);
  open.set(socket, opened);
  // The page subscribes then: that does not wait for what came on other sockets.
  opened.onopen = () => postMessage([{ socket, opened: true }]);
  opened.onmessage = ({ data }) => queueReport({ socket, message: String(data) });
  opened.onclose = ({ code, reason }) => {
    open.delete(socket);
    queueReport({ socket, closed: { code, reason } });
  };
});
