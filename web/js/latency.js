/** Where the time of one answer went: the sums (pure) and the stacked bar (DOM). */

export const PARTS = Object.freeze([
  { key: 'endpoint_ms', name: 'endpoint', label: 'Endpoint', hint: 'deciding that you had finished' },
  { key: 'asr_final_ms', name: 'recogniser', label: 'Recogniser', hint: 'settling your words' },
  { key: 'nlu_first_ms', name: 'hook', label: 'Hook', hint: 'first words of the answer' },
  { key: 'tts_first_ms', name: 'voice', label: 'Voice', hint: 'first sound of the answer' },
  { key: 'playout_ms', name: 'playout', label: 'Playout', hint: 'on its way to you' },
]);

const CACHE_WORDS = { hit: 'voice from the cache', predicted: 'voice predicted and ready', miss: '' };
const MIN_SCALE_MS = 400; // So that a very fast answer does not fill the whole row.

const number = (value) => (typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null);
const shown = (ms) => (ms === null ? '–' : `${Math.round(ms)} ms`);

/**
 * {turn, total, parts: [{name, label, ms, width}], rest, cache, text}. Milliseconds; null where a part did not take place.
 * `total` is the server's own response time, not the sum: parts may overlap (speculation) or leave a rest.
 */
export function breakdown(timing) {
  const parts = PARTS.map(({ key, name, label, hint }) => ({ name, label, hint, ms: number(timing[key]) }));
  const sum = parts.reduce((total, part) => total + (part.ms ?? 0), 0);
  const total = number(timing.response_ms);
  const rest = total === null ? 0 : Math.max(0, total - sum);
  const cache = CACHE_WORDS[timing.cache] ?? '';
  const said = parts.filter((part) => part.ms !== null).map((part) => `${part.name} ${Math.round(part.ms)}`);
  const head = total === null ? `Turn ${timing.turn}` : `Turn ${timing.turn}, ${Math.round(total)} milliseconds in total`;
  const text = `${head}: ${said.join(', ') || 'no parts measured'}${cache ? `; ${cache}` : ''}`;
  return { turn: timing.turn, total, sum, parts, rest, cache, text };
}

/** The longest of some breakdowns, as the common scale of their bars, in milliseconds. */
export const scaleOf = (breakdowns) => Math.max(MIN_SCALE_MS, ...breakdowns.map((one) => Math.max(one.total ?? 0, one.sum)));

function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

function bar(one, scaleMs) {
  const track = element('div', 'bar');
  track.setAttribute('role', 'img');
  track.setAttribute('aria-label', one.text);
  const pieces = [...one.parts, { name: 'rest', ms: one.rest }].filter((part) => part.ms > 0);
  for (const part of pieces) {
    const piece = element('span', `piece piece-${part.name}`);
    piece.style.inlineSize = `${(100 * part.ms) / scaleMs}%`;
    track.append(piece);
  }
  return track;
}

function numbers(one) {
  const list = element('dl', 'parts');
  for (const part of one.parts) {
    const row = element('div', 'part');
    const term = element('dt', '', part.label);
    term.title = part.hint;
    term.prepend(element('span', `swatch piece-${part.name}`));
    row.append(term, element('dd', '', shown(part.ms)));
    list.append(row);
  }
  return list;
}

/** Fill `latest` with the newest answer in full and `earlier` with one foldable row for each of those before, newest first. */
export function renderLatency(latest, earlier, timings, limit = 8) {
  const all = timings.slice(-limit).map(breakdown).reverse();
  if (all.length === 0) return;
  const scaleMs = scaleOf(all);
  const [newest, ...older] = all;
  const head = element('p', 'latest-head');
  head.append(element('strong', 'latest-total', shown(newest.total)), element('span', 'latest-turn', `turn ${newest.turn}`));
  if (newest.cache) head.append(element('span', 'tag', newest.cache));
  latest.replaceChildren(head, bar(newest, scaleMs), numbers(newest));
  const open = new Set([...earlier.querySelectorAll('details[open]')].map((row) => row.dataset.turn));
  const focused = earlier.contains(document.activeElement) ? document.activeElement.closest('details')?.dataset.turn : null;
  earlier.replaceChildren(
    ...older.map((one) => {
      const item = element('li');
      const details = element('details');
      details.dataset.turn = String(one.turn);
      details.open = open.has(details.dataset.turn);
      const summary = element('summary');
      summary.append(element('span', 'row-turn', `Turn ${one.turn}`), bar(one, scaleMs), element('span', 'row-total', shown(one.total)));
      details.append(summary, numbers(one));
      item.append(details);
      return item;
    }),
  );
  if (focused) earlier.querySelector(`details[data-turn="${focused}"] > summary`)?.focus();
}
