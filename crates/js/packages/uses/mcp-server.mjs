import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { z } from 'zod';
import http from 'node:http';
import crypto from 'node:crypto';
export default async () => {
  const make = () => {
    const m = new McpServer({ name: 's', version: '1' });
    m.registerTool(
      'add',
      { description: 'd', inputSchema: { a: z.number(), b: z.number() } },
      async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }),
    );
    m.registerResource('r', 'x://r', {}, async (u) => ({ contents: [{ uri: u.href, text: 'res' }] }));
    m.registerPrompt('p', { argsSchema: { n: z.string() } }, ({ n }) => ({
      messages: [{ role: 'user', content: { type: 'text', text: n } }],
    }));
    return m;
  };
  const t = new StreamableHTTPServerTransport({ sessionIdGenerator: () => crypto.randomUUID() });
  await make().connect(t);
  let sse;
  const s = await new Promise((r) => {
    const s = http
      .createServer(async (q, a) => {
        if (q.url === '/mcp') await t.handleRequest(q, a);
        else if (q.url === '/sse') {
          sse = new SSEServerTransport('/msg', a);
          await make().connect(sse);
        } else await sse.handlePostMessage(q, a);
      })
      .listen(0, '127.0.0.1', () => r(s));
  });
  const u = `http://127.0.0.1:${s.address().port}`;
  const out = [];
  for (const tr of [
    new StreamableHTTPClientTransport(new URL(`${u}/mcp`)),
    new SSEClientTransport(new URL(`${u}/sse`)),
  ]) {
    const c = new Client({ name: 'c', version: '1' });
    await c.connect(tr);
    out.push(
      (await c.listTools()).tools.map((x) => x.name),
      (await c.callTool({ name: 'add', arguments: { a: 1, b: 2 } })).content,
      (await c.readResource({ uri: 'x://r' })).contents,
      (await c.getPrompt({ name: 'p', arguments: { n: 'q' } })).messages.length,
      await c.callTool({ name: 'add', arguments: { a: 'x' } }).then(
        (r) => r.isError,
        (e) => e.code,
      ),
    );
    await c.close();
  }
  s.close();
  s.closeAllConnections();
  return out;
};
