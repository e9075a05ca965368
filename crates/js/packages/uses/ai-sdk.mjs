import { generateText, streamText, tool, stepCountIs, cosineSimilarity } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { z } from 'zod';
import http from 'node:http';
const serve = (h) =>
  new Promise((r) => {
    const s = http.createServer(h).listen(0, '127.0.0.1', () => r(s));
  });
export default async () => {
  let calls = 0;
  const s = await serve((q, a) => {
    let b = '';
    q.on('data', (d) => (b += d)).on('end', () => {
      const body = JSON.parse(b);
      calls++;
      if (body.stream) {
        a.writeHead(200, { 'content-type': 'text/event-stream' });
        for (const c of ['hel', 'lo'])
          a.write(
            `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta: { role: 'assistant', content: c }, finish_reason: null }] })}\n\n`,
          );
        a.write(
          `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } })}\n\n`,
        );
        a.end('data: [DONE]\n\n');
        return;
      }
      a.setHeader('content-type', 'application/json');
      const msg =
        calls === 1
          ? {
              role: 'assistant',
              content: null,
              tool_calls: [
                { id: 't', type: 'function', function: { name: 'add', arguments: '{"a":1,"b":2}' } },
              ],
            }
          : { role: 'assistant', content: 'three' };
      a.end(
        JSON.stringify({
          id: 'c',
          object: 'chat.completion',
          created: 1,
          model: 'm',
          choices: [{ index: 0, message: msg, finish_reason: calls === 1 ? 'tool_calls' : 'stop' }],
          usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
        }),
      );
    });
  });
  const openai = createOpenAI({ apiKey: 'k', baseURL: `http://127.0.0.1:${s.address().port}/v1` });
  const r = await generateText({
    model: openai.chat('m'),
    prompt: 'x',
    stopWhen: stepCountIs(3),
    tools: {
      add: tool({
        inputSchema: z.object({ a: z.number(), b: z.number() }),
        execute: async ({ a, b }) => a + b,
      }),
    },
  });
  const st = streamText({ model: openai.chat('m'), prompt: 'y' });
  const parts = [];
  for await (const p of st.textStream) parts.push(p);
  s.close();
  s.closeAllConnections();
  return [
    r.text,
    r.steps.length,
    r.steps[0].toolResults[0].output,
    parts,
    (await st.usage).totalTokens,
    cosineSimilarity([1, 0], [1, 1]).toFixed(4),
  ];
};
