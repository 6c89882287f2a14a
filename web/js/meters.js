/** How loud each side is, for the eye: an AnalyserNode a stream, read once a frame (four times a second when motion is unwanted). */

const FLOOR_DB = -60; // Quieter is room noise, and shows as nothing.
const FULL_DB = -8; // Close speech after automatic gain reaches about this.
const RELEASE = 0.82; // Falls to a tenth in about 12 frames, so that the bar can be followed.
const REDUCED_MOTION_MS = 250;
const SPOKEN_UPDATE_MS = 500; // aria-valuenow need not change at frame rate.

/** RMS of samples in [-1, 1] to a level in [0, 1]. */
export function levelOf(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  const db = 10 * Math.log10(sum / samples.length + 1e-12);
  return Math.min(1, Math.max(0, (db - FLOOR_DB) / (FULL_DB - FLOOR_DB)));
}

export class Meters {
  /** @param {(levels: {caller, agent}, peaks: ?{caller, agent}) => void} show  levels in [0, 1]; peaks of the last half second, when one is over */
  constructor(show) {
    this.show = show;
    this.context = null;
    this.sides = new Map();
    this.levels = { caller: 0, agent: 0 };
    this.peaks = { caller: 0, agent: 0 };
    this.frame = 0;
    this.shownAt = 0;
    this.spokenAt = 0;
    this.reduced = window.matchMedia('(prefers-reduced-motion: reduce)');
  }

  /** Measure a stream as `side` ('caller' or 'agent'), in place of the one before. */
  attach(side, stream) {
    this.context ??= new AudioContext();
    if (this.context.state === 'suspended') this.context.resume().catch(() => {}); // Meters only; the call has sound without.
    this.sides.get(side)?.source.disconnect();
    const source = this.context.createMediaStreamSource(stream);
    const analyser = new AnalyserNode(this.context, { fftSize: 1024 }); // 21 ms at 48 kHz: about one frame of speech.
    source.connect(analyser); // Not on to the speakers: the audio element plays.
    this.sides.set(side, { source, analyser, samples: new Float32Array(analyser.fftSize) });
    if (this.frame === 0) this.frame = requestAnimationFrame((now) => this.#tick(now));
  }

  /** Forget both streams and free the audio device. */
  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    for (const { source } of this.sides.values()) source.disconnect();
    this.sides.clear();
    this.context?.close().catch(() => {}); // Already closed is as good.
    this.context = null;
    this.levels = { caller: 0, agent: 0 };
    this.show(this.levels, this.levels);
  }

  #tick(now) {
    this.frame = requestAnimationFrame((next) => this.#tick(next));
    for (const [side, { analyser, samples }] of this.sides) {
      analyser.getFloatTimeDomainData(samples);
      this.levels[side] = Math.max(levelOf(samples), this.levels[side] * RELEASE);
      this.peaks[side] = Math.max(this.peaks[side], this.levels[side]);
    }
    if (this.reduced.matches && now - this.shownAt < REDUCED_MOTION_MS) return;
    this.shownAt = now;
    const speak = now - this.spokenAt >= SPOKEN_UPDATE_MS;
    this.show(this.levels, speak ? this.peaks : null);
    if (!speak) return;
    this.spokenAt = now;
    this.peaks = { caller: 0, agent: 0 };
  }
}
