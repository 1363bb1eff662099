// A WebSocket that runs in a worker: see `worker.ts`.
export type Command = { socket: number } & ({ url: string } | { send: string } | { close: true });
export type Report = { socket: number } & (
  | { opened: true }
  | { message: string }
  | { closed: { code: number; reason: string } }
);

let worker: Worker | null = null;
let isBroken = false;
let lastSocket = 0;
const sockets = new Map<number, WorkerSocket>();

/** The worker; `null` if workers do not work here: then the page opens the socket itself. */
function sharedWorker(): Worker | null {
  if (worker !== null || isBroken) return worker;
  worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }: MessageEvent<Report[]>) => {
    for (const report of data) sockets.get(report.socket)?.receive(report);
  };
  worker.onerror = () => {
    isBroken = true;
    worker = null;
    // The owner opens another one.
    for (const [socket, open] of [...sockets]) open.receive({ socket, closed: { code: 1006, reason: "" } });
  };
  return worker;
}

class WorkerSocket {
  onopen: ((event: object) => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  onerror: ((event: object) => void) | null = null;
  readonly #socket = ++lastSocket;

  constructor(
    readonly worker: Worker,
    url: string,
  ) {
    sockets.set(this.#socket, this);
    this.#post({ socket: this.#socket, url });
  }

  send(data: string): void {
    this.#post({ socket: this.#socket, send: data });
  }

  close(): void {
    this.#post({ socket: this.#socket, close: true });
  }

  receive(report: Report): void {
    if ("message" in report) return this.onmessage?.({ data: report.message });
    if ("opened" in report) return this.onopen?.({});
    sockets.delete(report.socket);
    this.onclose?.(report.closed);
  }

  #post(command: Command): void {
    this.worker.postMessage(command);
  }
}

/** As `new WebSocket(url)`. */
// biome-ignore lint/complexity/useArrowFunction: an arrow function cannot be called with `new`.
export const Socket = function (url: string): WorkerSocket | WebSocket {
  const shared = sharedWorker();
  return shared === null ? new WebSocket(url) : new WorkerSocket(shared, url);
} as unknown as new (
  url: string,
) => WorkerSocket;
