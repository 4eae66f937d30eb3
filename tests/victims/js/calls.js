'use strict';
// calls.js: hot functions that call each other, for 0.7 s of CPU time. A line that calls one
// ends in `// in` and the function's name.

// Too long to become part of its caller: that ends at 460 bytes of bytecodes.
function spin(turns) {
  let a = 1, b = 2, c = 3, d = 4;
  for (let turn = 0; turn < turns; turn++) {
    a = (a * 31 + turn) % 65521; b = (b * 37 + a) % 65521; c = (c * 41 + b) % 65521;
    d = (d * 43 + c) % 65521; a = (a ^ d) % 65521; b = (b ^ a) % 65521; c = (c ^ b) % 65521;
    d = (d ^ c) % 65521; a = (a + d * 3) % 65521; b = (b + a * 5) % 65521;
    c = (c + b * 7) % 65521; d = (d + c * 11) % 65521; a = (a * 47 + b) % 65521;
    b = (b * 53 + c) % 65521; c = (c * 59 + d) % 65521; d = (d * 61 + a) % 65521;
    a = (a * 67 + b) % 65521; b = (b * 71 + c) % 65521; c = (c * 73 + d) % 65521;
    d = (d * 79 + a) % 65521; a = (a * 83 + c) % 65521; b = (b * 89 + d) % 65521;
    c = (c * 97 + a) % 65521; d = (d * 101 + b) % 65521; a = (a * 103 + d) % 65521;
  }
  return a + b + c + d;
}

function small(turns) {
  return turns > 1 ?
    spin(turns) : // in small
    0;
}

function outer(turns) {
  let sum = turns * 2;
  sum += spin(turns); // in outer
  if (sum > 3) {
    sum += small(turns + 1); // in outer
  }
  return sum +
    spin(turns + 2); // in outer
}

function run(count) {
  let sum = 0;
  for (let turn = 0; turn < count; turn++)
    sum += outer(20); // in run
  return sum;
}

function main() {
  let sum = 0;
  while (process.cpuUsage().user < 700_000)
    sum += run(500); // in main
  return sum;
}

main();
