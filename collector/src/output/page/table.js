// The functions as a table, of which only the rows in view are elements.

class Table {
  constructor(box, {onPick}) {
    Object.assign(this, {box, onPick, rows: [], sort: 'own', isUp: false, picked: -1});
    this.body = box.querySelector('.rows');
    this.heads = [...box.querySelectorAll('[data-sort]')];
    this.paint = soon(() => this.draw());
    box.addEventListener('scroll', this.paint);
    new ResizeObserver(this.paint).observe(box);
    for (const head of this.heads) {
      head.addEventListener('click', () => {
        this.isUp = this.sort === head.dataset.sort ? !this.isUp : head.dataset.sort === 'name';
        this.sort = head.dataset.sort;
        this.order();
      });
    }
    this.body.addEventListener('click', event => {
      const row = event.target.closest('[data-row]');
      if (row) this.pick(Number(row.dataset.row));
    });
    box.addEventListener('keydown', event => {
      const page = Math.floor(box.clientHeight / Table.ROW) - 2;
      const by = {ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page}[event.key];
      if (!by || event.target.closest('button')) return;
      event.preventDefault();
      const at = this.rows.indexOf(this.picked);
      this.pick(Math.max(0, Math.min(this.rows.length - 1, at + by)));
    });
  }

  show({own, total}, whole, functions, matches, isTime) {
    Object.assign(this, {own, total, whole, functions, matches, isTime});
    this.order();
  }

  order() {
    const {own, total, functions, matches} = this, by = {own, total}[this.sort];
    this.rows = [];
    for (let id = 0; id < total.length; id++) {
      if (total[id] > 0 && (!matches || matches[id])) this.rows.push(id);
    }
    const sign = this.isUp ? 1 : -1;
    this.rows.sort(by ? (a, b) => sign * (by[a] - by[b]) || total[b] - total[a]
      : (a, b) => sign * functions.name(a).localeCompare(functions.name(b)));
    for (const head of this.heads) {
      const sorted = this.isUp ? 'ascending' : 'descending';
      const order = head.dataset.sort === this.sort ? sorted : 'none';
      head.parentElement.setAttribute('aria-sort', order);
    }
    this.box.querySelector('[role=table]').setAttribute('aria-rowcount', this.rows.length + 1);
    this.paint();
  }

  pick(row) {
    const id = this.rows[row];
    if (id === undefined) return;
    const {box} = this, y = row * Table.ROW, head = Table.ROW;
    if (y < box.scrollTop) box.scrollTop = y;
    const over = y + Table.ROW + head - box.clientHeight;
    if (over > box.scrollTop) box.scrollTop = over;
    this.onPick(id);
  }

  mark(id) {
    this.picked = id;
    this.paint();
  }

  draw() {
    const {box, body, rows, functions, own, total, whole} = this;
    if (!functions) return;
    body.style.height = rows.length * Table.ROW + 'px';
    const first = Math.max(0, Math.floor(box.scrollTop / Table.ROW) - 5);
    const last = Math.min(rows.length, first + Math.ceil(box.clientHeight / Table.ROW) + 10);
    const shown = [];
    for (let row = first; row < last; row++) {
      const id = rows[row], made = element('div', '', {role: 'row', 'data-row': row,
        'aria-rowindex': row + 2, title: `${functions.whole(id)}\n${functions.image(id)}`});
      made.style.top = row * Table.ROW + 'px';
      made.classList.toggle('picked', id === this.picked);
      if (id === this.picked) made.setAttribute('aria-selected', 'true');
      for (const value of [own[id], total[id]]) {
        made.append(element('span', amountText(value, this.isTime), {role: 'cell'}),
          element('span', percent(value, whole), {role: 'cell'}));
      }
      const name = element('span', '', {role: 'cell'}), swatch = element('i');
      swatch.style.background = colour(functions.kind[id]);
      name.append(swatch, functions.name(id), element('small', ' ' + functions.image(id)));
      made.append(name);
      shown.push(made);
    }
    body.replaceChildren(...shown);
  }
}
Table.ROW = 24;
