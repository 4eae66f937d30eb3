// Reads a file from closures that live for one call, of functions that are made anew now and then,
// while the collector moves them: `inner N` is called by `outer N` alone, by no other function and
// from nowhere else.
const fs = require("fs");

// Too long to become part of another function.
const padding = `if (times < 0) { ${"sum += times * 3 ^ sum; ".repeat(150)} }`;

function pair(number) {
  return new Function("fs", `return function outer${number}(times) {
    const inner = function inner${number}(times) {
      let sum = 0;
      ${padding}
      while (times--) sum += fs.readFileSync("/proc/self/maps").length;
      return sum;
    };
    const garbage = [];
    for (let one = 0; one < 200; one += 1) garbage.push(() => one);
    return inner(times) + garbage.length;
  };`)(fs);
}

const live = Array.from({ length: 40 }, (_, number) => pair(number));
for (let number = live.length; ; number += 1) {
  for (let turn = 0; turn < 50; turn += 1) live.forEach((one) => one(2));
  live[number % live.length] = pair(number);
}
