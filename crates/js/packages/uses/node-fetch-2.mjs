import fetch from 'node-fetch-2';
export default async () => {
  const u = globalThis.servers.http;
  const r = await fetch(`${u}/gzip`);
  const s = await fetch(`${u}/stream`);
  let t = '';
  for await (const c of s.body) t += c;
  return [await r.json(), t];
};
