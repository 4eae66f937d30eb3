'use strict';
// features.js FEATURE: one thing each, with `spin` at the leaf of known stacks.

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

const features = {
  recursion() {
    function down(levels) {
      if (levels > 1) {
        return down(levels - 1) + 1;
      }
      return spin(1000);
    }
    down(1000);
  },

  async awaits() {
    async function inner() {
      await null;
      return spin(20);
    }
    async function outer() {
      await null;
      return inner();
    }
    for (let turn = 0; turn < 15; turn++) await outer();
  },

  sorted() {
    const compare = (a, b) => {
      spin(10);
      return a - b;
    };
    for (let turn = 0; turn < 10; turn++) [3, 1, 2].sort(compare);
  },

  json() {
    const object = {
      toJSON() {
        return spin(10);
      },
    };
    for (let turn = 0; turn < 30; turn++) JSON.stringify({ object });
  },

  searched() {
    const text = 'a'.repeat(3000);
    // From each of its places to its end.
    for (let turn = 0; turn < 40; turn++) /(?:a|b)*?[xyz]/.test(text);
  },

  made() {
    const made = new Function('spin', '\n\n  return spin(150);');
    made(spin);
    eval('(function evaluated() { spin(150); })()');
  },

  // Functions that are dropped and made again, perhaps at the same places: each is named after the
  // line that it is on.
  replaced() {
    for (let turn = 0; turn < 60; turn++) {
      const lines = '\n'.repeat(turn % 50);
      const text = `${lines}return function on_line_${turn % 50 + 3}() { return spin(4); }`;
      new Function('spin', text)(spin)();
      if (turn % 10 === 9 && globalThis.gc) gc();
    }
  },

  // As above, each longer than it takes to free the last one and all that was made of it.
  renewed() {
    for (let turn = 0; turn < 40; turn++) {
      const name = `turn_${turn + 10}`;
      new Function('spin', `return function ${name}() { return spin(30); }`)(spin)();
      if (globalThis.gc) gc();
    }
  },

  // The collector moves what names are read from, all the time.
  moved() {
    let kept = [];
    for (let turn = 0; turn < 400; turn++) {
      const made = function moving(count) {
        const junk = [];
        for (let item = 0; item < count; item++) junk.push({ item, text: 'x' + item });
        return junk;
      };
      kept.push(made(500));
      if (kept.length > 50) kept = kept.slice(25);
      if (turn % 4 === 0 && globalThis.gc) gc({ type: turn % 8 ? 'minor' : 'major' });
    }
    console.log('right');
  },

  killed() {
    for (let turn = 0; turn < 30; turn++) spin(10);
    process.kill(process.pid, 'SIGKILL');
  },
};

Promise.resolve(features[process.argv[2]]()).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
