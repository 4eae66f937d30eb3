// The page: what is selected, and who is told when that changes.

const byId = id => document.getElementById(id);

/// What is chosen: `view` says which amounts count, `kept` which kinds of frames; `range` in µs.
const chosen = {view: null, process: '', thread: '', kept: '', range: null, search: '',
  mode: 'flame', func: -1};
let data, flame, timeline, heat, table, folded = {}, totals, whole = 0, matches = null;

/// What can be shown: some events' amounts.
function viewsOf(head) {
  const there = new Set();
  for (let i = 0; i < data.samples; i++) there.add(data.what[i]);
  const views = [];
  const add = (id, name, ...events) => views.push({id, name, isTime: head.events[events[0]].time,
    events: head.events.map((_, event) => events.includes(event))});
  if (there.has(CPU) || there.has(UNSAMPLED)) add('cpu', 'CPU time', CPU, UNSAMPLED);
  if (there.has(OFF)) {
    add('off-cpu', 'time off the CPU', OFF);
    add('wall', 'wall-clock time', CPU, UNSAMPLED, OFF);
  }
  for (let event = OFF + 1; event < head.events.length; event++) {
    if (there.has(event)) add(head.events[event].name, head.events[event].name, event);
  }
  if (!views.length) add('cpu', 'CPU time', CPU, UNSAMPLED);
  return views;
}

function threadsChosen() {
  const part = chosen.thread.toLowerCase();
  return data.head.threads.filter(thread =>
    (chosen.process === '' || thread.process === Number(chosen.process))
    && thread.title.toLowerCase().includes(part));
}

/// Leaves the samples with a label that is called so, or else with that text in one of theirs.
function keepLabel(text) {
  const {head, recorded, label} = data, part = text.toLowerCase();
  const isOne = head.labels.flat().includes(text);
  const kept = head.labels.map(set =>
    isOne ? set.includes(text) : set.some(one => one.toLowerCase().includes(part)));
  data.what = text ? recorded.map((event, i) => kept[label[i]] ? event : NOTHING) : recorded;
}

/// The busiest process first, and in it the busiest thread.
function byAmount(threads, events) {
  const ofProcess = new Map(), ofThread = new Map();
  for (const thread of threads) {
    let sum = 0;
    for (let i = thread.first; i < thread.behind; i++) {
      if (events[data.what[i]]) sum += data.amount[i];
    }
    ofThread.set(thread, sum);
    ofProcess.set(thread.process, (ofProcess.get(thread.process) || 0) + sum);
  }
  const order = (of, a, b) => of.get(b) - of.get(a);
  return [...threads].sort((a, b) => order(ofProcess, a.process, b.process)
    || a.process - b.process || order(ofThread, a, b));
}

/// The tree of the frames that are shown.
function treeChosen() {
  const {calls, functions, head} = data;
  if (folded.kept === chosen.kept) return folded;
  if (chosen.kept === '') return folded = {kept: '', calls, places: null};
  const isLanguage = kind => kind >= PALETTE.names.length;
  const kept = {
    user: kind => kind !== 3,
    own: kind => kind === 1 || isLanguage(kind),
    languages: isLanguage,
  }[chosen.kept] || (kind => kind === PALETTE.names.length + head.languages.indexOf(chosen.kept));
  const ofFunctions = Uint8Array.from(functions.kind, kind => kept(kind) ? 1 : 0);
  return folded = {kept: chosen.kept, ...calls.fold(ofFunctions)};
}

/// Counts anew. Each part is shown where it has changed.
function recount({times = true, tree = false} = {}) {
  const threads = threadsChosen(), {view} = chosen;
  const before = folded, {calls, places} = treeChosen();
  const {own, waits} = count(data, {...chosen, events: view.events, threads},
    calls.parent.length, places);
  calls.weigh(own, waits);
  whole = calls.total[0];
  totals = calls.byFunction(data.functions.count);
  if (times) {
    timeline.show(data, byAmount(threads, view.events), view.events, view.isTime);
    heat.isTime = view.isTime;
    heat.show(data, threads, view.events);
  }
  showFound();
  showFlame(!tree && before === folded);
  showTable();
  const {head} = data, shown = amountText(whole, view.isTime);
  const part = chosen.range ? `, ${chosen.range.map(time => timeText(time)).join(' to ')}` : '';
  byId('about').textContent = `${shown} of ${view.name} in ${threads.length} of `
    + `${head.threads.length} threads${part} · ${digits(data.samples, 0)} samples recorded`
    + (head.host ? ` on ${head.host}` : '')
    + (head.started_ms ? `, ${new Date(head.started_ms).toLocaleString()}` : '');
}

function showFlame(keep = false) {
  const {calls} = folded, {mode, func} = chosen;
  const isOfOne = mode === 'callers' || mode === 'callees';
  const tree = mode === 'flame' ? calls : mode === 'reversed' ? Merged.reversed(calls)
    : Merged[mode](calls, func);
  flame.matches = matches;
  flame.show(tree, data.functions, {keep: keep && mode === 'flame'});
  for (const button of document.querySelectorAll('[data-mode]')) {
    button.setAttribute('aria-pressed', button.dataset.mode === mode);
    button.disabled = ['callers', 'callees'].includes(button.dataset.mode) && func < 0;
  }
  byId('of').textContent = isOfOne ? `of ${data.functions.name(func)}` : '';
}

function showTable() {
  table.show(totals, whole, data.functions, matches, chosen.view.isTime);
}

/// Which functions are searched for: by a regular expression, or else by the text as it is.
function search() {
  const {functions} = data, text = chosen.search;
  matches = null;
  if (text) {
    let isFound;
    try {
      const pattern = new RegExp(text, 'i');
      isFound = name => pattern.test(name);
    } catch {
      isFound = name => name.toLowerCase().includes(text.toLowerCase());
    }
    matches = new Uint8Array(functions.count);
    for (let id = 0; id < matches.length; id++) {
      matches[id] = isFound(functions.name(id)) || isFound(functions.whole(id)) ? 1 : 0;
    }
  }
  showFound();
  flame.matches = matches;
  flame.paint();
  showTable();
}

function showFound() {
  const through = matches ? folded.calls.through(matches) : 0;
  byId('found').textContent = matches
    ? `${amountText(through, chosen.view.isTime)}, ${percent(through, whole)}` : '';
}

/// What is known of a frame, in lines.
function describe(tree, node) {
  if (node < 0) return {lines: ['functions too narrow to be drawn: zoom in']};
  const {functions} = data, id = tree.func[node], {isTime} = chosen.view, lines = [];
  lines.push(id < 0 ? 'all' : functions.whole(id));
  if (id >= 0) lines.push(`${functions.image(id)} · ${kindName(functions.kind[id])}`);
  const part = amount => `${amountText(amount, isTime)}, ${percent(amount, whole)}`;
  lines.push(part(tree.total[node]) + (tree.own ? ` · itself ${part(tree.own[node])}` : ''));
  return {lines};
}

const kindName = kind => PALETTE.names[kind] || data.head.languages[kind - PALETTE.names.length];

/// Shows what is pointed at, beside the pointer or (without one) below.
function point(what, event) {
  const tip = byId('tip'), isMouse = event?.pointerType === 'mouse';
  tip.hidden = !(what && isMouse);
  if (what && !isMouse) byId('status').textContent = what.lines.join(' · ');
  if (tip.hidden) return;
  tip.replaceChildren(...what.lines.map(line => element('div', line)));
  const {offsetWidth, offsetHeight} = tip;
  const left = Math.min(event.clientX + 14, innerWidth - offsetWidth - 4);
  const below = event.clientY + 18 + offsetHeight < innerHeight;
  tip.style.left = Math.max(2, left) + 'px';
  tip.style.top = (below ? event.clientY + 16 : event.clientY - offsetHeight - 10) + 'px';
}

function pick(id) {
  chosen.func = id;
  table.mark(id);
  for (const button of document.querySelectorAll('[data-mode]')) button.disabled = false;
  const {functions} = data, {isTime} = chosen.view;
  byId('status').textContent = `${functions.whole(id)} · ${functions.image(id)} · total `
    + `${amountText(totals.total[id], isTime)} · itself ${amountText(totals.own[id], isTime)}`;
}

const recountSoon = soon(() => recount({times: false}));

function setRange(range, isEnd) {
  if (range && range[1] - range[0] < 1) range = null;
  chosen.range = timeline.range = heat.range = range;
  const [from, to] = range || [0, data.end];
  byId('from').value = digits(from / 1000, 3).replaceAll(',', '');
  byId('to').value = digits(to / 1000, 3).replaceAll(',', '');
  byId('all-time').disabled = byId('closer').disabled = !range;
  timeline.paint();
  heat.paint();
  if (isEnd) recountSoon();
}

function setThread(text) {
  chosen.thread = byId('thread').value = text;
  recount();
}

/// The lists to choose from.
function fill() {
  const {head} = data, option = (value, text) => element('option', text, {value});
  const views = viewsOf(head);
  byId('event').append(...views.map(view => option(view.id, view.name)));
  chosen.view = views.find(view => view.id === head.shown) || views[0];
  byId('event').value = chosen.view.id;
  byId('event').onchange = event => {
    chosen.view = views.find(view => view.id === event.target.value);
    recount();
  };
  const used = new Set(head.threads.map(thread => thread.process));
  byId('process').append(option('', `all (${used.size})`), ...[...used].map(id =>
    option(id, `${head.processes[id].name} ${head.processes[id].pid}`)));
  byId('process').onchange = event => { chosen.process = event.target.value; recount(); };
  const names = new Set(head.threads.map(thread => thread.name));
  byId('threads').append(...[...names].map(name => option(name, '')));
  byId('thread').oninput = event => { chosen.thread = event.target.value; recount(); };
  const labels = [...new Set(head.labels.flat())].sort();
  byId('labelled').hidden = !labels.length;
  byId('labels').append(...labels.slice(0, 1000).map(name => option(name, '')));
  byId('label').oninput = event => { keepLabel(event.target.value.trim()); recount(); };
  byId('frames').append(option('', 'all'), option('user', 'without the kernel'),
    option('own', "the program's own"), ...(head.languages.length > 1
      ? [option('languages', 'all languages')] : []),
    ...head.languages.map(name => option(name, name)));
  byId('frames').onchange = event => {
    chosen.kept = event.target.value;
    recount({times: false, tree: true});
  };
  const isThere = new Set(data.functions.kind), kinds = [...isThere].sort((a, b) => a - b);
  if (views.some(view => view.id === 'off-cpu')) kinds.push(WAITING);
  byId('legend').append(...kinds.map(kind => {
    const item = element('li'), swatch = element('i', '', {'data-kind': kind});
    item.append(swatch, kind === WAITING ? 'waiting' : kindName(kind));
    return item;
  }));
  const notes = byId('notes');
  notes.hidden = !head.notes.length;
  const {length} = head.notes;
  notes.querySelector('summary').textContent = length === 1 ? '1 note' : `${length} notes`;
  notes.querySelector('ul').append(...head.notes.map(note => element('li', note)));
  byId('command').textContent = document.title = head.command || 'Profile';
}

function press(name, value) {
  document.body.dataset[name] = value;
  for (const button of document.querySelectorAll(`button[data-${name}]`)) {
    button.setAttribute('aria-pressed', button.dataset[name] === value);
  }
}

function repaint() {
  for (const swatch of document.querySelectorAll('[data-kind]')) {
    swatch.style.background = colour(Number(swatch.dataset.kind));
  }
  for (const part of [flame, timeline, heat, table]) part.paint();
}

function listen() {
  const each = (what, action) => document.querySelectorAll(what).forEach(button =>
    button.addEventListener('click', () => action(button)));
  each('button[data-mode]', button => { chosen.mode = button.dataset.mode; showFlame(); });
  each('button[data-times]', button => press('times', button.dataset.times));
  each('button[data-tab]', ({dataset: {tab}}) => {
    press('tab', tab);
    if (tab === 'timeline' || tab === 'heat') press('times', tab);
  });
  byId('filters').onclick = event => {
    const isOpen = document.body.classList.toggle('filters');
    event.target.setAttribute('aria-expanded', isOpen);
  };
  byId('reset').onclick = () => { chosen.mode = 'flame'; showFlame(); };
  byId('all-time').onclick = () => setRange(null, true);
  byId('closer').onclick = () => { timeline.zoom(chosen.range); byId('wider').disabled = false; };
  byId('wider').onclick = () => { timeline.zoom(null); byId('wider').disabled = true; };
  byId('from').onchange = byId('to').onchange = () => {
    const [from, to] = ['from', 'to'].map(id => Number(byId(id).value) * 1000);
    const isRange = from >= 0 && to > from && (from > 0 || to < data.end - 1);
    setRange(isRange ? [from, Math.min(to, data.end)] : null, true);
  };
  byId('search').oninput = soon(() => { chosen.search = byId('search').value.trim(); search(); });
  byId('theme').onclick = () => {
    theme = document.documentElement.dataset.theme = isDark() ? 'light' : 'dark';
    repaint();
  };
  darkness.addEventListener('change', repaint);
  byId('choices').onsubmit = event => event.preventDefault();
  document.addEventListener('keydown', event => {
    const isTyping = event.target.closest('input, select');
    if (event.key === 'Escape' && isTyping) event.target.blur();
    if (event.key !== '/' || isTyping || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    byId('search').focus();
  });
}

async function start() {
  data = decode(await bytesOfPage());
  table = new Table(byId('table'), {onPick: id => pick(id)});
  flame = new Flame(byId('flame'), {describe, onPoint: point, onPick: id => pick(id)});
  const onRange = setRange, onPoint = point;
  const onThread = thread => setThread(chosen.thread === thread.title ? '' : thread.title);
  timeline = new Timeline(byId('timeline'), {onRange, onPoint, onThread});
  heat = new HeatMap(byId('heat'), {onRange, onPoint});
  fill();
  listen();
  press('tab', 'flame');
  press('times', 'timeline');
  recount();
  setRange(null, false);
  repaint();
  byId('status').textContent = '';
  requestAnimationFrame(() => setTimeout(() => { document.body.dataset.ready = 'yes'; }));
}

start().catch(error => {
  byId('status').textContent = `This page cannot be shown: ${error.message}`;
  throw error;
});
