// `console`: every line goes to the daemon's log, under the plugin's name.

import native from 'native/process';
import { formatWithOptions } from 'internal/format';
import { inspect } from 'internal/inspect';

const counts = new Map();
const timers = new Map();

export class Console {
  #write;
  #indent = '';

  constructor(options) {
    const { stdout, stderr } = options?.write ? { stdout: options } : (options ?? {});
    this.#write = stdout
      ? (level, text) =>
          (level === 'error' || level === 'warn' ? (stderr ?? stdout) : stdout).write(`${text}\n`)
      : (level, text) => native.log(level, text);
    for (const name of Object.getOwnPropertyNames(Console.prototype)) {
      if (name !== 'constructor') this[name] = this[name].bind(this);
    }
  }

  #say(level, given) {
    const text = formatWithOptions({}, ...given);
    this.#write(
      level,
      this.#indent === '' ? text : this.#indent + text.replaceAll('\n', `\n${this.#indent}`),
    );
  }

  log(...given) {
    this.#say('info', given);
  }
  info(...given) {
    this.#say('info', given);
  }
  debug(...given) {
    this.#say('debug', given);
  }
  warn(...given) {
    this.#say('warn', given);
  }
  error(...given) {
    this.#say('error', given);
  }
  trace(...given) {
    const at = new Error().stack
      .split('\n')
      .filter((line) => line.startsWith('    at '))
      .slice(1)
      .join('\n');
    this.#say('debug', [`Trace: ${formatWithOptions({}, ...given)}\n${at}`]);
  }
  assert(holds, ...given) {
    if (holds) return;
    const [first, ...rest] = given;
    this.#say(
      'error',
      typeof first === 'string' ? [`Assertion failed: ${first}`, ...rest] : ['Assertion failed', ...given],
    );
  }
  dir(value, options) {
    this.#say('info', [inspect(value, { customInspect: false, ...options })]);
  }
  dirxml(...given) {
    this.#say('info', given);
  }
  group(...given) {
    if (given.length > 0) this.#say('info', given);
    this.#indent += '  ';
  }
  groupCollapsed(...given) {
    this.group(...given);
  }
  groupEnd() {
    this.#indent = this.#indent.slice(2);
  }
  count(label = 'default') {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    this.#say('info', [`${label}: ${counts.get(label)}`]);
  }
  countReset(label = 'default') {
    counts.delete(label);
  }
  time(label = 'default') {
    timers.set(label, native.now());
  }
  timeLog(label = 'default', ...given) {
    if (timers.has(label))
      this.#say('info', [`${label}: ${(native.now() - timers.get(label)).toFixed(3)}ms`, ...given]);
  }
  timeEnd(label = 'default') {
    this.timeLog(label);
    timers.delete(label);
  }
  table(rows, columns) {
    if (rows === null || typeof rows !== 'object') {
      this.#say('info', [rows]);
      return;
    }
    const lines = Object.entries(rows);
    const names = columns ?? [
      ...new Set(
        lines.flatMap(([, row]) => (row !== null && typeof row === 'object' ? Object.keys(row) : [])),
      ),
    ];
    const plain = lines.some(([, row]) => row === null || typeof row !== 'object');
    const head = ['(index)', ...names, ...(plain ? ['Values'] : [])];
    const cells = lines.map(([key, row]) => {
      const isObject = row !== null && typeof row === 'object';
      const cell = (name) => (isObject && Object.hasOwn(row, name) ? inspect(row[name], { depth: 0 }) : '');
      return [key, ...names.map(cell), ...(plain ? [isObject ? '' : inspect(row)] : [])];
    });
    const widths = head.map((name, at) => Math.max(name.length, ...cells.map((row) => row[at].length)) + 2);
    const rule = (left, middle, right) =>
      left + widths.map((width) => '─'.repeat(width)).join(middle) + right;
    const line = (row) => `│${row.map((cell, at) => ` ${cell.padEnd(widths[at] - 1)}`).join('│')}│`;
    this.#say('info', [
      [rule('┌', '┬', '┐'), line(head), rule('├', '┼', '┤'), ...cells.map(line), rule('└', '┴', '┘')].join(
        '\n',
      ),
    ]);
  }
  clear() {}
  profile() {}
  profileEnd() {}
  timeStamp() {}
}

export const console = new Console();
console.Console = Console;
