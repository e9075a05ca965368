// Webhook endpoints with their deliveries: what came of each, a test call, a replay.

import { api } from '../api.js';
import { action, announce, facts, h, head, keyed, notify, table, tag, write } from '../dom.js';
import { ago, at, bytes, duration, runLink } from '../format.js';

const kindOf = (code) => (code < 300 ? 'good' : 'bad');

/** What came of a call: its runs, or its turn. Read once; a run that goes on is followed on its own page. */
async function outcome(call, connection) {
  const rows = await Promise.all(
    (call.runs ?? []).slice(0, 5).map(async (run) => {
      try {
        const { snapshot } = await connection.request('subscribe', { channel: run });
        connection.notify('unsubscribe', { channel: run });
        const { status } = snapshot.state.lifecycle;
        return h('a', { href: runLink(run) }, `run ${status}`);
      } catch {
        return h('span', { class: 'quiet' }, 'run not found');
      }
    }),
  );
  if (call.chat) rows.push(h('span', {}, `turn in ${call.thread ? `thread ${call.thread}` : 'a chat'}`));
  return rows.flatMap((row, nth) => (nth ? [', ', row] : [row]));
}

function deliveries(calls, app, again) {
  return table(
    'Deliveries',
    [
      ['When', (call) => h('time', { datetime: call.at, title: at(call.at) }, ago(call.at))],
      ['Status', (call) => tag(String(call.status), kindOf(call.status))],
      ['Took', (call) => duration(call.ms), true],
      ['Size', (call) => bytes(call.bytes), true],
      [
        'Outcome',
        (call) => {
          const cell = h(
            'span',
            {},
            call.why ?? (call.leftOut ? 'left out by its filter' : call.again ? 'repeated delivery' : ''),
          );
          outcome(call, app.connection).then((rows) => rows.length && cell.replaceChildren(...rows));
          return cell;
        },
      ],
      [
        'Replay',
        (call) =>
          call.keptUntil && Date.parse(call.keptUntil) > Date.now()
            ? action('Replay', async () => {
                const row = await api('webhook/replay', { delivery: call.id });
                announce(`Replayed: ${row.status}`);
                await again();
              })
            : call.replays
              ? 'a replay'
              : '',
      ],
    ],
    calls,
  );
}

function make(endpoint, app) {
  const answer = h('p', { role: 'status', class: 'text' });
  const body = h('div');
  const log = async () => {
    const { calls } = await api(`webhook/log/${encodeURIComponent(endpoint.id)}`);
    body.replaceChildren(
      calls.length ? deliveries(calls.toReversed(), app, log) : h('p', { class: 'quiet' }, 'No calls yet.'),
    );
  };
  const test = action('Test', async () => {
    const { status, answer: said } = await api('webhook/test', { id: endpoint.id });
    write(answer, `Test call: ${status}, ${typeof said === 'string' ? said : JSON.stringify(said)}`);
    setTimeout(() => log().catch(() => {}), 700);
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
    h('h3', {}, 'Deliveries'),
    body,
  );
  return Object.assign(element, { log });
}

export function show(main, app) {
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading endpoints');
  main.append(head('Endpoints'), state, list);
  const load = async () => {
    try {
      const endpoints = await api('webhook/list');
      write(state, endpoints.length ? '' : 'There are no endpoints. Add one with: ostler webhook add <id>');
      const known = (endpoint) => JSON.stringify({ ...endpoint, last: undefined });
      keyed(
        list,
        endpoints,
        known,
        (endpoint) => make(endpoint, app),
        (element, { last }) => {
          const now = JSON.stringify(last ?? null);
          if (element.last === now) return;
          element.last = now;
          element.log().catch((error) => notify(error.message));
        },
      );
    } catch (error) {
      write(state, error.message);
    }
  };
  load();
  return app.onTopic(['endpoints', 'deliveries'], load);
}
