// Spouts and bolts for Node.js, without packages. See docs/instance-protocol.md.
//
// serveBolt(bolt) and serveSpout(spout) speak the protocol over descriptor 0 and return when the host stops the instance:
//   open(configuration)                    optional
//   state                                  optional Map: the state, by key
//   bolt.execute(tuple, out)               tuple has input, values and key; throws to fail the tuple;
//                                          out.emit(stream, ...values) emits a tuple that is anchored to it
//   bolt.finish(out), bolt.tick(out)       optional; out.emit emits a tuple without an anchor
//   spout.next(limit, out)                 emits up to `limit` tuples by out.emit(message, stream, ...values); the
//                                          message is null for a tuple that is not tracked; returns the milliseconds
//                                          until the next call, or DONE
//   spout.ack(message), spout.fail(message) optional; a message is a BigInt

'use strict';
const { write, read, Reader, json, u32, sized, sendState, restore } = require('./instance.js');

const HELLO = 1, CONFIGURE = 2, RESTORE = 3, READY = 4, BATCH = 5, RESULT = 6, WATERMARK = 7, BARRIER = 8;
const COMMIT = 10, STOP = 11, ERROR = 14, EMIT = 16, ACKS = 17, NEXT = 18, TICK = 19, METRIC = 20;
const MORE = 1, DONE = -1;
const EMPTY = Buffer.alloc(0);

const u64 = (number) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(number); return b; };
const i32 = (number) => { const b = Buffer.alloc(4); b.writeInt32LE(number); return b; };

function processBatch(bolt, sequence, payload) {
  const batch = new Reader(payload);
  const outputs = [], failures = [];
  let outputCount = 0, failureCount = 0;
  for (let row = 0, rows = batch.u32(); row < rows; row++) {
    const time = batch.take(8);
    const key = { partition: batch.take(2).readUInt16LE(), bytes: batch.sized() };
    const [input, ...values] = JSON.parse(batch.sized().toString());
    const emitted = [];
    const emit = (stream, ...fields) => emitted.push(Buffer.concat([u32(row), time, ...sized(json([stream, ...fields]))]));
    try {
      bolt.execute({ input, values, key }, { emit });
      outputs.push(...emitted);
      outputCount += emitted.length;
    } catch (error) {
      failures.push(u32(row), ...sized(Buffer.from(String(error))));
      failureCount++;
    }
  }
  // No row is held.
  write(RESULT, 0, sequence, Buffer.concat([u32(outputCount), ...outputs, u32(failureCount), ...failures, u32(0)]));
}

// Collects the tuples of an EMIT. `anchored` is true for those of a spout.
function collect(anchored, call) {
  const tuples = [];
  const push = (anchors, stream, fields) => tuples.push(Buffer.concat([...anchors, ...sized(json([stream, ...fields]))]));
  const emit = anchored
    ? (message, stream, ...fields) => push(message === null ? [u32(0)] : [u32(1), u64(BigInt(message)), u32(0)], stream, fields)
    : (stream, ...fields) => push([u32(0)], stream, fields);
  const wait = call({ emit }) ?? 0;
  return Buffer.concat([u32(tuples.length), ...tuples, i32(anchored ? wait : 0)]);
}

function outcomes(spout, payload) {
  const acks = new Reader(payload);
  for (let left = acks.u32(); left > 0; left--) {
    const message = acks.take(8).readBigUInt64LE();
    const isAcked = acks.take(1)[0] !== 0;
    if (isAcked) spout.ack?.(message);
    else spout.fail?.(message);
  }
}

function serve(role, component) {
  write(HELLO, 0, 0n, json({
    protocol: { min: 1, max: 1 }, language: 'javascript', formats: ['json'], roles: [role], state: component.state !== undefined,
  }));
  try {
    for (;;) {
      const head = read(16);
      if (head === null) return;
      const payload = read(head.readUInt32LE(0));
      if (payload === null) return;
      const type = head[4], sequence = head.readBigUInt64LE(8);
      if (type === BATCH) processBatch(component, sequence, payload);
      else if (type === NEXT) write(EMIT, 0, sequence, collect(true, (out) => component.next(payload.readUInt32LE(0), out)));
      else if (type === ACKS) outcomes(component, payload);
      else if (type === TICK) write(EMIT, 0, sequence, collect(false, (out) => { component.tick?.(out); }));
      else if (type === WATERMARK) {
        write(EMIT, MORE, sequence, collect(false, (out) => { component.finish?.(out); }));
        write(WATERMARK, 0, sequence, EMPTY);
      } else if (type === BARRIER) sendState(component.state ?? new Map(), sequence);
      else if (type === RESTORE) restore(component.state, payload);
      else if (type === CONFIGURE) {
        component.open?.(JSON.parse(payload.toString()));
        write(READY, 0, 0n, EMPTY);
      } else if (type === STOP) return;
      else if (type !== HELLO && type !== COMMIT) throw new Error(`the host sent the frame type ${type}`);
    }
  } catch (error) {
    write(ERROR, 0, 0n, json({ message: String(error), traceback: error.stack }));
    process.exitCode = 1;
  }
}

// Reports a metric: the value of a counter is added, that of a gauge replaces the earlier one.
function metric(name, kind, value) { write(METRIC, 0, 0n, json({ name, kind, value })); }

module.exports = { DONE, metric, serveBolt: (bolt) => serve('bolt', bolt), serveSpout: (spout) => serve('spout', spout) };
