// Sockets away from the page: a reply of hundreds of deltas a second would wake the page for each of them. What
// came is handed over together, the first at once, then as often as anybody sees a difference.
import type { Command, Report } from "./socket.ts";

/** For how long messages are collected, in milliseconds. */
const TOGETHER = 60;

const open = new Map<number, WebSocket>();
let reports: Report[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

/** All sockets share one batch, so that the page draws them in one frame. */
function hand(): void {
  timer = undefined;
  if (reports.length === 0) return;
  postMessage(reports);
  reports = [];
  timer = setTimeout(hand, TOGETHER);
}

function tell(report: Report): void {
  reports.push(report);
  if (timer === undefined) hand();
}

addEventListener("message", ({ data }: MessageEvent<Command>) => {
  const { socket } = data;
  if ("send" in data) open.get(socket)?.send(data.send);
  if ("close" in data) open.get(socket)?.close();
  if (!("url" in data)) return;
  const one = new WebSocket(data.url);
  open.set(socket, one);
  // The page subscribes then: that does not wait for what came on other sockets.
  one.onopen = () => postMessage([{ socket, opened: true }]);
  one.onmessage = ({ data }) => tell({ socket, came: String(data) });
  one.onclose = ({ code, reason }) => {
    open.delete(socket);
    tell({ socket, closed: { code, reason } });
  };
});
