// Uses a page as people do. `node check.mjs PAGE HOSTILE_PAGE ADDRESS`, where tools/ has
// playwright-core; pictures go to the working directory.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
const {chromium} = createRequire(process.cwd() + '/tools/')('playwright-core');

const [file, hostile, address] = process.argv.slice(2);
const browser = await chromium.launch({executablePath: '/usr/bin/chromium', args: ['--no-sandbox',
  '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync']});
const problems = [];

async function open(url, width, height, colorScheme = 'light') {
  const context = await browser.newContext({viewport: {width, height}, colorScheme});
  const page = await context.newPage();
  page.on('pageerror', error => problems.push(error.stack));
  page.on('console', message => problems.push(message.text()));
  page.on('dialog', dialog => problems.push(dialog.message()));
  page.on('request', request => {
    const own = request.url() === url || request.url().startsWith('data:');
    if (!own) problems.push('asked for ' + request.url());
  });
  const begun = performance.now();
  await page.goto(url);
  await page.waitForSelector('body[data-ready]', {timeout: 60000, state: 'attached'});
  page.took = Math.round(performance.now() - begun);
  return page;
}

const settle = page => page.evaluate(() => new Promise(done =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))));
const wholeOf = page => page.evaluate('whole');
const close = (a, b) => assert.ok(Math.abs(a - b) <= 1e-6 * Math.max(a, b), `${a} and ${b}`);

const step = async (name, action) => {
  try { await action(); } finally { for (const problem of problems) console.log(problem); }
  assert.deepEqual(problems, [], name);
  console.log('ok  ' + name);
};

const page = await open('file://' + file, 1600, 1000);
const {samples, nodes, end} = await page.evaluate(
  '({samples: data.samples, nodes: data.head.nodes, end: data.end})');
console.log(`${samples} samples, ${nodes} nodes: shown after ${page.took} ms`);
const whole = await wholeOf(page);
const box = id => page.locator(id).boundingBox();
const valuesOf = id => page.locator(id + ' option').evaluateAll(all => all.map(one => one.value));
const root = () => page.evaluate('flame.root');

await step('there are a table, a graph and a legend', async () => {
  assert.ok(whole > 0 && await page.locator('#table [data-row]').count() > 3);
  assert.ok(await page.locator('#legend li').count() > 1);
  assert.ok(await page.evaluate('flame.rows.length') > 3);
  await page.screenshot({path: 'wide.png'});
});
await step('clicks zoom into the graph and out', async () => {
  const {x, y} = await box('#flame');
  await page.mouse.click(x + 40, y + 19 * 3 + 9);
  assert.ok(await root() > 0);
  await page.click('#reset');
  assert.equal(await root(), 0);
  await page.mouse.move(x + 40, y + 19 * 2 + 9);
  assert.match(await page.locator('#tip').innerText(), /%/);
});
await step('keys go from frame to frame, zoom, and go back', async () => {
  await page.focus('#flame');
  for (const key of ['ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowLeft', 'Enter']) {
    await page.keyboard.press(key);
  }
  assert.ok(await root() > 0);
  assert.match(await page.locator('#status').innerText(), /%/);
  await page.keyboard.press('Backspace');
  await page.keyboard.press('Escape');
  assert.equal(await root(), 0);
});
await step('the reversed graph has the same in it, level by level', async () => {
  await page.click('[data-mode=reversed]');
  await settle(page);
  const [total, first, own] = await page.evaluate(`(() => {
    const {tree} = flame;
    let sum = 0;
    for (let at = tree.below(0); at > 0; at = tree.next[at]) sum += tree.total[at];
    return [tree.total[0], sum, totals.own.reduce((a, b) => a + b)];
  })()`);
  close(total, first);
  close(total, own);
  await page.screenshot({path: 'reversed.png'});
});
await step('a row of the table has callers and callees', async () => {
  await page.click('[data-sort=total]');
  await page.locator('#table [data-row]').nth(2).click();
  for (const mode of ['callers', 'callees']) {
    await page.click(`[data-mode=${mode}]`);
    const total = await page.evaluate('totals.total[chosen.func]');
    close(await page.evaluate('flame.tree.total[0]'), total);
  }
  await page.click('[data-mode=flame]');
});
await step('a range is chosen in the timeline, and ends', async () => {
  const {x, y, width} = await box('#timeline');
  await page.mouse.move(x + width * 0.4, y + 30);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.7, y + 60, {steps: 5});
  await page.mouse.up();
  await settle(page);
  const range = await page.evaluate('chosen.range');
  assert.ok(range[0] > 0 && range[1] < end && await wholeOf(page) < whole);
  await page.click('#closer');
  await page.click('#wider');
  await page.click('#all-time');
  await settle(page);
  assert.equal(await wholeOf(page), whole);
});
await step('ranges beside each other have all that has a time', async () => {
  const sums = await page.evaluate(`(() => {
    const {view} = chosen, threads = data.head.threads, size = data.calls.parent.length;
    const sum = range => count(data, {events: view.events, threads, range}, size, null).own
      .reduce((a, b) => a + b);
    return [[-Infinity, data.end / 3], [data.end / 3 + 1e-6, Infinity], [-Infinity, Infinity]]
      .map(sum);
  })()`);
  assert.ok(Math.abs(sums[0] + sums[1] - sums[2]) <= 1e-3 * sums[2], sums.join(' '));
});
await step('a range is chosen in the heat map, and by keys and numbers', async () => {
  await page.click('[data-times=heat]');
  await settle(page);
  const {x, y} = await box('#heat');
  await page.mouse.move(x + 90, y + 40);
  await page.mouse.down();
  await page.mouse.move(x + 130, y + 60, {steps: 5});
  await page.mouse.up();
  await settle(page);
  const range = await page.evaluate('chosen.range');
  assert.ok(range && range[1] > range[0]);
  await page.screenshot({path: 'heat.png'});
  await page.click('[data-times=timeline]');
  await page.focus('#timeline');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Shift+ArrowRight');
  await page.keyboard.press('ArrowDown');
  assert.ok((await page.evaluate('chosen.range'))[1] > range[1]);
  await page.keyboard.press('Escape');
  await page.fill('#to', String(end / 2000));
  await page.keyboard.press('Enter');
  assert.ok(await page.evaluate('chosen.range'));
  await page.click('#all-time');
  await settle(page);
});
await step('processes and events have what they have', async () => {
  let sum = 0;
  const values = await valuesOf('#process');
  for (const value of values.slice(1)) {
    await page.selectOption('#process', value);
    sum += await wholeOf(page);
  }
  close(sum, whole);
  await page.selectOption('#process', '');
  const event = await page.locator('#event').inputValue();
  for (const value of [...await valuesOf('#event'), event]) await page.selectOption('#event', value);
  close(await wholeOf(page), whole);
  const name = await page.evaluate('data.head.threads[0].title');
  await page.fill('#thread', name);
  assert.ok(await page.evaluate('timeline.threads.length') < 4);
  await page.fill('#thread', '');
});
await step('labels of regions have what they have', async () => {
  const labels = await page.evaluate('data.head.labels.flat()');
  assert.equal(await page.locator('#labelled').isVisible(), labels.length > 0);
  for (const label of labels.slice(0, 3)) {
    await page.fill('#label', label);
    const sum = await page.evaluate(`data.recorded.reduce((sum, event, i) => sum
      + (chosen.view.events[event] && data.head.labels[data.label[i]].includes(${JSON.stringify(label)})
        ? data.amount[i] : 0), 0)`);
    close(await wholeOf(page), sum);
  }
  if (labels.length) await page.fill('#label', '');
  assert.equal(await wholeOf(page), whole);
});
await step('frames of a kind have the whole, and only that kind', async () => {
  const whole = await wholeOf(page);
  const values = await valuesOf('#frames');
  for (const value of values) {
    await page.selectOption('#frames', value);
    close(await wholeOf(page), whole);
    const kinds = await page.evaluate('[...folded.calls.func].map(id => data.functions.kind[id])');
    if (value === 'user') assert.ok(!kinds.includes(3));
    await page.click('[data-mode=reversed]');
    await page.click('[data-mode=flame]');
  }
  await page.selectOption('#frames', '');
});
await step('a search finds, also what is no regular expression', async () => {
  await page.focus('#flame');
  await page.keyboard.press('/');
  await page.keyboard.type('_start');
  await settle(page);
  assert.match(await page.locator('#found').innerText(), /%/);
  await page.fill('#search', '(*');
  await settle(page);
  await page.fill('#search', '');
});
await step('the table scrolls', async () => {
  const {x, y} = await box('#table');
  await page.mouse.move(x + 50, y + 80);
  await page.mouse.wheel(0, 3000);
  await settle(page);
  await page.focus('#table');
  await page.keyboard.press('PageDown');
});
await step('drawing is fast', async () => {
  const times = await page.evaluate(`(() => {
    const measure = action => {
      const begun = performance.now();
      action();
      return performance.now() - begun;
    };
    const range = [data.end * 0.2, data.end * 0.6];
    return {flame: measure(() => flame.draw()), layout: measure(() => flame.layout()),
      timeline: measure(() => timeline.draw()),
      range: measure(() => { chosen.range = range; recount({times: false}); chosen.range = null; })};
  })()`);
  const text = Object.entries(times).map(([name, ms]) => `${name} ${ms.toFixed(1)} ms`);
  console.log('    ' + text.join(', '));
});
await step('it is dark where the system is, and when asked', async () => {
  const dark = await open('file://' + file, 1600, 1000, 'dark');
  await dark.screenshot({path: 'dark.png'});
  const back = () => dark.evaluate('getComputedStyle(document.body).backgroundColor');
  const before = await back();
  await dark.click('#theme');
  assert.notEqual(await back(), before);
});
await step('it fits on a telephone', async () => {
  const small = await open('file://' + file, 390, 844);
  await small.click('#filters');
  assert.ok(await small.locator('#event').isVisible());
  await small.screenshot({path: 'small-filters.png'});
  await small.click('#filters');
  for (const tab of ['flame', 'table', 'timeline', 'heat']) {
    await small.click(`nav [data-tab=${tab}]`);
    await settle(small);
    assert.equal(await small.evaluate('document.documentElement.scrollWidth'), 390);
    await small.screenshot({path: `small-${tab}.png`});
  }
});
await step('names are never markup', async () => {
  const page = await open('file://' + hostile, 1600, 1000);
  assert.match(await page.locator('h1').innerText(), /<\/script><img src=x onerror/);
  assert.equal(await page.locator('img').count(), 0);
  assert.notEqual(await page.title(), 'owned');
  await page.click('[data-mode=reversed]');
});
await step('rsunwind view serves the same', async () => {
  const served = await open(address, 1600, 1000);
  assert.equal(await wholeOf(served), whole);
});
await browser.close();
