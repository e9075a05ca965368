import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { z } from 'zod';
export default async () => {
  const server = new McpServer({ name: 's', version: '1' });
  server.registerTool('add', { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => ({ content: [{ type: 'text', text: `${a + b}` }] }));
  const [one, other] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: 'c', version: '1' });
  await Promise.all([server.connect(one), client.connect(other)]);
  const tools = await client.listTools();
  const sum = await client.callTool({ name: 'add', arguments: { a: 1, b: 2 } });
  await client.close();
  return [tools.tools.map(({ name, inputSchema }) => [name, inputSchema.properties]), sum.content];
};
