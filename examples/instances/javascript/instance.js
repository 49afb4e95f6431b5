// The instance protocol for Node.js, without packages. See docs/instance-protocol.md.
//
// serve(step) speaks the protocol over descriptor 0 and returns when the host stops the instance:
//   step.configure(configuration)            optional
//   step.process(record, key, emit)          calls emit(value) for each result; throws to fail the row
//   step.state                               optional Map: the state, by key

'use strict';
const fs = require('fs');

const HELLO = 1, CONFIGURE = 2, RESTORE = 3, READY = 4, BATCH = 5, RESULT = 6;
const WATERMARK = 7, BARRIER = 8, STATE = 9, COMMIT = 10, STOP = 11, LOG = 12, ERROR = 14;
const LAST = 1;
const PART_BYTES = 1 << 20;

function write(type, flags, sequence, payload) {
  const head = Buffer.alloc(16);
  head.writeUInt32LE(payload.length, 0);
  head[4] = type;
  head[5] = flags;
  head.writeBigUInt64LE(sequence, 8);
  let bytes = Buffer.concat([head, payload]);
  while (bytes.length > 0) bytes = bytes.subarray(fs.writeSync(0, bytes));
}

// Returns exactly `length` bytes, or null at the end of the connection.
function read(length) {
  const bytes = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const count = fs.readSync(0, bytes, filled, length - filled, null);
    if (count === 0) return null;
    filled += count;
  }
  return bytes;
}

const json = (value) => Buffer.from(JSON.stringify(value));
const u16 = (number) => { const b = Buffer.alloc(2); b.writeUInt16LE(number); return b; };
const u32 = (number) => { const b = Buffer.alloc(4); b.writeUInt32LE(number); return b; };
const sized = (bytes) => [u32(bytes.length), bytes];

class Reader {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  take(length) {
    if (this.at + length > this.bytes.length) throw new Error('a payload ends too early');
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }
  u16() { return this.take(2).readUInt16LE(); }
  u32() { return this.take(4).readUInt32LE(); }
  sized() { return this.take(this.u32()); }
}

function processBatch(step, sequence, payload) {
  const batch = new Reader(payload);
  const rows = batch.u32();
  const outputs = [], failures = [];
  let outputCount = 0;
  for (let row = 0; row < rows; row++) {
    const time = batch.take(8);
    const partition = batch.u16();
    const key = batch.sized();
    const value = batch.sized();
    const results = [];
    try {
      const emit = (result) => results.push(u32(row), time, ...sized(json(result)));
      step.process(JSON.parse(value.toString()), { partition, bytes: key }, emit);
      outputs.push(...results);
      outputCount += results.length / 4;
    } catch (error) {
      failures.push(u32(row), ...sized(Buffer.from(String(error))));
    }
  }
  const failureCount = u32(failures.length / 3);
  write(RESULT, 0, sequence, Buffer.concat([u32(outputCount), ...outputs, failureCount, ...failures]));
}

// The state is a Map from `partition:key` to { partition, bytes, value }.
function sendState(state, sequence) {
  let entries = [], count = 0, length = 0;
  const send = (flags) => {
    write(STATE, flags, sequence, Buffer.concat([u32(count), ...entries]));
    entries = [], count = 0, length = 0;
  };
  for (const { partition, bytes, value } of state.values()) {
    const entry = [u16(partition), ...sized(bytes), ...sized(json(value))];
    entries.push(...entry);
    count++;
    length += entry.reduce((sum, part) => sum + part.length, 0);
    if (length >= PART_BYTES) send(0);
  }
  send(LAST);
}

function restore(state, payload) {
  const part = new Reader(payload);
  for (let left = part.u32(); left > 0; left--) {
    const partition = part.u16();
    const bytes = Buffer.from(part.sized());
    state.set(id({ partition, bytes }), { partition, bytes, value: JSON.parse(part.sized().toString()) });
  }
}

const id = (key) => key.partition + ':' + key.bytes.toString('latin1');

// Returns the entry of a key in a state, with `initial` as its first value.
function entryOf(state, key, initial) {
  let entry = state.get(id(key));
  if (entry === undefined) {
    entry = { partition: key.partition, bytes: Buffer.from(key.bytes), value: initial };
    state.set(id(key), entry);
  }
  return entry;
}

function log(text) { write(LOG, 0, 0n, Buffer.from(text)); }

function serve(step) {
  const hello = {
    protocol: { min: 1, max: 1 }, language: 'javascript', formats: ['json'], state: step.state !== undefined,
  };
  write(HELLO, 0, 0n, json(hello));
  try {
    for (;;) {
      const head = read(16);
      if (head === null) return;
      const payload = read(head.readUInt32LE(0));
      if (payload === null) return;
      const type = head[4], sequence = head.readBigUInt64LE(8);
      if (type === BATCH) processBatch(step, sequence, payload);
      else if (type === WATERMARK) write(WATERMARK, 0, sequence, Buffer.alloc(0));
      else if (type === BARRIER) sendState(step.state ?? new Map(), sequence);
      else if (type === RESTORE) restore(step.state, payload);
      else if (type === CONFIGURE) {
        if (step.configure) step.configure(JSON.parse(payload.toString()));
        write(READY, 0, 0n, Buffer.alloc(0));
      } else if (type === STOP) return;
      else if (type !== HELLO && type !== COMMIT) throw new Error(`the host sent the frame type ${type}`);
    }
  } catch (error) {
    write(ERROR, 0, 0n, json({ message: String(error), traceback: error.stack }));
    process.exitCode = 1;
  }
}

module.exports = { serve, entryOf, log, write, read, Reader, json, u32, sized, sendState, restore };
