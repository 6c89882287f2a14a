/** Joins the parts: one state, one call at a time, the buttons and keys that act on them. */

import { Call } from './call.js';
import { choose, chosen, listDevices, openMicrophone, recall, remember, routeToSpeaker, speakerChoiceSupported } from './devices.js';
import { CallFailure } from './errors.js';
import { BUSY_PHASES, initialState, reduce } from './events.js';
import { iceServers } from './ice.js';
import { Meters } from './meters.js';
import { Reconnection, keep, takeKept } from './resume.js';
import { KEYS, Ui, buildKeypad } from './ui.js';

const TOKEN_KEY = 'rejoinder.token';
const SHORTCUTS_KEY = 'rejoinder.shortcuts';
const byId = (id) => document.getElementById(id);

const endpoint = new URL('v1/calls', document.baseURI);
const sound = byId('agent-sound');
let state = initialState();
let call = null;
let reconnection = null; // While the page tries to come back to a lost call.
let renderQueued = false;
let startedAt = 0;
let retryAt = 0;
let typedCount = 0;
let memoryToken = ''; // The token where storage is forbidden.

const ui = new Ui({
  token: askForToken,
  settings: openSettings,
  sound: () => sound.play().then(dismiss, () => {}), // Still blocked: the notice stays.
  dismiss,
});
const meters = new Meters((levels, peaks) => ui.levels(levels, peaks));

// One render for everything that one task brought. A microtask, so that a hidden tab is kept up to date too.
function dispatch(event) {
  const next = reduce(state, event);
  if (next === state) return;
  state = next;
  if (renderQueued) return;
  renderQueued = true;
  queueMicrotask(() => {
    renderQueued = false;
    ui.render(state);
  });
}

function fail(failure) {
  if (failure.retryAfterS > 0) retryAt = performance.now() + failure.retryAfterS * 1000;
  dispatch({ type: 'page.error', error: failure });
  if (failure.code === 'token-refused' || failure.code === 'token-missing') {
    memoryToken = '';
    remember(TOKEN_KEY, '', 'sessionStorage');
    ui.askForToken(true);
    if (document.activeElement === document.body || document.activeElement?.id === 'call') byId('token').focus();
  }
}

function dismiss() {
  dispatch({ type: 'page.dismissed' });
}

async function start() {
  if (BUSY_PHASES.includes(state.phase) || state.retryInS > 0) return;
  const token = recall(TOKEN_KEY, 'sessionStorage') || memoryToken;
  if (!token) {
    fail({ code: 'token-missing' });
    return;
  }
  dispatch({ type: 'page.calling' });
  startedAt = 0;
  ui.seconds(0);
  iceServers(endpoint, token); // Asked while the browser asks for the microphone; the call takes it from there.
  let microphone;
  try {
    microphone = await openMicrophone();
  } catch (error) {
    if (!(error instanceof CallFailure)) throw error;
    dispatch({ type: 'page.ended', reason: 'failed' });
    fail(error.failure);
    return;
  }
  if (state.phase !== 'microphone') {
    for (const track of microphone.getTracks()) track.stop(); // Hung up while the browser was asking.
    return;
  }
  call = new Call({ endpoint, token, microphone, on: callbacks() });
  useTrack(microphone);
  listDevices().then(showDevices);
  await call.start();
}

function callbacks() {
  return {
    phase(phase) {
      if (phase === 'live' && startedAt === 0) startedAt = performance.now();
      dispatch({ type: 'page.phase', phase });
    },
    queued: (position) => dispatch({ type: 'page.queued', position }),
    event: dispatch,
    channel: (open) => dispatch({ type: 'page.channel', open }),
    stream: playStream,
    ended(reason, failure) {
      if (reason === 'lost' && call?.resume) {
        reconnect(recordOf(call), call.microphone, 'interrupted');
        return;
      }
      call = null;
      sound.srcObject = null;
      meters.stop();
      dispatch({ type: 'page.ended', reason });
      if (failure) fail(failure);
    },
  };
}

// -- coming back to a call --

function recordOf(lost) {
  return {
    id: lost.id,
    token: lost.resume.token,
    forMs: lost.resume.expires_in_s * 1000,
    muted: state.muted,
    startedMs: Date.now() - (performance.now() - startedAt),
  };
}

/** One attempt: a new connection to the same call. Settles when it is live, or is not going to be. */
function attempt(token, microphone) {
  return new Promise((settle) => {
    const on = callbacks();
    call = new Call({
      endpoint,
      token: recall(TOKEN_KEY, 'sessionStorage') || memoryToken,
      microphone,
      resume: token,
      on: {
        ...on,
        phase(phase) {
          if (phase === 'live') settle({ live: true });
          if (phase === 'live' || call?.wasConnected) on.phase(phase);
        },
        ended(reason, failure) {
          const over = reason === 'hung-up' || reason === 'server-hung-up';
          if (over) reconnection?.cancel();
          if (over || call?.wasConnected) on.ended(reason, failure);
          settle({ live: false, token: call?.resume?.token, failure });
        },
      },
    });
    call.start();
  });
}

async function reconnect(record, microphone, phase) {
  dispatch({ type: 'page.channel', open: false });
  dispatch({ type: 'page.phase', phase });
  reconnection?.cancel();
  const mine = new Reconnection(record, (token) => attempt(token, microphone));
  reconnection = mine;
  const { outcome, failure } = await mine.run();
  if (reconnection === mine) reconnection = null;
  if (outcome !== 'lost') return;
  for (const track of microphone.getTracks()) track.stop();
  call = null;
  sound.srcObject = null;
  meters.stop();
  dispatch({ type: 'page.ended', reason: 'lost' });
  fail(failure);
}

/** After a reload: the call was live in this tab, and its caller is still here. */
async function resumeKept() {
  const record = takeKept();
  if (record === null || BUSY_PHASES.includes(state.phase) || !(recall(TOKEN_KEY, 'sessionStorage') || memoryToken)) return;
  dispatch({ type: 'page.resuming', muted: record.muted });
  startedAt = performance.now() - Math.max(0, Date.now() - record.startedMs);
  let microphone;
  try {
    microphone = await openMicrophone();
  } catch (error) {
    if (!(error instanceof CallFailure)) throw error;
    dispatch({ type: 'page.ended', reason: 'lost' });
    fail(error.failure);
    return;
  }
  if (state.phase !== 'resuming') {
    for (const track of microphone.getTracks()) track.stop(); // Hung up while the browser was asking.
    deleteCall(record.id);
    return;
  }
  useTrack(microphone);
  listDevices().then(showDevices);
  await reconnect(record, microphone, 'resuming');
}

/** The page is being left, perhaps only to be loaded anew: the call waits for that as long as it would for a network. */
function leavePage() {
  const record = reconnection?.record ?? (call?.resume && call.wasConnected ? recordOf(call) : null);
  if (record === null) {
    hangUp();
    return;
  }
  keep(record);
  if (!call?.leave()) abandon(call?.microphone);
}

/** Give the attempts up without a word to the server. */
function abandon(microphone) {
  reconnection?.cancel();
  reconnection = null;
  for (const track of microphone?.getTracks() ?? []) track.stop();
}

function useTrack(microphone) {
  const [track] = microphone.getAudioTracks();
  track.enabled = !state.muted;
  track.addEventListener('ended', () => {
    // Only a device that goes away fires this; stop() does not.
    if (call?.microphone === microphone) dispatch({ type: 'page.error', error: { code: 'microphone-lost' } });
  });
  meters.attach('caller', microphone);
}

async function playStream(stream) {
  sound.srcObject = stream;
  meters.attach('agent', stream);
  try {
    await routeToSpeaker(sound);
  } catch (error) {
    dispatch({ type: 'page.error', error: error.failure });
  }
  // AbortError means the call ended first.
  sound.play().catch((error) => {
    if (error.name === 'NotAllowedError') dispatch({ type: 'page.error', error: { code: 'sound-blocked' } });
  });
}

function hangUp() {
  if (reconnection !== null) {
    const { id } = reconnection.record;
    const { ended, microphone } = call ?? { ended: true };
    abandon(microphone);
    // Between two attempts no connection is there to say it for us.
    if (ended || call.id === null) deleteCall(id);
    if (!ended) call.hangUp();
    else callbacks().ended('hung-up');
  } else if (call) call.hangUp();
  else if (state.phase === 'microphone' || state.phase === 'resuming') dispatch({ type: 'page.ended', reason: 'hung-up' });
}

function deleteCall(id) {
  const headers = { Authorization: `Bearer ${recall(TOKEN_KEY, 'sessionStorage') || memoryToken}` };
  fetch(`${endpoint}/${encodeURIComponent(id)}`, { method: 'DELETE', headers, keepalive: true }).catch(() => {});
}

function toggleMute() {
  if (!BUSY_PHASES.includes(state.phase)) return;
  dispatch({ type: 'page.muted', muted: !state.muted });
  for (const track of call?.microphone.getAudioTracks() ?? []) track.enabled = !state.muted;
}

function press(digit) {
  if (!call?.send({ type: 'rejoinder.dtmf', digit })) return;
  dispatch({ type: 'page.key', digit });
}

function toggleKeypad(shown) {
  if (!BUSY_PHASES.includes(state.phase)) return;
  if (ui.keypad(shown)) byId('keypad-keys').firstElementChild.focus();
  else byId('open-keypad').focus();
}

function sendTyped(submit) {
  submit.preventDefault();
  const field = byId('message');
  const words = field.value.trim();
  if (!words) return;
  typedCount += 1;
  const id = `typed-${typedCount}`;
  const item = { id, type: 'message', role: 'user', content: [{ type: 'input_text', text: words }] };
  if (!call?.send({ type: 'conversation.item.create', item })) return;
  dispatch({ type: 'page.typed', id, text: words });
  field.value = '';
}

// -- token: from the address once, then in this tab's storage only --

function takeTokenFromAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return;
  history.replaceState(null, '', location.pathname + location.search);
  useToken(token);
}

function useToken(token) {
  memoryToken = token;
  remember(TOKEN_KEY, token, 'sessionStorage');
  ui.askForToken(false);
  if (['token-missing', 'token-refused'].includes(state.error?.code)) dismiss();
}

function askForToken() {
  ui.askForToken(true);
  byId('token').focus();
}

// -- settings --

function openSettings() {
  listDevices().then(showDevices);
  byId('settings').showModal();
}

function showDevices({ microphones, speakers }) {
  ui.devices(byId('microphone'), microphones, chosen('microphone'));
  ui.devices(byId('speaker'), speakers, chosen('speaker'));
  byId('speaker').disabled = !speakerChoiceSupported();
  byId('speaker-help').hidden = speakerChoiceSupported();
  byId('names-help').hidden = microphones.length > 0;
}

async function changeMicrophone() {
  choose('microphone', byId('microphone').value);
  if (!call) return;
  const before = call.microphone;
  try {
    const microphone = await openMicrophone();
    if (!call) {
      for (const track of microphone.getTracks()) track.stop();
      return;
    }
    await call.useMicrophone(microphone);
    useTrack(microphone);
    for (const track of before.getTracks()) track.stop();
  } catch (error) {
    if (!(error instanceof CallFailure)) throw error;
    dispatch({ type: 'page.error', error: error.failure });
  }
}

async function changeSpeaker() {
  choose('speaker', byId('speaker').value);
  try {
    await routeToSpeaker(sound);
  } catch (error) {
    dispatch({ type: 'page.error', error: error.failure });
  }
}

// -- keys --

const SHORTCUTS = {
  c: () => start(),
  h: hangUp,
  m: toggleMute,
  k: () => toggleKeypad(byId('keypad').hidden),
  t: () => byId('message').focus(),
};

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || byId('settings').open) return;
  if (byId('keypad').contains(event.target)) {
    if (event.key === 'Escape') {
      toggleKeypad(false);
      return;
    }
    if (KEYS.includes(event.key)) {
      event.preventDefault();
      if (!event.repeat) press(event.key);
      return;
    }
  }
  if (event.target.matches('input, select, textarea') || !byId('shortcuts').checked || event.repeat) return;
  const act = SHORTCUTS[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
}

// -- wiring --

byId('call').addEventListener('click', start);
byId('hang-up').addEventListener('click', hangUp);
byId('mute').addEventListener('click', toggleMute);
byId('open-keypad').addEventListener('click', () => toggleKeypad(byId('keypad').hidden));
byId('compose').addEventListener('submit', sendTyped);
byId('open-settings').addEventListener('click', openSettings);
byId('settings').addEventListener('close', () => {
  if (byId('settings').returnValue === 'token') askForToken();
  byId('settings').returnValue = '';
});
byId('microphone').addEventListener('change', changeMicrophone);
byId('speaker').addEventListener('change', changeSpeaker);
byId('shortcuts').addEventListener('change', ({ target }) => remember(SHORTCUTS_KEY, target.checked ? '' : 'off'));
byId('token-form').addEventListener('submit', (submit) => {
  submit.preventDefault();
  useToken(byId('token').value.trim());
  byId('token').value = '';
  byId('call').focus();
});
navigator.mediaDevices?.addEventListener('devicechange', () => listDevices().then(showDevices));
document.addEventListener('keydown', onKey);
window.addEventListener('hashchange', takeTokenFromAddress);
window.addEventListener('pagehide', leavePage);
window.addEventListener('pageshow', ({ persisted }) => persisted && resumeKept());
buildKeypad(byId('keypad-keys'), press);

setInterval(() => {
  if (call && startedAt > 0) ui.seconds(Math.floor((performance.now() - startedAt) / 1000));
  const inS = Math.max(0, Math.ceil((retryAt - performance.now()) / 1000));
  if (inS !== state.retryInS) dispatch({ type: 'page.retry', inS });
}, 500);

byId('shortcuts').checked = recall(SHORTCUTS_KEY) !== 'off';
takeTokenFromAddress();
if (!recall(TOKEN_KEY, 'sessionStorage') && !memoryToken) ui.askForToken(true);
if (!window.isSecureContext) dispatch({ type: 'page.error', error: { code: 'insecure-context' } });
listDevices().then(showDevices);
ui.render(state);
resumeKept();

/**
 * For tests and for curious people at the console; nothing on the page uses it.
 * `state` is the reducer's current state (see events.js) and must not be changed.
 */
window.rejoinder = Object.freeze({
  get state() {
    return state;
  },
  get peerConnection() {
    return call?.peerConnection ?? null;
  },
  get remoteStream() {
    return call?.remoteStream ?? null;
  },
  start,
  hangUp,
});
