/**
 * An ACP agent without a model, for the check of VS Code's UI.
 *
 * A prompt's lines are its orders:
 *
 *     write <file> <text>    writes a file below the session's directory
 *     ask <question>         asks for permission
 *     wait                   works until it is cancelled
 *
 * It answers with the number of prompts it has had, the prompt, and the name and length of each attached resource.
 */

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';

const sessions = new Map();
const waiting = new Map();
let lastId = 0;

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);

const update = (sessionId, body) => send({ method: 'session/update', params: { sessionId, update: body } });

/** Sends a request to the host. */
function request(method, params) {
  const id = ++lastId;
  send({ id, method, params });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function say(sessionId, text) {
  update(sessionId, { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } });
}

async function write(session, sessionId, toolCallId, file, text) {
  const target = path.resolve(session.cwd, file);
  const oldText = await readFile(target, 'utf8').catch(() => null);
  const newText = `${text}\n`;
  const content = [{ type: 'diff', path: target, oldText, newText }];
  const call = { toolCallId, title: `Write ${file}`, kind: 'edit', locations: [{ path: target }] };
  update(sessionId, { sessionUpdate: 'tool_call', status: 'in_progress', rawInput: { file, text }, ...call });
  await mkdir(path.dirname(target), { recursive: true });
  await writeFile(target, newText);
  update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status: 'completed', content });
}

async function ask(sessionId, toolCallId, question) {
  const toolCall = {
    toolCallId,
    title: question,
    kind: 'execute',
    status: 'pending',
    rawInput: { question },
  };
  update(sessionId, { sessionUpdate: 'tool_call', ...toolCall });
  const options = [
    { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
    { optionId: 'no', name: 'Deny', kind: 'reject_once' },
  ];
  const { outcome } = await request('session/request_permission', { sessionId, toolCall, options });
  const allowed = outcome.optionId === 'yes';
  const status = allowed ? 'completed' : 'failed';
  update(sessionId, { sessionUpdate: 'tool_call_update', toolCallId, status });
  say(sessionId, allowed ? 'Allowed. ' : 'Denied. ');
}

/** The name and the length of what a prompt part attaches; nothing for text. */
function attached(part) {
  if (part.type === 'resource') {
    return `${path.basename(part.resource.uri)} (${part.resource.text?.length ?? 0} characters)`;
  }
  return part.type === 'text' ? undefined : (part.name ?? part.uri ?? part.type);
}

const methods = {
  initialize: () => ({
    protocolVersion: 1,
    agentInfo: { name: 'script', title: 'Script', version: '1.0.0' },
    agentCapabilities: { promptCapabilities: { embeddedContext: true, image: true } },
    authMethods: [],
  }),

  'session/new': ({ cwd }) => {
    const sessionId = `script-${process.pid}-${sessions.size + 1}`;
    sessions.set(sessionId, { cwd, prompts: 0 });
    return { sessionId };
  },

  'session/prompt': async ({ sessionId, prompt }) => {
    const session = sessions.get(sessionId);
    session.prompts += 1;
    const text = prompt
      .filter((part) => part.type === 'text')
      .map((part) => part.text)
      .join('\n');
    let calls = 0;
    for (const line of text.split('\n')) {
      const toolCallId = `${sessionId}-${session.prompts}-${++calls}`;
      const [, order, rest] = /^(write|ask|wait)\b ?(.*)$/.exec(line.trim()) ?? [];
      if (order === 'write') {
        const [, file, content] = /^(\S+) ?(.*)$/.exec(rest);
        await write(session, sessionId, toolCallId, file, content);
      } else if (order === 'ask') {
        await ask(sessionId, toolCallId, rest);
      } else if (order === 'wait') {
        await new Promise((resolve) => {
          session.cancel = resolve;
        });
        return { stopReason: 'cancelled' };
      }
    }
    const names = prompt.map(attached).filter(Boolean);
    say(sessionId, `Prompt ${session.prompts}: ${text.trim()}`);
    if (names.length > 0) {
      say(sessionId, `\n\nAttached: ${names.join(', ')}`);
    }
    return { stopReason: 'end_turn' };
  },

  'session/cancel': ({ sessionId }) => sessions.get(sessionId)?.cancel?.(),
};

async function receive({ id, method, params, result, error }) {
  if (method === undefined) {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    return error ? reject(new Error(error.message)) : resolve(result);
  }
  const handle = methods[method];
  if (!handle) {
    return id === undefined || send({ id, error: { code: -32601, message: `unknown method ${method}` } });
  }
  try {
    const answer = await handle(params ?? {});
    return id === undefined || send({ id, result: answer ?? null });
  } catch (failure) {
    return id === undefined || send({ id, error: { code: -32603, message: String(failure) } });
  }
}

createInterface({ input: process.stdin }).on('line', (line) => receive(JSON.parse(line)));
