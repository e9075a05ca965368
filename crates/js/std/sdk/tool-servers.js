// Tools served over HTTP to an agent that speaks MCP: one endpoint per session, with a path and a token of its own.

import native from 'native/globals';

// Loaded at the first use: who imports the SDK for something else pays for neither.
const crypto = () => native.load('node:crypto');
/** The words of the daemon's own endpoints. */
const words = () => native.load('native/sdk').default.toolsEndpoint;

const refuse = (status, message, headers) => Response.json({ message }, { status, headers });

function bears(request, token) {
  const [scheme, given = ''] = (request.headers.get('authorization') ?? '').split(' ');
  const [a, b] = [Buffer.from(given), Buffer.from(token)];
  return scheme.toLowerCase() === 'bearer' && a.length === b.length && crypto().timingSafeEqual(a, b);
}

/** What a tool answered, as the content of a result. */
function content(answer) {
  const text = typeof answer === 'string' ? answer : (JSON.stringify(answer ?? undefined) ?? '');
  return [{ type: 'text', text }];
}

/** What a client's tool came to: a result of the protocol says itself whether it succeeded. */
function ofClient(answer) {
  const isResult = typeof answer?.success === 'boolean' && answer.pastTenseMessage !== undefined;
  if (!isResult) return { content: content(answer), isError: false };
  if (!answer.success)
    return { content: content(answer.error?.message ?? answer.pastTenseMessage), isError: true };
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
    const wrong = (message) => ({ error: { code: -32602, message } });
    if (typeof name !== 'string') return wrong(words().noName);
    const tool = (await this.tools()).find(({ definition }) => definition.name === name);
    if (!tool) return wrong(words().noTool(name));
    const { runClient } = this.options;
    try {
      if (!tool.run && !runClient) throw new Error(words().noClient(name));
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
            protocolVersion: words().revision,
            capabilities: { tools: { listChanged: this.options.toolsChanged === 'notify' } },
            serverInfo: { name: this.about.name, version: this.about.version },
          },
        };
      case 'tools/list':
        return {
          result: {
            tools: (await this.tools()).map(({ definition: { name, title, description, inputSchema } }) => ({
              name,
              title,
              description,
              inputSchema: inputSchema ?? { type: 'object' },
            })),
          },
        };
      case 'tools/call':
        return this.call(params);
      default:
        return { error: { code: -32601, message: words().noMethod(method) } };
    }
  }

  stream() {
    if (this.options.toolsChanged !== 'notify') return refuse(405, words().noStream, { allow: 'POST' });
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
    return new Response(body, {
      headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' },
    });
  }

  async post(request) {
    let message;
    try {
      message = JSON.parse(await request.text());
    } catch {
      message = undefined;
    }
    const isOne = typeof message === 'object' && message !== null && !Array.isArray(message);
    const answers =
      isOne &&
      message.id !== undefined &&
      message.method === undefined &&
      ('result' in message || 'error' in message);
    if (answers && message.jsonrpc === '2.0') return new Response(null, { status: 202 });
    if (!isOne || message.jsonrpc !== '2.0' || typeof message.method !== 'string') {
      return refuse(400, words().notOneMessage);
    }
    const { id, method, params } = message;
    if (id === undefined) return new Response(null, { status: 202 });
    return Response.json({ jsonrpc: '2.0', id, ...(await this.answer(method, params)) });
  }

  changed() {
    this.streaming?.enqueue(new TextEncoder().encode(words().changed));
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
        url: `${String(at).replace(/\/+$/, '')}${words().prefix}/${id}`,
        token: endpoint.token,
        changed: () => endpoint.changed(),
        close: () => {
          if (open.delete(id)) endpoint.end();
        },
      };
    },
    async request(request) {
      const { pathname } = new URL(request.url);
      const { prefix } = words();
      if (pathname !== prefix && !pathname.startsWith(`${prefix}/`)) return undefined;
      const endpoint = open.get(pathname.slice(prefix.length + 1));
      if (!endpoint) return refuse(404, words().noEndpoint(pathname));
      if (!bears(request, endpoint.token)) return refuse(401, words().notItsToken);
      if (request.method === 'GET') return endpoint.stream();
      if (request.method !== 'POST')
        return refuse(405, words().noMethod(request.method), { allow: 'GET, POST' });
      return endpoint.post(request);
    },
  };
}
