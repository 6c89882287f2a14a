/**
 * Coming back to a call whose connection was lost, by a dead network or by a reload of the page.
 *
 * A record is {id, token, forMs, muted, startedMs}: the call, the secret that opens it again, how long it waits, and what
 * the page must remember. It stays in memory while the page lives and is put into this tab's storage only when the page
 * is left, so that a duplicated tab does not take the call away from the first one.
 */

import { recall, remember } from './devices.js';

const KEY = 'rejoinder.resume';
const LEFT_MS = 10_000; // The server waits no longer for somebody who said goodbye.
const DELAYS_MS = [0, 500, 1000, 2000, 4000];
const FATAL = ['resume-expired', 'token-refused', 'forbidden', 'bad-answer'];

/** Put the record of the call that is being left where the next page in this tab finds it. */
export function keep(record, nowMs = Date.now()) {
  remember(KEY, JSON.stringify({ ...record, untilMs: nowMs + Math.min(record.forMs, LEFT_MS) }), 'sessionStorage');
}

/** Take the record out again: null when there is none, or the call no longer waits. */
export function takeKept(nowMs = Date.now()) {
  const text = recall(KEY, 'sessionStorage');
  remember(KEY, '', 'sessionStorage');
  try {
    const { untilMs, ...record } = JSON.parse(text);
    const forMs = untilMs - nowMs;
    return typeof record.token === 'string' && forMs > 0 ? { ...record, forMs } : null;
  } catch {
    return null; // Nothing kept.
  }
}

/** Wait, but not longer than it takes the network to come back. */
function pause(ms) {
  return new Promise((done) => {
    const go = () => {
      clearTimeout(timer);
      window.removeEventListener('online', go);
      done();
    };
    const timer = setTimeout(go, ms);
    window.addEventListener('online', go);
  });
}

/** Attempts to come back, further and further apart, until one is live, none can be, or the call no longer waits. */
export class Reconnection {
  /**
   * @param {object} record
   * @param {(token: string) => Promise<{live: boolean, token?: string, failure?: object}>} attempt  token: the newest known
   */
  constructor(record, attempt) {
    this.record = record;
    this.attempt = attempt;
    this.cancelled = false;
  }

  cancel() {
    this.cancelled = true;
  }

  /** @returns {Promise<{outcome: 'live' | 'lost' | 'cancelled', failure?: object}>} */
  async run(clock = () => performance.now(), wait = pause) {
    const until = clock() + this.record.forMs;
    const failure = { code: 'connection-lost' };
    for (let turn = 0; ; turn += 1) {
      const delay = DELAYS_MS[Math.min(turn, DELAYS_MS.length - 1)];
      if (clock() + delay >= until) return { outcome: 'lost', failure };
      if (delay > 0) await wait(delay);
      if (this.cancelled) return { outcome: 'cancelled' };
      const result = await this.attempt(this.record.token);
      if (result.live) return { outcome: 'live' };
      if (this.cancelled) return { outcome: 'cancelled' };
      this.record.token = result.token ?? this.record.token;
      if (FATAL.includes(result.failure?.code)) return { outcome: 'lost', failure: result.failure };
    }
  }
}
