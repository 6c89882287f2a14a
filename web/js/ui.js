/**
 * State to DOM. Reads the state, never changes it; knows no call and no network.
 *
 * Every word that came from outside is set through `textContent`: what a caller says is data, never markup.
 */

import { BUSY_PHASES, LIVE_PHASES, spoken, visibleItems } from './events.js';
import { explain } from './errors.js';
import { renderLatency } from './latency.js';

export const KEYS = Object.freeze(['1', '2', '3', '4', '5', '6', '7', '8', '9', '*', '0', '#']);
const KEY_NAMES = { '*': 'star', '#': 'hash' };

const STATUS = {
  idle: 'Not connected',
  microphone: 'Allow the microphone',
  calling: 'Calling',
  connecting: 'Connecting',
  live: 'Connected',
  interrupted: 'Interrupted',
  resuming: 'Resuming your call',
  queued: 'In the queue',
  ended: 'Call ended',
};
const FLOOR = {
  caller: ['Listening to you', 'Take your time.'],
  agent: ['The agent is speaking', 'Speak to interrupt.'],
  thinking: ['Thinking', 'One moment.'],
  nobody: ['Your turn', 'The agent is listening.'],
};
const BEFORE = {
  idle: ['Talk with the agent', 'Press Call and speak. You may interrupt at any time.'],
  microphone: ['Allow the microphone', 'Your browser is asking.'],
  calling: ['Calling', 'Reaching the server.'],
  resuming: ['Resuming your call', 'Your microphone is on as before. Hang up if you are done.'],
  connecting: ['Connecting', 'Finding a path for the sound.'],
  interrupted: ['Interrupted', 'Waiting for the connection.'],
};
// The page's own reasons, then those of the server (rejoinder.ended).
const END_REASONS = {
  'hung-up': 'You hung up.',
  'server-hung-up': 'The agent ended the call.',
  lost: 'The connection was lost.',
  failed: '',
  'caller hung up': 'You hung up.',
  'agent hung up': 'The agent ended the call.',
  completed: 'The agent ended the call.',
  transferred: 'You were put through.',
  idle: 'Nobody spoke for a while, so the call was ended.',
  'maximum call time': 'The call reached its longest time.',
  'peer closed': 'The connection was closed.',
  'peer vanished': 'The connection was lost.',
  'not connected': 'The connection could not be made.',
  'server stopped': 'The server is stopping.',
  'internal error': 'Something went wrong on the server.',
};
const NEAR_END_PX = 80;

const byId = (id) => document.getElementById(id);

function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

const isAtEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;

function setText(node, content) {
  if (node.textContent !== content) node.textContent = content;
}

function ending(reason) {
  if (Object.hasOwn(END_REASONS, reason)) return END_REASONS[reason];
  return /[.!?]$/.test(reason) ? `The call ended: ${reason}` : `The call ended: ${reason}.`;
}

function heading(state) {
  if (state.phase === 'queued') return ['All lines are busy', `You are number ${state.position} in the queue. Please hold.`];
  if (state.phase === 'live') return FLOOR[state.floor];
  if (state.phase === 'ended') return ['Call ended', ending(state.endReason)];
  return BEFORE[state.phase];
}

/** Why the agent cannot hear the caller; '' when it can. */
function unheard(state) {
  if (!LIVE_PHASES.includes(state.phase)) return '';
  if (state.muted) return 'You are muted: the agent cannot hear you.';
  return state.stalled ? 'Your sound is not reaching the agent. Check your network.' : '';
}

export class Ui {
  /** @param {object} actions  what buttons do: {retry, token, settings, sound, dismiss} */
  constructor(actions) {
    this.actions = actions;
    this.nodes = new Map(); // Conversation items by id: their node, and the item it shows.
    this.announced = new Set();
    this.last = null;
    this.#stayAtEnd(byId('transcript'));
  }

  render(state) {
    const before = this.last;
    this.last = state;
    const changed = (...names) => before === null || names.some((name) => before[name] !== state[name]);
    if (changed('phase', 'position', 'floor', 'muted', 'stalled', 'endReason')) this.#stage(state);
    if (changed('phase', 'muted', 'retryInS')) this.#controls(state);
    if (changed('channelOpen')) {
      byId('message').disabled = !state.channelOpen;
      byId('send').disabled = !state.channelOpen;
    }
    if (changed('items', 'timings')) this.#conversation(state);
    if (changed('timings')) {
      byId('latency-empty').hidden = state.timings.length > 0;
      if (state.timings.length === 0) {
        byId('latency-latest').replaceChildren();
        byId('latency-earlier').replaceChildren();
      }
      renderLatency(byId('latency-latest'), byId('latency-earlier'), state.timings);
    }
    if (changed('keys')) setText(byId('keys'), [...state.keys].join(' '));
    if (changed('error')) this.#alert(state.error);
  }

  /** Levels in [0, 1] for the eye; peaks, when there are any, for whoever asks with a screen reader. */
  levels(levels, peaks) {
    for (const [side, level] of Object.entries(levels)) {
      const meter = byId(`meter-${side}`);
      meter.firstElementChild.style.inlineSize = `${Math.round(level * 100)}%`;
      if (peaks) meter.setAttribute('aria-valuenow', String(Math.round(peaks[side] * 100)));
      document.body.style.setProperty(`--${side}-level`, level.toFixed(3));
    }
  }

  seconds(elapsed) {
    const [minutes, rest] = [Math.floor(elapsed / 60), String(elapsed % 60).padStart(2, '0')];
    setText(byId('timer'), `${minutes}:${rest}`);
  }

  askForToken(shown) {
    byId('token-form').hidden = !shown;
  }

  /** Fill a device list, keeping what is chosen. */
  devices(select, devices, chosenId) {
    const standard = new Option('System default', '');
    select.replaceChildren(standard, ...devices.map(({ id, label }) => new Option(label, id)));
    select.value = devices.some(({ id }) => id === chosenId) ? chosenId : '';
  }

  #stage(state) {
    document.body.dataset.phase = state.phase;
    document.body.classList.toggle('busy', BUSY_PHASES.includes(state.phase));
    document.body.dataset.floor = state.floor;
    document.body.dataset.muted = String(state.muted);
    const [title, hint] = heading(state);
    setText(byId('floor'), title);
    setText(byId('hint'), unheard(state) || hint);
    setText(byId('status'), STATUS[state.phase]);
    document.title = BUSY_PHASES.includes(state.phase) ? `${STATUS[state.phase]} – Rejoinder` : 'Rejoinder';
    byId('timer').hidden = !LIVE_PHASES.includes(state.phase) && state.phase !== 'ended';
  }

  #controls(state) {
    const busy = BUSY_PHASES.includes(state.phase);
    const focused = document.activeElement;
    const call = byId('call');
    const wait = state.retryInS > 0;
    call.hidden = busy;
    // aria-disabled keeps the button, and the focus on it, in place while the countdown runs.
    call.setAttribute('aria-disabled', String(wait));
    setText(byId('call-label'), wait ? `Call again in ${state.retryInS} s` : state.phase === 'ended' ? 'Call again' : 'Call');
    byId('hang-up').hidden = !busy;
    byId('mute').hidden = !busy;
    byId('mute').setAttribute('aria-pressed', String(state.muted));
    byId('open-keypad').hidden = !busy;
    byId('meters').hidden = !busy;
    if (!busy) this.keypad(false);
    if (focused?.hidden || focused?.closest?.('[hidden]')) (busy ? byId('hang-up') : call).focus();
  }

  /** Show or hide the keypad; returns whether it is shown. */
  keypad(shown) {
    byId('keypad').hidden = !shown;
    byId('open-keypad').setAttribute('aria-expanded', String(shown));
    return shown;
  }

  // A keypad or a phone's keyboard that opens takes room from the conversation: its newest line stays in view.
  #stayAtEnd(box) {
    let atEnd = true;
    box.addEventListener('scroll', () => {
      atEnd = isAtEnd(box);
    });
    new ResizeObserver(() => {
      if (atEnd) box.scrollTop = box.scrollHeight;
    }).observe(box);
  }

  #conversation(state) {
    const box = byId('transcript');
    const follow = isAtEnd(box);
    const items = visibleItems(state);
    const totals = new Map(state.timings.map((timing) => [timing.response_id, timing.response_ms]));
    byId('transcript-empty').hidden = items.length > 0;
    const wanted = items.map((item) => {
      const total = totals.get(item.id);
      const known = this.nodes.get(item.id);
      if (known && known.item === item && known.total === total) return known.node;
      const node = this.#item(item, total, known?.node);
      this.nodes.set(item.id, { item, total, node });
      this.#announce(item);
      return node;
    });
    const list = byId('items');
    const keep = new Set(wanted);
    for (const node of [...list.children]) if (!keep.has(node)) node.remove();
    wanted.forEach((node, index) => {
      if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
    });
    const ids = new Set(items.map((item) => item.id));
    for (const id of this.nodes.keys()) if (!ids.has(id)) this.nodes.delete(id);
    if (items.length === 0) this.announced.clear();
    if (follow) box.scrollTop = box.scrollHeight;
  }

  #item(item, total, node = element('li')) {
    node.className = `item item-${item.role}`;
    if (item.role === 'note') {
      node.replaceChildren(element('p', 'note', noteText(item)));
      return node;
    }
    const who = element('p', 'who', item.role === 'user' ? (item.typed ? 'You, typed' : 'You') : 'Agent');
    if (typeof total === 'number') who.append(element('span', 'who-time', `${Math.round(total)} ms`));
    const words = element('p', 'words');
    words.dir = 'auto';
    if (item.role === 'user') {
      words.classList.toggle('partial', !item.final);
      words.append(item.text);
      if (!item.final) words.append(dots());
    } else {
      const { heard, unheard } = spoken(item);
      words.append(element('span', 'heard', heard));
      if (unheard !== '') {
        const cut = element('s', 'unheard', unheard.trimStart());
        const space = unheard.slice(0, unheard.length - unheard.trimStart().length);
        words.append(space, element('span', 'visually-hidden', ' Interrupted. Not heard: '), cut);
      }
      node.classList.toggle('item-failed', item.status === 'failed');
    }
    node.replaceChildren(who, words);
    if (item.status === 'failed') node.append(element('p', 'fault', 'This answer broke off.'));
    return node;
  }

  // Only what is settled is read out: partials would make a screen reader stammer over the call.
  #announce(item) {
    const settled = item.role === 'user' ? item.final && !item.typed : item.role === 'agent' ? item.status !== 'in_progress' : true;
    if (!settled || this.announced.has(item.id)) return;
    if (item.role !== 'note') this.announced.add(item.id);
    const { heard, unheard } = item.role === 'agent' ? spoken(item) : { heard: '', unheard: '' };
    const line =
      item.role === 'user' ? `You: ${item.text}` : item.role === 'agent' ? `Agent: ${heard}${unheard ? ' (interrupted)' : ''}` : noteText(item);
    const log = byId('announcer');
    log.append(element('p', '', line));
    while (log.childElementCount > 20) log.firstElementChild.remove();
  }

  #alert(error) {
    const alert = byId('alert');
    const hadFocus = alert.contains(document.activeElement);
    if (error === null) {
      alert.replaceChildren();
      if (hadFocus) byId(BUSY_PHASES.includes(this.last.phase) ? 'hang-up' : 'call').focus();
      return;
    }
    const { title, advice, detail, actions } = explain(error);
    const words = element('div', 'alert-words');
    words.append(element('p', 'alert-title', title), element('p', '', advice));
    if (detail) words.append(element('p', 'alert-detail', detail));
    const buttons = element('div', 'alert-actions');
    const labels = { settings: 'Open Settings', sound: 'Turn sound on', token: 'Enter token' };
    for (const name of actions) {
      if (!(name in labels)) continue; // 'retry' is the Call button itself.
      const button = element('button', 'plain', labels[name]);
      button.type = 'button';
      button.addEventListener('click', () => this.actions[name]());
      buttons.append(button);
    }
    const dismiss = element('button', 'quiet', 'Dismiss');
    dismiss.type = 'button';
    dismiss.addEventListener('click', () => this.actions.dismiss());
    buttons.append(dismiss);
    alert.replaceChildren(words, buttons);
  }
}

function noteText(item) {
  if (item.kind === 'keys') return `Keys pressed: ${item.text}`;
  if (item.kind === 'transfer') return `The agent is passing you on to ${item.text}`;
  return `The agent sent: ${item.text}`;
}

function dots() {
  const made = element('span', 'dots-live');
  made.setAttribute('aria-hidden', 'true');
  made.append(element('i'), element('i'), element('i'));
  return made;
}

/** The twelve buttons of the keypad, with arrow keys to move between them. `press` gets the digit. */
export function buildKeypad(container, press) {
  const buttons = KEYS.map((digit) => {
    const button = element('button', 'key', digit);
    button.type = 'button';
    if (KEY_NAMES[digit]) button.setAttribute('aria-label', KEY_NAMES[digit]);
    button.dataset.digit = digit;
    button.addEventListener('click', () => press(digit));
    return button;
  });
  container.replaceChildren(...buttons);
  container.addEventListener('keydown', (event) => {
    const steps = { ArrowUp: -3, ArrowDown: 3, ArrowLeft: -1, ArrowRight: 1 };
    const at = buttons.indexOf(document.activeElement);
    const to = buttons[at + steps[event.key]];
    if (at < 0 || !to) return;
    event.preventDefault();
    to.focus();
  });
}
