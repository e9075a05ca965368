// Records the calls that tests of Node make, with what Node answers, for `cases.json`:
//
//   node record.mjs FOLDER > cases.json
//
// FOLDER contains the npm packages below, unpacked (`npm pack`, `tar xzf`) as `<name>-<version>/package`. They carry tests of
// Node of their time; the answers are those of the Node that runs this, whatever the tests expect.
import Module, { createRequire } from 'node:module';
import path from 'node:path';
import querystring from 'node:querystring';
import url from 'node:url';
import { outcome } from './run.mjs';
import { decode, encode } from './values.mjs';

const sources = [
  {
    package: 'path-browserify',
    version: '1.0.1',
    repository: 'browserify/path-browserify',
    licence: 'MIT',
    tests: 'test/index.js',
    of: 'path',
  },
  {
    package: 'querystring-es3',
    version: '0.2.1',
    repository: 'mike-spainhower/querystring',
    licence: 'MIT',
    tests: 'test/index.js',
    of: 'querystring',
  },
  {
    package: 'url',
    version: '0.11.4',
    repository: 'defunctzombie/node-url',
    licence: 'MIT',
    tests: 'test/index.js',
    of: 'url',
  },
];
const modules = { path, querystring, url };
const folder = path.resolve(process.argv[2]);
const require = createRequire(import.meta.url);
const cases = new Map();

/** A module whose calls are recorded. */
const recording = (name, module) =>
  new Proxy(module, {
    get(target, key) {
      const value = target[key];
      if (typeof key !== 'string') return value;
      // The prototypes of classes are not called here.
      if (typeof value === 'function' && !/^[A-Z]/.test(key))
        return (...given) => record(`${name}.${key}`, target, value, given);
      return key === 'posix' ? recording(`${name}.posix`, value) : value;
    },
  });

function record(name, target, call, given) {
  const written = JSON.parse(JSON.stringify(given.map((each) => encode(each) ?? { $: 'none' })));
  // What depends on the folder of this process is not recorded.
  const answer = outcome(() => call.apply(target, written.map(decode)));
  const row = JSON.stringify([name, written, answer]);
  if (!row.includes('{"$":"none"}') && !row.includes(process.cwd()) && !row.includes(folder))
    cases.set(JSON.stringify([name, written]), row);
  return call.apply(target, given);
}

// Assertions are of another Node: only the calls count.
const ignore = new Proxy(() => {}, {
  get: (_, key) => (key === 'throws' || key === 'doesNotThrow' ? (run) => quietly(run) : ignore),
  apply: () => undefined,
});
function quietly(run) {
  try {
    run();
  } catch {
    // Recorded as the answer.
  }
}

const load = Module._load;
let of;
Module._load = function (request, ...rest) {
  if (['../', '../url', of].includes(request)) return recording(of, modules[of]);
  if (request === 'tape') return (name, run) => quietly(() => run(ignore));
  if (request === 'mocha') return { test: (name, run) => quietly(run) };
  if (request === 'assert') return ignore;
  return load.call(this, request, ...rest);
};
for (const source of sources) {
  of = source.of;
  const tests = require(path.join(folder, `${source.package}-${source.version}`, 'package', source.tests));
  for (const name of Object.keys(tests)) if (name.startsWith('test')) quietly(() => tests[name](ignore));
}
const rows = [...cases.values()].map((row) => `    ${row}`);
process.stdout.write(
  `{\n  "node": "${process.version}",\n  "sources": [\n${sources.map((source) => `    ${JSON.stringify(source)}`).join(',\n')}\n  ],\n  "cases": [\n${rows.join(',\n')}\n  ]\n}\n`,
);
