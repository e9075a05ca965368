// A synthetic floor: an HTTP server that does the least a webhook endpoint could do. It compares the bearer token,
// and only then reads the body and parses it as JSON. It looks up no endpoint, reads no vault and fires nothing.

'use strict';

const { timingSafeEqual } = require('node:crypto');
const http = require('node:http');

const expected = Buffer.from(`Bearer ${process.argv[2]}`);

function isAdmitted(request) {
  const given = Buffer.from(request.headers.authorization ?? '');
  return given.length === expected.length && timingSafeEqual(given, expected);
}

function reply(response, status, body) {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

const server = http.createServer((request, response) => {
  if (!isAdmitted(request)) {
    reply(response, 401, { message: 'A token is needed' });
    return;
  }
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    JSON.parse(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
    reply(response, 202, { endpoint: 'bench' });
  });
});

server.listen(0, '127.0.0.1', () => console.log(`floor on http://127.0.0.1:${server.address().port}`));
