// The turns of a chat as elements. Text that streams is appended once in a frame; nothing that stands is written again.

import { action, h, keyed, notify, write } from './dom.js';
import { at, count, duration, pretty, words } from './format.js';

/** A block of text is ended at a line's end from here on, and anywhere from four times as much. */
const BLOCK = 1500;
/** How much of a text is appended in one frame. */
const AT_ONCE = 12000;

/** A text that grows. `append` is cheap however long the text is. */
class Growing {
  constructor() {
    this.element = h('div', { class: 'text' });
    this.length = 0;
    this.block = undefined;
  }

  /** Shows more of `content`; returns whether some of it remains. */
  grow(content) {
    if (content.length < this.length) {
      this.element.replaceChildren();
      this.length = 0;
      this.block = undefined;
    }
    let more = content.slice(this.length, this.length + AT_ONCE);
    this.length += more.length;
    while (more) {
      if (!this.block) {
        this.block = this.element.appendChild(h('div'));
        this.room = BLOCK;
      }
      const line = more.indexOf('\n', Math.max(0, this.room));
      const space = line < 0 && more.length > this.room + BLOCK ? more.indexOf(' ', this.room + BLOCK) : line;
      const ends = space >= 0 && space - this.room < BLOCK * 3;
      // The break itself is the end of the block.
      this.block.append(ends ? more.slice(0, space) : more);
      this.room -= ends ? space : more.length;
      more = ends ? more.slice(space + 1) : '';
      if (ends) this.block = undefined;
    }
    return this.length < content.length;
  }
}

const STATES = {
  streaming: ['preparing', ''],
  'pending-confirmation': ['waits for approval', 'wait'],
  running: ['running', ''],
  'auth-required': ['waits for sign-in', 'wait'],
  'pending-result-confirmation': ['waits for review', 'wait'],
  completed: ['done', 'good'],
  cancelled: ['cancelled', 'quiet'],
};

function inputText(call) {
  const input = call.toolInput ?? call.partialInput;
  if (input == null) return '';
  return typeof input === 'object' && input.uri ? input.uri : pretty(input);
}

/** What a call returned. */
function results(call) {
  return (call.content ?? []).map((one) => {
    if (one.type === 'text') return h('pre', { tabindex: '0' }, one.text);
    if (one.type === 'terminal') return h('p', {}, `Terminal: ${one.title}`);
    if (one.type === 'subagent') return h('p', {}, `Worker: ${one.title}`);
    if (one.type === 'fileEdit')
      return h('p', {}, `Changed ${one.after?.uri ?? one.before?.uri ?? 'a file'}`);
    return h('p', {}, one.uri ?? one.type);
  });
}

/** An approval, with the input of the call. */
function approval(call, turn, chat) {
  const input = inputText(call);
  const editor = call.editable
    ? h('textarea', { 'aria-label': 'Input of the call', rows: '6' })
    : h('pre', { tabindex: '0', 'aria-label': 'Input of the call' }, input || 'No input');
  if (call.editable) editor.value = input;
  const answer = (approved, option) => () => {
    const edited =
      call.editable && approved && editor.value !== input ? { editedToolInput: editor.value } : {};
    chat.dispatch({
      type: 'chat/toolCallConfirmed',
      turnId: turn.id,
      toolCallId: call.toolCallId,
      approved,
      ...(approved ? { confirmed: 'user-action' } : { reason: 'denied' }),
      ...(option && { selectedOptionId: option.id }),
      ...edited,
    });
  };
  const options = call.options ?? [];
  const buttons = options.length
    ? options.map((option) =>
        action(option.label, answer(option.kind !== 'deny', option), option.kind === 'deny' ? 'danger' : ''),
      )
    : [action('Approve', answer(true), 'primary'), action('Deny', answer(false), 'danger')];
  return h(
    'section',
    { class: 'card ask', 'aria-label': `Approval of ${call.displayName}` },
    h('h2', {}, words(call.confirmationTitle) || `Approve ${call.displayName}?`),
    h('p', {}, words(call.invocationMessage)),
    editor,
    h('div', { class: 'row' }, buttons),
  );
}

function question(one, answers) {
  const id = `question-${one.id}`;
  const label = h(
    'label',
    { for: id },
    one.message || one.title || one.id,
    one.required ? ' (required)' : '',
  );
  const given = answers?.[one.id]?.value?.value;
  const value = (kind, read) => () => {
    const text = read();
    if (text === '' || text == null || (Array.isArray(text) && !text.length && one.required))
      return undefined;
    return { state: 'submitted', value: { kind, value: text } };
  };
  if (one.kind === 'boolean') {
    const box = h('input', { id, type: 'checkbox' });
    box.checked = given ?? one.defaultValue ?? false;
    return [h('p', { class: 'choice' }, box, label), value('boolean', () => box.checked)];
  }
  if (one.kind === 'single-select' || one.kind === 'multi-select') {
    const many = one.kind === 'multi-select';
    const boxes = one.options.map((option) => {
      const box = h('input', {
        type: many ? 'checkbox' : 'radio',
        name: id,
        value: option.id,
        id: `${id}-${option.id}`,
      });
      box.checked =
        [given].flat().includes(option.id) || (given === undefined && option.recommended === true);
      const about = option.description ? `: ${option.description}` : '';
      return [box, h('p', { class: 'choice' }, box, h('label', { for: box.id }, option.label, about))];
    });
    const free = one.allowFreeformInput
      ? h('input', { 'aria-label': 'Other answer', placeholder: 'Other answer' })
      : undefined;
    const chosen = () => boxes.filter(([box]) => box.checked).map(([box]) => box.value);
    const read = () => {
      const freeformValues = free?.value ? { freeformValues: [free.value] } : {};
      const kind = many ? 'selected-many' : 'selected';
      const picked = many ? chosen() : (chosen()[0] ?? '');
      if (!free?.value && !picked.length) return undefined;
      return { state: 'submitted', value: { kind, value: picked, ...freeformValues } };
    };
    return [
      h(
        'fieldset',
        {},
        h('legend', {}, one.message || one.id),
        boxes.map(([, row]) => row),
        free,
      ),
      read,
    ];
  }
  const isNumber = one.kind === 'number' || one.kind === 'integer';
  const field = h('input', {
    id,
    type: isNumber ? 'number' : 'text',
    step: one.kind === 'integer' ? '1' : 'any',
  });
  field.value = given ?? one.defaultValue ?? '';
  const read = () => (isNumber ? (field.value === '' ? '' : Number(field.value)) : field.value);
  return [h('p', {}, label, field), value(isNumber ? 'number' : 'text', read)];
}

/** A question of the agent, as a form. */
function ask(request, chat) {
  const questions = (request.questions ?? []).map((one) => [one, ...question(one, request.answers)]);
  const complete = (response) => {
    const answers = {};
    if (response === 'accept') {
      for (const [one, , read] of questions) {
        const answer = read();
        if (answer) answers[one.id] = answer;
        else if (one.required) return notify(`${one.message || one.id} needs an answer`);
      }
    }
    chat.dispatch({
      type: 'chat/inputCompleted',
      requestId: request.id,
      response,
      ...(response === 'accept' && { answers }),
    });
  };
  return h(
    'form',
    {
      class: 'card ask',
      'aria-label': 'Question of the agent',
      onsubmit: (event) => {
        event.preventDefault();
        try {
          complete('accept');
        } catch (error) {
          notify(error.message);
        }
      },
    },
    h('h2', {}, request.message || 'The agent asks'),
    request.url &&
      h('p', {}, h('a', { href: safe(request.url), rel: 'noreferrer', target: '_blank' }, request.url)),
    questions.map(([, element]) => element),
    h(
      'div',
      { class: 'row' },
      h('button', { class: 'primary' }, 'Answer'),
      action('Decline', () => complete('decline')),
    ),
  );
}

/** A link that runs nothing. */
function safe(url) {
  return /^https?:/.test(url) ? url : '#';
}

function answered(part) {
  const shown = Object.entries(part.request.answers ?? {}).map(([id, answer]) => {
    const asked = part.request.questions?.find((one) => one.id === id)?.message ?? id;
    return `${asked}: ${[answer?.value?.value ?? ''].flat().join(', ')}`;
  });
  return h(
    'div',
    { class: 'card' },
    h('p', {}, part.request.message || 'The agent asked'),
    h(
      'p',
      { class: 'quiet' },
      part.response ? `${part.response}. ${shown.join('; ')}` : 'Ended without an answer',
    ),
  );
}

function toolCall(call, turn, chat) {
  const [word, kind] = STATES[call.status] ?? [call.status, ''];
  if (call.status === 'pending-confirmation' && chat) return approval(call, turn, chat);
  const failed = call.status === 'completed' && call.success === false;
  const input = inputText(call);
  const why = call.error?.message ?? words(call.reasonMessage);
  return h(
    'details',
    { class: 'card' },
    h(
      'summary',
      {},
      words(call.pastTenseMessage) || words(call.invocationMessage) || call.displayName,
      ' ',
      h('span', { class: `tag ${failed ? 'bad' : kind}` }, failed ? 'failed' : word),
    ),
    h('p', { class: 'quiet small' }, call.toolName),
    input && h('p', { class: 'quiet small' }, 'Input'),
    input && h('pre', { tabindex: '0' }, input),
    why && h('p', { class: 'bad' }, why),
    results(call),
  );
}

/** What decides how a part looks, beside text that grows. */
function look(part) {
  if (part.kind === 'toolCall') {
    const { status, content, toolInput, partialInput, pastTenseMessage, invocationMessage } = part.toolCall;
    return JSON.stringify([status, content, toolInput, partialInput, pastTenseMessage, invocationMessage]);
  }
  if (part.kind === 'inputRequest') return JSON.stringify([part.response, part.request.id]);
  return part.kind;
}

function makePart(part, turn, chat) {
  switch (part.kind) {
    case 'markdown': {
      const growing = new Growing();
      return Object.assign(growing.element, { growing });
    }
    case 'reasoning': {
      const growing = new Growing();
      const element = h('details', { class: 'card quiet' }, h('summary', {}, 'Reasoning'), growing.element);
      return Object.assign(element, { growing });
    }
    case 'toolCall':
      return toolCall(part.toolCall, turn, chat);
    case 'inputRequest':
      return part.response || !chat ? answered(part) : ask(part.request, chat);
    case 'error':
      return h('p', { class: 'card bad' }, part.error?.message ?? 'The turn failed');
    case 'contentRef':
      return h('p', {}, h('code', {}, part.uri));
    default:
      return h('p', { class: 'quiet' }, words(part.content));
  }
}

/** Turns as elements below `parent`. */
export class Turns {
  constructor(parent, chat) {
    this.parent = parent;
    this.chat = chat;
    this.active = undefined;
  }

  /** Draws all turns; of the active one what changed. Returns whether text remains for the next frame. */
  draw(state) {
    const turns = [...(state.turns ?? [])];
    if (state.activeTurn) turns.push(state.activeTurn);
    let remains = false;
    keyed(
      this.parent,
      turns,
      (turn) => turn.id,
      (turn) => this.make(turn),
      (element, turn) => {
        const ended = turn.state ?? '';
        if (ended && element.ended === ended) return;
        remains = this.update(element, turn) || remains;
        if (!remains) element.ended = ended;
      },
    );
    return remains;
  }

  make(turn) {
    const { message } = turn;
    const from = message.origin?.kind === 'user' ? 'You' : (message.origin?.kind ?? 'User');
    return h(
      'article',
      { class: 'turn', 'aria-label': `Turn of ${at(turn.startedAt)}` },
      h(
        'div',
        { class: 'mine' },
        h('span', { class: 'hidden' }, `${from}: `),
        h('div', { class: 'text' }, message.text),
      ),
      h('div'),
      h('p', { class: 'quiet small' }),
    );
  }

  update(element, turn) {
    const [, body, foot] = element.children;
    const chat = turn.state ? undefined : this.chat;
    let remains = false;
    const parts = turn.responseParts.map((part, nth) => ({
      part,
      nth,
      look: look(part) + Boolean(chat && part.kind !== 'markdown'),
    }));
    keyed(
      body,
      parts,
      ({ nth, look: looks }) => nth + looks,
      ({ part }) => makePart(part, turn, chat),
      (made, { part }) => {
        if (made.growing) remains = made.growing.grow(part.content ?? '') || remains;
      },
    );
    const usage = turn.usage
      ? `, ${count(turn.usage.inputTokens)} in, ${count(turn.usage.outputTokens)} out`
      : '';
    const word = { complete: 'Done', cancelled: 'Cancelled', error: 'Failed' }[turn.state];
    write(foot, word ? `${word} in ${duration(turn.duration)}${usage}` : 'Running');
    return remains;
  }
}
