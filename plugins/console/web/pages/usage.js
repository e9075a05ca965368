// Usage: a chart of the last days, and what each pool was charged.

import { reader, throttled } from '../api.js';
import { h, head, svg, table, write } from '../dom.js';
import { count } from '../format.js';

const DAYS = 14;
const day = (back) => new Date(Date.now() - back * 86400000).toISOString().slice(0, 10);
const usd = (total) => (total?.usd == null ? '' : `$${total.usd.toFixed(2)}`);

function chart(rows, label, value, shown) {
  const most = Math.max(...rows.map(value), 1e-9);
  const width = 700 / rows.length;
  const bars = rows.map((row, at) => {
    const height = Math.round((value(row) / most) * 130);
    const bar = svg('rect', {
      x: at * width + 4,
      y: 150 - height,
      width: width - 8,
      height: Math.max(height, 1),
    });
    bar.append(svg('title', {}, `${row.day}: ${shown(row)}`));
    return svg(
      'g',
      {},
      bar,
      svg('text', { x: at * width + width / 2, y: 168, 'text-anchor': 'middle' }, row.day.slice(8)),
    );
  });
  return h(
    'figure',
    {},
    h('figcaption', {}, label),
    svg(
      'svg',
      {
        class: 'chart',
        viewBox: '0 0 700 175',
        role: 'img',
        'aria-label': `${label}; the table below has the values`,
      },
      ...bars,
    ),
  );
}

export function show(main, app) {
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading usage');
  const body = h('div');
  main.append(head('Usage'), state, body);
  let stopped = false;
  const load = reader(async () => {
    try {
      const { connection } = app;
      const days = Array.from({ length: DAYS }, (_, at) => day(DAYS - 1 - at));
      const of = async (date) => {
        const { groups } = await connection.request('x-ostler/usage/groups', {
          by: 'user',
          from: date,
          until: date,
        });
        const sum = (key) => groups.reduce((total, group) => total + (group.total[key] ?? 0), 0);
        return { day: date, tokens: sum('tokens'), usd: sum('usd'), calls: sum('calls') };
      };
      const [{ totals }, ...rows] = await Promise.all([
        connection.request('x-ostler/usage/totals'),
        ...days.map(of),
      ]);
      if (stopped) return;
      const charged = rows.some((row) => row.tokens || row.usd || row.calls);
      write(state, charged ? '' : 'Nothing was charged in the last 14 days.');
      const priced = rows.some((row) => row.usd);
      body.replaceChildren(
        priced
          ? chart(
              rows,
              'US dollars a day',
              (row) => row.usd,
              (row) => `$${row.usd.toFixed(2)}`,
            )
          : chart(
              rows,
              'Tokens a day',
              (row) => row.tokens,
              (row) => `${count(row.tokens)} tokens`,
            ),
        h(
          'details',
          {},
          h('summary', {}, 'Values of the days'),
          table(
            'Usage of the last days',
            [
              ['Day', (row) => row.day],
              ['Tokens', (row) => count(row.tokens), true],
              ['Calls', (row) => count(row.calls), true],
              ['US dollars', (row) => (row.usd ? row.usd.toFixed(2) : ''), true],
            ],
            rows,
          ),
        ),
        h('h2', {}, 'Pools'),
        table(
          'Usage of the pools',
          [
            ['Pool', (row) => row.name || row.pool],
            ['Kind', (row) => row.kind],
            ['Today', (row) => usd(row.day) || `${count(row.day?.tokens)} tokens`, true],
            ['This week', (row) => usd(row.week) || `${count(row.week?.tokens)} tokens`, true],
            ['This month', (row) => usd(row.month) || `${count(row.month?.tokens)} tokens`, true],
          ],
          totals,
        ),
      );
    } catch (error) {
      write(state, `Usage is not available: ${error.message}`);
    }
  });
  app.connection.ready.then(load, load);
  const again = throttled(load, 2000);
  // A turn that ended was charged.
  const end = app.onSessions(again);
  return () => {
    stopped = true;
    again.stop();
    end();
  };
}
