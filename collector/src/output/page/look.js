// Colours, words and numbers.

const WAITING = -1;

const darkness = matchMedia('(prefers-color-scheme: dark)');
let theme = '';
const isDark = () => theme ? theme === 'dark' : darkness.matches;

/// A colour of a kind, for light or dark ground, of which neighbours have different shades.
function colour(kind, id = 0) {
  const key = (kind + 1) * 3 + (id > 0 ? id % 3 : 0), known = isDark() ? colour.dark : colour.light;
  return known[key] ||= shade(baseColour(kind)[isDark() ? 1 : 0], [0, 9, -9][id > 0 ? id % 3 : 0]);
}
colour.light = [];
colour.dark = [];

function baseColour(kind) {
  const {kinds, languages, waiting} = PALETTE;
  if (kind === WAITING) return waiting;
  return kinds[kind] || languages[(kind - kinds.length) % languages.length];
}

function shade(hex, by) {
  const parts = [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16) + by);
  return `rgb(${parts.map(part => Math.max(0, Math.min(255, part))).join(',')})`;
}

/// The colours of the page's own parts, as its style has them.
function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

const digits = (number, most) =>
  number.toLocaleString('en', {minimumFractionDigits: most, maximumFractionDigits: most});

/// Nanoseconds in milliseconds; of what is no time the number.
function amountText(amount, isTime) {
  if (!isTime) return digits(amount, 0);
  const ms = amount / 1e6;
  return digits(ms, ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 1 ? 2 : 3) + ' ms';
}

/// Microseconds since the start, in milliseconds; `step` is how far apart such times are.
function timeText(us, step = 1000) {
  return digits(us / 1000, step >= 1000 ? 0 : step >= 100 ? 1 : 3) + ' ms';
}

const percent = (part, whole) => whole > 0 ? digits(part / whole * 100, 1) + ' %' : '–';

/// A round step of which some `count` make `span`.
function roundStep(span, count) {
  const least = span / count, unit = 10 ** Math.floor(Math.log10(least));
  return unit * ([1, 2, 5].find(factor => factor * unit >= least) || 10);
}

/// An element with text in it; text of programs is never anything but text.
function element(tag, text = '', attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/// Fits a canvas to its place, in the screen's own pixels, and gives what draws on it.
function fit(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) {
    [canvas.width, canvas.height] = [across, down];
    [canvas.style.width, canvas.style.height] = [width + 'px', height + 'px'];
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = '12px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  return pen;
}

/// Text that is cut to a width.
function fitText(pen, text, width) {
  if (text.length * 3 > width) text = text.slice(0, Math.ceil(width / 3));
  const whole = pen.measureText(text).width;
  if (whole <= width) return text;
  let fits = Math.floor(text.length * width / whole);
  while (fits > 1 && pen.measureText(text.slice(0, fits) + '…').width > width) fits--;
  return fits > 1 ? text.slice(0, fits) + '…' : '';
}

/// Does something before the next picture, once.
function soon(action) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; action(); });
  };
}
