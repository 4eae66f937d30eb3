// What data.rs beside this file has written, read.

const CPU = 0, UNSAMPLED = 1, OFF = 2;
/// What a sample is that is not chosen.
const NOTHING = 0xffff;

/// The bytes of the page's data. In pieces, as some browsers have a limit for one address.
async function bytesOfPage() {
  const element = document.getElementById('data'), text = element.textContent.trim();
  element.textContent = '';
  const pieces = [], step = 1 << 22;
  for (let at = 0; at < text.length; at += step) {
    const piece = fetch('data:application/octet-stream;base64,' + text.slice(at, at + step));
    pieces.push(piece.then(answer => answer.arrayBuffer()));
  }
  const deflated = new Blob(await Promise.all(pieces)).stream();
  const inflated = deflated.pipeThrough(new DecompressionStream('deflate-raw'));
  return new Response(inflated).arrayBuffer();
}

/// Threads (`first` to `behind` are its samples), functions and samples by column, the tree.
function decode(buffer) {
  const bytes = new Uint8Array(buffer);
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  let at = 4 + length;
  const number = () => {
    let byte = bytes[at++], value = byte & 127, unit = 128;
    while (byte > 127) {
      byte = bytes[at++];
      value += (byte & 127) * unit;
      unit *= 128;
    }
    return value;
  };
  const column = (array, from = 0) => {
    for (let i = from; i < array.length; i++) array[i] = number();
    return array;
  };
  const nodes = head.nodes + 1;
  const parent = new Int32Array(nodes), path = [0];
  parent[0] = -1;
  for (let node = 1, deep = 0; node < nodes; node++) {
    deep -= number();
    parent[node] = path[deep++];
    path[deep] = node;
  }
  const func = column(new Int32Array(nodes), 1);
  func[0] = -1;
  let samples = 0;
  for (const thread of head.threads) {
    thread.first = samples;
    samples = thread.behind = samples + thread.samples;
    const process = head.processes[thread.process];
    thread.title = `${thread.name} ${thread.tid}`;
    thread.owner = `${process.name} ${process.pid}`;
  }
  const time = column(new Float64Array(samples));
  const what = column(new Uint16Array(samples));
  const node = column(new Int32Array(samples));
  const amount = column(new Float64Array(samples));
  const label = head.labels.length ? column(new Uint32Array(samples)) : null;
  let end = 1;
  for (const thread of head.threads) {
    for (let i = thread.first, now = 0; i < thread.behind; i++) {
      now = time[i] += now;
      const until = what[i] === OFF ? now + amount[i] / 1000 : now;
      if (until > end && what[i] !== UNSAMPLED) end = until;
    }
  }
  return {head, calls: new Calls(parent, func), time, what, recorded: what, node, amount, label,
    samples, end,
    functions: functionsOf(head.functions)};
}

function functionsOf({texts, name, whole, image, kind}) {
  return {
    count: name.length,
    kind,
    name: id => id < 0 ? 'all' : texts[name[id]],
    whole: id => id < 0 ? '' : texts[whole[id] || name[id]],
    image: id => id < 0 ? '' : texts[image[id]],
  };
}
