// The log: its last lines, and each line as it is written.

import { api, reader } from '../api.js';
import { frame, h, head, keyed, write } from '../dom.js';

const MOST = 1000;
/** How much the host stores of a line. */
const LONGEST = 2000;

/** Lines that were read and lines that were reported, in the order of their times and each once. */
function merged(read, reported) {
  const key = (line) => `${line.at} ${line.text.slice(0, LONGEST)}`;
  const times = new Map();
  for (const line of reported) times.set(key(line), (times.get(key(line)) ?? 0) + 1);
  const others = read.filter((line) => {
    const left = times.get(key(line)) ?? 0;
    times.set(key(line), left - 1);
    return left <= 0;
  });
  return [...others, ...reported].sort((a, b) => (a.at < b.at ? -1 : Number(a.at > b.at)));
}

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
  const numbered = (more) => more.map((line) => ({ ...line, id: next++ }));
  const add = (more) => {
    lines = [...lines, ...numbered(more)].slice(-MOST);
    draw();
  };
  const load = reader(async () => {
    try {
      // Lines that are reported meanwhile may be among them.
      lines = merged(numbered(await api('log')), lines).slice(-MOST);
      draw();
    } catch (error) {
      write(state, error.message);
    }
  });
  filter.addEventListener('input', draw);
  main.append(head('Log'), h('p', {}, h('label', { for: 'log-filter' }, 'Filter'), filter), state, screen);
  // Lines are reported from the subscription on; what came before it is read.
  const end = app.connection.subscribe('ahp-otlp://logs', (_, __, error) =>
    error ? write(state, error.message) : load(),
  );
  const endLines = app.connection.onNotification((method, { payload }) => {
    if (method !== 'otlp/exportLogs') return;
    const records = (payload?.resourceLogs ?? []).flatMap((one) =>
      one.scopeLogs.flatMap((scope) => scope.logRecords),
    );
    add(
      records.map((one) => ({
        at: new Date(Number(one.timeUnixNano.slice(0, -6))).toISOString(),
        text: one.body?.stringValue ?? '',
      })),
    );
  });
  load();
  return () => {
    draw.stop();
    end();
    endLines();
  };
}
