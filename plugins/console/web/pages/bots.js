// Bots, as their plugin serves them.

import { reader } from '../api.js';
import { facts, h, head, keyed, since, tag, write } from '../dom.js';
import { sessionLink } from '../format.js';

function make(bot) {
  return h(
    'section',
    { class: 'card' },
    h(
      'div',
      { class: 'row' },
      h('h2', { class: 'grow' }, bot.name ?? bot.id),
      bot.problem ? tag('unreadable', 'bad') : '',
    ),
    bot.problem ? h('p', { class: 'bad' }, bot.problem) : '',
    facts([
      ['Address', `bot://${bot.id}`],
      ['About', bot.description],
      ['Owner', bot.owner],
      ['Agent', bot.harness],
      ['Model', bot.model],
      ['Machine', bot.computer],
      ['Folder', bot.workspace],
      ['Labels', bot.labels?.join(', ')],
      // A bot that was written by hand has the earliest time.
      ['Changed', Date.parse(bot.updatedAt) > 0 && since(bot.updatedAt)],
      ['Session', bot.session && h('a', { href: sessionLink(bot.session) }, 'Open')],
    ]),
    bot.instructions
      ? h('details', {}, h('summary', {}, 'Instructions'), h('p', { class: 'text' }, bot.instructions))
      : '',
  );
}

export function show(main, app) {
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading bots');
  main.append(head('Bots'), state, list);
  const load = reader(async () => {
    try {
      const bots = await app.connection.records('bot');
      write(
        state,
        bots.length
          ? `${bots.length} bots`
          : app.may('bot:list')
            ? 'There are no bots. Write one as bots/<id>.md beside the configuration.'
            : 'You have no bots, and may not see those of others: that needs the grant bot:list.',
      );
      // A bot that has changed is another element.
      keyed(list, bots, JSON.stringify, make);
    } catch (error) {
      write(state, `Bots are not available: ${error.message}`);
    }
  });
  const ready = app.connection.ready.then(load, load);
  const end = app.onTopic(['bots'], () => ready.then(load));
  return end;
}
