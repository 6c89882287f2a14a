/**
 * Whether the server still sends, told by the packets that came in. Pure: counts and times in, a verdict out.
 *
 * The server sends at least every 0.4 s, in silence too (Opus DTX), so two seconds without a packet mean that the path or
 * the server is gone. ICE consent (RFC 7675) needs 5 s and more to find that out.
 */

const QUIET_MS = 2000;
const LONGEST_STEP_MS = 1000; // A computer that slept has not listened: one late look says nothing.

export class Liveness {
  constructor() {
    this.packets = -1;
    this.quietMs = 0;
    this.seenAt = 0;
  }

  /** Take the count of packets received so far; true while nothing has come for two seconds. */
  look(packets, nowMs) {
    if (packets !== this.packets) this.quietMs = 0;
    else this.quietMs += Math.min(LONGEST_STEP_MS, nowMs - this.seenAt);
    this.packets = packets;
    this.seenAt = nowMs;
    return this.quietMs >= QUIET_MS;
  }
}

/** Audio packets received by `peerConnection`, in all. */
export async function packetsReceived(peerConnection) {
  let sum = 0;
  for (const one of (await peerConnection.getStats()).values()) {
    if (one.type === 'inbound-rtp') sum += one.packetsReceived ?? 0;
  }
  return sum;
}
