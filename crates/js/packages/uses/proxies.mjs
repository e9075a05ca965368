import http from 'node:http';
import net from 'node:net';
import { ProxyAgent } from 'proxy-agent';
import { SocksProxyAgent } from 'socks-proxy-agent';
const listening = (server) =>
  new Promise((done) => server.listen(0, '127.0.0.1', () => done(server.address().port)));
const get = (url, agent) =>
  new Promise((done, failed) => {
    http
      .get(url, { agent }, (response) => {
        let text = '';
        response.on('data', (part) => (text += part)).on('end', () => done(text));
      })
      .on('error', failed);
  });
export default async () => {
  const back = http.createServer((request, response) => response.end(`${request.method} ${request.url}`));
  const port = await listening(back);
  const socks = net.createServer((socket) => {
    socket.once('data', () => {
      socket.write(Buffer.from([5, 0]));
      socket.once('data', () => {
        const onward = net.connect(port, '127.0.0.1', () => {
          socket.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
          socket.pipe(onward).pipe(socket);
        });
        onward.on('error', () => socket.destroy());
        socket.on('error', () => onward.destroy());
      });
    });
  });
  const asked = [];
  const proxy = http.createServer((request, response) => {
    asked.push(request.url, request.headers['proxy-connection']);
    http.get(`http://127.0.0.1:${port}${new URL(request.url).pathname}`, (answer) => answer.pipe(response));
  });
  const through = `socks5h://127.0.0.1:${await listening(socks)}`;
  const by = `http://127.0.0.1:${await listening(proxy)}`;
  const said = [
    await get('http://far.test/s', new SocksProxyAgent(through)),
    await get('http://far.test/p', new ProxyAgent({ getProxyForUrl: () => by })),
    asked,
  ];
  socks.close();
  for (const server of [back, proxy]) {
    server.close();
    server.closeAllConnections();
  }
  return said;
};
