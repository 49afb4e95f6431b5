// A spout that emits its share of the numbers below the parameter `end`, each behind its remainder by 10. Its position is in
// checkpoints, and failed numbers are emitted again. See docs/topologies.md.

'use strict';
const { DONE, metric, serveSpout } = require('./topology.js');

const PARTITIONS = 1024;
let end, instances;
const position = { bytes: Buffer.from('next') };
const failed = [];

serveSpout({
  state: new Map(),
  open(configuration) {
    end = configuration.parameters.end ?? 100;
    instances = configuration.instances;
    // The first partition that the instance owns.
    position.partition = Math.ceil(configuration.instance * PARTITIONS / instances);
    position.value = configuration.instance;
    this.state.set(`${position.partition}:next`, position);
  },
  next(limit, out) {
    const restored = this.state.get(`${position.partition}:next`);
    let emitted = 0;
    while (emitted < limit && (failed.length > 0 || restored.value < end)) {
      const number = failed.pop() ?? restored.value;
      if (number === restored.value) restored.value += instances;
      out.emit(number, 0, number % 10, number);
      emitted++;
    }
    if (emitted === 0) return DONE;
    metric('numbers', 'counter', emitted);
    return 0;
  },
  fail(message) { failed.push(Number(message)); },
});
