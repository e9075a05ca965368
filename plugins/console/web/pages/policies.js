// Policies: which agents, models and machines may be used.

import { facts, h, head, since, write } from '../dom.js';

export function show(main, app) {
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading policies');
  const load = async () => {
    try {
      const policies = await app.connection.records('policy');
      write(state, policies.length ? `${policies.length} policies` : 'There are no policies.');
      list.replaceChildren(
        ...policies.map(({ id, createdAt, updatedAt, ...fields }) =>
          h(
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
          ),
        ),
      );
    } catch (error) {
      write(state, `Policies are not available: ${error.message}`);
    }
  };
  main.append(head('Policies'), state, list);
  app.connection.ready.then(load, load);
  return app.onTopic(['policies'], load);
}
