'use strict';
// truth.js UNITS: one thing after the other that programs do, each with units of work in `spin`.
//
// V8 itself says which stacks there are: `spin` asks it before it works, and they are printed as
// JSON: for each thing its CPU time, and its functions, outermost first, with their scripts and the
// lines that they are at.
const { EventEmitter } = require('node:events');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

const UNITS = isMainThread ? Number(process.argv[2]) : workerData;
const major = parseInt(process.versions.node);
// By the thing that is done: its CPU time, µs, and its stacks.
const truth = {};

function sites() {
  const { prepareStackTrace, stackTraceLimit } = Error;
  Error.prepareStackTrace = (_, all) => all;
  Error.stackTraceLimit = Infinity;
  const error = {};
  Error.captureStackTrace(error, spin);
  const all = error.stack;
  Object.assign(Error, { prepareStackTrace, stackTraceLimit });
  // Who awaits is not on the stack, and what V8 has no source of is not JavaScript.
  const inSource = all.filter((site) => !site.isAsync() && site.getLineNumber());
  return inSource.reverse().map((site) => [
    written(site.getFunctionName()), site.getFileName() || '', site.getLineNumber()]);
}

// V8 makes some names at run time, which are not in the source: of what `eval` was given, of
// properties with computed names, and, from Node 22 on, of what sets the fields of a class.
function written(name) {
  if (!name || name === 'eval' || name.startsWith('[') || name.startsWith('computed'))
    return '(anonymous)';
  const isOfClass = name === '<instance_members_initializer>' && major > 20;
  return isOfClass ? 'Derived' : name;
}

function know(what) {
  const stack = sites();
  const known = truth[what] ??= [0, []];
  const text = JSON.stringify(stack);
  if (!known[1].some((one) => JSON.stringify(one) === text))
    known[1].push(stack);
}

// Of this thread, where Node tells it, or of all.
function cpuTime() {
  const { user, system } = (process.threadCpuUsage ?? process.cpuUsage).call(process);
  return user + system;
}

// Too long to become part of its caller.
function spin(what, units = 1, asks = true) {
  if (asks)
    know(what);
  // Less would be no more than measuring takes.
  const isMeasured = units >= 0.1;
  const begin = isMeasured ? cpuTime() : 0;
  let a = 1, b = 2, c = 3, d = 4;
  for (let turn = 0; turn < units * UNITS * 10000; turn++) {
    a = (a * 31 + turn) % 65521; b = (b * 37 + a) % 65521; c = (c * 41 + b) % 65521;
    d = (d * 43 + c) % 65521; a = (a ^ d) % 65521; b = (b ^ a) % 65521; c = (c ^ b) % 65521;
    d = (d ^ c) % 65521; a = (a + d * 3) % 65521; b = (b + a * 5) % 65521;
    c = (c + b * 7) % 65521; d = (d + c * 11) % 65521; a = (a * 47 + b) % 65521;
    b = (b * 53 + c) % 65521; c = (c * 59 + d) % 65521; d = (d * 61 + a) % 65521;
  }
  if (isMeasured)
    truth[what][0] += cpuTime() - begin;
  return a + b + c + d;
}

const things = {
  recursion(levels = 1000) {
    if (levels > 1)
      return things.recursion(levels - 1);
    return spin('recursion', 3);
  },

  closures() {
    const inner = () => {
      spin('closures');
    };
    const bound = function bindable(call) {
      (() => call())();
    }.bind(null, inner);
    bound();
    Reflect.apply(inner, null, []);
    new Proxy({}, {
      get: () => spin('closures'),
    }).any;
  },

  classes() {
    class Base {
      constructor() {
        spin('classes');
      }

      #hidden() {
        spin('classes');
      }

      get größe() {
        this.#hidden();
        return spin('classes');
      }

      static made() {
        spin('classes');
        return new this();
      }
    }

    class Derived extends Base {
      field = spin('classes');

      set value(_) {
        spin('classes');
      }

      ['computed' + 1]() {
        spin('classes');
      }
    }

    const one = Derived.made();
    one.größe + (one.value = 1);
    one.computed1();
  },

  generators() {
    function* inner() {
      yield spin('generators');
    }
    function* outer() {
      yield* inner();
    }
    for (const _ of outer());
  },

  async async() {
    async function inner() {
      spin('async');
      await null;
      spin('async');
    }
    async function* many() {
      await inner();
      yield spin('async');
    }
    for await (const _ of many());
    await Promise.resolve().then(function then() {
      spin('async');
    });
    await new Promise((resolve) => setImmediate(() => {
      spin('async');
      resolve();
    }));
  },

  comparators() {
    [3, 1].sort(function compare(a, b) {
      spin('comparators');
      return a - b;
    });
    [1, 2].map((_) =>
      spin('comparators'))
      .reduce(function add() {
        spin('comparators');
      });
    'a-b'.replace(/[ab]/g, function replacement(found) {
      spin('comparators');
      return found;
    });
  },

  json() {
    const object = {
      toJSON() {
        return spin('json');
      },
    };
    JSON.stringify({ object });
    JSON.parse('{"a": 1}', function reviver() {
      return spin('json');
    });
  },

  texts() {
    new Function('spin', '\n\n  return spin("texts");')(spin);
    eval('(function evaluated() {\n spin("texts"); })()');
    (0, eval)('(call) => \n call("texts")')(spin);
  },

  exceptions() {
    function raises() {
      try {
        spin('exceptions');
        throw new Error();
      } catch {
        spin('exceptions');
        throw new TypeError();
      } finally {
        spin('exceptions');
      }
    }
    try {
      raises();
    } catch {
      spin('exceptions');
    }
  },

  events() {
    new EventEmitter().on('one', function listener() {
      spin('events');
    }).emit('one');
  },

  // Compiled by each compiler in turn, while the functions called are made part of `hot`.
  inlining() {
    const inlined = (asks) => {
      spin('inlining', 0.001, asks);
    };
    function hot(turn) {
      inlined(turn % 1000 === 0);
    }
    for (let turn = 0; turn < 4000; turn++)
      hot(turn);
  },

  // The collector moves functions that are on the stack.
  moved() {
    for (let turn = 0; turn < 4; turn++) {
      const made = function moving() {
        const junk = Array.from({ length: 500 }, (_, item) => ({ item }));
        gc({ type: turn % 2 ? 'minor' : 'major' });
        spin('moved', 0.5);
        return junk;
      };
      made();
    }
  },

  async modules() {
    const text = 'export function exported() {\n spin("modules"); }\nspin("modules");';
    globalThis.spin = spin;
    (await import(`data:text/javascript,${encodeURIComponent(text)}`)).exported();
  },
};

async function main() {
  // Compiled, before time is measured.
  for (let turn = 0; turn < 5; turn++)
    spin('warm', 1);
  if (!isMainThread) {
    (function works() {
      spin('workers', 6);
    })();
    parentPort.postMessage(truth);
    return;
  }
  for (let turn = 0; turn < 2; turn++)
    for (const thing of Object.values(things)) await thing();
  const worker = new Worker(__filename, { workerData: UNITS });
  worker.on('message', (there) => {
    for (const [what, [time, stacks]] of Object.entries(there)) {
      const known = truth[what] ??= [0, []];
      known[0] += time;
      known[1].push(...stacks);
    }
    console.log(JSON.stringify(truth));
  });
}

main();
