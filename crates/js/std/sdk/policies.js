// Policies: the check every door holds a row to, and a store in one file.

import native from 'native/globals';
import { dirname } from 'node:path';
import { RpcError } from './rpc-error.js';

// Loaded by the first store: who imports the SDK for something else pays for no files.
const fs = () => native.load('node:fs/promises');

const KINDS = ['model', 'agent', 'computer'];
const EFFECTS = ['allow', 'deny'];
const PERIODS = ['day', 'week', 'month', 'total'];
const POOLS = ['shared', 'each'];
const MATCHES = { model: ['model', 'agent'], proxy: ['model'], agent: ['agent'], computer: ['agent', 'computer'] };
const MEASURES = {
  model: ['usd', 'tokens', 'calls'],
  agent: ['usd', 'tokens', 'turns', 'hours'],
  computer: ['hours', 'sessions'],
};
const SCOPE = /^(all|(user|team):[^:\s]+|project:[^:\s]+:[^:\s]+)$/;
const FIELDS = ['id', 'scope', 'kind', 'effect', 'match', 'limits', 'pool', 'cap', 'from', 'until', 'title', 'description'];

function need(holds, field, what) {
  if (!holds) throw new RpcError(-32602, `${field} must be ${what}`, { field });
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value) => typeof value === 'string' && value.trim() !== '';
const oneOf = (names) => `one of ${names.join(', ')}`;

/** The instant a moment stands for; a bare date covers its whole day. */
function instant(value, field, endOfDay) {
  const words = 'a timestamp or a date, as 2026-01-31';
  need(isText(value), field, words);
  const bare = /^\d{4}-\d{2}-\d{2}$/.test(value);
  const at = new Date(bare ? `${value}T${endOfDay ? '23:59:59.999' : '00:00:00.000'}Z` : value);
  need(!Number.isNaN(at.getTime()), field, words);
  // A day a month does not have becomes one of the next.
  need(!bare || at.toISOString().startsWith(value), field, words);
  return at.toISOString();
}

function checkLimit(limit, at, kind) {
  need(isObject(limit), at, 'an object');
  const { amount, measure, period, pool } = limit;
  need(Number.isFinite(amount) && amount >= 0, `${at}.amount`, 'a number of 0 or more');
  need(MEASURES[kind].includes(measure), `${at}.measure`, oneOf(MEASURES[kind]));
  need(PERIODS.includes(period), `${at}.period`, oneOf(PERIODS));
  need(POOLS.includes(pool), `${at}.pool`, oneOf(POOLS));
}

/** The row a body is, or the `RpcError` that names its wrong field. */
export function checkPolicy(body) {
  need(isObject(body), 'the policy', 'an object');
  const { id, scope, kind, effect, match, limits, from, until } = body;
  need(isText(id), 'id', 'a non-empty string');
  need(typeof scope === 'string' && SCOPE.test(scope), 'scope', 'all, user:<id>, team:<id> or project:<team>:<project>');
  need(KINDS.includes(kind), 'kind', oneOf(KINDS));
  need(EFFECTS.includes(effect), 'effect', oneOf(EFFECTS));
  for (const key of Object.keys(body)) need(FIELDS.includes(key), key, 'left out: a policy has no such field');
  if (match !== undefined) {
    need(isObject(match), 'match', 'an object');
    for (const [type, values] of Object.entries(match)) {
      const field = `match.${type}`;
      need(Object.hasOwn(MATCHES, type) && MATCHES[type].includes(kind), field, `left out of a policy of kind ${kind}`);
      need(Array.isArray(values) && values.every(isText), field, 'a list of non-empty strings');
    }
  }
  if (limits !== undefined) {
    need(Array.isArray(limits), 'limits', 'a list');
    for (const [at, limit] of limits.entries()) checkLimit(limit, `limits[${at}]`, kind);
  }
  const row = structuredClone(body);
  if (from !== undefined) row.from = instant(from, 'from', false);
  if (until !== undefined) row.until = instant(until, 'until', true);
  need(row.from === undefined || row.until === undefined || row.from <= row.until, 'from', 'before until');
  return row;
}

/** A policy store in one JSON file: an array of rows, in the order they were put. */
export function filePolicies({ file }) {
  if (!isText(file)) throw new TypeError('filePolicies needs file to be a path');
  // One read or change after the other; each reads the file, so that a person may edit it.
  let last = Promise.resolve();
  const inTurn = (work) => {
    const done = last.then(work);
    last = done.catch(() => {});
    return done;
  };
  const read = async () => {
    let text;
    try {
      text = await fs().readFile(file, 'utf8');
    } catch (error) {
      if (error.code === 'ENOENT') return [];
      throw error;
    }
    let rows;
    try {
      rows = JSON.parse(text);
    } catch (error) {
      throw new Error(`${file} is not JSON: ${error.message}`);
    }
    if (!Array.isArray(rows)) throw new Error(`${file} must be a JSON array of policies`);
    return rows.map((row, at) => {
      try {
        return checkPolicy(row);
      } catch (error) {
        throw new Error(`${file}: [${at}]: ${error.message}`);
      }
    });
  };
  const write = async (rows) => {
    await fs().mkdir(dirname(file), { recursive: true });
    await fs().writeFile(`${file}.new`, `${JSON.stringify(rows, null, 2)}\n`);
    await fs().rename(`${file}.new`, file);
  };
  return {
    list: () => inTurn(read),
    get: (id) => inTurn(async () => (await read()).find((row) => row.id === id)),
    put: (policy) => inTurn(async () => {
      const row = checkPolicy(policy);
      const rows = await read();
      const at = rows.findIndex(({ id }) => id === row.id);
      await write(at < 0 ? [...rows, row] : rows.with(at, row));
    }),
    remove: (id) => inTurn(async () => {
      const rows = await read();
      const left = rows.filter((row) => row.id !== id);
      if (left.length === rows.length) return false;
      await write(left);
      return true;
    }),
  };
}
