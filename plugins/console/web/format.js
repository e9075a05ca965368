// Values as text.

const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
const exact = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** How long ago, or until. */
export function ago(iso) {
  const seconds = (Date.parse(iso) - Date.now()) / 1000;
  if (Number.isNaN(seconds)) return '';
  for (const [unit, length] of [
    ['day', 86400],
    ['hour', 3600],
    ['minute', 60],
  ]) {
    if (Math.abs(seconds) >= length) return relative.format(Math.round(seconds / length), unit);
  }
  return Math.abs(seconds) < 5 ? 'now' : relative.format(Math.round(seconds), 'second');
}

export function at(iso) {
  const time = Date.parse(iso);
  return Number.isNaN(time) ? '' : exact.format(time);
}

export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return '';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.round((ms % 3600000) / 60000)} min`;
}

export function bytes(count) {
  if (count == null) return '';
  if (count < 1024) return `${count} B`;
  if (count < 1048576) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1048576).toFixed(1)} MiB`;
}

export function count(number) {
  return (number ?? 0).toLocaleString('en');
}

/** A text that may be Markdown. */
export function words(text) {
  return typeof text === 'string' ? text : (text?.markdown ?? text?.value ?? '');
}

export const ERROR = 2;
export const RUNNING = 8;
export const NEEDS_INPUT = 24;
export const READ = 32;
export const ARCHIVED = 64;

/** The status of a session or chat, and its color. */
export function status(bits) {
  if ((bits & NEEDS_INPUT) === NEEDS_INPUT) return ['waits for input', 'wait'];
  if (bits & RUNNING) return ['running', ''];
  if (bits & ERROR) return ['failed', 'bad'];
  return ['idle', 'quiet'];
}

/** What a URI of this host ends in. */
export function short(uri) {
  return (uri ?? '').replace(/^[a-z-]+:\/*/, '');
}

/** JSON that people read, where a text is JSON. */
export function pretty(text) {
  if (typeof text !== 'string') return JSON.stringify(text ?? null, null, 2);
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The states of runs, with their colors. */
export const RUN_KINDS = {
  pending: 'quiet',
  running: '',
  completed: 'good',
  failed: 'bad',
  cancelled: 'quiet',
};

const link = (page) => (uri) => `#/${page}/${encodeURIComponent(uri)}`;
export const sessionLink = link('session');
export const runLink = link('run');
