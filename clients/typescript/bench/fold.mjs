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

/** The best of several, in milliseconds; the texts are looked at, so that they are whole. */
function time(fold, events, rounds) {
  let best = Infinity;
  for (let round = 0; round < rounds; round++) {
    const before = performance.now();
    const content = fold(events);
    let length = 0;
    for (const block of content) length += Number(block.text.charCodeAt(block.text.length - 1) > 0) + block.text.length;
    best = Math.min(best, performance.now() - before);
    if (!length) throw new Error("nothing was folded");
  }
  return best;
}

const show = (name, ms, events) => console.log(`${name.padEnd(44)} ${ms.toFixed(1).padStart(9)} ms ${((ms * 1e6) / events).toFixed(0).padStart(8)} ns an event`);

// A reply with text in several blocks: what a plain reducer copies with each event.
const BLOCKS = 100;
const many = stream(BLOCKS, 100_000 / BLOCKS);
const one = stream(1, 100_000);
const result = {};
for (const [shape, events] of [["100,000 text deltas in 1 block", one], [`100,000 text deltas in ${BLOCKS} blocks`, many]]) {
  for (const [name, fold] of Object.entries(folds)) {
    const ms = time(fold, events, 7);
    result[`${name} ${shape}`] = ms;
    show(`${shape}, ${name}`, ms, events.length);
  }
  const times = result[`plain reducer ${shape}`] / result[`turnwire ${shape}`];
  result[shape] = times;
  console.log(`${shape}: ${times.toFixed(1)} times less than the plain reducer`);
}

const sizes = [1250, 2500, 5000].map((blocks) => ({ blocks, events: stream(blocks, 20) }));
for (const size of sizes) {
  size.ms = time(folds.turnwire, size.events, 9);
  show(`${size.blocks} blocks of 20 deltas`, size.ms, size.events.length);
}
const each = sizes.map(({ ms, events }) => ms / events.length);
console.log(`5,000 blocks cost ${(each[2] / each[0]).toFixed(2)} times what 1,250 do, an event`);
console.log(JSON.stringify({ times_less_1: result["100,000 text deltas in 1 block"], times_less_100: result[`100,000 text deltas in ${BLOCKS} blocks`], growth: each[2] / each[0] }));
