// Records cases of Node's own tests, with what Node answers, as `buffer.json`, `expressions.json` and `streams.json`:
//
//   node record-node.mjs FOLDER [FILE...]
//
// FOLDER is `test/parallel` of Node's repository at the version that the files name. The answers are those of the Node that
// runs this, whatever the tests expect. Of the tests of `buffer`, the calls are recorded; of those of `util`, the expressions
// that stand alone, in addition to those that the file has already; the programs of streams are ours.
import buffer from 'node:buffer';
import fs from 'node:fs';
import Module, { createRequire } from 'node:module';
import path from 'node:path';
import util from 'node:util';
import { invocation, logs, value } from './run.mjs';
import { complete, encode } from './values.mjs';

const source = { repository: 'nodejs/node', version: 'v24.12.0', licence: 'MIT', tests: 'test/parallel' };
/** Cases are short, and no test has more than so many of one function. */
const LONGEST = 260;
const MOST = 60;

const folder = path.resolve(process.argv[2]);
const here = (name) => path.join(import.meta.dirname, name);
const require = createRequire(import.meta.url);

// Assertions are of another Node: only the calls count.
const ignore = new Proxy(function () {}, {
  get: (_, key) =>
    ['throws', 'doesNotThrow'].includes(key)
      ? quietly
      : key === 'mustCall' || key === 'mustSucceed'
        ? (run) => run
        : ['platformTimeout', 'invalidArgTypeHelper'].includes(key)
          ? (value) => value
          : key === Symbol.toPrimitive
            ? () => ''
            : ignore,
  apply: () => ignore,
  construct: () => ignore,
});
function quietly(run) {
  try {
    return run();
  } catch {
    // Recorded as the answer.
  }
}
const load = Module._load;
Module._load = function (request, ...rest) {
  if (request.startsWith('../common')) return ignore;
  if (/^(node:)?assert$/.test(request)) return ignore;
  if (request.startsWith('internal/')) return ignore;
  return load.call(this, request, ...rest);
};

/** The longest text from a place in a source that is a call. */
function callAt(text, from) {
  for (let end = text.indexOf(')', from); end !== -1 && end - from < 1200; end = text.indexOf(')', end + 1)) {
    const expression = text.slice(from, end + 1);
    try {
      if (new Function(`return ${expression}`)) return expression;
    } catch {
      // Not complete yet.
    }
  }
  return undefined;
}

/** Runs tests with functions replaced, which are told what they are called with. */
function run(tests, replaced, told) {
  let inside = false;
  const restore = [];
  for (const [owner, name, label] of replaced) {
    const own = Object.getOwnPropertyDescriptor(owner, name);
    if (typeof own?.value !== 'function' || !own.configurable) continue;
    const call = own.value;
    const replacement = function (...given) {
      if (inside || new.target) return new.target ? Reflect.construct(call, given) : call.apply(this, given);
      inside = true;
      try {
        told(label, this, given);
      } finally {
        inside = false;
      }
      return call.apply(this, given);
    };
    Object.defineProperty(owner, name, { ...own, value: replacement });
    restore.push(() => Object.defineProperty(owner, name, own));
  }
  try {
    for (const test of tests) {
      current = test;
      quietly(() => require(path.join(folder, test)));
    }
  } finally {
    for (const each of restore) each();
  }
}
let current;

const files = fs.readdirSync(folder);
const untold =
  /4gb|over-max|rangeerror|zero-fill|deprecat|constructor|new\.js|slow|sharedarray|fast|parent|pool|inspect|inheritance/;

/** Calls of `buffer`. */
function buffers() {
  const { Buffer } = buffer;
  const rows = {};
  const seen = new Set();
  const many = {};
  const replaced = [
    ...[
      'alloc',
      'byteLength',
      'compare',
      'concat',
      'copyBytesFrom',
      'from',
      'isBuffer',
      'isEncoding',
      'of',
    ].map((name) => [Buffer, name, `Buffer.${name}`]),
    ...['atob', 'btoa', 'isAscii', 'isUtf8', 'transcode'].map((name) => [buffer, name, `.${name}`]),
    ...Object.getOwnPropertyNames(Buffer.prototype)
      .filter((name) => !['constructor', 'inspect', 'toLocaleString'].includes(name))
      .map((name) => [Buffer.prototype, name, `Buffer.prototype.${name}`]),
  ];
  const told = (name, self, given) => {
    const all = name.includes('.prototype.') ? [self, ...given] : given;
    const written = all.map(encode);
    const text = JSON.stringify(written);
    if (!written.every(complete) || text.length > LONGEST || seen.has(name + text)) return;
    const count = `${current} ${name}`;
    if ((many[count] = (many[count] ?? 0) + 1) > MOST) return;
    seen.add(name + text);
    const answers = invocation(name, JSON.parse(text));
    if (!answers.every(complete) || JSON.stringify(answers).length > LONGEST) return;
    (rows[current] ??= []).push([name, written, ...answers]);
  };
  const tests = files.filter((name) => /^test-buffer-.*\.js$/.test(name) && !untold.test(name));
  run(tests, replaced, told);
  return rows;
}

/** Expressions of `util`, with those that were there. */
function expressions(before) {
  const rows = {};
  const add = (file, expression) => {
    if ((rows[file] ??= []).some(([each]) => each === expression)) return;
    const answer = value(expression);
    // What is not known here, or depends on where this runs, is no case.
    const text = JSON.stringify(answer) ?? '';
    if (!complete(answer) || /ReferenceError|SyntaxError| at |node:internal/.test(text) || text.length > 2000)
      return;
    rows[file].push([expression, answer]);
  };
  for (const [file, cases] of Object.entries(before)) for (const [expression] of cases) add(file, expression);
  const told = () => {
    const line = new Error().stack.split('\n').find((each) => each.includes(path.join(folder, current)));
    const [, row, column] = /:(\d+):(\d+)\)?$/.exec(line ?? '') ?? [];
    if (!row) return;
    const lines = fs
      .readFileSync(path.join(folder, current), 'utf8')
      .split('\n')
      .slice(row - 1);
    const from = /^.*?(?:util\.|buffer\.)?$/
      .exec(lines[0].slice(0, column - 1))[0]
      .replace(/(util\.|buffer\.)$/, '').length;
    const expression = callAt(lines.join('\n'), from);
    if (expression) add(current, expression.replace(/\s*\n\s*/g, ' '));
  };
  const tests = files.filter((name) => /^test-util-(inspect|format|stripvt|styletext|types)\.js$/.test(name));
  const names = ['inspect', 'format', 'formatWithOptions', 'stripVTControlCharacters', 'styleText'];
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 20;
  run(
    tests,
    names.map((name) => [util, name, name]),
    told,
  );
  Error.stackTraceLimit = stackTraceLimit;
  return rows;
}

const text = (row) =>
  JSON.stringify(row).replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

function write(name, facts, files) {
  const parts = Object.entries(files).map(
    ([file, rows]) =>
      `    ${JSON.stringify(file)}: [\n${rows.map((row) => `      ${text(row)}`).join(',\n')}\n    ]`,
  );
  fs.writeFileSync(
    here(name),
    `{\n  "node": ${JSON.stringify(process.version)},\n  "source": ${JSON.stringify(facts)},\n  "files": {\n${parts.join(',\n')}\n  }\n}\n`,
  );
}

process.on('uncaughtException', (error) => {
  console.error(error);
  process.exit(1);
});
const wanted = process.argv.slice(3);
const isWanted = (name) => wanted.length === 0 || wanted.includes(name);
// First what the tests that run here could change.
if (isWanted('streams.json')) {
  const programs = (await logs()).map(([name, log]) => `    ${JSON.stringify(name)}: ${text(log)}`);
  fs.writeFileSync(
    here('streams.json'),
    `{\n  "node": ${JSON.stringify(process.version)},\n  "source": ${JSON.stringify(source)},\n  "cases": {\n${programs.join(',\n')}\n  }\n}\n`,
  );
}
if (isWanted('expressions.json')) {
  const before = fs.existsSync(here('expressions.json'))
    ? JSON.parse(fs.readFileSync(here('expressions.json'), 'utf8')).files
    : {};
  write('expressions.json', source, expressions(before));
}
if (isWanted('buffer.json')) write('buffer.json', source, buffers());
process.exit(0);
