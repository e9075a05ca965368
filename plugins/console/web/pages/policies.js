// Policies: which agents, models and machines may be used.

import { reader } from '../api.js';
import { facts, h, head, keyed, since, write } from '../dom.js';

function make({ id, createdAt, updatedAt, ...fields }) {
  return h(
    'section',
    { class: 'card' },
    h('h2', {}, fields.title ?? id),
    fields.problem ? h('p', { class: 'bad' }, fields.problem) : '',
    facts([
      ...Object.entries(fields).map(([key, value]) => [
        key,
        typeof value === 'object' ? JSON.stringify(value) : String(value),
      ]),
      ['Changed', (updatedAt ?? createdAt) && since(updatedAt ?? createdAt)],
    ]),
  );
}

export function show(main, app) {
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading policies');
  const load = reader(async () => {
    try {
      const policies = await app.connection.records('policy');
      write(state, policies.length ? `${policies.length} policies` : 'There are no policies.');
      // A policy that has changed is another element.
      keyed(list, policies, JSON.stringify, make);
    } catch (error) {
      write(state, `Policies are not available: ${error.message}`);
    }
  });
  main.append(head('Policies'), state, list);
  const ready = app.connection.ready.then(load, load);
  return app.onTopic(['policies'], () => ready.then(load));
}
