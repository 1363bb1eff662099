// What the fold costs, beside a plain reducer that copies the list of blocks for each event, in the same run.

import { Folder, Msg } from "turnwire/message";

const AT = "2026-01-01T00:00:00.000Z";
const event = (type, reply_id, block_id, seq, more) => ({
  type,
  id: `e${seq}`,
  created_at: AT,
  metadata: {},
  reply_id,
  block_id,
  ...more,
  seq,
});

/** As it comes from a server: every text is its own. */
const fresh = (events) => JSON.parse(JSON.stringify(events));

/** A reply of so many blocks, each with so many deltas, one block behind the other. */
function stream(blocks, deltas, reply = "r") {
  const events = [];
  for (let block = 0; block < blocks; block++) {
    events.push(event("TEXT_BLOCK_START", reply, `block-${block}`, events.length + 1));
    for (let at = 0; at < deltas; at++)
      events.push(event("TEXT_BLOCK_DELTA", reply, `block-${block}`, events.length + 1, { delta: "lorem " }));
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
        content: state.content.map((block) =>
          block.id === event.block_id ? { ...block, text: block.text + event.delta } : block,
        ),
      };
    default:
      return state;
  }
}

function folded(events) {
  const msg = Msg.reply(events[0].reply_id);
  for (const event of events) msg.appendEvent(event);
  return msg.content;
}

const folds = {
  turnwire: folded,
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

/** What each took in every round, one after the other in a round, and the next round the other way. */
function rounds(cases, count) {
  const took = cases.map(() => []);
  for (let round = 0; round < count; round++) {
    const order = [...cases.keys()];
    for (const at of round % 2 ? order.reverse() : order) took[at].push(cost(...cases[at]));
  }
  return took;
}

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

const show = (name, ms, events) =>
  console.log(
    `${name.padEnd(44)} ${ms.toFixed(1).padStart(9)} ms ${((ms * 1e6) / events).toFixed(0).padStart(8)} ns an event`,
  );

// A reply with text in several blocks: what a plain reducer copies with each event.
const BLOCKS = 100;
const many = stream(BLOCKS, 100_000 / BLOCKS);
const one = stream(1, 100_000);
const figures = {};
for (const [shape, events] of [
  ["100,000 text deltas in 1 block", one],
  [`100,000 text deltas in ${BLOCKS} blocks`, many],
]) {
  const names = Object.keys(folds);
  const ms = rounds(
    names.map((name) => [folds[name], events]),
    15,
  ).map((took) => Math.min(...took));
  names.forEach((name, at) => show(`${shape}, ${name}`, ms[at], events.length));
  figures[shape] = ms[2] / ms[0];
  console.log(`${shape}: ${figures[shape].toFixed(1)} times less than the plain reducer\n`);
}

// The same events in as many blocks, and everything kept to the end: only how many of them one reply has is different.
const TOTAL = 5000;
const shapes = [8, 4, 2, 1].map((replies) =>
  Array.from({ length: replies }, (_, at) => stream(TOTAL / replies, 20, `r${at}`)),
);
const together = (streams) => streams.flatMap(folded);
const took = rounds(
  shapes.map((streams) => [together, streams]),
  41,
).map(median);
shapes.forEach((streams, at) =>
  show(`${streams.length} replies of ${TOTAL / streams.length} blocks of 20 deltas`, took[at], TOTAL * 21),
);
figures.growth = took[3] / took[1];
console.log(`5,000 blocks in one reply cost ${figures.growth.toFixed(2)} times what they do in four (1 is linear)`);
