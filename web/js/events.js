/**
 * What the page knows about a call, as a pure function of what happened: `reduce(state, event) -> state`.
 *
 * Events are those of the `oai-events` data channel (OpenAI Realtime names, plus `rejoinder.*`) and the page's own, whose
 * types begin with `page.`. No DOM, no clock, no network here, so every rule can be tested by feeding it events.
 *
 * State (treat it as frozen; a changed state is a new object):
 *   phase      'idle' | 'microphone' | 'calling' | 'queued' | 'connecting' | 'live' | 'interrupted' | 'resuming' | 'ended'
 *   position   place in the queue while the phase is 'queued'; 1 is next
 *   wasLive    the call was connected at some time
 *   session    what session.created said, or null
 *   floor      'caller' | 'agent' | 'thinking' | 'nobody'
 *   items      the conversation, oldest first:
 *                {id, role: 'user', text, final, speaking, typed, known}
 *                {id, role: 'agent', text, heard, unheard, status: 'in_progress'|'completed'|'cancelled'|'failed'}
 *                {id, role: 'note', kind: 'keys'|'transfer'|'data', text}
 *   timings    one an answer, oldest first, as rejoinder.timings sent them, plus `turn` (1, 2, ...)
 *   playing    id of the reply that is being heard, or null
 *   muted      the caller's microphone is off
 *   stalled    nothing of the caller's sound reaches the server
 *   channelOpen  messages can be sent
 *   keys       digits pressed on this page, newest last
 *   error      {code, detail, param} to be explained by errors.js, or null
 *   retryInS   seconds until the server may be asked again, or 0
 *   endReason  why the last call ended, or ''
 */

// A call of hours must not fill the tab: these keep the newest.
const MAX_ITEMS = 400;
const MAX_TIMINGS = 60;
const MAX_KEYS = 24;
const MAX_DATA_CHARS = 300;

export const LIVE_PHASES = Object.freeze(['live', 'interrupted']);
export const BUSY_PHASES = Object.freeze(['microphone', 'calling', 'queued', 'connecting', 'live', 'interrupted', 'resuming']);
const FLOORS = ['caller', 'agent', 'thinking', 'nobody'];
// Written languages that put no space between words.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

export function initialState() {
  return {
    phase: 'idle',
    position: 0,
    wasLive: false,
    session: null,
    floor: 'nobody',
    items: [],
    timings: [],
    turns: 0,
    playing: null,
    muted: false,
    stalled: false,
    channelOpen: false,
    keys: '',
    error: null,
    retryInS: 0,
    endReason: '',
    serial: 0,
  };
}

/** The items worth showing: those with words, and a caller who is just speaking. */
export function visibleItems(state) {
  return state.items.filter((item) => {
    if (item.role === 'user') return item.text !== '' || item.speaking;
    if (item.role === 'agent') return item.text !== '' || item.heard !== '' || item.unheard !== '';
    return true;
  });
}

/** The heard and the unheard part of an agent's item; the unheard part is '' unless the reply was cut. */
export function spoken(item) {
  if (item.status !== 'cancelled' && item.status !== 'failed') return { heard: item.text, unheard: '' };
  const { heard, unheard } = item;
  if (heard !== '' && item.text.startsWith(heard)) return { heard, unheard: item.text.slice(heard.length) };
  if (heard === '' || unheard === '') return { heard, unheard };
  const joint = /\s$/u.test(heard) || /^\s/u.test(unheard) || UNSPACED.test(heard.at(-1) + unheard[0]) ? '' : ' ';
  return { heard, unheard: joint + unheard };
}

export function reduce(state, event) {
  if (event === null || typeof event !== 'object' || typeof event.type !== 'string') return state;
  return Object.hasOwn(HANDLERS, event.type) ? HANDLERS[event.type](state, event) : state;
}

const text = (value) => (typeof value === 'string' ? value : '');
const keepNewest = (list, limit) => (list.length > limit ? list.slice(list.length - limit) : list);

function patchItem(state, id, change, create) {
  const index = state.items.findLastIndex((item) => item.id === id);
  if (index >= 0) {
    const items = state.items.slice();
    items[index] = { ...items[index], ...(typeof change === 'function' ? change(items[index]) : change) };
    return { ...state, items };
  }
  if (!create) return state;
  const item = { ...create, id };
  const made = { ...item, ...(typeof change === 'function' ? change(item) : change) };
  return { ...state, items: keepNewest([...state.items, made], MAX_ITEMS) };
}

const newUser = { role: 'user', text: '', final: false, speaking: false, typed: false, known: true };
const newAgent = { role: 'agent', text: '', heard: '', unheard: '', status: 'in_progress' };

function addNote(state, kind, noteText) {
  const serial = state.serial + 1;
  const note = { id: `note-${serial}`, role: 'note', kind, text: noteText };
  return { ...state, serial, items: keepNewest([...state.items, note], MAX_ITEMS) };
}

// A typed message shows at once under an id of our own. A server that reports it as a turn uses an id of its own:
// the first unannounced final with the same words is that turn, not a second message.
function adoptTyped(state, id, words) {
  if (state.items.some((item) => item.id === id)) return state;
  const index = state.items.findIndex((item) => item.typed && !item.known && item.text.trim() === words.trim());
  if (index < 0) return state;
  const items = state.items.slice();
  items[index] = { ...items[index], id, known: true };
  return { ...state, items };
}

function heardOf(response) {
  for (const output of Array.isArray(response.output) ? response.output : []) {
    for (const part of Array.isArray(output?.content) ? output.content : []) {
      if (typeof part?.transcript === 'string') return part.transcript;
    }
  }
  return '';
}

// A page that was reloaded knows nothing; one that reconnected knows all but what happened meanwhile.
function recalled(state, { items }) {
  return (Array.isArray(items) ? items : []).reduce((next, item) => {
    if (!item?.id) return next;
    const words = text(item.text);
    if (item.role === 'user') {
      const change = { text: words, final: item.final === true, speaking: false };
      return patchItem(adoptTyped(next, item.id, words), item.id, change, newUser);
    }
    const status = text(item.status) || 'completed';
    const heard = text(item.heard);
    const said = status === 'completed' ? heard || words : words;
    return patchItem(next, item.id, { text: said, heard, unheard: text(item.unheard), status }, newAgent);
  }, state);
}

const HANDLERS = {
  'rejoinder.history': recalled,
  'session.created': (state, { session }) => ({ ...state, session: session ?? null }),
  'session.updated': (state, { session }) => ({ ...state, session: { ...state.session, ...session } }),

  'input_audio_buffer.speech_started': (state, { item_id: id }) =>
    id ? patchItem(state, id, { speaking: true }, newUser) : state,
  'input_audio_buffer.speech_stopped': (state, { item_id: id }) => patchItem(state, id, { speaking: false }),

  'conversation.item.input_audio_transcription.delta': (state, event) => {
    if (!event.item_id) return state;
    // A partial may be revised, so the whole text so far wins over the piece when the server sends it.
    const whole = typeof event.transcript === 'string' ? event.transcript : null;
    const change = (item) => (item.final ? {} : { text: whole ?? item.text + text(event.delta) });
    return patchItem(state, event.item_id, change, newUser);
  },
  'conversation.item.input_audio_transcription.completed': (state, event) => {
    if (!event.item_id) return state;
    const words = text(event.transcript);
    const change = { text: words, final: true, speaking: false };
    return patchItem(adoptTyped(state, event.item_id, words), event.item_id, change, newUser);
  },

  'response.created': (state, { response }) => (response?.id ? patchItem(state, response.id, {}, newAgent) : state),
  'response.output_audio_transcript.delta': (state, event) =>
    event.response_id
      ? patchItem(state, event.response_id, (item) => ({ text: item.text + text(event.delta) }), newAgent)
      : state,
  'response.output_audio_transcript.done': (state, event) =>
    event.response_id && typeof event.transcript === 'string'
      ? patchItem(state, event.response_id, { text: event.transcript }, newAgent)
      : state,
  'response.done': (state, { response }) => {
    if (!response?.id) return state;
    const status = text(response.status) || 'completed';
    const heard = text(response.rejoinder?.heard) || heardOf(response);
    const change = (item) => {
      const { text: said } = item;
      if (status === 'completed') return { status, text: heard || said, heard: heard || said, unheard: '' };
      const rest = said.startsWith(heard) ? said.slice(heard.length) : '';
      return { status, heard, unheard: text(response.rejoinder?.unheard) || rest };
    };
    const next = patchItem(state, response.id, change, newAgent);
    return next.playing === response.id && status !== 'completed' ? { ...next, playing: null } : next;
  },

  'output_audio_buffer.started': (state, event) => ({ ...state, playing: event.response_id ?? null }),
  'output_audio_buffer.stopped': (state) => ({ ...state, playing: null }),
  'output_audio_buffer.cleared': (state) => ({ ...state, playing: null }),

  'rejoinder.floor': (state, { floor }) => (FLOORS.includes(floor) ? { ...state, floor } : state),
  'rejoinder.timings': (state, { type: _type, event_id: _eventId, ...timing }) => {
    const same = state.timings.findIndex((one) => one.response_id === timing.response_id);
    if (timing.response_id && same >= 0) {
      return { ...state, timings: state.timings.with(same, { ...state.timings[same], ...timing }) };
    }
    const turn = state.turns + 1;
    return { ...state, turns: turn, timings: keepNewest([...state.timings, { ...timing, turn }], MAX_TIMINGS) };
  },
  'rejoinder.dtmf': (state, { digit }) => {
    const last = state.items.at(-1);
    if (last?.role === 'note' && last.kind === 'keys') {
      return patchItem(state, last.id, { text: `${last.text} ${text(digit)}` });
    }
    return addNote(state, 'keys', text(digit));
  },
  'rejoinder.transfer': (state, { to }) => addNote(state, 'transfer', text(to)),
  'rejoinder.data': (state, { data }) => {
    const shown = JSON.stringify(data) ?? '';
    return addNote(state, 'data', shown.length > MAX_DATA_CHARS ? `${shown.slice(0, MAX_DATA_CHARS)}…` : shown);
  },
  'rejoinder.media_stalled': (state) => ({ ...state, stalled: true }),
  'rejoinder.media_resumed': (state) => ({ ...state, stalled: false }),
  'rejoinder.ended': (state, { reason }) => ({ ...state, endReason: text(reason) || 'ended' }),
  error: (state, { error }) => ({
    ...state,
    error: { code: 'server-event', detail: text(error?.message) || text(error?.code), param: text(error?.param) },
  }),

  'page.calling': (state) => ({ ...initialState(), phase: 'microphone', serial: state.serial }),
  'page.resuming': (state, { muted }) => ({ ...initialState(), phase: 'resuming', wasLive: true, muted: muted === true }),
  'page.phase': (state, { phase }) => ({ ...state, phase, wasLive: state.wasLive || phase === 'live' }),
  'page.queued': (state, { position }) => ({ ...state, phase: 'queued', position }),
  // Nobody can say whose turn it is once the channel is gone.
  'page.channel': (state, { open }) =>
    open
      ? { ...state, channelOpen: true }
      : { ...state, channelOpen: false, stalled: false, floor: 'nobody', playing: null },
  'page.ended': (state, { reason }) => ({
    ...state,
    phase: reason === 'failed' && !state.wasLive ? 'idle' : 'ended', // A call that never came about has no end.
    floor: 'nobody',
    playing: null,
    stalled: false,
    channelOpen: false,
    endReason: state.endReason || reason,
    items: state.items.map((item) => (item.speaking ? { ...item, speaking: false } : item)),
  }),
  'page.muted': (state, { muted }) => ({ ...state, muted }),
  'page.typed': (state, { id, text: words }) =>
    patchItem(state, id, {}, { ...newUser, text: words, final: true, typed: true, known: false }),
  'page.key': (state, { digit }) => ({ ...state, keys: (state.keys + digit).slice(-MAX_KEYS) }),
  'page.error': (state, { error }) => ({ ...state, error, retryInS: error.retryAfterS ?? 0 }),
  'page.retry': (state, { inS }) => ({ ...state, retryInS: inS }),
  'page.dismissed': (state) => ({ ...state, error: null }),
};
