import { Client, APIErrorCode, isNotionClientError } from '@notionhq/client';
import http from 'node:http';
const serve = (h) =>
  new Promise((r) => {
    const s = http.createServer(h).listen(0, '127.0.0.1', () => r(s));
  });
export default async () => {
  const seen = [];
  const s = await serve((q, a) => {
    let b = '';
    q.on('data', (d) => (b += d)).on('end', () => {
      seen.push(q.method, q.url, q.headers.authorization, b);
      a.setHeader('content-type', 'application/json');
      if (q.url.includes('bad')) {
        a.statusCode = 404;
        a.end('{"object":"error","status":404,"code":"object_not_found","message":"no"}');
      } else a.end('{"object":"page","id":"p"}');
    });
  });
  const c = new Client({ auth: 't', baseUrl: `http://127.0.0.1:${s.address().port}`, logLevel: 'error' });
  const p = await c.pages.retrieve({ page_id: 'p' });
  const e = await c.pages
    .retrieve({ page_id: 'bad' })
    .catch((e) => [e.code === APIErrorCode.ObjectNotFound, isNotionClientError(e), e.status]);
  s.close();
  return [p, e, seen];
};
