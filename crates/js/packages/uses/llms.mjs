import Groq from 'groq-sdk';
import { Mistral } from '@mistralai/mistralai';
import { CohereClient } from 'cohere-ai';
import Replicate from 'replicate';
import { InferenceClient } from '@huggingface/inference';
import { Ollama } from 'ollama';
import http from 'node:http';
export default async () => {
  const seen = [];
  const done = {
    id: 'c1',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hello there' } }],
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
  };
  const s = await new Promise((r) => {
    const s = http
      .createServer((q, a) => {
        let b = '';
        q.on('data', (d) => (b += d)).on('end', () => {
          seen.push(q.url);
          const body = b ? JSON.parse(b) : {};
          a.setHeader('content-type', 'application/json');
          if (q.url.includes('/api/chat')) {
            a.setHeader('content-type', 'application/x-ndjson');
            a.write('{"message":{"content":"hel"},"done":false}\n');
            a.end('{"message":{"content":"lo"},"done":true}\n');
          } else if (body.stream) {
            a.setHeader('content-type', 'text/event-stream');
            for (const c of ['hel', 'lo'])
              a.write(
                `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta: { content: c }, finish_reason: null }] })}\n\n`,
              );
            a.end('data: [DONE]\n\n');
          } else if (q.url.includes('/predictions'))
            a.end(JSON.stringify({ id: 'p', status: 'succeeded', output: ['x'], urls: { get: 'http://x' } }));
          else if (q.url.includes('/chat') && !q.url.includes('completions'))
            a.end('{"text":"hello there","generation_id":"g"}');
          else a.end(JSON.stringify(done));
        });
      })
      .listen(0, '127.0.0.1', () => r(s));
  });
  const u = `http://127.0.0.1:${s.address().port}`;
  const out = [];
  const g = new Groq({ apiKey: 'k', baseURL: u });
  out.push(
    (await g.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'x' }] })).choices[0]
      .message.content,
  );
  let t = '';
  for await (const c of await g.chat.completions.create({ model: 'm', stream: true, messages: [] }))
    t += c.choices[0]?.delta?.content ?? '';
  out.push(t);
  const m = new Mistral({ apiKey: 'k', serverURL: u });
  out.push(
    (await m.chat.complete({ model: 'm', messages: [{ role: 'user', content: 'x' }] })).choices[0].message
      .content,
  );
  t = '';
  for await (const c of await m.chat.stream({ model: 'm', messages: [{ role: 'user', content: 'x' }] }))
    t += c.data.choices[0]?.delta?.content ?? '';
  out.push(t);
  out.push(
    await new CohereClient({ token: 't', environment: u }).chat({ message: 'x' }).then(
      (r) => r.text,
      (e) => e.message,
    ),
  );
  out.push(await new Replicate({ auth: 'x', baseUrl: u }).run('a/b:' + '0'.repeat(64), { input: { p: 1 } }));
  out.push(
    await new InferenceClient('hf_x', { endpointUrl: u + '/v1/chat/completions' })
      .chatCompletion({ model: 'm', messages: [{ role: 'user', content: 'x' }] })
      .then(
        (r) => r.choices[0].message.content,
        (e) => e.message,
      ),
  );
  t = '';
  for await (const c of await new Ollama({ host: u }).chat({ model: 'm', stream: true, messages: [] }))
    t += c.message.content;
  out.push(t);
  s.close();
  s.closeAllConnections();
  return [out, seen];
};
