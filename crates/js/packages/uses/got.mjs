import got from 'got';
export default async () => {
  const { http } = globalThis.servers;
  const body = await got(`${http}/json?a=1`).json();
  const posted = await got.post(`${http}/json`, { json: { b: 2 } }).json();
  const redirected = await got(`${http}/redirect`).json();
  const zipped = await got(`${http}/gzip`).json();
  const failed = await got(`${http}/status?code=404`, { retry: { limit: 0 } }).catch((error) => [error.name, error.response?.statusCode]);
  const slow = await got(`${http}/slow`, { timeout: { request: 50 }, retry: { limit: 0 } }).catch((error) => [error.name, error.code]);
  let length = 0;
  for await (const part of got.stream(`${http}/bytes?n=300000`)) length += part.length;
  return [body.query, posted.body, posted.type, redirected.query, zipped, failed, slow, length];
};
