// The keys of the console.

import { h, head, table } from '../dom.js';

const KEYS = [
  ['g then s', 'Sessions'],
  ['g then a', 'Automations'],
  ['g then r', 'Runs'],
  ['g then e', 'Endpoints'],
  ['g then b', 'Bots'],
  ['g then p', 'Plugins'],
  ['g then u', 'Users'],
  ['g then l', 'Log'],
  ['g then h', 'Health'],
  ['/', 'Search, or the prompt of a session'],
  ['Escape', 'Leave a field'],
  ['Arrows, j and k, Home, End', 'Move in the list of sessions'],
  ['Left and right arrow', 'Switch between the parts of a session'],
  ['Control Enter', 'Send the prompt'],
  ['?', 'This page'],
];

export function show(main) {
  main.append(
    head('Help'),
    h('h2', {}, 'Keys'),
    table(
      'Keys',
      [
        ['Key', ([key]) => h('kbd', {}, key)],
        ['Does', ([, does]) => does],
      ],
      KEYS,
    ),
    h('h2', {}, 'What is shown'),
    h(
      'p',
      {},
      'You see what your grants allow. The page stores no data: it reads the host as you, and the host updates it.',
    ),
  );
}
