// Webhook endpoints with their deliveries: what came of each, a test call, a replay.

import { api, reader } from '../api.js';
import { action, announce, facts, h, head, keyed, notify, since, table, tag, write } from '../dom.js';
import { bytes, duration, runLink } from '../format.js';

const kindOf = (code) => (code < 300 ? 'good' : 'bad');

/** How many runs of a call are shown. */
const RUNS = 5;
const ENDED = ['completed', 'failed', 'cancelled'];

/** What came of a call: its runs, live, or its turn. Adds what ends it to `ends`. */
function outcome(call, connection, ends) {
  const rows = (call.runs ?? []).slice(0, RUNS).map((run) => {
    const link = h('a', { href: runLink(run) }, 'run');
    const end = connection.subscribe(run, (state, _, error) => {
      if (error) return link.replaceWith(h('span', { class: 'quiet' }, 'run not found'));
      const { status } = state.lifecycle;
      write(link, `run ${status}`);
      // Nothing of it changes any more.
      if (ENDED.includes(status)) queueMicrotask(end);
    });
    ends.push(end);
    return link;
  });
  if (call.chat) rows.push(h('span', {}, `turn in ${call.thread ? `thread ${call.thread}` : 'a chat'}`));
  if (!rows.length)
    rows.push(call.why ?? (call.leftOut ? 'left out by its filter' : call.again ? 'repeated delivery' : ''));
  return h(
    'span',
    {},
    rows.flatMap((row, nth) => (nth ? [', ', row] : [row])),
  );
}

function deliveries(calls, app, again, ends) {
  return table(
    'Deliveries',
    [
      ['When', (call) => since(call.at)],
      ['Status', (call) => tag(String(call.status), kindOf(call.status))],
      ['Took', (call) => duration(call.ms), true],
      ['Size', (call) => bytes(call.bytes), true],
      ['Outcome', (call) => outcome(call, app.connection, ends)],
      [
        'Replay',
        (call) => {
          if (!call.keptUntil || Date.parse(call.keptUntil) <= Date.now())
            return call.replays ? 'a replay' : '';
          const replay = action('Replay', async () => {
            const row = await api('webhook/replay', { delivery: call.id });
            announce(`Replayed: ${row.status}`);
            await again();
          });
          return Object.assign(replay, { id: `replay-${call.id}` });
        },
      ],
    ],
    calls,
  );
}

/** A form that says what a call would do, without doing it. */
function explain(endpoint) {
  const body = h('textarea', { id: `body-${endpoint.id}`, rows: '4', spellcheck: 'false' });
  body.value = '{}';
  const headers = h('textarea', {
    id: `headers-${endpoint.id}`,
    rows: '2',
    spellcheck: 'false',
    placeholder: 'X-GitHub-Event: push',
  });
  const said = h('pre', { class: 'text', role: 'status' });
  const ask = action('Explain', async () => {
    const lines = headers.value.split('\n').filter((line) => line.trim());
    const call = await api('webhook/explain', { endpoint: endpoint.id, headers: lines, body: body.value });
    write(said, call.said.join('\n'));
  });
  ask.setAttribute('aria-label', `Explain a call of ${endpoint.id}`);
  return h(
    'details',
    {},
    h('summary', {}, 'Explain a call'),
    h('label', { for: body.id }, 'Body'),
    body,
    h('label', { for: headers.id }, 'Headers, one in each line'),
    headers,
    h('div', { class: 'row' }, ask),
    said,
  );
}

function make(endpoint, app) {
  const answer = h('p', { role: 'status', class: 'text' });
  const body = h('div');
  let ends = [];
  const stop = () => ends.splice(0).forEach((end) => end());
  const log = reader(async () => {
    const { calls } = await api(`webhook/log/${encodeURIComponent(endpoint.id)}`);
    if (!element.isConnected) return;
    const before = ends;
    ends = [];
    const focused = body.contains(document.activeElement) && document.activeElement.id;
    body.replaceChildren(
      calls.length
        ? deliveries(calls.toReversed(), app, log, ends)
        : h('p', { class: 'quiet' }, 'No calls yet.'),
    );
    if (focused) document.getElementById(focused)?.focus();
    // After the new ones have begun, so that a run in both stays subscribed to.
    before.forEach((end) => end());
  });
  const test = action('Test', async () => {
    const { status, answer: said } = await api('webhook/test', { id: endpoint.id });
    write(answer, `Test call: ${status}, ${typeof said === 'string' ? said : JSON.stringify(said)}`);
  });
  test.setAttribute('aria-label', `Test ${endpoint.id}`);
  const element = h(
    'section',
    { class: 'card' },
    h('div', { class: 'row' }, h('h2', { class: 'grow' }, endpoint.id), endpoint.problem ? '' : test),
    endpoint.problem ? h('p', { class: 'bad' }, endpoint.problem) : '',
    facts([
      ['URL', endpoint.url],
      [
        'Does',
        endpoint.bot
          ? `talks to ${endpoint.bot}, ${endpoint.reply}`
          : endpoint.problem
            ? ''
            : 'fires automations',
      ],
      ['Signature', endpoint.verify],
      ['Secret', endpoint.secret && `${endpoint.secret}${endpoint.secretSet ? '' : ' is not set'}`],
      ['Warnings', endpoint.warnings?.join(', ')],
    ]),
    answer,
    endpoint.problem ? '' : explain(endpoint),
    h('h3', {}, 'Deliveries'),
    body,
  );
  return Object.assign(element, { log, stop });
}

export function show(main, app) {
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading endpoints');
  main.append(head('Endpoints'), state, list);
  const load = reader(async () => {
    try {
      const endpoints = await api('webhook/list');
      write(state, endpoints.length ? '' : 'There are no endpoints. Add one with: ostler webhook add <id>');
      const known = (endpoint) => JSON.stringify({ ...endpoint, last: undefined });
      const before = new Set(list.children);
      keyed(
        list,
        endpoints,
        known,
        (endpoint) => make(endpoint, app),
        (element, { last }) => {
          const now = JSON.stringify(last ?? null);
          if (element.last === now) return;
          element.last = now;
          // It is in the page by then.
          queueMicrotask(() => element.log().catch((error) => notify(error.message)));
        },
      );
      for (const element of before) if (!element.isConnected) element.stop();
    } catch (error) {
      write(state, error.message);
    }
  });
  load();
  const end = app.onTopic(['endpoints', 'deliveries'], load);
  return () => {
    end();
    for (const element of list.children) element.stop();
  };
}
