// Runs recorded cases. Each function returns the cases that differ, as rows of the case, the outcome here and the expected one.
import path from 'node:path';
import buffer from 'node:buffer';
import punycode from 'node:punycode';
import querystring from 'node:querystring';
import url from 'node:url';
import util from 'node:util';
import vm from 'node:vm';
import { decode, described, encode } from './values.mjs';
import duplex from './programs/duplex.mjs';
import helpers from './programs/helpers.mjs';
import pipes from './programs/pipes.mjs';
import readable from './programs/readable.mjs';
import reading from './programs/reading.mjs';
import writable from './programs/writable.mjs';
import writing from './programs/writing.mjs';

const modules = { path, punycode, querystring, url };

export function outcome(run) {
  try {
    return encode(run());
  } catch (error) {
    return { error: [error.name, error.code ?? null] };
  }
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Calls with what Node answered. */
export function calls({ cases }) {
  const rows = [];
  for (const [name, given, expected] of cases) {
    const steps = name.split('.');
    const last = steps.pop();
    let target = modules;
    for (const step of steps) target = target[step];
    const here = outcome(() => target[last](...given.map(decode)));
    if (!same(here, expected))
      rows.push([`${name}(${given.map((each) => JSON.stringify(each)).join(', ')})`, here, expected]);
  }
  return { ran: cases.length, rows };
}

/** The answer of a call of `buffer`, and what it left in the values that were given where that changed. */
export function invocation(name, given) {
  const values = given.map(decode);
  const [owner, method] = name.split(/\.(?=[^.]*$)/);
  let target = buffer;
  for (const step of owner.split('.')) if (step) target = target[step];
  let answer;
  try {
    const call = target[method];
    const made = owner.endsWith('.prototype')
      ? call.apply(values[0], values.slice(1))
      : call.apply(target, values);
    answer = encode(made);
  } catch (error) {
    answer = { error: described(error) };
  }
  const after = values.map((each, at) => {
    const left = encode(each);
    return same(left, given[at]) ? null : left;
  });
  return after.some((each) => each !== null) ? [answer, after] : [answer];
}

/** Calls of `buffer` with what Node answered, by the test that makes them. */
export function invocations({ files }) {
  const rows = [];
  let ran = 0;
  for (const [file, cases] of Object.entries(files)) {
    for (const [name, given, ...expected] of cases) {
      ran += 1;
      const here = invocation(name, given);
      if (!same(here, expected))
        rows.push([
          `${file}: ${name}(${given.map((each) => JSON.stringify(each)).join(', ')})`,
          here,
          expected,
        ]);
    }
  }
  return { ran, rows };
}

/** The value of an expression that sees `util` and its functions. */
export function value(expression) {
  try {
    const known = { assert: undefined, util, vm, buffer, ...util };
    const names = Object.keys(known).filter((name) => /^\w+$/.test(name) && !name.startsWith('_'));
    const made = new Function(...names, `return ${expression}`)(...names.map((name) => known[name]));
    return encode(made);
  } catch (error) {
    return { error: described(error) };
  }
}

/** Expressions with their value in Node, by the test that has them. */
export function expressions({ files }) {
  const rows = [];
  let ran = 0;
  for (const [file, cases] of Object.entries(files)) {
    for (const [expression, expected] of cases) {
      ran += 1;
      const here = value(expression);
      if (!same(here, expected)) rows.push([`${file}: ${expression}`, here, expected]);
    }
  }
  return { ran, rows };
}

/** What each program of streams logs: by file and name, in the order of the programs. */
export async function logs() {
  const all = [];
  const files = { ...readable, ...reading, ...writable, ...writing, ...duplex, ...pipes, ...helpers };
  for (const [file, programs] of Object.entries(files)) {
    const names = new Map();
    for (const program of programs) {
      const many = (names.get(program.name) ?? 0) + 1;
      names.set(program.name, many);
      all.push([`${file}: ${program.name}${many > 1 ? ` ${many}` : ''}`, await logOf(program)]);
    }
  }
  return all;
}

async function logOf(program) {
  const seen = [];
  const log = (entry) => void seen.push(encode(entry) ?? String(entry));
  try {
    Promise.resolve(program(log)).catch((error) => log({ failed: described(error) }));
  } catch (error) {
    log({ failed: described(error) });
  }
  // Until nothing was logged during some milliseconds.
  for (let length = -1; length !== seen.length;) {
    length = seen.length;
    for (let left = 3; left > 0; left -= 1) await new Promise((resolve) => setTimeout(resolve, 3));
  }
  return seen;
}

/** The programs of streams, with what they log on Node. */
export async function programs({ cases }) {
  const rows = [];
  const all = await logs();
  for (const [name, here] of all) {
    const expected = cases[name];
    if (!same(here, expected)) rows.push([name, here, expected ?? 'not recorded']);
  }
  const names = new Set(all.map(([name]) => name));
  for (const name of Object.keys(cases)) if (!names.has(name)) rows.push([name, 'no program', cases[name]]);
  return { ran: all.length, rows };
}

const parts = [
  'href',
  'origin',
  'protocol',
  'username',
  'password',
  'host',
  'hostname',
  'port',
  'pathname',
  'search',
  'hash',
];

/** `url/resources/urltestdata.json` of WPT. */
export function parsing(data) {
  const cases = data.filter((each) => typeof each === 'object');
  const rows = [];
  for (const given of cases) {
    const made = URL.parse(given.input, given.base ?? undefined);
    const here = made
      ? Object.fromEntries(parts.filter((name) => name in given).map((name) => [name, made[name]]))
      : 'failure';
    const expected = given.failure
      ? 'failure'
      : Object.fromEntries(parts.filter((name) => name in given).map((name) => [name, given[name]]));
    if (!same(here, expected)) rows.push([`<${given.input}> against <${given.base ?? ''}>`, here, expected]);
  }
  return { ran: cases.length, rows };
}

/** `url/resources/setters_tests.json` of WPT. */
export function setting(data) {
  const rows = [];
  let ran = 0;
  for (const [part, cases] of Object.entries(data)) {
    if (!Array.isArray(cases)) continue;
    for (const { href, new_value: value, expected } of part === 'comment' ? [] : cases) {
      ran += 1;
      const made = new URL(href);
      made[part] = value;
      const here = Object.fromEntries(Object.keys(expected).map((name) => [name, made[name]]));
      if (!same(here, expected)) rows.push([`<${href}> set ${part} to <${value}>`, here, expected]);
    }
  }
  return { ran, rows };
}

const components = ['protocol', 'username', 'password', 'hostname', 'port', 'pathname', 'search', 'hash'];

/** `urlpattern/resources/urlpatterntestdata.json` of WPT: what matches, and the groups. */
export function patterns(data) {
  const cases = data.filter((each) => typeof each === 'object');
  const rows = [];
  for (const given of cases) {
    const label = JSON.stringify([given.pattern, given.inputs ?? null]);
    let pattern;
    try {
      pattern = new URLPattern(...given.pattern);
    } catch {
      if (given.expected_obj !== 'error') rows.push([label, 'error', given.expected_obj ?? 'a pattern']);
      continue;
    }
    if (given.expected_obj === 'error') {
      rows.push([label, 'a pattern', 'error']);
      continue;
    }
    for (const [name, expected] of Object.entries(given.expected_obj ?? {})) {
      if (pattern[name] !== expected) rows.push([`${label} ${name}`, pattern[name], expected]);
    }
    if (given.expected_match === 'error') {
      let here = 'no error';
      try {
        pattern.test(...given.inputs);
      } catch {
        continue;
      }
      rows.push([label, here, 'error']);
      continue;
    }
    if (given.inputs === undefined) continue;
    const expected = given.expected_match ?? null;
    const tested = pattern.test(...given.inputs);
    if (tested !== !!expected) rows.push([label, tested, !!expected]);
    const found = pattern.exec(...given.inputs);
    if (!expected || !found) continue;
    for (const name of components.filter((each) => each in expected)) {
      const { input, groups } = expected[name];
      const here = { input: found[name].input, groups: { ...found[name].groups } };
      // A group without a match is null in JSON.
      const normal = (all) =>
        Object.fromEntries(
          Object.entries(all)
            .map(([key, value]) => [key, value ?? null])
            .sort(),
        );
      if (here.input !== input || !same(normal(here.groups), normal(groups)))
        rows.push([`${label} ${name}`, here, expected[name]]);
    }
  }
  return { ran: cases.length, rows };
}

/** `punycode_tests.json` of the crate idna. */
export function labels(data) {
  const rows = [];
  for (const { decoded, encoded } of data) {
    const [there, back] = [punycode.encode(decoded), punycode.decode(encoded)];
    if (there !== encoded) rows.push([`encode ${decoded}`, there, encoded]);
    if (back !== decoded) rows.push([`decode ${encoded}`, back, decoded]);
  }
  return { ran: data.length, rows };
}
