// A flame graph that grows downwards: a canvas which stays in view while its box scrolls.

class Flame {
  /// `box` scrolls; `onPoint` is told what is pointed at, `onPick` which function was chosen.
  constructor(box, {describe, onPoint, onPick}) {
    Object.assign(this, {box, describe, onPoint, onPick});
    this.canvas = box.querySelector('canvas');
    this.room = box.querySelector('.room');
    this.rows = [];
    this.root = 0;
    this.cursor = null;
    this.matches = null;
    this.paint = soon(() => this.draw());
    box.addEventListener('scroll', () => { if (this.isCut) this.layout(); this.paint(); });
    new ResizeObserver(() => { this.layout(); this.paint(); }).observe(box);
    this.listen();
  }

  show(tree, functions, {keep = false} = {}) {
    Object.assign(this, {tree, functions});
    if (!keep) { this.root = 0; this.cursor = null; this.box.scrollTop = 0; }
    if (!(tree.total[this.root] > 0)) this.root = 0;
    this.layout();
    this.paint();
  }

  zoom(node) {
    this.root = node;
    this.layout();
    this.box.scrollTop = Math.max(0, (this.above - 2) * Flame.ROW);
    this.paint();
  }

  /// Lays out one row after the other: those that a frame stands below, the frame, what is below.
  layout() {
    if (!this.tree) return;
    const {tree, root} = this, width = this.box.clientWidth;
    const last = (this.box.scrollTop + this.box.clientHeight) / Flame.ROW + Flame.AHEAD;
    this.rows = [];
    for (let node = root; node >= 0; node = tree.parent[node]) {
      this.rows.unshift([{node, x: 0, width}]);
    }
    this.above = this.rows.length - 1;
    const scale = tree.total[root] > 0 ? width / tree.total[root] : 0;
    let row = this.rows[this.above];
    this.isCut = false;
    while (row.length) {
      if (this.rows.length > last) { this.isCut = true; break; }
      const next = [];
      for (const {node, x} of row) if (node >= 0) this.place(next, node, x, scale);
      if (next.length) this.rows.push(next);
      row = next;
    }
    this.room.style.height = (this.rows.length + 1) * Flame.ROW + 'px';
  }

  /// Neighbours too narrow to be seen are one place of no node.
  place(row, node, x, scale) {
    const {tree} = this;
    let narrow = 0;
    const close = () => {
      if (narrow >= Flame.NARROW) row.push({node: -1, x: x - narrow, width: narrow});
      narrow = 0;
    };
    for (let at = tree.below(node); at > 0; at = tree.next[at]) {
      const width = tree.total[at] * scale;
      if (width >= Flame.NARROW) { close(); row.push({node: at, x, width}); } else narrow += width;
      x += width;
    }
    close();
  }

  draw() {
    const {box, rows, tree, functions, matches} = this;
    if (!tree) return;
    const [width, height] = [box.clientWidth, box.clientHeight], {ROW} = Flame;
    const pen = fit(this.canvas, width, height), text = ink('on-frame'), hit = ink('hit');
    const top = box.scrollTop, end = Math.ceil((top + height) / ROW);
    for (let row = Math.floor(top / ROW); row < Math.min(end, rows.length); row++) {
      const y = row * ROW - top;
      for (const {node, x, width} of rows[row]) {
        const id = node < 0 ? -1 : tree.func[node];
        const kind = tree.isWaiting(node) ? WAITING : id < 0 ? 0 : functions.kind[id];
        pen.globalAlpha = row < this.above || (matches && !matches[id]) ? 0.45 : 1;
        pen.fillStyle = node >= 0 && matches?.[id] ? hit : colour(kind, id);
        pen.fillRect(x, y, Math.max(width - 0.6, 0.4), ROW - 1);
        if (width < 24 || node < 0) continue;
        pen.globalAlpha = 1;
        pen.fillStyle = text;
        pen.fillText(fitText(pen, functions.name(id), width - 7), x + 3, y + ROW / 2);
      }
    }
    pen.globalAlpha = 1;
    const place = this.cursor && this.find(this.cursor.row, this.cursor.x);
    if (place) {
      pen.strokeStyle = ink('focus');
      pen.lineWidth = 2;
      const y = this.cursor.row * ROW - top;
      pen.strokeRect(place.x + 1, y + 1, Math.max(place.width - 2, 1), ROW - 3);
    }
    if (!(tree.total[0] > 0)) {
      pen.fillStyle = ink('quiet');
      pen.fillText('Nothing of this kind is in what is selected.', 8, ROW * 2);
    }
  }

  /// The place in a row that an x lies in.
  find(row, x) {
    const places = this.rows[row] || [];
    let low = 0, high = places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[middle].x <= x) low = middle + 1; else high = middle;
    }
    const place = places[low - 1];
    return place && x < place.x + place.width ? place : null;
  }

  at(event) {
    const {left, top} = this.box.getBoundingClientRect();
    const row = Math.floor((event.clientY - top + this.box.scrollTop) / Flame.ROW);
    const place = this.find(row, event.clientX - left);
    return place && {row, place};
  }

  select(row, place) {
    this.cursor = {row, x: place.x + Math.min(0.01, place.width / 2)};
    if (place.node > 0) this.onPick(this.tree.func[place.node]);
    this.onPoint(this.describe(this.tree, place.node));
    this.paint();
  }

  listen() {
    const {canvas, box} = this;
    canvas.addEventListener('pointermove', event => {
      const found = event.pointerType === 'mouse' && this.at(event);
      canvas.style.cursor = found && found.place.node >= 0 ? 'pointer' : 'default';
      this.onPoint(found ? this.describe(this.tree, found.place.node) : null, event);
    });
    canvas.addEventListener('pointerleave', () => this.onPoint(null));
    canvas.addEventListener('click', event => {
      const found = this.at(event);
      if (!found || found.place.node < 0) return;
      // A finger sees what a frame is first, and zooms with a second touch.
      const same = this.cursor && this.find(this.cursor.row, this.cursor.x) === found.place;
      this.select(found.row, found.place);
      if (event.pointerType !== 'touch' || same) this.zoomTo(found.place.node);
    });
    box.addEventListener('keydown', event => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.key(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  zoomTo(node) {
    this.zoom(node);
    this.cursor = {row: this.above, x: 0};
  }

  key(key) {
    const {row, x} = this.cursor || {row: this.above, x: 0};
    const place = this.find(row, x) || this.rows[this.above][0], places = this.rows[row] || [];
    const go = (row, place) => {
      if (!place) return true;
      this.reveal(row);
      this.select(row, place);
      return true;
    };
    const beside = by => places[places.indexOf(place) + by];
    switch (key) {
      case 'ArrowUp': return go(row - 1, this.find(row - 1, x));
      case 'ArrowDown': {
        this.reveal(row + 1);
        const inside = one => one.x >= place.x - 0.01 && one.x < place.x + place.width;
        return go(row + 1, (this.rows[row + 1] || []).find(inside));
      }
      case 'ArrowLeft': return go(row, beside(-1));
      case 'ArrowRight': return go(row, beside(1));
      case 'Enter': case ' ': if (place.node >= 0) this.zoomTo(place.node); return true;
      case 'Backspace':
        if (this.root > 0) this.zoomTo(this.tree.parent[this.root]);
        return true;
      case 'Escape': case 'Home': this.zoomTo(0); return true;
    }
    return false;
  }

  reveal(row) {
    const {box} = this, y = row * Flame.ROW;
    if (y < box.scrollTop) box.scrollTop = y;
    if (y + Flame.ROW > box.scrollTop + box.clientHeight) {
      box.scrollTop = y + Flame.ROW * 2 - box.clientHeight;
    }
    if (this.isCut) this.layout();
  }
}
Flame.ROW = 19;
/// Rows laid out beyond those in view.
Flame.AHEAD = 12;
/// What is narrower is not told apart (pixels).
Flame.NARROW = 0.5;
