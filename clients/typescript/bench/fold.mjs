// What the fold costs, beside a plain reducer that copies the list of blocks for each event, in the same run.

import { Folder, Msg } from "turnwire/message";

const AT = "2026-01-01T00:00:00.000Z";
const start = (block_id, seq) => ({ type: "TEXT_BLOCK_START", id: `e${seq}`, created_at: AT, metadata: {}, reply_id: "r", block_id, seq });
const delta = (block_id, seq) => ({ type: "TEXT_BLOCK_DELTA", id: `e${seq}`, created_at: AT, metadata: {}, reply_id: "r", block_id, delta: "lorem ", seq });

/** As it comes from a server: every text is its own. */
const fresh = (events) => JSON.parse(JSON.stringify(events));

/** So many blocks, each with so many deltas, one block behind the other. */
function stream(blocks, deltas) {
  const events = [];
  for (let block = 0; block < blocks; block++) {
    events.push(start(`block-${block}`, events.length + 1));
    for (let at = 0; at < deltas; at++) events.push(delta(`block-${block}`, events.length + 1));
  }
  return fresh(events);
}

function plainReducer(state, event) {
  if (event.seq <= state.seq) return state;
  switch (event.type) {
    case "TEXT_BLOCK_START":
      return { ...state, seq: event.seq, content: [...state.content, { type: "text", id: event.block_id, text: "" }] };
    case "TEXT_BLOCK_DELTA":
      return {
        ...state,
        seq: event.seq,
        content: state.content.map((block) => (block.id === event.block_id ? { ...block, text: block.text + event.delta } : block)),
      };
    default:
      return state;
  }
}

const folds = {
  turnwire: (events) => {
    const msg = Msg.reply("r");
    for (const event of events) msg.appendEvent(event);
    return msg.content;
  },
  "turnwire, a Folder": (events) => {
    const folder = new Folder();
    for (const event of events) folder.push(event);
    return folder.get("r").content;
  },
  "plain reducer": (events) => events.reduce(plainReducer, { seq: 0, content: [] }).content,
};

/** What one round costs in milliseconds of the processor, so that a machine that does other things counts less. */
function cost(fold, events) {
  const before = process.cpuUsage();
  const content = fold(events);
  // The texts are looked at, so that they are whole.
  let length = 0;
  for (const block of content) length += Number(block.text.charCodeAt(block.text.length - 1) > 0) + block.text.length;
  const { user, system } = process.cpuUsage(before);
  if (!length) throw new Error("nothing was folded");
  return (user + system) / 1000;
}

/** The best of several rounds for each, one after the other in every round. */
function times(cases, rounds) {
  const best = cases.map(() => Infinity);
  for (let round = 0; round < rounds; round++) {
    cases.forEach(([fold, events], at) => (best[at] = Math.min(best[at], cost(fold, events))));
  }
  return best;
}

const show = (name, ms, events) => console.log(`${name.padEnd(44)} ${ms.toFixed(1).padStart(9)} ms ${((ms * 1e6) / events).toFixed(0).padStart(8)} ns an event`);

// A reply with text in several blocks: what a plain reducer copies with each event.
const BLOCKS = 100;
const many = stream(BLOCKS, 100_000 / BLOCKS);
const one = stream(1, 100_000);
const figures = {};
for (const [shape, events] of [["100,000 text deltas in 1 block", one], [`100,000 text deltas in ${BLOCKS} blocks`, many]]) {
  const names = Object.keys(folds);
  const ms = times(names.map((name) => [folds[name], events]), 15);
  names.forEach((name, at) => show(`${shape}, ${name}`, ms[at], events.length));
  figures[shape] = ms[2] / ms[0];
  console.log(`${shape}: ${figures[shape].toFixed(1)} times less than the plain reducer\n`);
}

const sizes = [1250, 2500, 5000].map((blocks) => ({ blocks, events: stream(blocks, 20) }));
const ms = times(sizes.map(({ events }) => [folds.turnwire, events]), 25);
sizes.forEach(({ blocks, events }, at) => show(`${blocks} blocks of 20 deltas`, ms[at], events.length));
figures.growth = ms[2] / ms[0] / 4;
console.log(`5,000 blocks cost ${figures.growth.toFixed(2)} times what 1,250 do, an event (1 is linear)`);
