'use strict';
// work.js TURNS: work of known shares, one part in `one` and three in `three`, on the main thread
// and in a worker. A line that a function stands at while it waits for `spin` ends in `// at` and
// the function's name.
const { Worker, isMainThread, workerData } = require('node:worker_threads');

// Too long to become part of its caller.
function spin(turns) {
  let a = 1, b = 2, c = 3, d = 4;
  for (let turn = 0; turn < turns * 20000; turn++) {
    a = (a * 31 + turn) % 65521; b = (b * 37 + a) % 65521; c = (c * 41 + b) % 65521;
    d = (d * 43 + c) % 65521; a = (a ^ d) % 65521; b = (b ^ a) % 65521; c = (c ^ b) % 65521;
    d = (d ^ c) % 65521; a = (a + d * 3) % 65521; b = (b + a * 5) % 65521;
    c = (c + b * 7) % 65521; d = (d + c * 11) % 65521; a = (a * 47 + b) % 65521;
    b = (b * 53 + c) % 65521; c = (c * 59 + d) % 65521; d = (d * 61 + a) % 65521;
  }
  return a + b + c + d;
}

class Töpfer {
  one(turns) {
    return spin(turns); // at one
  }

  get three() {
    return spin(3 * this.turns); // at get three
  }

  both(turns) {
    this.turns = turns;
    // Through a builtin, and back.
    return [1, 3].map(function each(which) { // at both
      if (which === 1) {
        return this.one(turns); // at each 1
      }
      return this.three; // at each 3
    }, this);
  }
}

function* generated(turns) {
  yield new Töpfer().both(turns); // at generated
}

function deep(levels, turns) {
  if (levels) {
    return deep(levels - 1, turns); // at deep
  }
  for (const _ of generated(turns)); // at deepest
}

function main(turns) {
  for (let turn = 0; turn < turns; turn++)
    deep(3, 10); // at main
}

if (isMainThread) {
  const turns = Number(process.argv[2]);
  new Worker(__filename, { workerData: turns });
  main(turns); // at (anonymous)
} else {
  main(workerData); // at (anonymous) of the worker
}
