// A WebSocket that runs in a worker: see `worker.ts`.
export type Command = { socket: number } & ({ url: string } | { send: string } | { close: true });
export type Report = { socket: number } & (
  | { opened: true }
  | { came: string }
  | { closed: { code: number; reason: string } }
);

let worker: Worker | null = null;
let isBroken = false;
let last = 0;
const all = new Map<number, CalmSocket>();

/** The worker; `null` if workers do not work here: then the page opens the socket itself. */
function crew(): Worker | null {
  if (worker !== null || isBroken) return worker;
  worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }: MessageEvent<Report[]>) => {
    for (const report of data) all.get(report.socket)?.take(report);
  };
  worker.onerror = () => {
    isBroken = true;
    worker = null;
    // The owner opens another one.
    for (const [socket, one] of [...all]) one.take({ socket, closed: { code: 1006, reason: "" } });
  };
  return worker;
}

class CalmSocket {
  onopen: ((event: object) => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  onerror: ((event: object) => void) | null = null;
  readonly #socket = ++last;

  constructor(
    readonly worker: Worker,
    url: string,
  ) {
    all.set(this.#socket, this);
    this.#tell({ socket: this.#socket, url });
  }

  send(data: string): void {
    this.#tell({ socket: this.#socket, send: data });
  }

  close(): void {
    this.#tell({ socket: this.#socket, close: true });
  }

  take(report: Report): void {
    if ("came" in report) return this.onmessage?.({ data: report.came });
    if ("opened" in report) return this.onopen?.({});
    all.delete(report.socket);
    this.onclose?.(report.closed);
  }

  #tell(command: Command): void {
    this.worker.postMessage(command);
  }
}

/** As `new WebSocket(url)`. */
// biome-ignore lint/complexity/useArrowFunction: an arrow function cannot be called with `new`.
export const Socket = function (url: string): CalmSocket | WebSocket {
  const made = crew();
  return made === null ? new WebSocket(url) : new CalmSocket(made, url);
} as unknown as new (
  url: string,
) => CalmSocket;
