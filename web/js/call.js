/**
 * One call: an RTCPeerConnection, its data channel `oai-events`, and the HTTP requests that set it up and end it.
 *
 * The offer goes out before ICE gathering has finished; candidates follow in order once the server has named the call
 * (trickle ICE, RFC 8838). Knows nothing of the page: it reports through the callbacks it is given.
 */

import { CallFailure, networkFailure, placeInQueue, responseFailure } from './errors.js';
import { RelayWatch, iceServers, keepIceServers, transportPolicy } from './ice.js';
import { Liveness, packetsReceived } from './liveness.js';

const CHANNEL = 'oai-events';
const OFFER_DEADLINE_MS = 10_000; // The server answers within its own gathering time; longer means it is stuck.
const REQUEST_DEADLINE_MS = 5_000;
const CONNECT_DEADLINE_MS = 15_000; // Chrome gives up on ICE after about 15 to 30 s; callers give up sooner.
const LOST_DEADLINE_MS = 8_000; // ICE consent (RFC 7675) may come back within its own 30 s, a caller waits less.
const RESUME_AFTER_MS = 2_000; // A new connection is there sooner than the old one mends itself.
const LOOK_EVERY_MS = 400; // As often as the server sends at least.

export class Call {
  /**
   * @param {object} options
   * @param {URL} options.endpoint  the collection of calls, `.../v1/calls`
   * @param {string} options.token  JWT for the Authorization header
   * @param {MediaStream} options.microphone
   * @param {string} [options.resume]  token of the call to go on with, in place of a new one
   * @param {object} options.on  {phase(name), queued(position), event(object), channel(open), stream(MediaStream),
   *   ended(reason, failure?)}
   */
  constructor({ endpoint, token, microphone, resume = '', on }) {
    this.endpoint = endpoint;
    this.token = token;
    this.microphone = microphone;
    this.on = on;
    this.id = null;
    this.resuming = resume !== '';
    this.resume = this.resuming ? { token: resume } : null; // {token, expires_in_s}: how to come back to this call.
    this.ended = false;
    this.configuration = { bundlePolicy: 'max-bundle', iceTransportPolicy: transportPolicy(location.search) };
    this.peerConnection = new RTCPeerConnection(this.configuration);
    this.relays = null; // What became of the relays, once the server has named some.
    this.channel = this.peerConnection.createDataChannel(CHANNEL);
    this.remoteStream = new MediaStream();
    this.candidates = []; // Waiting for the call's id, then for their turn.
    this.trickling = null;
    this.timer = 0;
    this.looking = 0;
    this.silent = false; // Connected, as far as the browser knows, but nothing comes in.
    this.#listen();
  }

  /** Offer, answer, and from then on trickle. Failures arrive at `on.ended`. */
  async start() {
    const pc = this.peerConnection;
    for (const track of this.microphone.getAudioTracks()) {
      pc.addTransceiver(track, { direction: 'sendrecv', streams: [this.microphone] });
    }
    try {
      this.on.phase('calling');
      await this.#useRelays();
      if (this.ended) return;
      await pc.setLocalDescription();
      const wish = this.resuming ? { resume: this.resume.token } : { channel: 'browser', resumable: true };
      const answer = await this.#post({ sdp: pc.localDescription.sdp, type: 'offer', ...wish });
      if (answer === null) return; // Hung up while waiting in the queue.
      this.id = answer.id;
      this.resume = typeof answer.resume?.token === 'string' ? answer.resume : null;
      keepIceServers(this.endpoint, this.token, answer.ice_servers, answer.ice_expires_in_s);
      if (this.ended) {
        this.#delete(); // Hung up while the server was answering.
        return;
      }
      try {
        await pc.setRemoteDescription({ type: 'answer', sdp: answer.sdp });
      } catch (error) {
        throw new CallFailure('bad-answer', { detail: error.message });
      }
      if (this.ended) return;
      if (pc.connectionState !== 'connected') {
        this.on.phase('connecting');
        this.#deadline(CONNECT_DEADLINE_MS, 'ice-failed');
      }
      this.#trickle();
    } catch (error) {
      if (!(error instanceof CallFailure)) console.error(error);
      this.#end('failed', error instanceof CallFailure ? error : new CallFailure('bad-answer', { detail: error.message }));
    }
  }

  /** Send one realtime event. False when the channel is not open. */
  send(event) {
    if (this.channel.readyState !== 'open') return false;
    this.channel.send(JSON.stringify(event));
    return true;
  }

  hangUp() {
    this.#end('hung-up');
  }

  /** Close the connection and leave the call waiting; false when it would not wait. Stops the microphone. */
  leave() {
    if (this.ended || this.resume === null || !this.wasConnected) return false;
    this.#end('left');
    return true;
  }

  /** Replace the microphone without a new offer. */
  async useMicrophone(stream) {
    const [track] = stream.getAudioTracks();
    const sender = this.peerConnection.getSenders().find((one) => one.track?.kind === 'audio' || one.track === null);
    await sender?.replaceTrack(track);
    this.microphone = stream;
  }

  // Before gathering begins: the servers of a configuration count from the next gathering on.
  async #useRelays() {
    const servers = await iceServers(this.endpoint, this.token);
    const pc = this.peerConnection;
    this.relays = new RelayWatch(pc, servers);
    if (this.ended || servers.length === 0) return;
    try {
      pc.setConfiguration({ ...this.configuration, iceServers: servers });
    } catch (error) {
      // A server that this browser does not know how to read: the call may do without it.
      console.error(error);
      this.relays = null;
      return;
    }
    pc.addEventListener('icegatheringstatechange', () => {
      // Nothing else may be tried then: waiting would only delay the same sentence.
      if (pc.iceGatheringState === 'complete' && this.configuration.iceTransportPolicy === 'relay' && this.relays.failure) {
        this.#end('failed', this.#noPath());
      }
    });
  }

  /** No path was found: because of the relay, if one was to be had and gave none. */
  #noPath() {
    const code = this.relays?.failure || 'ice-failed';
    return new CallFailure(code, { detail: code === 'ice-failed' ? '' : this.relays.said });
  }

  #listen() {
    const pc = this.peerConnection;
    pc.addEventListener('icecandidate', ({ candidate }) => {
      // null is the browser's end of candidates; an empty string is the same thing for one generation.
      const line = candidate?.candidate ?? '';
      if (line === '' && this.candidates.at(-1)?.candidate === '') return;
      const { sdpMid = '0', sdpMLineIndex = 0 } = candidate ?? {};
      this.candidates.push({ candidate: line, sdpMid, sdpMLineIndex });
      if (this.id !== null) this.#trickle();
    });
    pc.addEventListener('track', ({ track }) => {
      this.remoteStream.addTrack(track);
      this.on.stream(this.remoteStream);
    });
    pc.addEventListener('connectionstatechange', () => this.#connectionChanged(pc.connectionState));
    this.channel.addEventListener('open', () => this.on.channel(true));
    // The server says `rejoinder.ended` before it closes the channel; without it the channel broke.
    for (const name of ['closing', 'close']) this.channel.addEventListener(name, () => this.#end('lost'));
    this.channel.addEventListener('message', ({ data }) => this.#message(data));
  }

  #connectionChanged(connectionState) {
    if (this.ended) return;
    if (connectionState === 'connected') {
      this.wasConnected = true;
      this.#restored();
      this.#watch();
    } else if (connectionState === 'disconnected') {
      this.#interrupted();
    } else if (connectionState === 'failed') {
      this.#end('failed', this.wasConnected ? new CallFailure('connection-lost') : this.#noPath());
    }
  }

  #interrupted() {
    this.on.phase('interrupted');
    this.#deadline(this.resume === null ? LOST_DEADLINE_MS : RESUME_AFTER_MS, 'connection-lost');
  }

  #restored() {
    clearTimeout(this.timer);
    this.silent = false;
    this.on.phase('live');
  }

  // The browser itself notices a dead server only after ICE consent has run out.
  #watch() {
    clearInterval(this.looking);
    const liveness = new Liveness();
    this.looking = setInterval(async () => {
      const pc = this.peerConnection;
      const packets = await packetsReceived(pc).catch(() => null); // Closed meanwhile.
      if (packets === null || this.ended || pc.connectionState !== 'connected') return;
      const silent = liveness.look(packets, performance.now());
      if (silent === this.silent) return;
      this.silent = silent;
      if (silent) this.#interrupted();
      else this.#restored();
    }, LOOK_EVERY_MS);
  }

  #message(data) {
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      console.warn('a message on the data channel is not JSON');
      return;
    }
    this.on.event(event);
    if (event?.type === 'rejoinder.ended') this.#end('server-hung-up');
  }

  #deadline(ms, code) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#end('failed', code === 'ice-failed' ? this.#noPath() : new CallFailure(code)), ms);
  }

  async #post(body) {
    let response;
    try {
      response = await fetch(this.endpoint, {
        method: 'POST',
        headers: { ...this.#authorization(), 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(OFFER_DEADLINE_MS),
      });
    } catch {
      throw networkFailure(navigator.onLine);
    }
    if (response.status === 404 && this.resuming) throw new CallFailure('resume-expired');
    if (!response.ok) {
      const place = await placeInQueue(response.clone());
      if (place === null) throw await responseFailure(response);
      if (this.ended) return null;
      this.on.queued(place.position);
      await this.#pause(place.retryAfterMs);
      return this.ended ? null : this.#post({ ...body, queue: place.ticket });
    }
    const answer = await response.json().catch(() => null);
    if (typeof answer?.id !== 'string' || typeof answer?.sdp !== 'string') throw new CallFailure('bad-answer');
    return answer;
  }

  /** Until it is time to ask again, or the caller hangs up. */
  #pause(ms) {
    return new Promise((resume) => {
      this.endPause = resume;
      setTimeout(resume, ms);
    });
  }

  // One request at a time, so that the server sees candidates in the order they were found.
  #trickle() {
    this.trickling ??= this.#drain().finally(() => {
      this.trickling = null;
    });
  }

  async #drain() {
    while (this.candidates.length > 0 && !this.ended) {
      const candidate = this.candidates.shift();
      try {
        const response = await fetch(this.#resource(), {
          method: 'PATCH',
          headers: { ...this.#authorization(), 'Content-Type': 'application/json' },
          body: JSON.stringify(candidate),
          signal: AbortSignal.timeout(REQUEST_DEADLINE_MS),
        });
        if (response.status === 404) {
          this.#end('server-hung-up');
          return;
        }
      } catch {
        // One lost candidate is no lost call: another may connect, and if none does the connect deadline says so.
      }
    }
  }

  #delete() {
    const gone = fetch(this.#resource(), { method: 'DELETE', headers: this.#authorization(), keepalive: true });
    gone.catch(() => {}); // The server notices a vanished peer by itself.
  }

  #resource() {
    return `${this.endpoint}/${encodeURIComponent(this.id)}`;
  }

  #authorization() {
    return { Authorization: `Bearer ${this.token}` };
  }

  #end(reason, failure) {
    if (this.ended) return;
    this.ended = true;
    this.endPause?.();
    clearTimeout(this.timer);
    clearInterval(this.looking);
    const waits = this.resume !== null && (this.wasConnected || this.resuming) && ['lost', 'failed', 'left'].includes(reason);
    if (this.id !== null && reason !== 'server-hung-up' && !waits) this.#delete();
    // Whoever comes back needs the microphone still.
    if (!waits || reason === 'left') for (const track of this.microphone.getTracks()) track.stop();
    this.peerConnection.close();
    this.on.ended(waits && reason === 'failed' ? 'lost' : reason, failure?.failure);
  }
}
