// A spout that emits its share of the numbers below the parameter `end`, each behind its remainder by 10. Its position is in
// checkpoints, and failed numbers are emitted again. See docs/topologies.md.

'use strict';
const { DONE, serveSpout } = require('./topology.js');

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
    for (let left = limit; left > 0; left--) {
      if (failed.length === 0 && restored.value >= end) return DONE;
      const number = failed.pop() ?? restored.value;
      if (number === restored.value) restored.value += instances;
      out.emit(number, 0, number % 10, number);
    }
    return 0;
  },
  fail(message) { failed.push(Number(message)); },
});
