/** Microphone and speaker: asking for them, listing them, remembering the choice. */

import { CallFailure, microphoneFailure } from './errors.js';

const KEYS = { microphone: 'rejoinder.microphone', speaker: 'rejoinder.speaker' };

/** Storage may be forbidden (private windows, embedded pages); a choice is then simply not remembered. */
export function recall(key, store = 'localStorage') {
  try {
    return window[store].getItem(key) ?? '';
  } catch {
    return '';
  }
}

export function remember(key, value, store = 'localStorage') {
  try {
    if (value) window[store].setItem(key, value);
    else window[store].removeItem(key);
  } catch {
    // See recall.
  }
}

export const chosen = (kind) => recall(KEYS[kind]);
export const choose = (kind, deviceId) => remember(KEYS[kind], deviceId);

/** A stream of the chosen microphone, or of the default one when that is gone. Throws CallFailure. */
export async function openMicrophone() {
  if (!window.isSecureContext || !navigator.mediaDevices?.getUserMedia) throw new CallFailure('insecure-context');
  if (!window.RTCPeerConnection) throw new CallFailure('no-webrtc');
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
  const deviceId = chosen('microphone');
  const open = (constraints) => navigator.mediaDevices.getUserMedia({ audio: constraints });
  try {
    if (!deviceId) return await open(audio);
    // `exact`: Chrome may take the default device for a merely `ideal` one.
    return await open({ ...audio, deviceId: { exact: deviceId } }).catch((error) => {
      if (error.name !== 'OverconstrainedError' && error.name !== 'NotFoundError') throw error;
      return open(audio); // The chosen one is unplugged: take what there is.
    });
  } catch (error) {
    throw microphoneFailure(error);
  }
}

/** {microphones, speakers}: [{id, label}]. Browsers leave labels empty until the microphone was once allowed. */
export async function listDevices() {
  if (!navigator.mediaDevices?.enumerateDevices) return { microphones: [], speakers: [] };
  const devices = await navigator.mediaDevices.enumerateDevices();
  const ofKind = (kind, word) =>
    devices
      .filter((device) => device.kind === kind && device.deviceId !== '' && device.deviceId !== 'default')
      .map((device, index) => ({ id: device.deviceId, label: device.label || `${word} ${index + 1}` }));
  return { microphones: ofKind('audioinput', 'Microphone'), speakers: ofKind('audiooutput', 'Speaker') };
}

export const speakerChoiceSupported = () => 'setSinkId' in HTMLMediaElement.prototype;

/** Send an audio element's sound to the chosen speaker. Throws CallFailure when the browser refuses. */
export async function routeToSpeaker(audio) {
  if (!speakerChoiceSupported()) return;
  try {
    await audio.setSinkId(chosen('speaker'));
  } catch (error) {
    throw new CallFailure('speaker-refused', { detail: error.message });
  }
}
