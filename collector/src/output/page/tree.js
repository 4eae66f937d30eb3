// Trees of calls. Node 0 is what all stacks begin below; a node comes before those below it.

/// All calls, with whatever amounts are counted for them.
class Calls {
  constructor(parent, func) {
    const count = parent.length;
    this.parent = parent;
    this.func = func;
    this.first = new Int32Array(count).fill(-1);
    this.next = new Int32Array(count).fill(-1);
    for (let node = count - 1; node > 0; node--) {
      this.next[node] = this.first[parent[node]];
      this.first[parent[node]] = node;
    }
    this.weigh(new Float64Array(count), new Float64Array(count));
  }

  /// `own` is what ends at each node, `waits` how much of it is waiting.
  weigh(own, waits) {
    this.own = own;
    this.waits = waits;
    this.total = own.slice();
    for (let node = own.length - 1; node > 0; node--) {
      this.total[this.parent[node]] += this.total[node];
    }
  }

  below(node) { return this.first[node]; }

  /// Whether what ends here is most of it, and waits.
  isWaiting(node) {
    return this.waits[node] * 2 > this.own[node] && this.own[node] * 2 > this.total[node];
  }

  /// For each node whether none of its callers has the same function.
  get outer() {
    if (this.outermost) return this.outermost;
    const {parent, func, first, next} = this, outer = new Uint8Array(parent.length);
    const open = new Int32Array(func.reduce((most, id) => Math.max(most, id), 0) + 1);
    let node = first[0];
    while (node > 0) {
      outer[node] = open[func[node]]++ === 0 ? 1 : 0;
      if (first[node] > 0) { node = first[node]; continue; }
      while (node > 0) {
        open[func[node]]--;
        if (next[node] > 0) { node = next[node]; break; }
        node = parent[node];
      }
    }
    return this.outermost = outer;
  }

  /// The same calls of the functions that are `kept` alone; `places` has each node's node there.
  fold(kept) {
    const count = this.parent.length, places = new Int32Array(count);
    const parent = new Int32Array(count), func = new Int32Array(count);
    parent[0] = func[0] = -1;
    // Where a node is by its hash, one more than that; what is taken is followed by the next free.
    const mask = 2 ** Math.ceil(Math.log2(count * 2)) - 1, known = new Int32Array(mask + 1);
    let made = 1;
    for (let node = 1; node < count; node++) {
      const above = places[this.parent[node]], id = this.func[node];
      if (!kept[id]) { places[node] = above; continue; }
      let slot = (Math.imul(above, 0x9e3779b1) ^ Math.imul(id, 0x85ebca6b)) >>> 0;
      slot = (slot ^ (slot >>> 15)) & mask;
      let place = known[slot] - 1;
      while (place >= 0 && (parent[place] !== above || func[place] !== id)) {
        slot = (slot + 1) & mask;
        place = known[slot] - 1;
      }
      if (place < 0) {
        place = made++;
        known[slot] = place + 1;
        parent[place] = above;
        func[place] = id;
      }
      places[node] = place;
    }
    return {calls: new Calls(parent.slice(0, made), func.slice(0, made)), places};
  }

  /// Self and total amounts by function; a function that calls itself is counted once.
  byFunction(count) {
    const own = new Float64Array(count), total = new Float64Array(count), outer = this.outer;
    for (let node = this.parent.length - 1; node > 0; node--) {
      own[this.func[node]] += this.own[node];
      if (outer[node]) total[this.func[node]] += this.total[node];
    }
    return {own, total};
  }

  /// What all stacks with one of these functions amount to.
  through(matches) {
    const inside = new Uint8Array(this.parent.length);
    let sum = 0;
    for (let node = 1; node < inside.length; node++) {
      inside[node] = inside[this.parent[node]];
      if (!inside[node] && matches[this.func[node]]) {
        inside[node] = 1;
        sum += this.total[node];
      }
    }
    return sum;
  }
}

/// What is above or below nodes of a tree, put together by function, level by level as it is asked
/// for. `group`: nodes of `calls` and the amounts of them that count.
class Merged {
  constructor(calls, func, group, step) {
    this.calls = calls;
    this.step = step;
    this.parent = [-1];
    this.func = [func];
    this.first = [Merged.UNKNOWN];
    this.next = [-1];
    this.total = [0];
    this.waiting = [false];
    this.groups = [group];
    for (const amount of group.values()) this.total[0] += amount;
  }

  /// By callee: from where amounts end to who called that.
  static reversed(calls) {
    const group = new Map();
    calls.own.forEach((amount, node) => { if (amount > 0 && node > 0) group.set(node, amount); });
    const step = (node, amount, visit, isRoot) => {
      const above = isRoot ? node : calls.parent[node];
      if (above > 0) visit(above, amount);
    };
    return new Merged(calls, -1, group, step);
  }

  /// Who called a function.
  static callers(calls, func) {
    const step = (node, amount, visit) => {
      if (calls.parent[node] > 0) visit(calls.parent[node], amount);
    };
    return new Merged(calls, func, Merged.of(calls, func), step);
  }

  /// What a function called.
  static callees(calls, func) {
    const step = (node, _, visit) => {
      for (let at = calls.first[node]; at > 0; at = calls.next[at]) {
        if (calls.total[at] > 0) visit(at, calls.total[at]);
      }
    };
    return new Merged(calls, func, Merged.of(calls, func), step);
  }

  static of(calls, func) {
    const group = new Map();
    calls.func.forEach((id, node) => {
      if (id === func && calls.outer[node]) group.set(node, calls.total[node]);
    });
    return group;
  }

  below(node) {
    if (this.first[node] === Merged.UNKNOWN) this.expand(node);
    return this.first[node];
  }

  isWaiting(node) { return this.waiting[node]; }

  expand(node) {
    const {func, waits} = this.calls, found = new Map(), isRoot = node === 0;
    for (const [one, amount] of this.groups[node]) {
      this.step(one, amount, (other, amount) => {
        let group = found.get(func[other]);
        if (!group) found.set(func[other], group = {nodes: new Map(), total: 0, waits: 0});
        group.nodes.set(other, (group.nodes.get(other) || 0) + amount);
        group.total += amount;
        if (isRoot) group.waits += waits[other];
      }, isRoot);
    }
    this.groups[node] = null;
    const sorted = [...found].sort((a, b) => b[1].total - a[1].total);
    let before = this.first[node] = -1;
    for (const [id, group] of sorted) {
      const made = this.parent.push(node) - 1;
      this.func.push(id);
      this.first.push(Merged.UNKNOWN);
      this.next.push(-1);
      this.total.push(group.total);
      this.waiting.push(this.func[0] < 0 && group.waits * 2 > group.total);
      this.groups.push(group.nodes);
      if (before < 0) this.first[node] = made; else this.next[before] = made;
      before = made;
    }
  }
}
Merged.UNKNOWN = -2;

/// Counts what is selected: the events in `events`, of `threads`, in `range` (µs; null for all).
/// `places` says for each node which one counts. Waiting counts as far as it lies in the range.
function count(data, {events, threads, range}, size, places) {
  const own = new Float64Array(size), waits = new Float64Array(size);
  const {time, what, node, amount} = data;
  const [from, to] = range || [-Infinity, Infinity];
  for (const thread of threads) {
    for (let i = thread.first; i < thread.behind; i++) {
      const event = what[i];
      if (!events[event]) continue;
      let value = amount[i];
      if (range) {
        const now = time[i];
        if (event === OFF) {
          value = (Math.min(to, now + value / 1000) - Math.max(from, now)) * 1000;
          if (value <= 0) continue;
        } else if (now < from || now > to || event === UNSAMPLED) continue;
      }
      const place = places ? places[node[i]] : node[i];
      own[place] += value;
      if (event === OFF) waits[place] += value;
    }
  }
  return {own, waits};
}
