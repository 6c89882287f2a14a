/**
 * Every way a call can fail, in words that say what to do. Pure: a failure in, {title, advice, actions} out.
 *
 * A failure is {code, detail?, retryAfterS?, param?}. `actions` names what ui.js may offer: 'retry', 'token', 'settings',
 * 'sound'. Unknown codes still explain themselves with the server's own sentence.
 */

/** A failure that the page can explain. `failure` is the plain object that goes into the state. */
export class CallFailure extends Error {
  constructor(code, { detail = '', retryAfterS = 0 } = {}) {
    super(detail || code);
    this.failure = { code, detail, retryAfterS };
  }
}

// A key made for one run of the server (without a configured one) is known to that run alone: `rejoinder token` has none.
const WHERE_FROM =
  'Open the address that the server printed when it started, or, when a key is configured, paste what “rejoinder token” prints there.';

const EXPLANATIONS = {
  'insecure-context': {
    title: 'This page may not use your microphone',
    advice: 'Browsers give the microphone only to https:// pages and to http://localhost. Open this page at one of those.',
    actions: [],
  },
  'no-webrtc': {
    title: 'This browser cannot make calls',
    advice: 'It has no WebRTC. Use a current Chrome, Edge, Firefox or Safari.',
    actions: [],
  },
  'microphone-refused': {
    title: 'Your microphone is blocked',
    advice: 'Allow the microphone for this page (the icon at the left of the address bar), then call again.',
    actions: ['retry'],
  },
  'microphone-missing': {
    title: 'No microphone found',
    advice: 'Plug in or switch on a microphone or headset, or choose another one in Settings, then call again.',
    actions: ['retry', 'settings'],
  },
  'microphone-busy': {
    title: 'Your microphone does not start',
    advice: 'Another program may be holding it. Close that program or choose another microphone, then call again.',
    actions: ['retry', 'settings'],
  },
  'microphone-lost': {
    title: 'Your microphone went away',
    advice: 'The agent cannot hear you. Plug it in again or choose another one in Settings; the call goes on.',
    actions: ['settings'],
  },
  'speaker-refused': {
    title: 'That speaker cannot be used',
    advice: 'The sound stays where it was. Choose another speaker in Settings.',
    actions: ['settings'],
  },
  'sound-blocked': {
    title: 'The browser is holding back the sound',
    advice: 'Browsers play sound only after a click. Turn it on here.',
    actions: ['sound'],
  },
  offline: {
    title: 'You are offline',
    advice: 'Check your network connection, then call again.',
    actions: ['retry'],
  },
  'server-unreachable': {
    title: 'The server does not answer',
    advice: 'It may be stopped or out of reach from your network. Check that it runs, then call again.',
    actions: ['retry'],
  },
  'server-full': {
    title: 'All lines are busy',
    advice: 'The server takes no more calls right now. Call again when the countdown on the button is over.',
    actions: ['retry'],
  },
  'too-many-requests': {
    title: 'Too many calls from here',
    advice: 'The server asks you to wait. Call again when the countdown on the button is over.',
    actions: ['retry'],
  },
  'token-missing': {
    title: 'An access token is needed',
    advice: `Paste the token you were given. ${WHERE_FROM}`,
    actions: ['token'],
  },
  'token-refused': {
    title: 'The access token was not accepted',
    advice: `It may have expired, or the server was restarted. ${WHERE_FROM}`,
    actions: ['token'],
  },
  forbidden: {
    title: 'You may not call from here',
    advice: 'The server does not allow calls from this page or with this token. Ask whoever runs it.',
    actions: ['token'],
  },
  'ice-failed': {
    title: 'No sound path to the server',
    advice:
      'The server answered, but audio cannot get through. A firewall or VPN may block it: try another network, then call again.',
    actions: ['retry'],
  },
  'relay-refused': {
    title: 'The relay does not let this call in',
    advice:
      'Your network needs a relay, and the relay refused what the server gave this page for it. Reload the page and call again; if it happens again, tell whoever runs the server that the secrets of server and relay may differ.',
    actions: ['retry'],
  },
  'relay-full': {
    title: 'The relay is full',
    advice: 'Your network needs a relay, and it has no room right now. Close other calls of yours, or call again in a minute.',
    actions: ['retry'],
  },
  'relay-unreachable': {
    title: 'No sound path to the server',
    advice:
      'Audio cannot get through directly, and the relay for such networks cannot be reached either. A firewall or VPN may block both: try another network, then call again.',
    actions: ['retry'],
  },
  'connection-lost': {
    title: 'The call was cut off',
    advice: 'The connection to the server broke. Check your network, then call again.',
    actions: ['retry'],
  },
  'resume-expired': {
    title: 'The call could not be resumed',
    advice: 'It ended while you were away. Call again; the agent will start afresh.',
    actions: ['retry'],
  },
  'bad-answer': {
    title: 'The server gave an answer this page does not understand',
    advice: 'Reload the page. If it happens again, page and server may be of different versions.',
    actions: ['retry'],
  },
  'server-refused': {
    title: 'The server refused the call',
    advice: 'Call again; if it happens again, pass on what the server said.',
    actions: ['retry'],
  },
  'server-event': {
    title: 'The server reports a problem',
    advice: 'The call goes on.',
    actions: [],
  },
};

const SAID_BY_BROWSER = new Set(['microphone-busy', 'speaker-refused', 'bad-answer', 'relay-refused', 'relay-full', 'relay-unreachable']);

export function explain({ code, detail = '', param = '' }) {
  const known = EXPLANATIONS[code] ?? EXPLANATIONS['server-refused'];
  const said = param ? `${detail} (${param})` : detail;
  const speaker = SAID_BY_BROWSER.has(code) ? 'The browser said' : 'The server said';
  return { ...known, detail: said && `${speaker}: ${said}` };
}

/** What went wrong in getUserMedia (W3C Media Capture and Streams, section 10.2). */
export function microphoneFailure(error) {
  switch (error?.name) {
    case 'NotAllowedError':
    case 'SecurityError':
      return new CallFailure('microphone-refused');
    case 'NotFoundError':
    case 'OverconstrainedError':
      return new CallFailure('microphone-missing');
    default:
      return new CallFailure('microphone-busy', { detail: String(error?.message ?? '') });
  }
}

// RFC 9110 section 10.2.3: seconds or a date.
function retryAfterSeconds(header, nowMs) {
  if (!header) return 0;
  const seconds = /^\d+$/.test(header.trim()) ? Number(header) : (Date.parse(header) - nowMs) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.min(3600, Math.ceil(seconds))) : 0;
}

/** What an HTTP answer that is no success means. Reads application/problem+json (RFC 9457) when it is there. */
export async function responseFailure(response, nowMs = Date.now()) {
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // A proxy's own error page: the status says enough.
  }
  const said = typeof problem?.detail === 'string' ? problem.detail : typeof problem?.title === 'string' ? problem.title : '';
  const detail = said || `HTTP ${response.status}`;
  const retryAfterS = retryAfterSeconds(response.headers.get('Retry-After'), nowMs);
  const code =
    { 401: 'token-refused', 403: 'forbidden', 429: 'too-many-requests', 503: 'server-full' }[response.status] ??
    ([502, 504].includes(response.status) ? 'server-unreachable' : 'server-refused');
  return new CallFailure(code, { detail, retryAfterS });
}

/** The place {ticket, position, retryAfterMs} of a caller who is to wait and ask again, or null for any other answer. */
export async function placeInQueue(response) {
  if (response.status !== 503) return null;
  const problem = await response.json().catch(() => null);
  const { ticket, position } = problem?.queue ?? {};
  if (problem?.code !== 'call_queued' || typeof ticket !== 'string' || !Number.isInteger(position)) return null;
  const seconds = retryAfterSeconds(response.headers.get('Retry-After'), Date.now());
  return { ticket, position, retryAfterMs: Math.min(4, Math.max(1, seconds)) * 1000 }; // Later, the place is lost.
}

/** What a fetch that threw means. */
export function networkFailure(online) {
  return new CallFailure(online ? 'server-unreachable' : 'offline');
}
