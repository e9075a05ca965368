import { Storage } from '@google-cloud/storage';
import http from 'node:http';
export default async () => {
  const seen = [];
  const s = await new Promise((r) => {
    const s = http
      .createServer((q, a) => {
        const parts = [];
        q.on('data', (d) => parts.push(d)).on('end', () => {
          const body = Buffer.concat(parts).toString();
          seen.push([q.method, q.url.split('?')[0], body.includes('hello')]);
          a.setHeader('content-type', 'application/json');
          if (q.method === 'POST')
            a.end(
              JSON.stringify({
                name: 'a.txt',
                bucket: 'b',
                size: '5',
                crc32c: 'mnG7TA==',
                md5Hash: 'XUFAKrxLKna5cZ2REBfFkg==',
              }),
            );
          else if (q.url.includes('alt=media')) {
            a.setHeader('x-goog-hash', 'crc32c=mnG7TA==,md5=XUFAKrxLKna5cZ2REBfFkg==');
            a.end('hello');
          } else
            a.end(
              JSON.stringify({
                items: [{ name: 'a.txt', bucket: 'b' }],
                name: 'a.txt',
                bucket: 'b',
                size: '5',
              }),
            );
        });
      })
      .listen(0, '127.0.0.1', () => r(s));
  });
  const st = new Storage({
    apiEndpoint: `http://127.0.0.1:${s.address().port}`,
    projectId: 'p',
    useAuthWithCustomEndpoint: false,
  });
  const f = st.bucket('b').file('a.txt');
  await f.save('hello', { resumable: false });
  const [files] = await st.bucket('b').getFiles();
  const [data] = await f.download();
  const stream = [];
  for await (const c of f.createReadStream()) stream.push(c);
  s.close();
  s.closeAllConnections();
  return [files.map((f) => f.name), data.toString(), Buffer.concat(stream).toString(), seen];
};
