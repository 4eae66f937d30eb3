// An ECMAScript module, whose own code waits for another's.
import { createRequire } from 'node:module';
const unused = 1, other = 2;

export function spin(turns) {
  let a = 1, b = 2, c = 3;
  for (let turn = 0; turn < turns * 20000; turn++) {
    a = (a * 31 + turn) % 65521; b = (b * 37 + a) % 65521; c = (c * 41 + b) % 65521;
    a = (a ^ c) % 65521; b = (b ^ a) % 65521; c = (c ^ b) % 65521; a = (a + c * 3) % 65521;
    b = (b + a * 5) % 65521; c = (c + b * 7) % 65521; a = (a * 47 + b) % 65521;
    b = (b * 53 + c) % 65521; c = (c * 59 + a) % 65521; a = (a ^ b) % 65521;
  }
  return a + b + c;
}

await null;
spin(400); // at the module
export { createRequire, unused, other };
