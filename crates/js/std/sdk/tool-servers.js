// Tools served over HTTP to an agent that speaks MCP: one endpoint per session, with a path and a token of its own.

import native from 'native/globals';

// Loaded by the first endpoint: who imports the SDK for something else pays for no cryptography.
const crypto = () => native.load('node:crypto');

const REVISION = '2025-06-18';
const PREFIX = '/ahp-mcp';
const CHANGED = { jsonrpc: '2.0', method: 'notifications/tools/list_changed' };

const refuse = (status, message, headers) => Response.json({ message }, { status, headers });

function bears(request, token) {
  const [scheme, given = ''] = (request.headers.get('authorization') ?? '').split(' ');
  const [a, b] = [Buffer.from(given), Buffer.from(token)];
  return scheme.toLowerCase() === 'bearer' && a.length === b.length && crypto().timingSafeEqual(a, b);
}

/** What a tool answered, as the content of a result. */
function content(answer) {
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer) ?? '';
  return [{ type: 'text', text }];
}

/** What a client's tool came to: a result of the protocol says itself whether it succeeded. */
function ofClient(answer) {
  const isResult = typeof answer?.success === 'boolean' && answer.pastTenseMessage !== undefined;
  if (!isResult) return { content: content(answer), isError: false };
  if (!answer.success) return { content: content(answer.error?.message ?? answer.pastTenseMessage), isError: true };
  const texts = (answer.content ?? []).filter(({ type }) => type === 'text');
  return { content: texts.length > 0 ? texts : content(answer.pastTenseMessage), isError: false };
}

class Endpoint {
  /** The one stream; the next one takes its place. */
  streaming = undefined;
  token = crypto().randomBytes(32).toString('base64url');

  constructor(about, options) {
    this.about = about;
    this.options = options;
  }

  async tools() {
    const tools = await this.options.tools();
    return tools.map(({ definition, run }) => ({ definition, run }));
  }

  async call(params) {
    const { name, arguments: input = {} } = params ?? {};
    const tool = (await this.tools()).find(({ definition }) => definition.name === name);
    if (!tool) return { error: { code: -32602, message: `there is no tool ${name}` } };
    const { runClient } = this.options;
    try {
      if (!tool.run && !runClient) throw new Error(`${name} is run by a client, and nobody asks one`);
      if (!tool.run) return { result: ofClient(await runClient(name, input)) };
      return { result: { content: content(await tool.run(input)), isError: false } };
    } catch (error) {
      return { result: { content: content(error?.message ?? String(error)), isError: true } };
    }
  }

  async answer(method, params) {
    switch (method) {
      case 'initialize':
        return {
          result: {
            protocolVersion: REVISION,
            capabilities: { tools: { listChanged: this.options.toolsChanged === 'notify' } },
            serverInfo: { name: this.about.name, version: this.about.version },
          },
        };
      case 'tools/list':
        return {
          result: {
            tools: (await this.tools()).map(({ definition: { name, title, description, inputSchema } }) => ({
              name, title, description, inputSchema: inputSchema ?? { type: 'object' },
            })),
          },
        };
      case 'tools/call':
        return this.call(params);
      default:
        return { error: { code: -32601, message: `${method} is not served here` } };
    }
  }

  stream() {
    if (this.options.toolsChanged !== 'notify') return refuse(405, 'this endpoint has no stream', { allow: 'POST' });
    this.end();
    let mine;
    const body = new ReadableStream({
      start: (controller) => {
        mine = controller;
        this.streaming = controller;
      },
      cancel: () => {
        if (this.streaming === mine) this.streaming = undefined;
      },
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' } });
  }

  async post(request) {
    let message;
    try {
      message = JSON.parse(await request.text());
    } catch {
      message = undefined;
    }
    const isOne = typeof message === 'object' && message !== null && !Array.isArray(message);
    const answers = isOne && message.id !== undefined && message.method === undefined && ('result' in message || 'error' in message);
    if (answers && message.jsonrpc === '2.0') return new Response(null, { status: 202 });
    if (!isOne || message.jsonrpc !== '2.0' || typeof message.method !== 'string') {
      return refuse(400, 'the body must be one JSON-RPC message');
    }
    const { id, method, params } = message;
    if (id === undefined) return new Response(null, { status: 202 });
    return Response.json({ jsonrpc: '2.0', id, ...(await this.answer(method, params)) });
  }

  changed() {
    const event = new TextEncoder().encode(`event: message\ndata: ${JSON.stringify(CHANGED)}\n\n`);
    this.streaming?.enqueue(event);
  }

  end() {
    this.streaming?.close();
    this.streaming = undefined;
  }
}

/**
 * Endpoints that serve tools over MCP. `open` makes one, `request` answers the requests under `/ahp-mcp` and
 * `undefined` for every other.
 */
export function toolServers({ origin, name, version }) {
  const open = new Map();
  return {
    open(options) {
      const at = typeof origin === 'function' ? origin() : origin;
      if (at === undefined || at === null) return undefined;
      const id = crypto().randomUUID();
      const endpoint = new Endpoint({ name, version }, options);
      open.set(id, endpoint);
      return {
        url: `${String(at).replace(/\/+$/, '')}${PREFIX}/${id}`,
        token: endpoint.token,
        changed: () => endpoint.changed(),
        close: () => {
          if (open.delete(id)) endpoint.end();
        },
      };
    },
    async request(request) {
      const { pathname } = new URL(request.url);
      if (pathname !== PREFIX && !pathname.startsWith(`${PREFIX}/`)) return undefined;
      const endpoint = open.get(pathname.slice(PREFIX.length + 1));
      if (!endpoint) return refuse(404, `No tools at ${pathname}`);
      if (!bears(request, endpoint.token)) return refuse(401, 'this endpoint needs its token as bearer');
      if (request.method === 'GET') return endpoint.stream();
      if (request.method !== 'POST') return refuse(405, `${request.method} is not served here`, { allow: 'GET, POST' });
      return endpoint.post(request);
    },
  };
}
