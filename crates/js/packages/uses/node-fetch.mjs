import fetch, { FormData, Headers } from 'node-fetch';
export default async () => {
  const { http } = globalThis.servers;
  const get = await (await fetch(`${http}/json?a=1`, { headers: new Headers({ accept: 'x/y' }) })).json();
  const post = await (await fetch(`${http}/json`, { method: 'POST', body: JSON.stringify({ b: 2 }) })).json();
  const redirected = await fetch(`${http}/redirect`);
  const form = new FormData();
  form.set('field', 'field value');
  const sent = await (await fetch(`${http}/form`, { method: 'POST', body: form })).json();
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 20);
  const aborted = await fetch(`${http}/slow`, { signal: stop.signal }).catch((error) => error.name);
  const refused = await fetch('http://127.0.0.1:1/').catch((error) => [error.name, error.code]);
  return [get.query, get.accept, post.body, redirected.url.replace(http, ''), redirected.redirected, sent, aborted, refused, await (await fetch(`${http}/gzip`)).json()];
};
