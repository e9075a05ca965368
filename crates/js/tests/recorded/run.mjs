// Runs recorded cases. Each function returns the cases that differ, as rows of the case, the outcome here and the expected one.
import path from 'node:path';
import punycode from 'node:punycode';
import querystring from 'node:querystring';
import url from 'node:url';

const modules = { path, punycode, querystring, url };
const special = { undefined, NaN, Infinity, '-Infinity': -Infinity, '-0': -0 };

/** A value as JSON; undefined for what cannot be written. */
export function encode(value) {
  if (typeof value === 'function' || typeof value === 'symbol' || typeof value === 'bigint') return undefined;
  for (const name in special) if (Object.is(special[name], value)) return { $: name };
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(encode);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, encode(each)]));
}

export function decode(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(decode);
  if (typeof value.$ === 'string') return special[value.$];
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, decode(each)]));
}

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
