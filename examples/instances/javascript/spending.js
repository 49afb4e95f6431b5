// A step with state: the running total per customer, for records such as
// {"customer": "ann", "amount": 5}. Run by `cargo run -p ardea-examples --bin spending`.

'use strict';
const { serve, entryOf, log } = require('./instance.js');

const state = new Map();
let limit = Infinity;

serve({
  state,
  configure(configuration) {
    limit = configuration.parameters.limit ?? Infinity;
    log(`spending ${configuration.instance} of ${configuration.instances}, limit ${limit}`);
  },
  process({ customer, amount }, key, emit) {
    if (typeof amount !== 'number') throw new Error(`${customer}: the amount is no number`);
    const entry = entryOf(state, key, 0);
    entry.value += amount;
    emit({ customer, total: entry.value, over: entry.value > limit });
  },
});
