// Automations with their runs, and the timeline of a run.

import { api } from '../api.js';
import { action, announce, facts, frame, h, head, keyed, running, since, table, tag, write } from '../dom.js';
import { at, duration, RUN_KINDS, runLink, sessionLink, short } from '../format.js';

const AUTOMATIONS = 'ahp-automations://';

function trigger(one) {
  if (one.kind === 'schedule') return `${one.schedule.expression} ${one.schedule.timeZone}`;
  const config = Object.entries(one.config ?? {}).map(
    ([key, value]) => `${key} ${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return [one.title || one.type, ...config].join(', ');
}

function origin(run) {
  if (run.origin.kind === 'manual') return 'manually';
  if (run.origin.scheduledFor) return `scheduled for ${at(run.origin.scheduledFor)}`;
  return run.origin.event?.event ? `event ${run.origin.event.event}` : 'trigger';
}

function took({ startedAt, completedAt }) {
  if (!startedAt) return '';
  return completedAt ? duration(Date.parse(completedAt) - Date.parse(startedAt)) : running(startedAt);
}

/** What was done with the changes of a run after its turn. */
function result(run) {
  const after = run._meta?.['ostler.after'];
  if (!after) return '';
  const text = after.message || `${after.operation} ${after.state}`;
  return /^https?:\/\//.test(after.url ?? '') ? h('a', { href: after.url, rel: 'noreferrer' }, text) : text;
}

const runs = (list, title) =>
  table(
    `Runs of ${title}`,
    [
      ['Run', (run) => h('a', { href: runLink(run.resource) }, since(run.lifecycle.createdAt))],
      ['State', (run) => tag(run.lifecycle.status, RUN_KINDS[run.lifecycle.status])],
      ['Started', origin],
      ['Took', (run) => took(run.lifecycle), true],
      ['Session', (run) => run.primarySession && h('a', { href: sessionLink(run.primarySession) }, 'Open')],
      ...(list.some(result) ? [['Result', result]] : []),
    ],
    list,
  );

function make(entry, connection) {
  const enabled = h('input', { type: 'checkbox', id: `on-${entry.resource}` });
  enabled.addEventListener('change', () =>
    connection.dispatch(AUTOMATIONS, {
      type: 'automation/updateRequested',
      resource: entry.resource,
      changes: { enabled: enabled.checked },
    }),
  );
  const run = action(
    'Run now',
    async () => {
      const { resource } = await connection.request('runAutomation', {
        channel: AUTOMATIONS,
        automation: entry.resource,
        requestId: crypto.randomUUID(),
      });
      announce('A run was started');
      return resource;
    },
    'primary',
  );
  const more = action('Earlier runs', () =>
    connection.request('fetchAutomationRuns', {
      channel: AUTOMATIONS,
      automation: entry.resource,
      cursor: element.cursor,
    }),
  );
  const title = h('h2', { class: 'grow' });
  const about = h('div');
  const list = h('div');
  const label = h('label', { class: 'row', for: enabled.id }, enabled, 'Enabled');
  const element = h(
    'section',
    { class: 'card' },
    h('div', { class: 'row' }, title, label, run),
    about,
    list,
    more,
  );
  return Object.assign(element, { parts: { enabled, run, more, title, about, list } });
}

/** A time at which an automation is due, in the zone of its schedule. */
const nextRun = ({ local, timeZone }) => h('div', {}, `${local.slice(0, 16).replace('T', ' ')} ${timeZone}`);

function update(element, entry) {
  // Also where the host refused the change of a user.
  element.parts.enabled.checked = entry.definition.enabled;
  const looks = JSON.stringify(entry);
  if (element.looks === looks) return;
  Object.assign(element, { looks, cursor: entry.runsNextCursor });
  const { definition, operations } = entry;
  const { enabled, run, more, title, about, list } = element.parts;
  write(title, definition.title);
  run.setAttribute('aria-label', `Run now: ${definition.title}`);
  enabled.disabled = !operations.includes('update');
  run.hidden = !operations.includes('run');
  more.hidden = !entry.runsNextCursor;
  const show = (planned) =>
    about.replaceChildren(
      facts([
        ['Triggers', definition.triggers.map(trigger).join('; ') || 'manual only'],
        ['Schedule', planned?.schedules.map(({ inWords }) => inWords).join('; ')],
        ['Next run', planned?.next.length ? '' : entry.nextRunAt && at(entry.nextRunAt)],
        ['Next runs', planned?.next.length ? h('div', {}, planned.next.map(nextRun)) : ''],
        ['Agent', definition.session?.provider],
        ['After each run', definition._meta?.ostler?.after],
        ['Message', definition.message?.text?.slice(0, 300)],
      ]),
    );
  show();
  if (definition.triggers.some(({ kind }) => kind === 'schedule'))
    api(`automation/show/${encodeURIComponent(entry.resource.split('/').pop())}`).then(
      (planned) => element.looks === looks && show(planned),
      // The next run is shown already.
      () => {},
    );
  list.replaceChildren(
    entry.runs.length ? runs(entry.runs, definition.title) : h('p', { class: 'quiet' }, 'No runs yet.'),
  );
}

function showRun(main, app, uri) {
  const body = h('div');
  main.append(head('Run', h('a', { href: '#/runs' }, 'All runs')), body);
  return app.connection.subscribe(uri, (run, _, error) => {
    if (error) return body.replaceChildren(h('p', { class: 'bad' }, error.message));
    const { lifecycle } = run;
    const steps = [
      ['Created', lifecycle.createdAt, origin(run)],
      [
        'Started',
        lifecycle.startedAt,
        duration(Date.parse(lifecycle.startedAt) - Date.parse(lifecycle.createdAt)),
      ],
      [lifecycle.status, lifecycle.completedAt, took(lifecycle)],
    ].filter(([, time]) => time);
    const from = Date.parse(lifecycle.createdAt);
    const whole = Math.max(1, Date.parse(lifecycle.completedAt ?? new Date().toISOString()) - from);
    const event =
      run.origin.event && Object.keys(run.origin.event).length
        ? JSON.stringify(run.origin.event, null, 2)
        : '';
    body.replaceChildren(
      h('p', {}, tag(lifecycle.status, RUN_KINDS[lifecycle.status])),
      lifecycle.error ? h('p', { class: 'bad' }, lifecycle.error.message) : h('p', {}, result(run)),
      h('h2', {}, 'Timeline'),
      table(
        'Timeline',
        [
          ['Step', ([name]) => name],
          ['When', ([, time]) => at(time)],
          ['After', ([, time]) => duration(Date.parse(time) - from), true],
          ['Note', ([, , note]) => note],
        ],
        steps,
      ),
      h('progress', {
        'aria-label': 'Time from start to end',
        max: whole,
        value: Date.parse(lifecycle.startedAt ?? '') - from || 0,
        hidden: true,
      }),
      h('h2', {}, 'Sessions'),
      h(
        'ul',
        {},
        run.sessions.map((session) =>
          h(
            'li',
            {},
            h('a', { href: sessionLink(session) }, app.sessions.get(session)?.title || short(session)),
          ),
        ),
      ),
      event ? h('h2', {}, 'Event') : '',
      event ? h('pre', { tabindex: '0' }, event) : '',
    );
  });
}

export function show(main, app, parameter, name) {
  if (name === 'run') return showRun(main, app, parameter);
  const list = h('div');
  const none = h('p', { class: 'quiet', role: 'status' }, 'Loading automations');
  main.append(head('Automations', h('a', { href: '#/runs' }, 'All runs')), none, list);
  let state;
  const draw = frame(() => {
    write(
      none,
      state.entries.length
        ? ''
        : 'There are no automations. Write one as automations/<id>.md beside the configuration.',
    );
    keyed(
      list,
      state.entries,
      (one) => one.resource,
      (one) => make(one, app.connection),
      update,
    );
  });
  const end = app.connection.subscribe(AUTOMATIONS, (now, _, error) => {
    if (error) return write(none, error.message);
    state = now;
    draw();
  });
  return () => {
    draw.stop();
    end();
  };
}
