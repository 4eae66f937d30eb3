// Loads a profile with the Firefox Profiler's own loader, walks every stack of every sample, and
// prints the version after upgrades, the number of threads, the weight of all samples, and the
// number of frames walked. Any index that leads nowhere is an error.
import { unserializeProfileOfArbitraryFormat } from 'firefox-profiler/profile-logic/process-profile';
import * as fs from 'fs';
import * as zlib from 'zlib';

function get(column: any, index: number, what: string): any {
  const value = column[index];
  if (value === undefined) throw new Error(`${what}[${index}] does not exist`);
  return value;
}

async function main() {
  const json = JSON.parse(zlib.gunzipSync(fs.readFileSync(process.argv[2])).toString());
  const profile: any = await unserializeProfileOfArbitraryFormat(json, process.argv[2]);
  const shared = profile.shared ?? {};
  let weight = 0;
  let frames = 0;
  for (const thread of profile.threads) {
    const table = (name: string) => get({ ...thread, ...shared }, name as any, 'thread');
    const [stacks, frameTable, functions] = ['stackTable', 'frameTable', 'funcTable'].map(table);
    const strings = shared.stringArray ?? thread.stringArray;
    for (let sample = 0; sample < thread.samples.length; sample++) {
      weight += thread.samples.weight === null ? 1 : get(thread.samples.weight, sample, 'weight');
      let stack = get(thread.samples.stack, sample, 'stack');
      while (stack !== null && stack !== -1) {
        const frame = get(stacks.frame, stack, 'frame');
        const name = get(functions.name, get(frameTable.func, frame, 'func'), 'name');
        if (typeof get(strings, name, 'string') !== 'string') throw new Error('a name is no string');
        get(profile.meta.categories, get(frameTable.category, frame, 'category'), 'category');
        frames++;
        if (stacks.prefix !== undefined) {
          stack = get(stacks.prefix, stack, 'prefix');
        } else {
          // Newer versions store the distance to the prefix; 0 is a root.
          const distance = get(stacks.prefixOffset, stack, 'prefix');
          stack = distance === 0 ? null : stack - distance;
        }
      }
    }
  }
  console.log(profile.meta.preprocessedProfileVersion, profile.threads.length, weight, frames);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
