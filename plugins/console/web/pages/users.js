// Users with roles, grants and effective permissions, and what the caller may do.

import { api, reader } from '../api.js';
import { action, facts, h, head, keyed, notify, write } from '../dom.js';

function mine(me) {
  return h(
    'section',
    { class: 'card' },
    h('h2', {}, 'You'),
    facts([
      ['Signed in as', me.name],
      ['Roles', me.roles.join(', ')],
      ['Memberships', me.memberships.join(', ')],
      ['Effective grants', me.grants.join(', ')],
    ]),
  );
}

function make([user, hasToken]) {
  return h(
    'section',
    { class: 'card' },
    h('h2', {}, user.id),
    facts([
      ['Roles', user.roles.map(({ role }) => role).join(', ') || 'none'],
      ['Memberships', user.memberships.join(', ')],
      ['Token', hasToken ? 'set' : 'none'],
      ['Signed in', user.hasSignedIn ? 'yes' : 'never'],
    ]),
    h(
      'details',
      {},
      h('summary', {}, `Effective permissions of ${user.id}`),
      user.roles.map(({ role, grants }) => [
        h('h3', {}, `Role ${role}`),
        h('p', {}, grants.join(', ') || 'gives nothing'),
      ]),
      h('h3', {}, 'Together'),
      h('p', {}, user.grants.join(', ') || 'nothing'),
    ),
  );
}

export function show(main, app) {
  const own = h('div');
  const list = h('div');
  const state = h('p', { class: 'quiet', role: 'status' }, 'Loading users');
  const secret = h('div', { role: 'status' });
  const load = reader(async () => {
    try {
      const me = await api('me');
      own.replaceChildren(mine(me));
      if (!me.users)
        return write(
          state,
          'This host has no users file: every connection may do everything. Set users in the configuration.',
        );
      const [permissions, users] = await Promise.all([api('user/permissions'), api('user/list')]);
      write(state, `${permissions.length} users`);
      const tokens = new Map(users.map((user) => [user.id, user.token]));
      // A user who has changed is another element.
      keyed(
        list,
        permissions.map((user) => [user, Boolean(tokens.get(user.id))]),
        JSON.stringify,
        make,
      );
    } catch (error) {
      write(state, error.message);
      if (error.status === 403) keyed(list, [], JSON.stringify, make);
    }
  });
  const id = h('input', { id: 'new-user', required: true, autocomplete: 'off' });
  const role = h('input', { id: 'new-role', value: 'guest', autocomplete: 'off' });
  const form = h(
    'form',
    {
      class: 'row',
      hidden: !app.me?.users || !app.may('user:put'),
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const { id: name, token } = await api('user/add', { id: id.value, roles: [role.value] });
          const close = action('Hide', () => secret.replaceChildren());
          secret.replaceChildren(
            h('p', { class: 'card' }, `Token of ${name}, shown once: `, h('code', {}, token), ' ', close),
          );
          form.reset();
          await load();
        } catch (error) {
          notify(error.message);
        }
      },
    },
    h('div', {}, h('label', { for: 'new-user' }, 'New user'), id),
    h('div', {}, h('label', { for: 'new-role' }, 'Role'), role),
    h('button', {}, 'Add'),
  );
  main.append(head('Users'), state, form, secret, own, list);
  load();
  return app.onTopic(['users'], load);
}
