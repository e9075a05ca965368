// Health: whether the host stores what it is told, what it runs, and how long things wait.

import { api, reader, samples, throttled } from '../api.js';
import { facts, h, head, since, table, tag, write } from '../dom.js';
import { at, bytes, count, duration } from '../format.js';

const errors = (status) => (status.problems ?? []).filter((row) => row.severity === 'error').length;

const health = (wrong) =>
  wrong === 0 ? ['healthy', 'good'] : [wrong === 1 ? '1 error' : `${wrong} errors`, 'bad'];

export function show(main, app) {
  const state = h('p', { role: 'status' }, 'Loading the state of the host');
  const body = h('div');
  main.append(head('Health'), state, body);
  const load = reader(async () => {
    try {
      const [status, metrics, config] = await Promise.all([
        api('status'),
        api('metrics').then(samples, () => new Map()),
        api('config').catch(() => ({})),
      ]);
      const one = (name) => metrics.get(name)?.[0]?.value;
      state.replaceChildren(
        status.ready ? tag(...health(errors(status))) : tag(status.problem ?? 'not ready', 'bad'),
      );
      const mean = (name) => {
        const sum = (ending) =>
          (metrics.get(`${name}_${ending}`) ?? []).reduce((total, row) => total + row.value, 0);
        return sum('count')
          ? `${duration((sum('sum') / sum('count')) * 1000)} on average, ${count(sum('count'))}`
          : '';
      };
      const restart = config.restartNeeded ?? [];
      const problems = status.problems ?? [];
      body.replaceChildren(
        problems.length ? h('h2', {}, 'Problems') : '',
        problems.length
          ? table(
              'Problems',
              [
                ['', (row) => tag(row.severity, row.severity === 'error' ? 'bad' : 'wait')],
                ['Of', (row) => row.kind],
                ['Found', (row) => row.found],
                ['Fix', (row) => row.fix ?? ''],
                ['Since', (row) => at(row.since)],
              ],
              problems,
            )
          : '',
        restart.length ? h('p', { class: 'wait' }, `A restart is needed for: ${restart.join(', ')}`) : '',
        facts([
          ['Version', app.me?.version],
          ['Listens on', status.url],
          ['Public URL', status.publicUrl],
          ['Serves', status.paths?.join(', ')],
          ['Started', h('span', {}, since(status.startedAt), `, ${at(status.startedAt)}`)],
          ['Process', status.pid],
          ['Automations', status.automations],
          ['Configuration', config.files?.join(', ')],
          ['Connections', one('ostler_connections')],
          ['Sessions', `${count(one('ostler_sessions'))}, ${count(one('ostler_awake_sessions'))} awake`],
          ['Open runs', `${count(one('ostler_open_runs'))}, ${count(one('ostler_waiting_runs'))} waiting`],
          ['Requests without a response', one('ostler_pending_requests')],
          ['Waiting to be sent', bytes(one('ostler_outbox_bytes'))],
          ['Memory for messages', bytes(one('ostler_budget_used_bytes'))],
          ['Requests', mean('ostler_command_duration_seconds')],
          ['Turns', mean('ostler_turn_duration_seconds')],
          ['Runs', mean('ostler_run_duration_seconds')],
        ]),
        status.agents?.length ? h('h2', {}, 'Running agents') : '',
        status.agents?.length
          ? table(
              'Running agents',
              [
                ['Agent', (row) => row.provider],
                ['Processes', (row) => row.processes, true],
                ['Memory', (row) => bytes(row.memoryBytes), true],
                ['Session', (row) => row.session ?? ''],
              ],
              status.agents,
            )
          : '',
      );
    } catch (error) {
      write(state, error.message);
    }
  });
  load();
  const again = throttled(load, 500);
  const ends = [app.onTopic(['health'], again), app.onSessions(again)];
  return () => {
    again.stop();
    ends.forEach((end) => end());
  };
}
