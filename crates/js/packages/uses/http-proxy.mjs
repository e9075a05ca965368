import httpProxy from 'http-proxy';
import http from 'node:http';
import { WebSocketServer, WebSocket as WS } from 'ws';
const serve = (h) =>
  new Promise((r) => {
    const s = http.createServer(h).listen(0, '127.0.0.1', () => r(s));
  });
export default async () => {
  const back = await serve((q, a) => {
    let b = '';
    q.on('data', (d) => (b += d)).on('end', () =>
      a.end(`${q.method} ${q.url} ${q.headers['x-forwarded-for'] ? 'fwd' : ''} ${b}`),
    );
  });
  const wss = new WebSocketServer({ server: back });
  wss.on('connection', (c) => c.on('message', (m) => c.send(`echo ${m}`)));
  const proxy = httpProxy.createProxyServer({
    target: `http://127.0.0.1:${back.address().port}`,
    xfwd: true,
  });
  const front = await serve((q, a) => proxy.web(q, a));
  front.on('upgrade', (q, sock, head) => proxy.ws(q, sock, head));
  const url = `127.0.0.1:${front.address().port}`;
  const one = await (await fetch(`http://${url}/p?q=1`, { method: 'POST', body: 'body' })).text();
  const ws = await new Promise((res, rej) => {
    const c = new WS(`ws://${url}/ws`);
    c.on('open', () => c.send('hi'))
      .on('message', (m) => {
        res(String(m));
        c.close();
      })
      .on('error', rej);
  });
  for (const s of [front, back]) {
    s.close();
    s.closeAllConnections();
  }
  wss.close();
  return [one, ws];
};
