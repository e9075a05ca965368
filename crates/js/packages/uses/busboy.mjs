import busboy from 'busboy';
import { createServer } from 'node:http';
import { once } from 'node:events';
export default async () => {
  const seen = [];
  const server = createServer((request, response) => {
    const parser = busboy({ headers: request.headers });
    parser.on('field', (name, value) => seen.push([name, value]));
    parser.on('file', async (name, file, info) => { let all = ''; for await (const part of file) all += part; seen.push([name, all, info.filename, info.mimeType]); });
    parser.on('close', () => setTimeout(() => response.end('done'), 5));
    request.pipe(parser);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const form = new FormData();
  form.set('field', 'value');
  form.set('file', new File(['content'], 'a.txt', { type: 'text/plain' }));
  const text = await (await fetch(`http://127.0.0.1:${server.address().port}/`, { method: 'POST', body: form })).text();
  server.close();
  return [text, seen];
};
