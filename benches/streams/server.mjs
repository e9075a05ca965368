// Sends 100 MB at /bytes, and any other path as text. Its argument is the port.

import http from 'node:http';

const block = Buffer.alloc(65_536, 'x');

const server = http.createServer((request, response) => {
  if (request.url !== '/bytes') {
    response.end(request.url);
    return;
  }
  let left = 1600;
  const send = () => {
    while (left > 0) {
      left -= 1;
      if (!response.write(block)) {
        response.once('drain', send);
        return;
      }
    }
    response.end();
  };
  send();
});
server.listen(Number(process.argv[2]), '127.0.0.1', 2048);
