// The sessions: those that wait for input first, then the most recently changed.

import { action, h, head, write } from '../dom.js';
import { ago, ARCHIVED, NEEDS_INPUT, RUNNING, sessionLink, short, status } from '../format.js';
import { windowed } from '../list.js';

const FILTERS = {
  all: ['All', (bits) => !(bits & ARCHIVED)],
  waiting: ['Waiting for input', (bits) => (bits & NEEDS_INPUT) === NEEDS_INPUT],
  running: ['Running', (bits) => (bits & RUNNING) !== 0],
  archived: ['Archived', (bits) => (bits & ARCHIVED) !== 0],
};
const waits = (session) =>
  Number((session.status & NEEDS_INPUT) === NEEDS_INPUT && !(session.status & ARCHIVED));

function make(session) {
  return h(
    'a',
    { href: sessionLink(session.resource) },
    h('span', { class: 'name' }),
    h('span', { class: 'tag' }),
    h('span', { class: 'about' }),
    h('span', { class: 'when' }),
  );
}

function update(link, session) {
  const [name, tag, about, when] = link.children;
  const [word, kind] = status(session.status);
  write(name, session.title || 'Untitled session');
  write(tag, word);
  tag.className = `tag ${kind}`;
  const folder = session.workingDirectories?.[0];
  write(about, [session.provider, session.activity, folder && short(folder)].filter(Boolean).join(', '));
  write(when, ago(session.modifiedAt));
}

/** Creates a session and goes to it. */
async function create(app, provider) {
  const uri = `${provider}:/${crypto.randomUUID()}`;
  await app.connection.request('createSession', { channel: uri, provider });
  location.hash = sessionLink(uri);
}

export function show(main, app) {
  const list = windowed('Sessions', (session) => session.resource, make, update);
  const summary = h('p', { class: 'quiet small', role: 'status' });
  const search = h('input', {
    type: 'search',
    id: 'search',
    'data-search': true,
    placeholder: 'Title, agent or folder',
  });
  const filter = h(
    'select',
    { id: 'filter' },
    Object.entries(FILTERS).map(([value, [label]]) => h('option', { value }, label)),
  );
  const agents = h('select', { 'aria-label': 'Agent of the new session' });
  const add = action('New session', () => create(app, agents.value), 'primary');

  const draw = () => {
    const wanted = search.value.trim().toLowerCase();
    const [, admits] = FILTERS[filter.value];
    const shown = [...app.sessions.values()].filter(
      (one) =>
        admits(one.status) &&
        (!wanted ||
          `${one.title} ${one.provider} ${one.workingDirectories?.[0] ?? ''}`.toLowerCase().includes(wanted)),
    );
    shown.sort((a, b) => waits(b) - waits(a) || (a.modifiedAt < b.modifiedAt ? 1 : -1));
    list.show(shown);
    const waiting = shown.filter(waits).length;
    const found = app.sessionsLoaded
      ? `${shown.length} sessions, ${waiting} waiting for input`
      : 'Loading sessions';
    write(summary, found);
  };
  const agentsOf = (state) => {
    const names = (state?.agents ?? []).map((agent) => agent.provider);
    if ([...agents.options].map((one) => one.value).join() === names.join()) return;
    agents.replaceChildren(
      ...(state?.agents ?? []).map((agent) =>
        h('option', { value: agent.provider }, agent.displayName || agent.provider),
      ),
    );
  };
  search.addEventListener('input', draw);
  filter.addEventListener('change', draw);
  main.append(
    h(
      'div',
      { class: 'column' },
      head('Sessions', agents, add),
      h(
        'div',
        { class: 'bar' },
        h('label', { class: 'hidden', for: 'search' }, 'Search sessions'),
        h('div', { class: 'grow' }, search),
        h('label', { class: 'hidden', for: 'filter' }, 'Show'),
        h('div', {}, filter),
      ),
      summary,
      list.element,
    ),
  );
  draw();
  agentsOf(app.connection.channels.get('ahp-root://')?.state);
  const endRoot = app.connection.subscribe('ahp-root://', agentsOf);
  const end = app.onSessions(draw);
  const tick = setInterval(draw, 30000);
  return () => {
    end();
    endRoot();
    clearInterval(tick);
  };
}
