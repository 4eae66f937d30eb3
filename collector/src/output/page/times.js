// When: a timeline of threads, and a heat map. A range of time is chosen in both by dragging.

/// What a canvas over which one drags has in common. `timeAt` gives the time (µs) of a place.
class Times {
  constructor(box, {onRange, onPoint}) {
    Object.assign(this, {box, onRange, onPoint});
    this.canvas = box.querySelector('canvas');
    this.range = null;
    this.paint = soon(() => this.draw());
    new ResizeObserver(() => this.paint()).observe(box);
    const place = event => {
      const {left, top} = this.canvas.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    const {canvas} = this;
    canvas.addEventListener('pointerdown', event => {
      if (event.button !== 0) return;
      this.from = place(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      this.onPoint(this.describe(...place(event)), event);
      if (this.from && this.isFar(place(event))) this.drag(place(event), false);
    });
    canvas.addEventListener('pointerleave', () => this.onPoint(null));
    canvas.addEventListener('lostpointercapture', () => { this.from = null; });
    canvas.addEventListener('pointerup', event => {
      if (!this.from) return;
      if (this.isFar(place(event))) this.drag(place(event), true); else this.click(...this.from);
      this.from = null;
    });
    box.addEventListener('keydown', event => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (!this.key(event.key, event.shiftKey)) return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  isFar([x, y]) {
    return Math.abs(x - this.from[0]) > 3 || this.isGrid && Math.abs(y - this.from[1]) > 3;
  }

  drag(to, isEnd) {
    const [[a, b], [c, d]] = [this.spanAt(...this.from), this.spanAt(...to)];
    this.onRange([Math.min(a, c), Math.max(b, d)], isEnd);
  }

  click() { this.onRange(null, true); }

  /// The range moves, or grows, by steps of keys.
  shift(by, grows) {
    const {end} = this.data, [from, to] = this.range || [0, Math.min(end, Math.abs(by))];
    if (!this.range) return this.onRange([from, to], true);
    if (grows) {
      return this.onRange([from, Math.min(end, Math.max(from + Math.abs(by), to + by))], true);
    }
    const move = Math.max(-from, Math.min(end - to, by));
    this.onRange([from + move, to + move], true);
  }
}

/// A row for each thread: computing in the program and in the kernel, waiting.
class Timeline extends Times {
  constructor(box, {onThread, ...rest}) {
    super(box, rest);
    this.onThread = onThread;
    this.room = box.querySelector('.room');
    this.window = null;
    this.cursor = -1;
    this.bins = new Map();
    box.addEventListener('scroll', this.paint);
  }

  show(data, threads, events, isTime) {
    const kernel = id => id >= 0 && data.functions.kind[id] === 3;
    this.kernel ||= Uint8Array.from(data.calls.func, id => kernel(id) ? 1 : 0);
    Object.assign(this, {data, threads, events, isTime});
    this.bins.clear();
    this.most = 0;
    this.paint();
  }

  get label() { return Math.min(190, Math.max(90, this.box.clientWidth * 0.2)); }
  get seen() { return this.window || [0, this.data.end]; }

  zoom(range) {
    this.window = range;
    this.bins.clear();
    this.most = 0;
    this.paint();
  }

  spanAt(x) {
    const [from, to] = this.seen, part = (x - this.label) / (this.box.clientWidth - this.label);
    const time = from + Math.max(0, Math.min(1, part)) * (to - from);
    return [time, time];
  }

  row(y) {
    const row = Math.floor((y - Timeline.AXIS + this.box.scrollTop) / Timeline.ROW);
    return y > Timeline.AXIS ? row : -1;
  }

  click(x, y) {
    const thread = this.threads[this.row(y)];
    if (thread && x < this.label) this.onThread(thread); else this.onRange(null, true);
  }

  /// What a thread did in each column, in parts of the column's time.
  binsOf(thread, columns) {
    const known = this.bins.get(thread);
    if (known && known.own.length === columns) return known;
    const [from, to] = this.seen, scale = columns / (to - from);
    const bins = {};
    for (const name of ['own', 'kernel', 'waits', 'other']) bins[name] = new Float64Array(columns);
    const {time, what, node, amount} = this.data;
    const spread = (into, begin, end) => {
      begin = Math.max(0, (begin - from) * scale);
      end = Math.min(columns, (end - from) * scale);
      for (let at = Math.floor(begin); at < end; at++) {
        into[at] += Math.min(end, at + 1) - Math.max(begin, at);
      }
    };
    for (let i = thread.first; i < thread.behind; i++) {
      const now = time[i], event = what[i];
      if (event === CPU) {
        spread(this.kernel[node[i]] ? bins.kernel : bins.own, now - amount[i] / 1000, now);
      } else if (event === OFF) spread(bins.waits, now, now + amount[i] / 1000);
      if (!this.isTime && this.events[event] && now >= from && now < to) {
        bins.other[Math.floor((now - from) * scale)] += amount[i];
      }
    }
    if (!this.isTime) for (const value of bins.other) this.most = Math.max(this.most, value);
    this.bins.set(thread, bins);
    return bins;
  }

  draw() {
    if (!this.data) return;
    const {box, label, threads} = this, {ROW, AXIS} = Timeline;
    const [width, height] = [box.clientWidth, box.clientHeight];
    if (width <= label) return;
    this.room.style.height = threads.length * ROW + AXIS + 'px';
    document.querySelector('main').style.setProperty('--times', threads.length * ROW + AXIS + 40 + 'px');
    const pen = fit(this.canvas, width, height), columns = Math.floor(width - label);
    const top = box.scrollTop, last = Math.min(threads.length, Math.ceil((top + height) / ROW));
    const first = Math.floor(top / ROW), plain = ink('text'), quiet = ink('quiet');
    for (let row = first; row < last; row++) this.binsOf(threads[row], columns);
    for (let row = first; row < last; row++) {
      const y = AXIS + row * ROW - top, thread = threads[row];
      if (row === this.cursor) {
        pen.fillStyle = ink('raised');
        pen.fillRect(0, y, width, ROW);
      }
      pen.fillStyle = plain;
      const name = fitText(pen, label < 110 ? thread.name : thread.title, label - 10);
      pen.fillText(name, 4, y + ROW / 2);
      const left = label - 18 - pen.measureText(name).width;
      pen.fillStyle = quiet;
      if (left > 40 && thread.owner !== thread.title) {
        pen.fillText(fitText(pen, thread.owner, left), label - 6 - left, y + ROW / 2);
      }
      this.drawRow(pen, this.binsOf(thread, columns), y + ROW - 1);
    }
    pen.fillStyle = ink('back');
    pen.fillRect(0, 0, width, AXIS);
    this.drawAxis(pen, width, height);
    this.drawRange(pen, height);
  }

  drawRow(pen, bins, bottom) {
    const high = Timeline.ROW - 3, {label} = this;
    const bars = (of, colour) => {
      pen.fillStyle = colour;
      for (let x = 0; x < bins.own.length; x++) {
        const [size, base] = of(x);
        if (size * high < 0.2) continue;
        pen.fillRect(label + x, bottom - (base + size) * high, 1, size * high);
      }
    };
    const fits = (size, base) => [Math.min(size, 1 - base), base];
    if (!this.isTime) return bars(x => [bins.other[x] / this.most, 0], colour(1));
    bars(x => [Math.min(1, bins.waits[x]) * 0.3, 0], colour(WAITING));
    bars(x => fits(bins.own[x], 0), colour(1));
    bars(x => fits(bins.kernel[x], Math.min(1, bins.own[x])), colour(3));
  }

  drawAxis(pen, width, height) {
    const [from, to] = this.seen, {label} = this, {AXIS} = Timeline;
    const step = roundStep(to - from, (width - label) / 110);
    pen.fillStyle = ink('quiet');
    pen.strokeStyle = ink('line');
    pen.lineWidth = 1;
    pen.beginPath();
    for (let time = Math.ceil(from / step) * step; time < to; time += step) {
      const x = Math.round(label + (time - from) / (to - from) * (width - label)) + 0.5;
      pen.moveTo(x, 0);
      pen.lineTo(x, height);
      const text = timeText(time, step);
      if (x + 3 + pen.measureText(text).width < width) pen.fillText(text, x + 3, AXIS / 2);
    }
    pen.stroke();
  }

  drawRange(pen, height) {
    if (!this.range) return;
    const [from, to] = this.seen, {label} = this, width = this.box.clientWidth - label;
    const [a, b] = this.range.map(time =>
      label + Math.max(0, Math.min(1, (time - from) / (to - from))) * width);
    pen.fillStyle = ink('veil');
    pen.fillRect(label, 0, a - label, height);
    pen.fillRect(b, 0, label + width - b, height);
    pen.fillStyle = ink('focus');
    pen.fillRect(a - 1, 0, 2, height);
    pen.fillRect(b - 1, 0, 2, height);
  }

  /// The labels of the first sample from then on, if it is near.
  labelsAt(thread, from, step) {
    const {time, label, head} = this.data;
    if (!label) return [];
    let low = thread.first, high = thread.behind;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[middle] < from) low = middle + 1; else high = middle;
    }
    return low < thread.behind && time[low] < from + step ? head.labels[label[low]] : [];
  }

  describe(x, y) {
    const thread = this.data && this.threads[this.row(y)];
    if (!thread) return null;
    const columns = Math.floor(this.box.clientWidth - this.label);
    const at = Math.floor(x - this.label), lines = [thread.title, thread.owner];
    if (at < 0 || at >= columns) return {lines: [...lines, 'click: this thread only']};
    const bins = this.binsOf(thread, columns);
    const step = (this.seen[1] - this.seen[0]) / columns;
    lines.push('at ' + timeText(this.spanAt(x)[0], step));
    if (!this.isTime) return {lines: [...lines, digits(bins.other[at], 0)]};
    const part = share => percent(Math.min(1, share), 1);
    lines.push(`${part(bins.own[at])} in the program, ${part(bins.kernel[at])} in the kernel, `
      + `${part(bins.waits[at])} waiting`);
    return {lines: [...lines, ...this.labelsAt(thread, this.spanAt(x)[0], step)]};
  }

  key(key, grows) {
    const step = (this.seen[1] - this.seen[0]) / 20;
    switch (key) {
      case 'ArrowLeft': this.shift(-step, grows); return true;
      case 'ArrowRight': this.shift(step, grows); return true;
      case 'ArrowUp': case 'ArrowDown': {
        const {ROW, AXIS} = Timeline, to = this.cursor + (key === 'ArrowUp' ? -1 : 1);
        this.cursor = Math.max(0, Math.min(this.threads.length - 1, to));
        const y = this.cursor * ROW, {box} = this;
        if (y < box.scrollTop) box.scrollTop = y;
        const over = y + ROW * 2 + AXIS - box.clientHeight;
        if (over > box.scrollTop) box.scrollTop = over;
        this.onPoint(this.describe(0, AXIS + y + 1 - box.scrollTop));
        this.paint();
        return true;
      }
      case 'Enter': case ' ':
        if (this.threads[this.cursor]) this.onThread(this.threads[this.cursor]);
        return true;
      case '+': if (this.range) this.zoom(this.range); return true;
      case '-': this.zoom(null); return true;
      case 'Escape': this.onRange(null, true); return true;
    }
    return false;
  }
}
Timeline.ROW = 20;
Timeline.AXIS = 20;

/// A column for each second (or what fits), a row for each part of it: what comes again at the same
/// pace stands out.
class HeatMap extends Times {
  get isGrid() { return true; }

  show(data, threads, events) {
    Object.assign(this, {data, threads, events});
    const {ROWS} = HeatMap;
    this.column = HeatMap.COLUMNS.find(length => data.end / length <= 400) || data.end / 400;
    this.part = this.column / ROWS;
    this.cells = new Float64Array((Math.floor(data.end / this.column) + 1) * ROWS);
    const {time, what, amount} = data, {cells, part} = this;
    const spread = (begin, end) => {
      begin = Math.max(0, begin / part);
      end = Math.min(cells.length, end / part);
      for (let at = Math.floor(begin); at < end; at++) {
        cells[at] += Math.min(end, at + 1) - Math.max(begin, at);
      }
    };
    for (const thread of threads) {
      for (let i = thread.first; i < thread.behind; i++) {
        const event = what[i], now = time[i];
        if (!events[event] || event === UNSAMPLED) continue;
        if (event === CPU) spread(now - amount[i] / 1000, now);
        else if (event === OFF) spread(now, now + amount[i] / 1000);
        else cells[Math.floor(now / part)] += amount[i];
      }
    }
    this.most = cells.reduce((most, value) => Math.max(most, value), 0);
    this.paint();
  }

  get grid() {
    const {LEFT, TOP, ROWS} = HeatMap, columns = this.cells.length / ROWS;
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    return {columns, across: Math.min(24, (width - LEFT) / columns), down: (height - TOP) / ROWS};
  }

  cellAt(x, y) {
    const {LEFT, TOP, ROWS} = HeatMap, {columns, across, down} = this.grid;
    const column = Math.max(0, Math.min(columns - 1, Math.floor((x - LEFT) / across)));
    const row = Math.max(0, Math.min(ROWS - 1, Math.floor((y - TOP) / down)));
    return column * ROWS + row;
  }

  spanAt(x, y) {
    const cell = this.cellAt(x, y);
    return [cell * this.part, Math.min(this.data.end, (cell + 1) * this.part)];
  }

  draw() {
    if (!this.cells) return;
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    const pen = fit(this.canvas, width, height), {LEFT, TOP, ROWS} = HeatMap;
    const {columns, across, down} = this.grid, [from, to] = this.range || [0, Infinity];
    pen.fillStyle = ink('heat');
    this.cells.forEach((value, cell) => {
      const time = cell * this.part, column = Math.floor(cell / ROWS);
      if (time > this.data.end) return;
      const isIn = time + this.part > from && time < to;
      pen.globalAlpha = (0.05 + 0.95 * Math.sqrt(value / (this.most || 1))) * (isIn ? 1 : 0.25);
      pen.fillRect(LEFT + column * across, TOP + cell % ROWS * down,
        across > 3 ? across - 1 : across, down > 3 ? down - 0.5 : down);
    });
    pen.globalAlpha = 1;
    pen.fillStyle = ink('quiet');
    const step = roundStep(columns, (width - LEFT) / 90);
    for (let column = 0; column < columns; column += Math.max(1, step)) {
      const text = timeText(column * this.column, this.column), x = LEFT + column * across;
      if (x + pen.measureText(text).width < width) pen.fillText(text, x, TOP / 2);
    }
    for (const row of [0, 10, 20, 30, 40]) {
      pen.fillText('+' + timeText(row * this.part, this.part), 2, TOP + (row + 0.5) * down + 3);
    }
  }

  describe(x, y) {
    if (!this.cells) return null;
    const [from, to] = this.spanAt(x, y), value = this.cells[this.cellAt(x, y)];
    return {lines: [`${timeText(from, this.part)} to ${timeText(to, this.part)}`,
      this.isTime === false ? digits(value, 0) : `${digits(value, 2)} threads on average`]};
  }

  key(key, grows) {
    const steps = {ArrowUp: -1, ArrowDown: 1, ArrowLeft: -HeatMap.ROWS, ArrowRight: HeatMap.ROWS};
    if (key === 'Escape') this.onRange(null, true);
    else if (steps[key]) this.shift(steps[key] * this.part, grows);
    else return false;
    return true;
  }
}
HeatMap.ROWS = 50;
HeatMap.LEFT = 62;
HeatMap.TOP = 20;
HeatMap.COLUMNS = [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 6e7, 6e8];
