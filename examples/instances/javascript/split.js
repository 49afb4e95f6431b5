// A bolt that emits the words of the first field of its tuples. See docs/topologies.md.

'use strict';
const { serveBolt } = require('./topology.js');

serveBolt({
  execute(tuple, out) {
    for (const word of String(tuple.values[0]).toLowerCase().split(/[^\p{L}\p{N}]+/u)) {
      if (word !== '') out.emit(0, word);
    }
  },
});
