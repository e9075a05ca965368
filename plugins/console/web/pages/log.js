// The log: its last lines, and each line as it is written.

import { api } from '../api.js';
import { frame, h, head, keyed, write } from '../dom.js';

const MOST = 1000;

export function show(main, app) {
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading the log');
  const filter = h('input', {
    type: 'search',
    id: 'log-filter',
    'data-search': true,
    placeholder: 'Part of a line',
  });
  const screen = h('pre', {
    class: 'lines',
    tabindex: '0',
    role: 'log',
    'aria-live': 'off',
    'aria-label': 'Log',
  });
  let lines = [];
  let next = 0;
  const draw = frame(() => {
    const wanted = filter.value.toLowerCase();
    const shown = lines.filter((line) => line.text.toLowerCase().includes(wanted));
    const bottom = screen.scrollTop + screen.clientHeight >= screen.scrollHeight - 30;
    keyed(
      screen,
      shown,
      (line) => line.id,
      (line) => h('div', {}, `${line.at.slice(0, 19).replace('T', ' ')}  ${line.text}`),
    );
    if (bottom) screen.scrollTop = screen.scrollHeight;
    write(state, `${shown.length} lines`);
  });
  const add = (more) => {
    lines.push(...more.map((line) => ({ ...line, id: next++ })));
    lines = lines.slice(-MOST);
    draw();
  };
  filter.addEventListener('input', draw);
  main.append(head('Log'), h('p', {}, h('label', { for: 'log-filter' }, 'Filter'), filter), state, screen);
  const end = app.connection.subscribe(
    'ahp-otlp://logs',
    (_, __, error) => error && write(state, error.message),
  );
  const endLines = app.connection.onNotification((method, { payload }) => {
    if (method !== 'otlp/exportLogs') return;
    const records = (payload?.resourceLogs ?? []).flatMap((one) =>
      one.scopeLogs.flatMap((scope) => scope.logRecords),
    );
    add(
      records.map((one) => ({
        at: new Date(Number(one.timeUnixNano) / 1e6).toISOString(),
        text: one.body?.stringValue ?? '',
      })),
    );
  });
  api('log').then(
    (before) => {
      lines = [...before.map((line) => ({ ...line, id: next++ })), ...lines];
      draw();
    },
    (error) => write(state, error.message),
  );
  return () => {
    draw.stop();
    end();
    endLines();
  };
}
