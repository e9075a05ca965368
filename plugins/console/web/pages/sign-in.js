// The sign-in. The token goes to the host once; what stays in the browser is a cookie that no script can read.

import { api } from '../api.js';
import { h, write } from '../dom.js';

export function show(main, start) {
  const field = h('input', {
    id: 'token',
    type: 'password',
    autocomplete: 'current-password',
    required: true,
    'aria-describedby': 'token-help',
  });
  const problem = h('p', { class: 'bad', role: 'alert' });
  const button = h('button', { class: 'primary' }, 'Sign in');
  const form = h(
    'form',
    {
      class: 'sign-in',
      onsubmit: async (event) => {
        event.preventDefault();
        write(problem, '');
        button.disabled = true;
        const token = field.value;
        field.value = '';
        try {
          await api('sign-in', { token });
          await start();
        } catch (error) {
          write(problem, error.message);
          field.focus();
        } finally {
          button.disabled = false;
        }
      },
    },
    h('h1', {}, 'Sign in'),
    h('p', {}, h('label', { for: 'token' }, 'Token'), field),
    h(
      'p',
      { id: 'token-help', class: 'quiet small' },
      'Your personal token, or the connection token of this host. It is not stored in the browser.',
    ),
    problem,
    button,
  );
  main.replaceChildren(form);
  field.focus();
}
