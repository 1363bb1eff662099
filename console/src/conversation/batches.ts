// A conversation in batches. A message stays in its batch, whatever comes before or behind it, so that a batch in
// which nothing changed is the same, and one that is out of sight costs nothing.
import type { MsgJson } from "turnwire/message";

const SIZE = 20;

export interface Batch {
  /** Batches with earlier messages have lower keys. */
  key: number;
  messages: readonly MsgJson[];
}

export class Batches {
  /** The batch that a message is in. */
  #batchOf = new Map<string, number>();
  #list: readonly Batch[] = [];

  /** The current batches. */
  update(messages: readonly MsgJson[]): readonly Batch[] {
    return (this.#list = this.#place(messages) ?? this.#rebuild(messages));
  }

  #rebuild(messages: readonly MsgJson[]): readonly Batch[] {
    this.#batchOf.clear();
    this.#list = [];
    return this.#place(messages) ?? [];
  }

  /** Places new messages. `null`: the order changed. */
  #place(messages: readonly MsgJson[]): Batch[] | null {
    const known = Math.max(
      0,
      messages.findIndex(({ id = "" }) => this.#batchOf.has(id)),
    );
    const first = this.#list[0]?.key ?? 0;
    let [key, count] = [this.#list.length === 0 ? 0 : first, 0];
    const made: { key: number; messages: MsgJson[] }[] = [];
    messages.forEach((message, at) => {
      const { id = "" } = message;
      // Those in front are counted from the first that was there.
      const before = at < known ? first - Math.ceil((known - at) / SIZE) : undefined;
      let batch = this.#batchOf.get(id) ?? before;
      if (batch === undefined) batch = count < SIZE ? key : key + 1;
      this.#batchOf.set(id, batch);
      if (batch !== key || made.length === 0) {
        made.push({ key: batch, messages: [] });
        [key, count] = [batch, 0];
      }
      made.at(-1)?.messages.push(message);
      count += 1;
    });
    if (made.some(({ key }, at) => at > 0 && key <= (made[at - 1]?.key ?? 0))) return null;
    const old = new Map(this.#list.map((batch) => [batch.key, batch]));
    return made.map((batch) => {
      const was = old.get(batch.key);
      return was?.messages.length === batch.messages.length &&
        was.messages.every((message, at) => message === batch.messages[at])
        ? was
        : batch;
    });
  }
}
