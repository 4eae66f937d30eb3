// Waits, in one function by one call and in another by another, by turns.
const { execFileSync } = require("child_process");

const cell = new Int32Array(new SharedArrayBuffer(4));

function byFutex(ms) {
  Atomics.wait(cell, 0, 0, ms); // at byFutex
}

function byChild(seconds) {
  execFileSync("sleep", [seconds]); // at byChild
}

function byTurns() {
  for (let turn = 0; turn < 12; turn += 1) {
    [20 + turn].forEach(byFutex);
    byChild("0.03");
  }
}

byTurns();
