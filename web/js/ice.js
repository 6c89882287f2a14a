/**
 * Relays: which ICE servers the server names, and why none of them helped.
 *
 * `iceServers` asks before there is a call, so that gathering can begin with them; an answer to an offer brings newer
 * ones. `RelayWatch` listens to one connection's gathering and says in a failure code what became of its relays.
 */

const ASK_DEADLINE_MS = 2_000; // A call does not wait longer for what it may not need.
const USED_SHARE = 0.5; // Asked anew in good time before the credentials end.

const known = new Map(); // endpoint and token -> {servers, until}
const asking = new Map();

/** The servers to use now. Never fails: without an answer there are none, and the call itself will say what is wrong. */
export async function iceServers(endpoint, token) {
  const key = keyOf(endpoint, token);
  const kept = known.get(key);
  if (kept && performance.now() < kept.until) return kept.servers;
  if (!asking.has(key)) asking.set(key, ask(endpoint, token).finally(() => asking.delete(key)));
  return asking.get(key);
}

/** Keep what an answer brought. */
export function keepIceServers(endpoint, token, servers, forS) {
  if (!Array.isArray(servers) || !(forS > 0)) return;
  known.clear(); // One token is used at a time.
  known.set(keyOf(endpoint, token), { servers, until: performance.now() + forS * 1000 * USED_SHARE });
}

async function ask(endpoint, token) {
  try {
    const response = await fetch(new URL('ice', endpoint), {
      headers: { Authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(ASK_DEADLINE_MS),
    });
    if (!response.ok) return [];
    const { ice_servers: servers, expires_in_s: forS } = await response.json();
    if (!Array.isArray(servers)) return [];
    keepIceServers(endpoint, token, servers, forS);
    return servers;
  } catch {
    return [];
  }
}

function keyOf(endpoint, token) {
  return `${endpoint} ${token}`;
}

/** `relay` in the page's address makes calls go through a relay only: `?ice=relay`. For tests and for support. */
export function transportPolicy(search) {
  return new URLSearchParams(search).get('ice') === 'relay' ? 'relay' : 'all';
}

const isRelay = (url) => /^turns?:/.test(url);

// RFC 8656 section 18.3, RFC 8489 section 14.8; 701 is the browser's own: no answer (W3C WebRTC, section 4.8.2).
const REFUSED = [401, 403, 441];
const FULL = [486, 508];

export class RelayWatch {
  constructor(pc, servers) {
    this.expected = servers.some(({ urls }) => [urls].flat().some(isRelay));
    this.found = false;
    this.codes = new Set();
    this.said = '';
    pc.addEventListener('icecandidate', ({ candidate }) => {
      if (candidate?.type === 'relay') this.found = true;
    });
    pc.addEventListener('icecandidateerror', ({ url, errorCode, errorText }) => {
      if (!isRelay(url ?? '')) return;
      this.codes.add(errorCode);
      // 701 comes for each address of this machine that has no way there, even when all is well.
      if (errorText && (this.said === '' || errorCode !== 701)) this.said = `${errorText.replace(/\.$/, '')} (${errorCode}, ${url})`;
    });
  }

  /** Why there is no relay: a code of errors.js, or '' when there is one, or when none was to be had. */
  get failure() {
    if (!this.expected || this.found) return '';
    if (REFUSED.some((code) => this.codes.has(code))) return 'relay-refused';
    if (FULL.some((code) => this.codes.has(code))) return 'relay-full';
    return 'relay-unreachable';
  }
}
